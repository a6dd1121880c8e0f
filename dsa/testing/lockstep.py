"""Lockstep tests and Hypothesis walks: an implementation and its table get the same occurrences, and their answers are compared.

`play` takes a machine, an implementation and sequences of occurrences; `DisagreementError` is raised at the first difference.
Implementations may be asynchronous: each test has an event loop of its own. Where a loop is running already, call from a thread.

`state_machine_test` makes a Hypothesis `RuleBasedStateMachine` that walks over rows, refusals and faults at random. A counterexample, once shrunk,
reads as rows: `state.happens(row='line 49: validating, verdict g.failed')`. Half of the time a walk aims at a row that it has not
taken, and follows a shortest way there, so that deep rows are taken as often as others (plain random walks hardly reach them). There is
one rule for all rows, not one for each: Hypothesis leaves rules out at random, and would mostly cut a way of k different rules.
An implementation may be slow: it is walked for `LONGEST_S` seconds, and a counterexample is shrunk for as many.
"""

import asyncio
import re
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from dsa.declarations import OUTSIDE
from dsa.expr import show_value
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.testing.explored_graph import Coverage, ExploredGraph, GraphEdge, Test, graph_of, row_tour, tell_listeners
from dsa.testing.implementations import (
    Answer,
    Implementation,
    MakeImplementation,
    Observation,
    RefusedAction,
    View,
    view_of,
)
from dsa.trace import show_occurrence


class DisagreementError(AssertionError):
    """Raised where an implementation does not do what the table says.

    `step` counts the occurrences of the test from 1 (0: at the start); `line` is that of the table's row, None when it refuses.
    """

    def __init__(self, message: str, step: int, line: int | None) -> None:
        self.step, self.line = step, line
        super().__init__(message)


