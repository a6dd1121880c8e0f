"""The order of a graph's strongly connected parts (Tarjan, 1972), without recursion."""

from collections.abc import Iterable, Iterator, Mapping, Sequence


def parts(nodes: Iterable[int], following: Mapping[int, Sequence[int]]) -> Iterator[frozenset[int]]:
    """Give the strongly connected parts, each after all that can follow it; what is no node is not looked at."""
    listed = tuple(nodes)
    known = frozenset(listed)
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    stacked: set[int] = set()
    for root in listed:
        calls = [] if root in number else [(root, iter(following.get(root, ())))]
        while calls:
            node, rest = calls[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                stack.append(node)
                stacked.add(node)
            deeper = next((to for to in rest if to in known and (to not in number or to in stacked)), None)
            if deeper is None:
                calls.pop()
                if calls:
                    before = calls[-1][0]
                    lowest[before] = min(lowest[before], lowest[node])
                if lowest[node] == number[node]:
                    part = {stack.pop()}
                    while node not in part:
                        part.add(stack.pop())
                    stacked -= part
                    yield frozenset(part)
            elif deeper in number:
                lowest[node] = min(lowest[node], number[deeper])
            else:
                calls.append((deeper, iter(following.get(deeper, ()))))
