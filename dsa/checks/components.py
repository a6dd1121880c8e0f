"""What hangs together in a graph: strongly connected components (Tarjan, 1972), and what a set can be reached from.

Takes a `Graph` and marks on its positions. Graphs in arrays are left to SciPy where it is installed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from itertools import count

from dsa.checks.engines.edges import Graph, Numbers


def cycles(graph: Graph, marks: Numbers) -> Iterator[frozenset[int]]:
    """Give the components of the marked positions that one can go round in: several positions, or one with a step to itself."""
    if not isinstance(graph.numbers, list) and find_spec("scipy") is not None:
        return _cycles_in_arrays(graph, marks)
    return cycles_within(graph, frozenset(marked(marks)))


def marked(marks: Numbers) -> list[int]:
    """Give the positions that are marked."""
    if hasattr(marks, "nonzero"):
        found: list[int] = marks.nonzero()[0].tolist()
        return found
    return [position for position, is_marked in enumerate(marks) if is_marked]


def cycles_within(graph: Graph, nodes: Collection[int]) -> Iterator[frozenset[int]]:
    """Give the components of some positions that one can go round in. Raises LateError when the ground's time is over."""
    looks = graph.ground.timely(count())

    def following(node: int) -> Iterator[int]:
        next(looks)
        ahead = map(int, graph.targets[graph.offsets[node] : graph.offsets[node + 1]])
        return (target for target in ahead if target in nodes)

    for part in components(nodes, following):
        if len(part) > 1 or node_has_loop(graph, *part):
            yield frozenset(part)


def node_has_loop(graph: Graph, node: int) -> bool:
    """Tell whether a step leads from a position to itself."""
    return node in graph.targets[graph.offsets[node] : graph.offsets[node + 1]]


def _cycles_in_arrays(graph: Graph, marks: Numbers) -> Iterator[frozenset[int]]:
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    owed = np.asarray(marks)
    inside = owed[graph.sources] & owed[graph.targets]
    sources, targets = graph.sources[inside], graph.targets[inside]
    size = len(graph.numbers)
    steps = csr_matrix((np.ones(len(sources), dtype=np.int8), (sources, targets)), shape=(size, size))
    _, labels = connected_components(steps, directed=True, connection="strong")
    several = np.flatnonzero(np.bincount(labels) > 1)
    wanted = np.union1d(several, labels[sources[sources == targets]])
    order = np.argsort(labels, kind="stable")
    begins = np.searchsorted(labels[order], wanted)
    ends = np.searchsorted(labels[order], wanted, side="right")
    for begin, end in zip(begins, ends, strict=True):
        yield frozenset(order[begin:end].tolist())


def components(nodes: Iterable[int], following: Callable[[int], Iterable[int]]) -> Iterator[list[int]]:
    """Give the strongly connected components, each after all those that it leads to. `following` must stay within the nodes."""
    search = _Tarjan(following)
    for node in nodes:
        if node not in search.index:
            yield from search.run(node)


class _Tarjan:
    def __init__(self, following: Callable[[int], Iterable[int]]) -> None:
        self.index: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._stacked: set[int] = set()
        self._following = following

    def run(self, root: int) -> Iterator[list[int]]:
        """Give the components reachable from a node that was not visited yet."""
        calls = [(root, self._enter(root))]
        while calls:
            node, rest = calls[-1]
            for target in rest:
                if target not in self.index:
                    calls.append((target, self._enter(target)))
                    break
                if target in self._stacked:
                    self._low[node] = min(self._low[node], self.index[target])
            else:
                calls.pop()
                if calls:
                    parent = calls[-1][0]
                    self._low[parent] = min(self._low[parent], self._low[node])
                if self._low[node] == self.index[node]:
                    yield self._leave(node)

    def _enter(self, node: int) -> Iterator[int]:
        self.index[node] = self._low[node] = len(self.index)
        self._stack.append(node)
        self._stacked.add(node)
        return iter(self._following(node))

    def _leave(self, node: int) -> list[int]:
        place = len(self._stack) - 1
        while self._stack[place] != node:
            place -= 1
        found = self._stack[place:]
        del self._stack[place:]
        self._stacked.difference_update(found)
        return found


def unable(graph: Graph, marks: Numbers) -> list[int]:
    """Give the positions from which no marked one can be reached, nearest to the start first."""
    if not isinstance(graph.numbers, list) and find_spec("scipy") is not None:
        return _unable_in_arrays(graph, marks)
    before: list[list[int]] = [[] for _ in graph.numbers]
    for source, target in zip(graph.sources, graph.targets, strict=True):
        before[target].append(int(source))
    able = bytearray(map(bool, marks))
    todo = marked(able)
    while todo:
        for position in before[todo.pop()]:
            if not able[position]:
                able[position] = 1
                todo.append(position)
    return [position for position, is_able in enumerate(able) if not is_able]


def _unable_in_arrays(graph: Graph, marks: Numbers) -> list[int]:
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    root = len(graph.numbers)  # one more position, from which every marked one can be reached
    first = np.flatnonzero(marks)
    starts = np.concatenate([graph.targets, np.full(len(first), root)])
    ends = np.concatenate([graph.sources, first])
    back = csr_matrix((np.ones(len(starts), dtype=np.int8), (starts, ends)), shape=(root + 1, root + 1))
    able = np.zeros(root + 1, dtype=bool)
    able[breadth_first_order(back, root, return_predecessors=False)] = True
    found: list[int] = np.flatnonzero(~able).tolist()
    return found