class Lockstep:
    """One test: a machine and an implementation, both at the start. `configuration` is where the table is."""

    def __init__(
        self,
        machine: Machine,
        implementation: Implementation,
        coverage: Coverage | None = None,
        *,
        observation: Observation | None = None,
    ) -> None:
        self.machine, self.configuration = machine, start(machine)
        self._implementation, self._coverage, self._observation = implementation, coverage, observation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._history_lines, self._step_count = ["  0  start"], 0
        self._shown_names = _ShownNames()
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
        """Feed an occurrence to both and compare effects or refusal, then what can be seen.

        Returns the table's answer. Raises DisagreementError; OccurrenceError when the occurrence is malformed here; what the
        implementation raises, with the history as a note.
        """
        result = step(self.machine, self.configuration, occurrence)
        self._step_count += 1
        self._history_lines.append(
            f"{self._step_count:3}  {show_occurrence(occurrence):30} {_result_text(result)}".rstrip()
        )
        with self._note_history():
            answer = self._await(self._implementation.feed(occurrence))
            self._compare_answers(result, answer)
            self.configuration = result.configuration
            self._compare_views(f"after {show_occurrence(occurrence)}", result)
        if isinstance(result, Taken):
            self._count(occurrence, result)
        return result

    @property
    def can_restart(self) -> bool:
        """Return whether the implementation can be restarted from what it has saved."""
        return getattr(self._implementation, "restart", None) is not None

    def restart(self) -> None:
        """Restart the implementation from what it has saved; nothing that can be seen may differ. Raises as `feed` does."""
        self._history_lines.append("     restart")
        with self._note_history():
            self._await(self._implementation.restart())  # type: ignore[attr-defined]  # `can_restart` says that it is there
            self._compare_views("after a restart", None)

    @contextmanager
    def _note_history(self) -> Iterator[None]:
        """Add the history as a note to what the implementation raises."""
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
            close = getattr(self._implementation, "close", None)
            if close is not None:
                self._await(close())
        finally:
            if self._loop is not None:
                self._loop.close()
                self._loop = None

    def _count(self, occurrence: Occurrence, taken: Taken) -> None:
        if self._coverage is not None:
            self._coverage.took(self._row_index[id(taken.transition)], occurrence, taken.configuration.state)
        tell_listeners(self.machine, occurrence, taken.transition, taken.configuration.state)

    def _await(self, value: Any) -> Any:  # noqa: ANN401  (whatever a method gives)
        if not isinstance(value, Awaitable):
            return value
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def wait() -> Any:  # noqa: ANN401  (as above)
            return await value

        return self._loop.run_until_complete(wait())

    # -- comparing ------------------------------------------------------------------------------------------------

    def _compare_answers(self, result: Taken | Refusal, answer: Answer) -> None:
        expected_text = f"refused: {result.reason}" if isinstance(result, Refusal) else _join_names(result.effects)
        if isinstance(answer, RefusedAction):
            if answer.reason is None and self._observation is not None and self._observation.reasons:
                raise TypeError("these tests need the reason for each refusal: return RefusedAction(REASON)")
            same = isinstance(result, Refusal) and answer.reason in {None, result.reason}
            actual_text = f"refused: {answer.reason}" if answer.reason else "refused"
        elif isinstance(answer, str) or not isinstance(answer, Iterable):
            raise TypeError(f"feed must return a sequence of effect names or RefusedAction(), not {answer!r}")
        else:
            effects = tuple(answer)
            same, actual_text = isinstance(result, Taken) and effects == result.effects, _join_names(effects)
            if any(isinstance(effect, str) and effect.partition(" ")[0] == "cancel" for effect in effects):
                actual_text += " (feed returns only the effects emitted, not cancellations)"
        if not same:
            self._disagree("the answer", expected_text, actual_text, result)

    def _compare_views(self, when: str, result: Taken | Refusal | None) -> None:
        view = self._await(self._implementation.view())
        if not isinstance(view, View):
            raise TypeError(f"view gave {type(view).__name__}, not a View")
        if self._observation is not None:
            _require_shown(self.machine, self._observation, view)
        expected_view = view_of(self.machine, self.configuration)
        around = (*self.machine.ancestry(self.configuration.state),)
        if view.state is not None and self.machine.resolve_state(view.state) not in around:
            self._disagree(f"the state {when}", self.configuration.state, view.state, result)
        for name, value in view.values.items():
            if name not in expected_view.values:
                raise KeyError(f"view shows '{name}', which is not a variable of {self.machine.name}")
            expected_value = expected_view.values[name]
            if value != expected_value or isinstance(value, bool) is not isinstance(expected_value, bool):
                self._disagree(f"{name} {when}", show_value(expected_value), show_value(value), result)
        keys = None if view.keys is None else _keys_by_effect(view)
        effects_with_keys = None if keys is None else [effect for effect, group in keys.items() for _ in group]
        for what, shown_names, expected_names, none in (
            ("the pending effects", view.pending, expected_view.pending, "no effects"),
            ("the effects that have keys", effects_with_keys, expected_view.pending, "no effects"),
            ("the armed timers", view.timers, expected_view.timers, "no timers"),
        ):
            names, right_names = sorted(shown_names or ()), sorted(expected_names or ())
            if shown_names is not None and names != right_names:
                expected_text, actual_text = (_join_names(tuple(each), none) for each in (right_names, names))
                self._disagree(f"{what} {when}", expected_text, actual_text, result)
        taken = result if isinstance(result, Taken) else None
        for what, expected_text, actual_text in self._shown_names.differences(self.machine, view, taken):
            self._disagree(f"{what} {when}", expected_text, actual_text, result)

    def _disagree(self, what: str, expected_text: str, actual_text: str, result: Taken | Refusal | None) -> None:
        message = f"{what}: {self.machine.name} says {expected_text}, but the implementation says {actual_text}"
        line = result.transition.span.line if isinstance(result, Taken) and result.transition.span else None
        raise DisagreementError(self._history(message), self._step_count, line)

    def _history(self, message: str) -> str:
        values = ", ".join(f"{name} = {show_value(value)}" for name, value in self.machine.constants.items())
        heading = f"what the table does{f' at {values}' if values else ''}:"
        return "\n".join([message, heading, *self._history_lines])


def _result_text(result: Taken | Refusal) -> str:
    if isinstance(result, Refusal):
        return f"refused: {result.reason}"
    row = result.transition
    place = f"line {row.span.line}: " if row.span else ""
    effects = _join_names((*result.effects, *(f"cancelled {effect}" for effect in result.cancelled)))
    return f"{place}{effects} -> {result.configuration.state}"


