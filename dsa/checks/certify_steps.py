"""The compiled step against the kernel's table of steps: everywhere, reachable or not, on everything that may happen or come too late.

Takes a machine as runs load it and a claim of the kernel; the step is the very one that runs of the machine use. A row can neither read nor change
a variable that it does not name. So each case is asked three times: the other variables have their first values, their last ones, and something
that cannot be looked at. `dsa.meaning.step`, which is asked what a refusal is, must agree wherever nothing is hidden.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from traceback import walk_tb
from typing import Any

from dsa.checks.certify_proofs import NoProofError
from dsa.compiled_step import CompiledStep, Moved, compiled_step
from dsa.errors import ParameterError
from dsa.expr import EnumDomain, Interval, RangeDomain, Value, show_value
from dsa.kernel import Claim
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, step
from dsa.timers import DropTimer, Precedence, duration_ms

#: More cases of state, event, verdicts and values are not gone through.
MOST_CASES = 100_000


class SealedError(Exception):
    """Raised when somebody looks at what is sealed."""


class Sealed:
    """The place of any value: it can be handed on, and raises SealedError when it is looked at."""

    def _looked_at(self, *_: object) -> Any:  # noqa: ANN401  (it never returns)
        raise SealedError("it looks at a variable that the rows do not name")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __index__ = _looked_at
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _looked_at


def require_few_cases(machine: Machine, claim: Claim, most: int = MOST_CASES) -> None:
    """Raise NoProofError where there are more cases than `most`."""
    sizes = {variable.name: _size(machine, variable.name) for variable in machine.variables}
    count = sum(
        prod(sizes.get(name, 2) for name in names)
        * prod(len(claim.verdicts[guard]) for guard in claim.asked(rows))
        * _orders(machine, leaf)
        for leaf, *_, rows, names in claim.cases()
    )
    if count > most:
        raise NoProofError(f"there are {count} cases of state, event, verdicts and values, more than {most}")


def _orders(machine: Machine, leaf: str) -> int:
    """Return in how many ways the timers of a leaf may precede one another."""
    durations = [duration_ms(machine, timer) for timer in machine.armed(leaf)]
    return 1 << sum(shorter < longer for shorter in durations for longer in durations)


def _size(machine: Machine, name: str) -> int:
    values = machine.values_of[name]
    if not isinstance(values, Interval):
        return len(values.values)
    if values.high is None:
        raise NoProofError(f"{name} has no greatest value")
    return values.high - values.low + 1


def require_same_steps(machine: Machine, claim: Claim, most: int = MOST_CASES) -> None:
    """Raise AssertionError unless the compiled step takes the steps of the claim's table, at its parameter values, and no others."""
    here = machine.at(_values(machine, claim.at or {}))
    try:
        require_few_cases(here, claim, most)
    except NoProofError as why:
        raise AssertionError(str(why)) from None
    _Comparison(here, claim).run()


def _values(machine: Machine, texts: Mapping[str, object]) -> dict[str, Value]:
    """Read parameter values. Raises AssertionError unless they are those of the machine's parameters, written as we do."""
    found: dict[str, Value] = {}
    for parameter in machine.parameters:
        text = str(texts.get(parameter.name))
        is_number = isinstance(parameter.domain, RangeDomain) and text.removeprefix("-").isdigit()
        is_symbol = isinstance(parameter.domain, EnumDomain)
        found[parameter.name] = int(text) if is_number else text if is_symbol else text == "true"
    shown = {name: show_value(value) for name, value in found.items()}
    assert shown == texts, "its parameter values are not those of the machine"
    try:
        machine.at(found)
    except ParameterError as why:
        raise AssertionError(str(why)) from None
    return found


