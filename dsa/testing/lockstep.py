"""An implementation and its table side by side: each occurrence goes to both, and what they answer and show is compared.

Takes a machine, an implementation and occurrences; raises `DisagreementError` at the first difference. Implementations may be
asynchronous: one event loop for each test, which is closed with it. Where a loop is running already, call from a thread.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dsa.expr import show_value
from dsa.machine import Machine
from dsa.meaning import Occurrence, Refusal, Taken, start, step
from dsa.testing.coverage import Coverage, tell_listeners
from dsa.testing.implementations import Answer, Implementation, MakeImplementation, Observed, Refused, View, view_of
from dsa.trace import show_occurrence


class DisagreementError(AssertionError):
    """Raised where an implementation does not do what the table says.

    `step` counts the occurrences of the test from 1 (0: at the start); `line` is that of the table's row, None when it refuses.
    """

    def __init__(self, message: str, step: int, line: int | None) -> None:
        self.step, self.line = step, line
        super().__init__(message)


class Lockstep:
    """One test: a machine and an implementation, both begun anew. `configuration` is where the table is."""

    def __init__(
        self,
        machine: Machine,
        implementation: Implementation,
        coverage: Coverage | None = None,
        *,
        observed: Observed | None = None,
    ) -> None:
        self.machine, self.configuration = machine, start(machine)
        self._implementation, self._coverage, self._observed = implementation, coverage, observed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told, self._fed = ["  0  start"], 0
        self._remembered = _Remembered()
        self._row_index = {id(row): place for place, row in enumerate(machine.transitions)}
        if coverage is not None:
            coverage.begin(self.configuration.state)
        try:
            self._await(implementation.start(machine.constants))
            self._compare_views("at the start", None)
        except BaseException:
            self.close()
            raise

    def feed(self, occurrence: Occurrence) -> Taken | Refusal:
        """Give an occurrence to both and compare effects or refusal, then what can be seen.

        Gives the table's answer. Raises DisagreementError; OccurrenceError when the occurrence is malformed here; what the
        implementation raises, with a note of what led there.
        """
        expected = step(self.machine, self.configuration, occurrence)
        self._fed += 1
        self._told.append(f"{self._fed:3}  {show_occurrence(occurrence):30} {_told(expected)}".rstrip())
        with self._blamed():
            answer = self._await(self._implementation.feed(occurrence))
            self._compare_answers(expected, answer)
            self.configuration = expected.configuration
            self._compare_views(f"after {show_occurrence(occurrence)}", expected)
        if isinstance(expected, Taken):
            self._count(occurrence, expected)
        return expected

    @property
    def can_restart(self) -> bool:
        """Tell whether the implementation offers a way to come back from what it has kept."""
        return getattr(self._implementation, "restart", None) is not None

    def restart(self) -> None:
        """Have the implementation come back from what it has kept; nothing that can be seen may differ. Raises as `feed` does."""
        self._told.append("     restart")
        with self._blamed():
            self._await(self._implementation.restart())  # type: ignore[attr-defined]  # `can_restart` says that it is there
            self._compare_views("after a restart", None)

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Say what has led to whatever the implementation raises."""
        try:
            yield
        except DisagreementError:
            raise
        except Exception as error:
            error.add_note(self._history("the implementation raised this"))
            raise

    def compare(self, what: str) -> None:
        """Compare what can be seen once more: nothing may have moved by itself."""
        self._compare_views(what, None)

    def close(self) -> None:
        """End the test: `close()` of the implementation, if it has one, then its event loop."""
        try:
            closing = getattr(self._implementation, "close", None)
            if closing is not None:
                self._await(closing())
        finally:
            if self._loop is not None:
                self._loop.close()
                self._loop = None

    def _count(self, occurrence: Occurrence, taken: Taken) -> None:
        if self._coverage is not None:
            self._coverage.took(self._row_index[id(taken.transition)], occurrence, taken.configuration.state)
        tell_listeners(self.machine, occurrence, taken.transition, taken.configuration.state)

    def _await(self, given: Any) -> Any:  # noqa: ANN401  (whatever a method gives)
        if not isinstance(given, Awaitable):
            return given
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def waited() -> Any:  # noqa: ANN401  (as above)
            return await given

        return self._loop.run_until_complete(waited())

    # -- comparing ------------------------------------------------------------------------------------------------

    def _compare_answers(self, expected: Taken | Refusal, answer: Answer) -> None:
        wanted = f"refused: {expected.reason}" if isinstance(expected, Refusal) else _listed(expected.effects)
        if isinstance(answer, Refused):
            if answer.reason is None and self._observed is not None and self._observed.reasons:
                raise TypeError("these tests are for an implementation that says why it refuses")
            same = isinstance(expected, Refusal) and answer.reason in {None, expected.reason}
            got = f"refused: {answer.reason}" if answer.reason else "refused"
        elif isinstance(answer, str) or not isinstance(answer, Iterable):
            raise TypeError(f"feed gave {answer!r}, not a sequence of effects' names nor Refused()")
        else:
            effects = tuple(answer)
            same, got = isinstance(expected, Taken) and effects == expected.effects, _listed(effects)
            if any(isinstance(effect, str) and effect.partition(" ")[0] == "cancel" for effect in effects):
                got += " (feed gives the effects emitted only: cancellations are not returned)"
        if not same:
            self._disagree("the answer", wanted, got, expected)

    def _compare_views(self, when: str, expected: Taken | Refusal | None) -> None:
        shown = self._await(self._implementation.view())
        if not isinstance(shown, View):
            raise TypeError(f"view gave {type(shown).__name__}, not a View")
        if self._observed is not None:
            _require_shown(self.machine, self._observed, shown)
        meant = view_of(self.machine, self.configuration)
        around = (*self.machine.ancestry(self.configuration.state),)
        if shown.state is not None and self.machine.resolve_state(shown.state) not in around:
            self._disagree(f"the state {when}", self.configuration.state, shown.state, expected)
        for name, value in shown.values.items():
            if name not in meant.values:
                raise KeyError(f"view shows '{name}', which is no variable of {self.machine.name}")
            if value != meant.values[name] or isinstance(value, bool) is not isinstance(meant.values[name], bool):
                self._disagree(f"{name} {when}", show_value(meant.values[name]), show_value(value), expected)
        for what, named, known, none in (
            ("what is pending", shown.pending, meant.pending, "no effects"),
            ("what has a key", shown.keys, meant.pending, "no effects"),
            ("what is armed", shown.timers, meant.timers, "no timers"),
        ):
            if named is not None and set(named) != set(known or ()):
                wanted, got = (_listed(tuple(sorted(names)), none) for names in (known or (), named))
                self._disagree(f"{what} {when}", wanted, got, expected)
        for what, wanted, got in self._remembered.differences(shown, expected if isinstance(expected, Taken) else None):
            self._disagree(f"{what} {when}", wanted, got, expected)

    def _disagree(self, what: str, wanted: str, got: str, expected: Taken | Refusal | None) -> None:
        message = f"{what}: {self.machine.name} says {wanted}, the implementation {got}"
        line = expected.transition.span.line if isinstance(expected, Taken) and expected.transition.span else None
        raise DisagreementError(self._history(message), self._fed, line)

    def _history(self, message: str) -> str:
        values = ", ".join(f"{name} = {show_value(value)}" for name, value in self.machine.constants.items())
        heading = f"what the table does{f' at {values}' if values else ''}:"
        return "\n".join([message, heading, *self._told])