def _join_names(names: tuple[str, ...], none: str = "no effects") -> str:
    return ", ".join(names) or none


def _require_shown(machine: Machine, observation: Observation, view: View) -> None:
    """Raise TypeError when less is shown than tests were made for."""
    missing = [f"the value of {name}" for name in observation.values if name not in view.values]
    if observation.state and machine.resolve_state(view.state or "") not in machine.leaves:
        missing.append("the innermost state (not its parent)")
    if observation.pending and view.pending is None:
        missing.append("the pending effects")
    if missing:
        raise TypeError(f"these tests need what the view does not show: {', '.join(missing)}")


def play(
    machine: Machine,
    make_implementation: MakeImplementation,
    tests: Iterable[Iterable[Occurrence]],
    *,
    observation: Observation | None = None,
) -> Coverage:
    """Play tests against an implementation, each from the start, at the machine's parameters; return what they covered.

    Raises DisagreementError at the first difference, and TypeError when the implementation shows less than `observation`.
    """
    coverage = Coverage(machine)
    play_into(coverage, make_implementation, tests, observation=observation)
    return coverage


def play_into(
    coverage: Coverage,
    make_implementation: MakeImplementation,
    tests: Iterable[Iterable[Occurrence]],
    *,
    observation: Observation | None = None,
) -> None:
    """Play tests as `play` does, and add what they cover to a coverage."""
    for test in tests:
        lockstep = Lockstep(coverage.machine, make_implementation(), coverage, observation=observation)
        try:
            for occurrence in test:
                lockstep.feed(occurrence)
        finally:
            lockstep.close()


class _ShownNames:
    """What an implementation has shown so far that the table does not know: keys of effects and deadlines of timers."""

    def __init__(self) -> None:
        self._keys: Mapping[str, tuple[str, ...]] = {}
        self._used_keys = set[str]()
        self._deadlines: Mapping[str, object] = {}

    def differences(self, machine: Machine, view: View, taken: Taken | None) -> Iterator[tuple[str, str, str]]:
        """Yield what differs, what it must be, and what it is; `taken` is the row taken since the last view, None when there was none."""
        keys = _keys_by_effect(view)
        for effect, group in sorted(keys.items()):
            before = self._keys.get(effect, ())
            yield from self._keys_that_differ(effect, before, group, _lasting_count(machine, effect, before, taken))
            self._used_keys.update(group)
        self._keys = keys
        if taken is None:
            for timer, due in sorted((view.timers or {}).items()):
                before_due = self._deadlines.get(timer, due)
                if due != before_due:
                    yield f"the deadline of {timer}", str(before_due), str(due)
        self._deadlines = view.timers or {}

    def _keys_that_differ(
        self, effect: str, before: tuple[str, ...], keys: tuple[str, ...], lasting_count: int
    ) -> Iterator[tuple[str, str, str]]:
        """Yield a key that must be a new one; `lasting_count` of those from before must still be there."""
        same_keys = [key for key in keys if key in before]
        if len(same_keys) < lasting_count:
            yield f"the key of {effect}", ", ".join(before), ", ".join(keys)
            return
        old_keys = [key for key in keys if key in self._used_keys and key not in before]
        repeats = [key for place, key in enumerate(keys) if key in keys[:place]]
        for key in (*repeats, *old_keys, *same_keys[lasting_count:])[:1]:
            yield f"the key of {effect}", "a key that was not used before", key


def _keys_by_effect(view: View) -> Mapping[str, tuple[str, ...]]:
    return {effect: (key,) if isinstance(key, str) else key for effect, key in (view.keys or {}).items()}


def _lasting_count(machine: Machine, effect: str, keys: tuple[str, ...], taken: Taken | None) -> int:
    """Return how many of an effect's keys stay over a row: all but that of an answer, and none of those that the row cancels."""
    if taken is None:
        return len(keys)
    row = taken.transition
    is_answer = not row.is_timer and machine.event_named[row.event].origin == effect
    return 0 if effect in taken.cancelled else max(0, len(keys) - is_answer)