class _Comparison:
    """What all cases share: the compiled step that runs use, and the values as the kernel numbers them."""

    def __init__(self, machine: Machine, claim: Any) -> None:  # noqa: ANN401  (the kernel is not annotated)
        self._machine, self._claim, self._compiled = machine, claim, compiled_step(machine)
        listed = [tuple(_listed(machine, variable.name)) for variable in machine.variables]
        self._of_number = [{self._number(value): value for value in values} for values in listed]
        self._sealed = tuple(Sealed() for _ in listed)
        self._others = {tuple(values[0] for values in listed), tuple(values[-1] for values in listed)}
        self._armed = {leaf: claim.timers(claim.sources(leaf)) for leaf in machine.leaves}

    def run(self) -> None:
        """Go through the table."""
        for (state, out, known, order), happened, taken in self._claim.table():
            after = taken and (*taken[0], taken[1], taken[2][len(happened) :])
            try:
                self._compare(Configuration(state, (), frozenset(out), _precedence(order)), known, happened, after)
            except Exception as why:
                where = f"{state} on {', '.join(happened)}"
                raise AssertionError(f"the generated step is not the table in {where}: {why or repr(why)}") from why

    def _compare(self, at: Configuration, known: Mapping[str, int], happened: tuple[str, ...], taken: Any) -> None:  # noqa: ANN401
        source, is_timer, event = happened[0].rpartition(" after ")
        verdicts: Any = [word.rpartition(".")[::2] for word in happened[1:]]
        occurrence = Occurrence(f"after {event}" if is_timer else event, verdicts, source if is_timer else None)
        hidden = self._with(at, known, self._sealed)
        self._require_taken(hidden, known, taken, _moved(self._compiled, hidden, occurrence))
        for others in self._others:
            here = self._with(at, known, others)
            moved, expected = self._compiled.move(here, occurrence), step(self._machine, here, occurrence)
            assert self._compiled.step(here, occurrence) == expected, "`step` does something else"
            if isinstance(moved, Refusal) or isinstance(expected, Refusal):
                assert moved == expected, "`step` gives another reason"
            else:
                assert moved[0].row is expected.transition, "`step` takes another row"
            self._require_taken(here, known, taken, None if isinstance(moved, Refusal) else moved)

    def _with(self, at: Configuration, known: Mapping[str, int], others: tuple[Any, ...]) -> Configuration:
        held = zip(self._machine.variables, self._of_number, others, strict=True)
        values = tuple(numbered[known[v.name]] if v.name in known else other for v, numbered, other in held)
        return Configuration(at.state, values, at.outstanding, at.precedence)

    def _require_taken(self, here: Configuration, known: Mapping[str, int], taken: Any, moved: Moved | None) -> None:  # noqa: ANN401
        """Raise AssertionError unless a row is taken where the table has one, and leads where that does."""
        assert (moved is None) == (taken is None), "one takes a row, the other does not"
        if moved is None:
            return
        (move, values), (state, out, after, order, ended, effects) = moved, taken
        assert (move.source, move.target, move.outstanding) == (here.state, state, out), "it leads elsewhere"
        assert move.precedence == _precedence(order), "timers come in another order"
        for variable, value, before in zip(self._machine.variables, values, here.values, strict=True):
            is_same = self._number(value) == after[variable.name] if variable.name in known else value is before
            assert is_same, f"{variable.name} becomes another"
        emitted = [effect for effect in effects if effect != "cancel"]
        begun = [effect for effect in emitted if effect not in self._claim.effects]
        begun += [effect for effect in out if effect not in here.outstanding or effect in ended]
        assert list(move.effects) == emitted, "it asks for other effects"
        assert sorted(effect for _, effect, _ in move.started) == sorted(begun), "other effects begin"
        old, new = self._armed[here.state], self._armed[state]
        named = [(isinstance(timer, DropTimer), f"{timer.source} {timer.event}") for timer in move.timers]
        fired = {f"{move.row.source} {move.event}"} & old
        assert fired.union(name for is_drop, name in named if is_drop) == old & ended, "other timers end"
        assert {name for is_drop, name in named if not is_drop} == new - (old - ended), "other timers start"

    def _number(self, value: Value) -> int:
        return int(self._claim.names[f"={value}"] if isinstance(value, str) else value)


def _precedence(order: Iterable[tuple[str, str]]) -> Precedence:
    """Return the order of timers that the kernel calls by one name each."""

    def timer(name: str) -> tuple[str, str]:
        source, _, event = name.partition(" ")
        return source, event

    return frozenset((timer(shorter), timer(longer)) for shorter, longer in order)


def _moved(compiled: CompiledStep, here: Configuration, occurrence: Occurrence) -> Moved | None:
    """Return what the compiled step takes where variables are sealed. Raises SealedError where it looks at one."""
    try:
        moved = compiled.move(here, occurrence)
    except SealedError as why:
        if not any(frame.f_code is step.__code__ for frame, _ in walk_tb(why.__traceback__)):
            raise
        return None  # the reference, which is asked about refusals alone, may look at every variable's domain
    return None if isinstance(moved, Refusal) else moved


def _listed(machine: Machine, name: str) -> Iterator[Value]:
    values = machine.values_of[name]
    if isinstance(values, Interval):
        assert values.high is not None, "it was counted before"
        yield from range(values.low, values.high + 1)
    else:
        yield from values.values