def _told(result: Taken | Refusal) -> str:
    if isinstance(result, Refusal):
        return f"refused: {result.reason}"
    row = result.transition
    place = f"line {row.span.line}: " if row.span else ""
    asked = _listed((*result.effects, *(f"cancelled {effect}" for effect in result.cancelled)))
    return f"{place}{asked} -> {result.configuration.state}"


def _listed(names: tuple[str, ...], none: str = "no effects") -> str:
    return ", ".join(names) or none


def _require_shown(machine: Machine, observed: Observed, shown: View) -> None:
    """Raise TypeError when less is shown than tests were made for."""
    missing = [f"the value of {name}" for name in observed.values if name not in shown.values]
    if observed.state and machine.resolve_state(shown.state or "") not in machine.leaves:
        missing.append("the state, without its children")
    if observed.pending and shown.pending is None:
        missing.append("what is pending")
    if missing:
        raise TypeError(f"these tests are for an implementation whose view shows {', '.join(missing)}")


def play(
    machine: Machine,
    make_implementation: MakeImplementation,
    tests: Iterable[Iterable[Occurrence]],
    *,
    observed: Observed | None = None,
) -> Coverage:
    """Play tests against an implementation, each from the start, at the machine's parameters; give what they covered.

    Raises DisagreementError at the first difference, and TypeError when the implementation shows less than `observed`.
    """
    coverage = Coverage(machine)
    play_into(coverage, make_implementation, tests, observed=observed)
    return coverage


def play_into(
    coverage: Coverage,
    make_implementation: MakeImplementation,
    tests: Iterable[Iterable[Occurrence]],
    *,
    observed: Observed | None = None,
) -> None:
    """Play tests as `play` does, and add what they cover to a coverage."""
    for test in tests:
        lockstep = Lockstep(coverage.machine, make_implementation(), coverage, observed=observed)
        try:
            for occurrence in test:
                lockstep.feed(occurrence)
        finally:
            lockstep.close()


class _Remembered:
    """What a table has no names for, as an implementation has shown it so far: keys of effects (S7) and deadlines of timers (S11)."""

    def __init__(self) -> None:
        self._keys: Mapping[str, str] = {}
        self._used = set[str]()
        self._deadlines: Mapping[str, object] = {}

    def differences(self, shown: View, taken: Taken | None) -> Iterator[tuple[str, str, str]]:
        """Give what, what it must be, and what it is; `taken` is the row that was taken since the last view, None when none was."""
        yield from self._keys_that_differ(shown.keys or {}, frozenset(taken.effects if taken else ()))
        if taken is None:
            for timer, due in sorted((shown.timers or {}).items()):
                before = self._deadlines.get(timer, due)
                if due != before:
                    yield f"the deadline of {timer}", str(before), str(due)
        self._deadlines = shown.timers or {}

    def _keys_that_differ(self, keys: Mapping[str, str], emitted: frozenset[str]) -> Iterator[tuple[str, str, str]]:
        for effect, key in sorted(keys.items()):
            is_new = effect in emitted or effect not in self._keys
            if is_new and key in self._used:
                yield f"the key of {effect}", "one that was not used before", key
            elif not is_new and key != self._keys[effect]:
                yield f"the key of {effect}", self._keys[effect], key
            self._used.add(key)
        self._keys = keys