DEFAULT = settings(deadline=None, suppress_health_check=list(HealthCheck))
#: The seconds for which an implementation is walked, and for which a counterexample is shrunk.
LONGEST_S = 20.0


@attrs.define
class TimeBudget:
    """The time for walks, by a clock in seconds: until `ends`, or, once a walk has failed, for as long again.

    `walk_count` counts the walks that were made, the first in any case, `skipped_count` those that were left out.
    """

    ends: float = attrs.field(factory=lambda: time.monotonic() + LONGEST_S)
    has_failed: bool = False
    walk_count: int = 0
    skipped_count: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether it has ended. It has not for the walk that Hypothesis shows at last."""
        return self.walk_count > 0 and time.monotonic() >= self.ends and not current_build_context().is_final

    def record_failure(self) -> None:
        """Record that a walk has failed."""
        if not self.has_failed:
            self.has_failed, self.ends = True, time.monotonic() + LONGEST_S


@attrs.frozen
class WalkPlan:
    """What all walks of one test share: the explored machine, the function that makes an implementation, the coverage.

    `distances` has, for each row, how far each configuration is from one where the row is taken.
    """

    graph: ExploredGraph
    make: MakeImplementation
    coverage: Coverage
    distances: dict[int, list[int | None]] = attrs.field(repr=False)
    patience: TimeBudget = attrs.field(factory=TimeBudget, repr=False)
    _moves: dict[int, dict[str, GraphEdge]] = attrs.field(factory=dict, repr=False, init=False)
    _refused_occurrences: dict[int, dict[str, Occurrence]] = attrs.field(factory=dict, repr=False, init=False)

    def lockstep(self) -> Lockstep:
        """Begin a walk, unless there is no time for it any more.

        It then ends as if it needed more choices than there are: only of such walks does Hypothesis not require that they repeat what the same
        beginning did before.
        """
        if self.patience.is_over:
            self.patience.skipped_count += 1
            current_build_context().data.mark_overrun()
        self.patience.walk_count += 1
        return Lockstep(self.graph.machine, self.make(), self.coverage)

    def moves(self, place: int) -> dict[str, GraphEdge]:
        """Return what can be taken in a configuration, by the text that names it."""
        if place not in self._moves:
            moves = self.graph.moves_from[place]
            self._moves[place] = {_move_text(self.graph.machine, move): move for move in moves}
        return self._moves[place]

    def refused_occurrences(self, place: int) -> dict[str, Occurrence]:
        """Return what is refused in a configuration, by the text that names it."""
        if place not in self._refused_occurrences:
            self._refused_occurrences[place] = {
                show_occurrence(occurrence): occurrence for occurrence in self.graph.refused_occurrences(place)
            }
        return self._refused_occurrences[place]


class Walk(RuleBasedStateMachine):
    """One walk: an implementation in lockstep with the table. `state_machine_test` makes a subclass for a machine."""

    plan: WalkPlan

    def __init__(self) -> None:
        super().__init__()
        self._test = self.plan.lockstep()
        self._place = 0
        self._rows = set[int]()
        self._aim: int | None = None
        self._last: Occurrence | None = None
        self._awaited_effects: set[str] = set()
        self._lost_effects: set[str] = set()

    def teardown(self) -> None:
        """End the walk."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, HypothesisException):
            self.plan.patience.record_failure()
        self._test.close()

    @property
    def _here(self) -> Configuration:
        return self._test.configuration

    def _origin(self, occurrence: Occurrence) -> str:
        return OUTSIDE if occurrence.source else self.plan.graph.machine.event_named[occurrence.event].origin

    # -- rows -----------------------------------------------------------------------------------------------------

    def _moves(self) -> dict[str, GraphEdge]:
        """Return what can be taken here: all but the answers that are lost (a failure tells of a lost one)."""
        moves = self.plan.moves(self._place)
        return {text: move for text, move in moves.items() if not self._is_lost(move)} if self._lost_effects else moves

    def _is_lost(self, move: GraphEdge) -> bool:
        return self._origin(move.occurrence) in self._lost_effects and not move.occurrence.event.endswith(".failed")

    def _drawn_moves(self) -> "st.SearchStrategy[str]":
        """Draw a move as text; when the walk aims at nothing, draw an aim first, which is nothing half of the time."""
        texts = st.sampled_from(list(self._moves()))
        if self._aim is not None:
            return texts.filter(self._is_on_the_way)
        # Drawn from all rows and filtered: what was drawn means the same when what came before it is shrunk away.
        aims = st.one_of(st.none(), st.sampled_from(sorted(self.plan.graph.rows)))
        return aims.filter(self._is_aim).flatmap(lambda aim: self._aim_at(aim, texts))

    def _is_aim(self, row: int | None) -> bool:
        """Return whether a row was not taken in this walk and can still be."""
        return row is None or (row not in self._rows and self.plan.distances[row][self._place] is not None)

    def _aim_at(self, aim: int | None, texts: "st.SearchStrategy[str]") -> "st.SearchStrategy[str]":
        self._aim = aim
        return texts if aim is None else texts.filter(self._is_on_the_way)

    def _is_on_the_way(self, text: str) -> bool:
        """Return whether a move leads nearer to the aim; every one does when a lost answer bars the way."""
        moves = self._moves()
        return self._is_nearer(moves[text]) or not any(map(self._is_nearer, moves.values()))

    def _is_nearer(self, move: GraphEdge) -> bool:
        assert self._aim is not None, "there is an aim"
        distance = self.plan.distances[self._aim]
        here, there = distance[self._place], distance[move.target]
        return move.row == self._aim or (here is not None and there is not None and there < here)

    @precondition(lambda self: bool(self._moves()))
    @rule(row=st.runner().flatmap(lambda walk: walk._drawn_moves()))  # noqa: SLF001  (this class)
    def happens(self, row: str) -> None:
        """Feed the occurrence that a row is taken on; the name sorts before faults, since counterexamples shrink to what comes first."""
        move, before = self._moves()[row], self._here
        taken = self._test.feed(move.occurrence)
        assert isinstance(taken, Taken), "moves are rows taken"
        self._aim = None if move.row == self._aim else self._aim
        self._place = move.target
        self._rows.add(move.row)
        self._last = move.occurrence
        self._awaited_effects.update(before.outstanding)
        # What was answered, cancelled or asked for anew is not lost any more.
        self._lost_effects &= set(self._here.outstanding) - set(taken.effects)

    # -- refusals and faults --------------------------------------------------------------------------------------

    def _refusal_texts(self) -> list[str]:
        return list(self.plan.refused_occurrences(self._place))

    def _late(self) -> list[str]:
        """Return answers whose effect was outstanding in this walk, and is not any more."""
        over = self._awaited_effects.difference(self._here.outstanding)
        refusals = self.plan.refused_occurrences(self._place)
        return [text for text, occurrence in refusals.items() if self._origin(occurrence) in over] if over else []

    def _losable(self) -> list[str]:
        """Return effects whose answer may get lost while something else can still happen."""
        origins = {self._origin(move.occurrence) for move in self._moves().values()}
        return [effect for effect in sorted(set(self._here.outstanding) - self._lost_effects) if origins - {effect}]

    def _refuse(self, text: str) -> None:
        result = self._test.feed(self.plan.refused_occurrences(self._place)[text])
        assert isinstance(result, Refusal), "it is drawn from what is refused here"

    @precondition(lambda self: bool(self._refusal_texts()))
    @rule(occurrence=st.runner().flatmap(lambda walk: st.sampled_from(walk._refusal_texts())))  # noqa: SLF001  (this class)
    def refusal(self, occurrence: str) -> None:
        """Feed what the table refuses here; nothing may change."""
        self._refuse(occurrence)

    @precondition(lambda self: bool(self._late()))
    @rule(answer=st.runner().flatmap(lambda walk: st.sampled_from(walk._late())))  # noqa: SLF001  (this class)
    def late_answer(self, answer: str) -> None:
        """Feed an answer of an effect that was answered or cancelled before."""
        self._refuse(answer)

    @precondition(lambda self: self._last is not None and show_occurrence(self._last) in self._late())
    @rule()
    def duplicate_answer(self) -> None:
        """Feed the last answer once more."""
        assert self._last is not None, "the precondition says so"
        self._refuse(show_occurrence(self._last))

    @precondition(lambda self: bool(self._losable()))
    @rule(of=st.runner().flatmap(lambda walk: st.sampled_from(walk._losable())))  # noqa: SLF001  (this class)
    def lost_answer(self, of: str) -> None:
        """Let the answer of an effect never come; nothing may move by itself."""
        self._lost_effects.add(of)
        self._test.compare(f"while {of} is not answered")

    @precondition(lambda self: self._test.can_restart)
    @rule()
    def restarts(self) -> None:
        """Throw the implementation away and build it anew from what it has saved."""
        self._test.restart()


