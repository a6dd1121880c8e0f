import threading

import attrs
import pytest

from dsa.guards.guard_kinds import AllOf, Combination
from dsa.guards.text_guards import ReviewGuard
from dsa.runtime.content import Artifact, GuardInterface, GuardResult


@attrs.define
class Says(GuardInterface):
    """A guard that returns a fixed result and records its calls."""

    result: GuardResult
    asked: list = attrs.field(factory=list)

    def validate(self, artifact, **dependencies):
        self.asked.append((artifact, dependencies))
        return self.result


def passed():
    return Says(GuardResult(passed=True))


def failed(feedback="no"):
    return Says(GuardResult(passed=False, feedback=feedback))


def fatal(feedback="never"):
    return Says(GuardResult(passed=False, feedback=feedback, fatal=True))


ARTIFACT = Artifact(content="x")


def test_in_order_stops_at_the_first_part_that_does_not_pass():
    parts = {"a": passed(), "b": failed("bad b"), "c": fatal()}
    assert AllOf(parts).validate(ARTIFACT, test=ARTIFACT) == GuardResult(passed=False, feedback="b: bad b")
    assert parts["a"].asked == [(ARTIFACT, {"test": ARTIFACT})]
    assert parts["c"].asked == []


def test_in_order_keeps_fatal():
    result = AllOf({"a": passed(), "b": fatal("f")}).validate(ARTIFACT)
    assert result == GuardResult(passed=False, feedback="b: f", fatal=True)


def test_in_order_passes_when_all_pass():
    assert AllOf({"a": passed(), "b": passed()}).validate(ARTIFACT) == GuardResult(passed=True)


@pytest.mark.parametrize(
    ("kind", "k", "passing", "verdict"),
    [
        ("all", 1, 3, True),
        ("all", 1, 2, False),
        ("any", 1, 1, True),
        ("any", 1, 0, False),
        ("at_least", 2, 2, True),
        ("at_least", 2, 1, False),
        ("at_least", 3, 2, False),
    ],
)
def test_combinations_count_the_parts_that_pass(kind, k, passing, verdict):
    parts = {f"g{n}": passed() if n < passing else failed(f"no {n}") for n in range(3)}
    result = Combination(parts, kind, k).validate(ARTIFACT)
    assert result.passed is verdict
    assert result.feedback == ("" if verdict else "\n".join(f"g{n}: no {n}" for n in range(passing, 3)))


@pytest.mark.parametrize("kind", ["all", "any", "at_least"])
def test_fatal_part_dominates_every_combination(kind):
    result = Combination({"a": passed(), "b": passed(), "c": fatal("stop")}, kind).validate(ARTIFACT)
    assert result == GuardResult(passed=False, feedback="c: stop", fatal=True)


def test_error_of_a_part_is_raised_even_if_another_part_is_fatal():
    class Broken(GuardInterface):
        def validate(self, artifact, **dependencies):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        Combination({"a": fatal(), "b": Broken()}).validate(ARTIFACT)


@pytest.mark.parametrize(("parts", "k"), [(0, 1), (2, 0), (2, 3)])
def test_combination_that_can_never_or_always_pass_is_refused(parts, k):
    with pytest.raises(ValueError, match=r"is not possible with 2 guards|needs at least one guard"):
        Combination({f"g{n}": passed() for n in range(parts)}, "at_least", k)


class Silent(GuardInterface):
    def validate(self, artifact, **dependencies):
        return None


@pytest.mark.parametrize("whole", [AllOf({"quiet": Silent()}), Combination({"quiet": Silent()}, "any")])
def test_part_that_returns_no_result_is_named(whole):
    with pytest.raises(TypeError, match="guard quiet gave None, not a GuardResult"):
        whole.validate(Artifact("x"))


class Waits(GuardInterface):
    """Passes once all of `count` guards are asked."""

    def __init__(self, barrier):
        self.barrier = barrier

    def validate(self, artifact, **dependencies):
        self.barrier.wait(timeout=30)
        return GuardResult(passed=True)


def test_parallel_parts_are_asked_at_once_and_reported_in_order():
    barrier = threading.Barrier(3)
    parts = {"a": Waits(barrier), "b": Waits(barrier), "c": Waits(barrier)}
    assert Combination(parts, parallel=True).validate(ARTIFACT).passed
    mixed = {"a": failed("one"), "b": fatal("two"), "c": failed("three")}
    result = Combination(mixed, "any", parallel=True).validate(ARTIFACT)
    assert result == GuardResult(passed=False, feedback="a: one\nb: two\nc: three", fatal=True)


class Hangs(GuardInterface):
    def __init__(self):
        self.free = threading.Event()

    def validate(self, artifact, **dependencies):
        self.free.wait()
        return GuardResult(passed=True)


@pytest.mark.parametrize("parallel", [True, False])
def test_part_that_takes_too_long_raises_a_timeout(parallel):
    hanging = Hangs()
    guard = Combination({"slow": hanging, "quick": failed()}, parallel=parallel, timeout_s=0.05)
    with pytest.raises(TimeoutError, match="guard slow did not give a verdict in time"):
        guard.validate(ARTIFACT)
    hanging.free.set()
    with pytest.raises(ValueError, match="not a valid time limit"):
        Combination({"a": passed()}, timeout_s=0)


@pytest.mark.parametrize("parallel", [True, False])
def test_error_of_a_part_is_raised_whether_parallel_or_not(parallel):
    class Raises(GuardInterface):
        def validate(self, artifact, **dependencies):
            raise ZeroDivisionError("oh")

    with pytest.raises(ZeroDivisionError, match="oh"):
        Combination({"a": passed(), "b": Raises()}, parallel=parallel, timeout_s=30).validate(ARTIFACT)


def test_review_hands_everything_to_a_person():
    result = AllOf({"a": passed(), "b": ReviewGuard("Is it kind?")}).validate(ARTIFACT)
    assert result == GuardResult(passed=False, feedback="b: Is it kind?", fatal=True, review=True)


@pytest.mark.parametrize(
    ("other", "review"),
    [(passed(), True), (failed("no"), True), (fatal("never"), False), (ReviewGuard("And this?"), True)],
)
def test_combination_asks_for_a_review_when_nothing_else_is_fatal(other, review):
    result = Combination({"a": other, "b": ReviewGuard("Is it kind?")}).validate(ARTIFACT)
    assert (result.fatal, result.review) == (True, review)


def test_review_must_be_fatal():
    with pytest.raises(ValueError, match="asks for a review must also be fatal"):
        GuardResult(passed=False, review=True)
    with pytest.raises(TypeError, match="`review` must be True or False"):
        GuardResult(passed=False, fatal=True, review=1)
