"""Which transitions two machines have otherwise: rows compared by what they mean, not by how or where they are written.

Takes two machines, gives `Change` values with the lines of both documents. A condition or an update is the same when it is after constants are
folded and operands sorted; a target, when the same leaf is entered. Whether other rows come to the same is not asked here: that is for `dsa.checks.differ`.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from dsa.checks.differ_declared import Change, Detail, canonical, declared_changes, line_at
from dsa.declarations import STAY, Assign, Transition
from dsa.durations import spelled_like
from dsa.expr import guards_read
from dsa.machine import Machine
from dsa.tables import transition_cells

#: What a row says, column by column, equal when it means the same.
_Meaning = tuple[object, ...]
_COLUMNS = ("source", "event", "if", "update", "effects", "target")
_PLACE = slice(0, 2)
_DOES = slice(2, None)


class _Row:
    """A row with what it means."""

    def __init__(self, machine: Machine, row: Transition) -> None:
        self.row = row
        # at most one of each variable, so that nothing else is compared
        updates = sorted((u.variable, canonical(u.value) if isinstance(u, Assign) else None) for u in row.updates)
        self.meaning: _Meaning = (
            row.source,
            ("after", row.duration_ms) if row.is_timer else row.event,
            # S2: which guards are asked is said by those that stand there, also where their verdict decides nothing
            (row.is_else, canonical(row.condition), guards_read(row.condition)),
            tuple(updates),
            row.effects,
            row.target if row.target == STAY else machine.entered(row.target),
        )

    def alike(self, other: "_Row") -> int:
        """Count the columns that mean the same."""
        return sum(mine == theirs for mine, theirs in zip(self.meaning, other.meaning, strict=True))


_Match = Callable[[_Row, _Row], bool]


def changes(old: Machine, new: Machine) -> tuple[Change, ...]:
    """Give every change from one machine to another, transitions first."""
    new = spelled_like(new, old)
    return (*_row_changes(old, new), *declared_changes(old, new))


def same_control(found: tuple[Change, ...]) -> bool:
    """Tell whether no change is one of control: then both machines do the same, whatever the parameters' values."""
    return all(change.aspect != "control" for change in found)


def _row_changes(old: Machine, new: Machine) -> Iterator[Change]:
    mine, theirs = ([_Row(machine, row) for row in machine.transitions] for machine in (old, new))
    left, added = _without_same(mine, theirs), _without_same(theirs, mine)
    matched: list[tuple[_Row, _Row]] = []
    for match in (_same_place, _moved):
        matched += _paired(left, added, match)
    yield from (_changed(one, other) for one, other in sorted(matched, key=lambda pair: line_at(pair[0].row.span) or 0))
    for row in (each.row for each in left):
        yield Change("control", "transition", "removed", str(row), line_at(row.span), None, _cells(row, None))
    for row in (each.row for each in added):
        yield Change("control", "transition", "added", str(row), None, line_at(row.span), _cells(None, row))


def _without_same(ones: list[_Row], others: list[_Row]) -> list[_Row]:
    """Leave out the rows that the other machine has too, each as often as it has it."""
    counts, left = Counter(row.meaning for row in others), []
    for row in ones:
        counts[row.meaning] -= 1
        if counts[row.meaning] < 0:
            left.append(row)
    return left


def _same_place(one: _Row, other: _Row) -> bool:
    return one.meaning[_PLACE] == other.meaning[_PLACE]


def _moved(one: _Row, other: _Row) -> bool:
    """Tell whether a row does the same for another source or another event."""
    return one.meaning[_DOES] == other.meaning[_DOES] and one.alike(other) == len(_COLUMNS) - 1


def _paired(left: list[_Row], added: list[_Row], match: _Match) -> Iterator[tuple[_Row, _Row]]:
    """Take the pairs that match out of both lists, those that have most in common first."""
    pairs = [(one, other) for one in left for other in added if match(one, other)]
    for one, other in sorted(pairs, key=lambda pair: -pair[0].alike(pair[1])):
        if one in left and other in added:
            left.remove(one)
            added.remove(other)
            yield one, other


def _changed(one: _Row, other: _Row) -> Change:
    details = _cells(one.row, other.row)
    pairs = zip(_COLUMNS, one.meaning, other.meaning, strict=True)
    meant = {column for column, mine, theirs in pairs if mine != theirs}
    told = tuple(detail for detail in details if detail.field in meant)
    if "target" in meant - {detail.field for detail in told}:  # the same parent enters another child
        told = (*told, Detail("target", str(one.meaning[-1]), str(other.meaning[-1])))
    old_line, new_line = line_at(one.row.span), line_at(other.row.span)
    return Change("control", "transition", "changed", str(one.row), old_line, new_line, told)


def _cells(old: Transition | None, new: Transition | None) -> tuple[Detail, ...]:
    """Give the cells that are written otherwise; of a row that only one document has, those that its name does not tell."""
    mine, theirs = (transition_cells(row) if row else {} for row in (old, new))
    columns = _COLUMNS if old and new else ("if", "update", "effects")
    pairs = ((column, mine.get(column, ""), theirs.get(column, "")) for column in columns)
    return tuple(Detail(*pair) for pair in pairs if pair[1] != pair[2])
