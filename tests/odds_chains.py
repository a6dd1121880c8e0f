"""Small chains with choices, and their exact odds: every memoryless way to choose is worked out in fractions."""

from fractions import Fraction
from itertools import product
from math import inf

from hypothesis import strategies as st

from dsa.checks.odds.markov_chain import Chain, End
from dsa.checks.search.state_graph import components


def chain_with(choices, ends, **more):
    """Return a chain from lists of choices, each a list of (odds, node, gain); the gain takes the place of the command."""
    laid_out = tuple(tuple(map(tuple, each)) for each in choices)
    return Chain(
        None, tuple(range(len(choices))), laid_out, {node: End("final", str(node)) for node in ends}, (), **more
    )


@st.composite
def chains(draw, most_nodes=6):
    """Draw a chain, some of whose circles are left rarely, and what each of its ends is worth."""
    last = draw(st.integers(1, most_nodes))
    ends = {node for node in range(1, last) if draw(st.integers(0, 3)) == 0} | {last}
    edge = st.tuples(
        st.sampled_from([1, 1, 2, 1e-9, 1e-12, 1e-15, 1e-40, 0]),
        st.integers(0, last),
        st.sampled_from([0, 0, 0, 1, 2.5]),
    )
    choices = []
    for node in range(last + 1):
        drawn = draw(st.lists(st.lists(edge, min_size=1, max_size=3), min_size=1, max_size=3))
        choices.append([] if node in ends else [_normal(choice) for choice in drawn])
    return chain_with(choices, ends), {end: draw(st.integers(0, 1)) for end in sorted(ends)}


def _normal(choice):
    total = sum(weight for weight, _, _ in choice)
    first = choice[0]
    return [(weight / total, *rest) for weight, *rest in choice] if total else [(1.0, *first[1:])]


def gained(_node, edge):
    """Return what an edge of such a chain gains."""
    return float(edge[2])


def bounds(chain, worth, *, gains):
    """Return the least and the most over all memoryless ways to choose; `worth` is what each end comes to."""
    ways = [range(max(1, len(each))) for each in chain.choices]
    found = [followed(chain, way, worth, gains=gains) for way in product(*ways)]
    return min(found), max(found)


def as_prism(chain, worth):
    """Write a chain as a program for Storm in exact fractions: `wanted` are the ends that are worth something."""
    lines = ["mdp", "module chain", f"  s : [0..{len(chain.choices) - 1}] init 0;"]
    rewards = []
    for node, each in enumerate(chain.choices):
        for number, choice in enumerate(each):
            total = sum(Fraction(p) for p, _, _ in choice)
            earned = sum(Fraction(p) / total * Fraction(gain) for p, _, gain in choice)
            parts = " + ".join(f"{_exact(Fraction(p) / total)} : (s'={target})" for p, target, _ in choice if p > 0)
            lines.append(f"  [c{node}_{number}] s={node} -> {parts};")
            rewards.append(f"  [c{node}_{number}] true : {_exact(earned)};")
        if not each:
            lines.append(f"  [] s={node} -> true;")
    wanted = " | ".join(f"s={end}" for end, value in worth.items() if value) or "false"
    return "\n".join([*lines, "endmodule", f'label "wanted" = {wanted};', 'rewards "gain"', *rewards, "endrewards", ""])


def _exact(number):
    return f"{number.numerator}.0/{number.denominator}.0"  # integers have 64 bits there


def followed(chain, way, worth, *, gains):
    """Return what a run comes to on average under one way to choose, as a fraction, or infinite."""
    rows, earned = {}, {}
    for node, each in enumerate(chain.choices):
        taken = [(Fraction(p), target, gain) for p, target, gain in (each[way[node]] if each else ()) if p > 0]
        total = sum(p for p, _, _ in taken)
        rows[node] = {}
        for p, target, _ in taken:
            rows[node][target] = rows[node].get(target, 0) + p / total
        earned[node] = sum(p / total * Fraction(gain) for p, _, gain in taken) if gains else Fraction(0)
    met = _met(rows)
    value = {}
    for part in components(sorted(met), lambda node: rows[node]):
        inside = set(part)
        is_left = any(target not in inside for node in part for target in rows[node])
        if len(part) == 1 and part[0] not in rows[part[0]]:
            node = part[0]
            value[node] = Fraction(worth.get(node, 0)) if node in chain.ends else _mean(rows, earned, value, node)
        elif not is_left:
            value |= dict.fromkeys(part, inf if any(earned[node] for node in part) else Fraction(0))
        elif any(value[target] == inf for node in part for target in rows[node] if target not in inside):
            value |= dict.fromkeys(part, inf)
        else:
            value |= _solved(part, rows, earned, value)
    return value[0]


def _met(rows):
    met, todo = {0}, [0]
    while todo:
        for target in rows[todo.pop()]:
            if target not in met:
                met.add(target)
                todo.append(target)
    return met


def _mean(rows, earned, value, node):
    if any(value[target] == inf for target in rows[node]):
        return inf
    return earned[node] + sum(p * value[target] for target, p in rows[node].items())


def _solved(part, rows, earned, value):
    """Solve x = earned + rows x by Gauss in fractions."""
    place = {node: index for index, node in enumerate(part)}
    system = []
    for node in part:
        line = [Fraction(int(index == place[node])) for index in range(len(part))]
        known = earned[node]
        for target, p in rows[node].items():
            if target in place:
                line[place[target]] -= p
            else:
                known += p * value[target]
        system.append([*line, known])
    for column in range(len(part)):
        pivot = next(row for row in range(column, len(part)) if system[row][column])
        system[column], system[pivot] = system[pivot], system[column]
        system[column] = [entry / system[column][column] for entry in system[column]]
        for row in range(len(part)):
            if row != column and system[row][column]:
                factor = system[row][column]
                system[row] = [a - factor * b for a, b in zip(system[row], system[column], strict=True)]
    return {node: system[place[node]][-1] for node in part}
