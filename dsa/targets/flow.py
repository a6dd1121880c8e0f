"""How a picture reads from top to bottom: which arrows lead back up, and the innermost frame around each arrow.

Takes a picture, gives one frozen value for each arrow; knows no syntax. For notations that put a row's text between two
halves of its arrow: left to break cycles itself, a renderer would turn one half and leave the text outside both ends.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from dsa.targets.picture import Box, Frame, Picture

#: For each box, by its source: what can come next, and along which arrow (its index); None where no arrow is drawn.
_Leaving = Mapping[str, Sequence[tuple[str, int | None]]]


@attrs.frozen
class Course:
    """Where an arrow runs: `frame` is the innermost frame around both ends, `leads_back` whether it closes a cycle."""

    frame: str
    leads_back: bool


def courses(drawn: Picture) -> tuple[Course, ...]:
    """Give the course of each arrow of a picture, in the picture's order.

    Without the arrows that lead back no cycle is left. They are found depth first, from where the run begins and in
    table order; a frame's own rows count as leaving each of its states.
    """
    around = dict(_around(drawn.frame, ()))
    closing = _closing(_entered(drawn.frame.name, around), _leaving(drawn, around))
    return tuple(
        Course(_shared(around[arrow.source], around[arrow.target]), index in closing)
        for index, arrow in enumerate(drawn.arrows)
    )


def _around(frame: Frame, outer: tuple[Frame, ...]) -> Iterator[tuple[str, tuple[Frame, ...]]]:
    """Give the frames around each box and, for a frame's name, around the dot at which it is entered."""
    frames = (*outer, frame)
    yield frame.name, frames
    for item in frame.inside:
        if isinstance(item, Box):
            yield item.source, frames
        else:
            yield from _around(item, frames)


def _shared(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> str:
    """Give the innermost frame that is in both, by name; the outermost always is."""
    return [left.name for left, right in zip(one, other, strict=False) if left.name == right.name][-1]


def _entered(target: str, around: Mapping[str, tuple[Frame, ...]]) -> str:
    """Give the state that is entered: the target, or a parent's initial child."""
    frame = around[target][-1]
    return target if target != frame.name or frame.entry is None else _entered(frame.entry, around)


def _leaving(drawn: Picture, around: Mapping[str, tuple[Frame, ...]]) -> _Leaving:
    found: dict[str, list[tuple[str, int | None]]] = {}
    for index, arrow in enumerate(drawn.arrows):
        found.setdefault(arrow.source, []).append((_entered(arrow.target, around), index))
    for state, applying in _applying(drawn.frame, ()):
        found.setdefault(state, []).extend((source, None) for source in applying)
    return found


def _applying(frame: Frame, outer: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give each state that is not final, and the boxes whose rows apply in it too (S3), the innermost first."""
    boxes = [item for item in frame.inside if isinstance(item, Box)]
    applying = (*(box.source for box in boxes if box.stands_for_all), *outer)
    for item in frame.inside:
        if isinstance(item, Frame):
            yield from _applying(item, applying)
        elif not item.is_final and not item.stands_for_all:
            yield item.source, applying


def _closing(begin: str, leaving: _Leaving) -> frozenset[int]:
    """Give the arrows that end at something on the path that led to them, going depth first from `begin`."""
    closing, seen = set(), set[str]()
    for root in (begin, *leaving):
        path = {} if root in seen else {root: iter(leaving.get(root, ()))}  # in the order walked
        while path:
            box = next(reversed(path))
            seen.add(box)
            target, index = next(path[box], ("", None))
            if not target:
                del path[box]
            elif target in path and index is not None:
                closing.add(index)
            elif target not in seen:
                path[target] = iter(leaving.get(target, ()))
    return frozenset(closing)
