"""Odds of exactly 0 and 1, which are decided by what is possible: sums of decimals come out beside them.

Takes a complete `Chain`, gives whether an end is possible, and whether it is sure, whoever chooses.
"""

from collections.abc import Container, Iterable, Iterator

from dsa.checks.odds.chain import Chain


def rounded(number: float, digits: int) -> str:
    """Write a number with so many digits, and odds below 1 with as many as they need not to be written as 1."""
    for more in range(digits, 18):
        text = f"{number:.{more}g}"
        if text != "1" or number == 1:
            return text
    return f"{number!r}"


def is_possible(chain: Chain, goals: frozenset[int]) -> bool:
    """Return whether a run may come to a goal, however small the odds are."""
    return 0 in _coming(chain, goals, ())


def is_sure(chain: Chain, goals: frozenset[int]) -> bool:
    """Return whether a run comes to a goal with probability 1, whoever chooses."""
    forced = set(goals)  # where no choice avoids the goals for ever
    before = _before(chain)
    todo = [*goals]
    while todo:
        for node in before.get(todo.pop(), ()):
            if node not in forced and _must_come(chain, node, forced):
                forced.add(node)
                todo.append(node)
    avoiding = frozenset(range(len(chain.choices))) - forced
    return 0 not in _coming(chain, avoiding, goals)


def _must_come(chain: Chain, node: int, forced: Container[int]) -> bool:
    """Return whether each choice at a node may lead to one of these."""
    return all(any(chance > 0 and target in forced for chance, target, _ in choice) for choice in chain.choices[node])


def _before(chain: Chain) -> dict[int, list[int]]:
    """Return the nodes from which each may be next."""
    found: dict[int, list[int]] = {}
    for node, edge in chain.edges():
        if edge[0] > 0:
            found.setdefault(edge[1], []).append(node)
    return found


def _coming(chain: Chain, wanted: Iterable[int], without: Iterable[int]) -> frozenset[int]:
    """Return the nodes from which a wanted one may be reached through none of the others."""
    before, avoided = _before(chain), {*without}
    found = {*wanted} - avoided
    todo = [*found]

    def more(node: int) -> Iterator[int]:
        return (one for one in before.get(node, ()) if one not in found and one not in avoided)

    while todo:
        for node in {*more(todo.pop())}:
            found.add(node)
            todo.append(node)
    return frozenset(found)
