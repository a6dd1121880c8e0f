"""Strongly connected components come after all that can follow them."""

from hypothesis import given
from hypothesis import strategies as st

from dsa.checks.search.state_graph import components

GRAPHS = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), max_size=8)


def reached(graph: dict[int, list[int]], start: int) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        for to in graph.get(todo.pop(), ()):
            if to in graph and to not in seen:
                seen.add(to)
                todo.append(to)
    return seen


@given(GRAPHS)
def test_nodes_of_a_component_reach_each_other_and_components_are_ordered(graph: dict[int, list[int]]) -> None:
    found = list(map(set, components(graph, lambda node: (to for to in graph[node] if to in graph))))
    assert sorted(node for part in found for node in part) == sorted(graph)
    before: set[int] = set()
    for part in found:
        for node in part:
            assert part == {other for other in reached(graph, node) if node in reached(graph, other)}
            assert reached(graph, node) <= before | part
        before |= part


def test_long_chains_need_no_recursion() -> None:
    chain = {node: [node + 1] for node in range(20_000)} | {20_000: []}
    assert sum(1 for _ in components(chain, chain.__getitem__)) == 20_001
