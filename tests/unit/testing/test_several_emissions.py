"""Implementations of a table with several emissions of one effect: how many are awaited, and under which keys, is shown and compared."""

import attrs
import pytest
from hypothesis import Phase, settings
from sample_sizes import sample_size

from dsa.lang import loads
from dsa.semantics import Occurrence
from dsa.testing import (
    DisagreementError,
    Observation,
    RefusedAction,
    ReplayedMachine,
    StatechartMachine,
    SteppedMachine,
    View,
    complete_suite,
    play,
    row_tour,
    run_walks,
    state_machine_test,
)
from dsa.testing.explored_graph import graph_of
from dsa.testing.lockstep import DEFAULT, Lockstep

CALLS = loads("""# calls
## Variables
| variable | domain | initial |
| - | - | - |
| failures | 0..2 | 0 |
## Events
| event | from |
| - | - |
| go | outside |
| more | outside |
| anew | outside |
| said | ask |
## Effects
| effect | at once |
| - | - |
| ask | 3 |
## States
| state | kind |
| - | - |
| idle | initial |
| working | |
| done | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | ask, ask | working |
| working | more | | | ask | = |
| working | anew | | | cancel ask, ask, ask | = |
| working | said | pending ask | | | = |
| working | said | not pending ask | | | done |
| working | ask.failed | failures < 2 and pending ask | failures += 1 | | = |
| working | ask.failed | failures < 2 and not pending ask | failures += 1 | ask | = |
| working | ask.failed | failures == 2 | | cancel | done |
""")
STEADY = settings(
    DEFAULT,
    derandomize=True,
    database=None,
    max_examples=sample_size(15, full=60),
    phases=[p for p in Phase if p is not Phase.explain],
)


class Calls:
    """Code that stores a key for each call; the newest one is answered first."""

    def start(self, _parameters, /):
        self.state, self.failures, self.count, self.keys = "idle", 0, 0, []

    def ask(self, count=1):
        self.keys += [f"call {self.count + number}" for number in range(1, count + 1)]
        self.count += count
        return ["ask"] * count

    def answered(self):
        self.keys.pop()

    def has_calls(self):
        return bool(self.keys)

    def cancel(self):
        self.keys.clear()

    def feed(self, occurrence, /):
        event = occurrence.event
        if (self.state, event) == ("idle", "go"):
            self.state = "working"
            return self.ask(2)
        if self.state != "working" or event == "go" or (event in {"said", "ask.failed"} and not self.keys):
            return RefusedAction()
        if event == "more":
            return RefusedAction() if len(self.keys) == 3 else self.ask()
        if event == "anew":
            self.cancel()
            return self.ask(2)
        self.answered()
        if event == "said":
            self.state = self.state if self.has_calls() else "done"
            return []
        if self.failures == 2:
            self.state, self.keys = "done", []
            return []
        self.failures += 1
        return [] if self.has_calls() else self.ask()

    def view(self):
        return View(self.state, {"failures": self.failures}, ["ask"] * len(self.keys), {"ask": list(self.keys)})


def changed(name, **methods):
    return type(name, (Calls,), methods)


def names_only(self):
    return attrs.evolve(Calls.view(self), pending=set(Calls.view(self).pending))


def oldest_key_only(self):
    return View(keys={"ask": self.keys[0]} if self.keys else {})


def numbered_from_one(self, count=1):
    self.count = len(self.keys)
    return Calls.ask(self, count)


def dropped_twice(self):
    self.keys.pop()
    del self.keys[:-1]


def renamed(self):
    self.keys.pop()
    self.keys = [f"{key}'" for key in self.keys]


@pytest.mark.parametrize("make", [Calls, lambda: ReplayedMachine(CALLS), lambda: SteppedMachine(CALLS)])
def test_correct_implementation_passes_walks(make):
    run_walks(state_machine_test(CALLS, make, settings=STEADY))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (changed("Names", view=names_only), "the pending effects after go: calls says ask, ask, but the implementation says ask"),
        (changed("Oldest", view=oldest_key_only), "the effects that have keys after go: calls says ask, ask, but the implementation says ask"),
        (changed("Numbers", ask=numbered_from_one), "says a key that was not used before, but the implementation says call "),
        (changed("Drops", answered=dropped_twice), "the pending effects after "),
        (changed("Renames", answered=renamed), "the key of ask after "),
        (changed("Joins", has_calls=lambda _self: False), "the state after said: calls says working, but the implementation says done"),
        (changed("Keeps", cancel=lambda self: self.keys.__delitem__(slice(1, None))), "the pending effects after anew"),
    ],
    ids=["names only", "one key", "a key again", "two answered", "keys renamed", "joins early", "not all cancelled"],
)  # fmt: skip
def test_faulty_implementation_is_found(make, said):
    with pytest.raises(DisagreementError) as found:
        run_walks(state_machine_test(CALLS, make, settings=STEADY))
    assert said in str(found.value)


def test_new_emission_may_not_reuse_the_key_of_a_cancelled_one():
    class Reuses(Calls):
        def cancel(self):
            self.count -= len(self.keys)
            self.keys.clear()

    lockstep = Lockstep(CALLS, Reuses())
    lockstep.feed(Occurrence("go"))
    with pytest.raises(
        DisagreementError, match="the key of ask after anew: calls says a key that was not used before, but the implementation says call 1"
    ):  # fmt: skip
        lockstep.feed(Occurrence("anew"))


@pytest.mark.parametrize("kind", [None, SteppedMachine, ReplayedMachine, StatechartMachine])
def test_correct_implementation_passes_tours_and_complete_suites(kind):
    make = Calls if kind is None else lambda: kind(CALLS)
    observation = Observation(state=True, values=("failures",), pending=True)
    coverage = play(CALLS, make, row_tour(graph_of(CALLS)))
    assert coverage.rows == set(range(len(CALLS.transitions)))
    suite = complete_suite(CALLS, observation=observation)
    play(CALLS, make, suite.tests, observation=observation)


def test_complete_suite_finds_a_join_that_fires_early():
    suite = complete_suite(CALLS, observation=Observation())
    with pytest.raises(DisagreementError):
        play(CALLS, changed("Joins", has_calls=lambda _self: False), suite.tests)