def _move_text(machine: Machine, move: GraphEdge) -> str:
    """Return a row and what it is taken on as text: `line 49: validating, verdict g.failed`."""
    row = machine.transitions[move.row]
    place = f"line {row.span.line}" if row.span else f"row {move.row + 1}"
    return f"{place}: {row.source}, {show_occurrence(move.occurrence)} -> {row.target}"


def state_machine_test(
    machine: Machine,
    make_implementation: MakeImplementation,
    *,
    first: Iterable[Test] = (),
    require_rows: float = 1.0,
    settings: settings = DEFAULT,
) -> type[Walk]:
    """Make a Hypothesis state machine that walks an implementation and the machine in lockstep, at its parameters' values.

    In pytest: `TestAgent = state_machine_test(machine, make).TestCase`; elsewhere `run_walks`. The tests `first` are played before: when
    one fails, that is the failure, and nobody walks. The implementation is walked
    for 20 s at most (then a warning says how many walks were left out), and a counterexample is shrunk for 20 s (`LONGEST_S`). After the walks, rows that
    none took are taken by a tour; then `require_rows` of the rows that can be taken must have been, or AssertionError is raised.
    `.plan.coverage` has the figures. Raises DsaError.
    """
    graph = graph_of(machine)
    sources = {row: [move.source for move in graph.moves if move.row == row] for row in graph.rows}
    distances = {row: graph.distances(dict.fromkeys(places)) for row, places in sources.items()}
    plan, before = WalkPlan(graph, make_implementation, Coverage(machine), distances), tuple(first)
    name = re.sub(r"\W", "_", machine.name)
    walk_class: type[Walk] = type(f"Walk_{name}", (Walk,), {"plan": plan})
    plain = walk_class.TestCase

    class WalkTestCase(plain):  # type: ignore[misc, valid-type]  # a unittest class, made by Hypothesis
        def runTest(self) -> None:  # noqa: N802  (unittest's name)
            play_into(plan.coverage, make_implementation, before)
            walk_class.plan = attrs.evolve(plan, patience=TimeBudget())
            run_state_machine_as_test(walk_class, settings=_that_may_end(self.settings))
            if walk_class.plan.patience.skipped_count:
                message = f"the walks were stopped after {LONGEST_S:g} s: {walk_class.plan.patience.skipped_count} of them were not made"
                warnings.warn(message, stacklevel=1)
            play_into(plan.coverage, make_implementation, row_tour(graph, but=plan.coverage.rows))
            plan.coverage.require(require_rows, graph)

    WalkTestCase.settings = settings
    WalkTestCase.__name__ = WalkTestCase.__qualname__ = f"{walk_class.__name__}.TestCase"
    walk_class._to_test_case = classmethod(lambda _: WalkTestCase)  # type: ignore[assignment]  # noqa: SLF001  (what `.TestCase` gives)
    return walk_class


def _that_may_end(base: settings) -> settings:
    """Return settings under which walks may be given up."""
    return settings(base, suppress_health_check=[*base.suppress_health_check, HealthCheck.data_too_large])


def run_walks(test: type[Walk]) -> Coverage:
    """Run a class that `state_machine_test` made, outside pytest; return what was covered. Raises what a failing walk raises."""
    run: Callable[[], Any] = test.TestCase().runTest
    run()
    return test.plan.coverage
