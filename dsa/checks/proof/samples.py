"""What is reached at small parameter values: the examples that candidates for lemmas and strategies are read off.

Takes a system, gives `Sample` values. Conditions are compiled once for all values of the parameters; nothing a user named is
spelled in the code that is compiled.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsa.expr import TRUE, Boolean, Environment, Expr, Name, Symbol, Value, Verdict, evaluate, unparse
from dsa.machine import Machine, smallest_values
from dsa.simplify import FALSE, Leaf, all_of, substituted
from dsa.system import Command, System, start_values

Values = tuple[Value, ...]
Configuration = tuple[int, Values]
Step = Callable[[Values, Values], list[tuple[int, int, Values]]]

#: Of one valuation at most so many configurations are looked at for examples.
EXAMPLES = 400
_MOST_TURNS = 3


@attrs.frozen
class Sample:
    """What is reached at one valuation of the parameters, nearest to the start first.

    `edges` are (configuration, command, configuration), by index; `arrivals` has the edge that first led to each.
    """

    parameters: Values
    configurations: tuple[Configuration, ...]
    edges: tuple[tuple[int, int, int], ...]
    arrivals: tuple[int | None, ...]
    complete: bool

    def way_to(self, place: int) -> tuple[int, ...]:
        """Give the commands of a shortest way to a configuration."""
        way: list[int] = []
        while (edge := self.arrivals[place]) is not None:
            place, command, _ = self.edges[edge]
            way.append(command)
        return tuple(reversed(way))


class Sampler:
    """A system compiled for walking about in it."""

    def __init__(self, system: System, commands: Iterable[int] | None = None, while_true: Expr = TRUE) -> None:
        """Compile all commands, or only some and only while a condition holds."""
        self.system, self._while_true = system, while_true
        self.parameters = tuple(parameter.name for parameter in system.machine.parameters)
        self.variables = tuple(variable.name for variable in system.variables)
        spelled = {name: f"p{place}" for place, name in enumerate(self.parameters)}
        self._spelled = spelled | {name: f"v{place}" for place, name in enumerate(self.variables)}
        chosen = range(len(system.commands)) if commands is None else sorted(commands)
        self._steps = self._compiled(chosen)

    def sample(self, parameters: Mapping[str, Value], most: int, expired: Callable[[], bool] = lambda: False) -> Sample:
        """Walk from the start, nearest first, until nothing is new or `most` configurations are known."""
        given = tuple(parameters[name] for name in self.parameters)
        initial = start_values(self.system)
        start = (0, tuple(evaluate(initial[name], parameters) for name in self.variables))
        index, order = {start: 0}, [start]
        edges: list[tuple[int, int, int]] = []
        arrivals: list[int | None] = [None]
        complete = not self.system.left_out
        for place, (location, values) in enumerate(order):  # grows while it is walked
            if len(order) > most or (place % 1024 == 0 and expired()):
                complete = False
                break
            for command, target, after in self._steps[location](values, given):
                to = (target, after)
                if to not in index:
                    index[to] = len(order)
                    order.append(to)
                    arrivals.append(len(edges))
                edges.append((place, command, index[to]))
        return Sample(given, tuple(order), tuple(edges), tuple(arrivals), complete)

    def environment(self, sample: Sample, configuration: Configuration) -> Environment:
        """Give the values of all names at a configuration."""
        found = dict(zip(self.parameters, sample.parameters, strict=True))
        return found | dict(zip(self.variables, configuration[1], strict=True))

    def predicate(self, expr: Expr) -> Callable[[Values, Values], Value]:
        """Compile an expression to a function of the variables' and the parameters' values."""
        source = f"def it(v, p):\n{self._unpacked()} return {self._spell(expr)}"
        found: Callable[[Values, Values], Value] = self._run(source)["it"]
        return found

    def _compiled(self, chosen: Iterable[int]) -> tuple[Step, ...]:
        bodies: list[list[str]] = [[] for _ in self.system.locations]
        for index in chosen:
            command = self.system.commands[index]
            if command.condition != FALSE:
                bodies[command.source].append(self._body(index, command))
        head = self._unpacked()
        source = "\n".join(
            f"def at_{place}(v, p):\n{head} found = []\n{''.join(body)} return found"
            for place, body in enumerate(bodies)
        )
        defined = self._run(source)
        return tuple(defined[f"at_{place}"] for place in range(len(bodies)))

    def _body(self, index: int, command: Command) -> str:
        after = [self._spell(command.after.get(v, Name(v, "variable"))) for v in self.variables]
        values = f"({', '.join(after)}{',' if after else ''})"
        return f" if {self._spell(all_of([self._while_true, command.condition]))}: found.append(({index}, {command.target}, {values}))\n"

    def _unpacked(self) -> str:
        parts = []
        for letter, names in (("v", self.variables), ("p", self.parameters)):
            if names:
                parts.append(f" {', '.join(f'{letter}{n}' for n in range(len(names)))}, = {letter}\n")
        return "".join(parts)

    def _spell(self, expr: Expr) -> str:
        def leaf(node: Leaf) -> Expr:
            assert not isinstance(node, Verdict), "verdicts are decided in a system"
            return Name(repr(node.value)) if isinstance(node, Symbol) else Name(self._spelled[node.name])

        return repr(expr.value) if isinstance(expr, Boolean) else unparse(substituted(expr, leaf))

    @staticmethod
    def _run(source: str) -> dict[str, Any]:
        defined: dict[str, Any] = {}
        # Made of operators, numbers and names like v0 alone.
        exec(compile(source, "<samples>", "exec"), {"true": True, "false": False}, defined)  # noqa: S102
        return defined


def valuations(machine: Machine) -> Iterator[dict[str, Value]]:
    """Give small values of the parameters to look at: the smallest, single ones and all a little larger, and a few mixtures."""
    names = [parameter.name for parameter in machine.parameters]
    choices = [smallest_values(parameter.domain, 4) for parameter in machine.parameters]
    given: dict[Values, None] = {}
    for level in range(4):
        given[tuple(values[min(level, len(values) - 1)] for values in choices)] = None
    for turn in range(min(len(names), _MOST_TURNS)):
        for levels in ((1, 0, 0), (0, 1, 1), (1, 2, 3), (3, 1, 2)):
            turned = [levels[min((place - turn) % len(names), 2)] for place in range(len(names))]
            given[tuple(v[min(n, len(v) - 1)] for v, n in zip(choices, turned, strict=True))] = None
    for values in given:
        yield dict(zip(names, values, strict=True))
