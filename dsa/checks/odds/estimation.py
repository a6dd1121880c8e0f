"""Estimates of odds from recorded runs: points, and bounds that hold together at a stated confidence.

`read_attempts` reads lines of JSON: a run's story (`dsa show RUN --jsonl`), a trace (one step a line, with `event`, `verdicts` and `state`), or one
attempt a line, such as `{"run": "a", "guard": "g", "verdict": "passed"}`. It gives the attempts with their retry numbers. `independence` tests the
assumption under all numbers here: that attempts are independent.

`estimate` gives an `Estimate`. Each guard's odds are bounded exactly (Clopper and Pearson 1934). The risks of all these bounds add up to what the
confidence allows (Bonferroni). The bound on success is its least value over all odds within them. At every verdict, any odds that the bounds allow
may hold, so the bound is valid for any machine.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, erfc, exp, lgamma, log, log1p, sqrt
from statistics import fmean
from typing import Any, Unpack

import attrs

from dsa.checks.odds.chain_solver import OddsRange
from dsa.checks.odds.markov_chain import Numbers, VerdictOdds, left_over, odds_error
from dsa.checks.odds.run_odds import OddsAssumptions, Question, RunOdds, question
from dsa.errors import DsaError
from dsa.expr import OUTCOMES, Outcome
from dsa.machine import Machine

_HALVINGS = 60


def at_least(hits: int, tries: int, risk: float) -> float:
    """Return the largest lower bound that is above the truth with a probability of at most `risk`."""
    if hits == 0:
        return 0.0
    return _bisection_point(lambda p: _upper_tail(hits, tries, p) < risk)


def at_most(hits: int, tries: int, risk: float) -> float:
    """Return the smallest upper bound that is below the truth with a probability of at most `risk`."""
    return 1.0 - at_least(tries - hits, tries, risk)


def _bisection_point(below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def _upper_tail(hits: int, tries: int, p: float) -> float:
    """Return the probability of `hits` or more in `tries`: the regularised incomplete beta function I_p(hits, tries - hits + 1)."""
    return incomplete_beta(hits, tries - hits + 1, p)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return I_x(a, b) by its continued fraction (Lentz; Press et al., Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    tiny, close = 1e-300, 1e-15
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d or tiny)
    value = d
    for m in range(1, 100_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + step * d) or tiny)
            c = (1.0 + step / c) or tiny
            value *= c * d
        if abs(c * d - 1.0) < close:
            break
    return value


def two_sided(deviation: float) -> float:
    """Return the probability that a standard normal number is at least this far from 0."""
    return erfc(abs(deviation) / sqrt(2))


@attrs.frozen
class VerdictSample:
    """One verdict. `retry` counts how many times in a row the guard had failed before it in this run."""

    run: str
    guard: str
    retry: int
    outcome: Outcome


#: Returns the digests that the ledger of a machine's run may have.
Digests = Callable[[Machine], Collection[str]]


@attrs.frozen
class RecordedAttempts:
    """The attempts of runs of one machine, run by run, each run's in their order.

    `end_counts` counts the runs at this machine's parameter values by the state they were last seen in; one that is not final has not succeeded.
    `notes` says what was left out.
    """

    attempts: tuple[VerdictSample, ...] = ()
    runs: tuple[str, ...] = ()
    end_counts: Mapping[str, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def read_attempts(
    machine: Machine, texts: Iterable[tuple[str, str]], digests: Digests | None = None
) -> RecordedAttempts:
    """Read recorded runs; `texts` are names of files with their contents, `digests` returns those of this machine's documents.

    Runs of machines with another name are left out, and so are verdicts of guards that this machine does not have.
    Raises ParameterError for a line of no such form, for a trace that a check has found, and for a ledger with the digest of
    another machine.
    """
    reader = _LedgerReader(machine, digests)
    for name, text in texts:
        reader.read(name, text)
    return reader.result()


#: Why a trace that says where it began and where it loops (`dsa.trace`) is not a recorded run.
_TRACE_IS_NO_RUN = "this is a trace that `dsa check --save-traces` wrote, not a recorded run, so it does not show how often a guard passes"


def _is_itf(text: str) -> bool:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(whole, dict) and "states" in whole


class _LedgerReader:
    def __init__(self, machine: Machine, digests: Digests | None) -> None:
        self._machine, self._digests = machine, digests
        self._by_run: dict[str, list[tuple[str, Outcome]]] = {}
        self._end_counts: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def read(self, name: str, text: str) -> None:
        """Read one file."""
        if _is_itf(text):
            raise odds_error(f"{name}: {_TRACE_IS_NO_RUN}")
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        entries = [self._entry(name, number, line) for number, line in lines]
        if any("kind" in entry for entry in entries):
            self._ledger(name, entries)
            return
        if entries and {"machine", "loop"} <= entries[0].keys():
            raise odds_error(f"{name}: {_TRACE_IS_NO_RUN}")
        if any("event" in entry for entry in entries):
            self._trace(name, entries)
            return
        for (number, _), entry in zip(lines, entries, strict=True):
            if not {"guard", "verdict"} <= entry.keys():
                example = '{"run": "a", "guard": "g", "verdict": "passed"}'
                raise odds_error(
                    f"{name}:{number}: this is neither a line of a ledger nor an attempt such as {example}"
                )
            self._add_verdict(str(entry.get("run", name)), str(entry["guard"]), entry["verdict"], f"{name}:{number}")

    @staticmethod
    def _entry(name: str, number: int, line: str) -> dict[str, object]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise odds_error(f"{name}:{number}: this is not a JSON object")
        return entry

    def _ledger(self, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
        first = next((entry for entry in entries if entry.get("kind") == "machine"), {})
        if first.get("name", self._machine.name) != self._machine.name:
            self._leave_out("runs of other machines")
            return
        for machine in (first, *(entry for entry in entries if entry.get("kind") == "change")):
            self._require_same(name, machine)
        run = str(first.get("run", name))
        self._by_run.setdefault(run, [])
        last, event = "", dict[str, object]()
        for entry in entries:
            if entry.get("kind") == "event":
                event = dict(entry)
            elif entry.get("kind") == "row":
                self._verdicts(run, event, name)
                last = str(entry.get("target"))
        constants = self._machine.constants
        if last and first.get("parameters", constants) == constants:
            self._end_counts[last] = self._end_counts.get(last, 0) + 1

    def _require_same(self, name: str, first: Mapping[str, Any]) -> None:
        """Raise ParameterError when the digest of a ledger is that of another machine of this name."""
        if self._digests is None or not first.get("digest"):
            return
        try:
            digests = self._digests(self._machine.at(first.get("parameters") or {}))
        except (DsaError, TypeError, AttributeError):
            digests = ()
        if first["digest"] not in digests:
            raise odds_error(
                f"{name}: this run has another digest than machine {self._machine.name} has now, because the document has changed"
                " since the run; give --from-runs only runs of the present document"
            )

    def _trace(self, name: str, steps: Sequence[Mapping[str, Any]]) -> None:
        """Read a trace: one taken step a line, each with its event, verdicts and the state after it; one file is one run."""
        self._by_run.setdefault(name, [])
        for step in steps:
            if "event" in step:
                self._verdicts(name, step, name)
        last, constants = str(steps[-1].get("state", "")), self._machine.constants
        if last and steps[0].get("parameters", constants) == constants:
            self._end_counts[last] = self._end_counts.get(last, 0) + 1

    def _verdicts(self, run: str, entry: Mapping[str, Any], where: str) -> None:
        verdicts = entry.get("verdicts") or {}
        if not isinstance(verdicts, dict):
            raise odds_error(
                f'{where}: the verdicts of an event are an object, such as {{"g": "passed"}}, not {verdicts!r}'
            )
        for guard, verdict in verdicts.items():
            self._add_verdict(run, guard, verdict, where)

    def _add_verdict(self, run: str, guard: str, verdict: object, where: str) -> None:
        if verdict not in OUTCOMES:
            raise odds_error(f"{where}: '{verdict}' is not a verdict; verdicts are: {', '.join(OUTCOMES)}")
        if guard in self._machine.guard_named:
            outcome = next(outcome for outcome in OUTCOMES if outcome == verdict)
            self._by_run.setdefault(run, []).append((guard, outcome))
        else:
            self._leave_out(f"verdicts of {guard}, which {self._machine.name} does not have")

    def _leave_out(self, what: str) -> None:
        self._left_out[what] = self._left_out.get(what, 0) + 1

    def result(self) -> RecordedAttempts:
        """Return everything read."""
        attempts: list[VerdictSample] = []
        for run, verdicts in self._by_run.items():
            attempts += samples_of_run(run, verdicts)
        notes = tuple(f"left out: {count} {what}" for what, count in self._left_out.items())
        return RecordedAttempts(tuple(attempts), tuple(self._by_run), self._end_counts, notes)


def samples_of_run(run: str, verdicts: Iterable[tuple[str, Outcome]]) -> Iterator[VerdictSample]:
    """Yield the retry numbers of one run's verdicts: failed verdicts of the guard in a row before each."""
    failed: dict[str, int] = {}
    for guard, outcome in verdicts:
        yield VerdictSample(run, guard, failed.get(guard, 0), outcome)
        failed[guard] = failed.get(guard, 0) + 1 if outcome == "failed" else 0


@attrs.frozen
class Independence:
    """One test of independence: what it tests, the deviation from the expected value, how rare that is, and the finding.

    `rare` is the probability of a deviation at least as large if attempts are independent (None: too few to tell);
    `level` is the probability below which it counts as found.
    """

    question: str
    deviation: float
    rare: float | None
    level: float
    finding: str

    @property
    def is_broken(self) -> bool:
        """Return whether attempts do not look independent."""
        return self.rare is not None and self.rare < self.level


#: Chance of a false alarm, over both tests together.
ALARM = 0.05
#: With fewer informative attempts than this there is no answer.
_FEWEST = 5


def independence(attempts: Sequence[VerdictSample]) -> tuple[Independence, Independence]:
    """Test whether passing depends on the retry number, and whether it depends on how the run went before.

    Both are score tests: sums of products of an attempt's deviation from its guard's mean with the history before it, which are 0 on
    average when attempts are independent, compared with a normal distribution; two-sided, each at half of ALARM.
    """
    means = _means(attempts)
    return _by_retry(attempts, means), _by_run(attempts, means)


def _means(attempts: Sequence[VerdictSample]) -> dict[str, float]:
    counts: dict[str, list[int]] = {}
    for attempt in attempts:
        count = counts.setdefault(attempt.guard, [0, 0])
        count[0] += 1
        count[1] += attempt.outcome == "passed"
    return {guard: passed / total for guard, (total, passed) in counts.items()}


def _by_retry(attempts: Sequence[VerdictSample], means: Mapping[str, float]) -> Independence:
    again = {guard: fmean(a.retry > 0 for a in attempts if a.guard == guard) for guard in means}
    total = variance = 0.0
    retries = 0
    for attempt in attempts:
        mean = means[attempt.guard]
        weight = float(attempt.retry > 0) - again[attempt.guard]
        total += weight * ((attempt.outcome == "passed") - mean)
        variance += weight * weight * mean * (1 - mean)
        retries += attempt.retry > 0
    finding = f"retries pass {'less' if total < 0 else 'more'} often than first attempts"
    return _independence_test("passing does not depend on the retry number", total, variance, retries, finding)


def _by_run(attempts: Sequence[VerdictSample], means: Mapping[str, float]) -> Independence:
    total = variance = 0.0
    pairs = 0
    before: dict[str, float] = {}
    episodes_by_run: dict[str, dict[str, float]] = {}
    for attempt in attempts:
        run, guard, mean = attempt.run, attempt.guard, means[attempt.guard]
        episodes = episodes_by_run.setdefault(run, {})
        if attempt.retry == 0:  # what the run did before this piece of work
            before[run] = before.get(run, 0.0) + episodes.pop(guard, 0.0)
        history = before.get(run, 0.0) + sum(so_far for other, so_far in episodes.items() if other != guard)
        deviation = (attempt.outcome == "passed") - mean
        total += history * deviation
        variance += history * history * mean * (1 - mean)
        pairs += history != 0
        episodes[guard] = episodes.get(guard, 0.0) + deviation
    finding = "passed verdicts tend to come in the same runs" if total > 0 else "runs that pass early fail later"
    return _independence_test("passing does not depend on how the run went before", total, variance, pairs, finding)


def _independence_test(question: str, total: float, variance: float, informative: int, finding: str) -> Independence:
    level = ALARM / 2
    if variance <= 0 or informative < _FEWEST:
        return Independence(question, 0.0, None, level, "too few attempts to tell")
    deviation = total / sqrt(variance)
    rare = two_sided(deviation)
    return Independence(question, deviation, rare, level, finding if rare < level else "no evidence against it")


_MOST_SCALE = 1 << 20


@attrs.frozen
class Counts:
    """What one guard said in all recorded runs. `fatal_odds` are assumed, and so not estimated, unless None."""

    guard: str
    passed: int
    failed: int
    fatal: int
    fatal_odds: float | None = None

    @property
    def total(self) -> int:
        """How many verdicts there are."""
        return self.passed + self.failed + self.fatal

    @property
    def bounds(self) -> int:
        """How many odds of this guard are estimated: those of passing, and those of fatal unless they are assumed."""
        return 1 if self.fatal_odds is not None else 2

    def at_scale(self, times: float) -> "Counts":
        """Return the counts of `times` times as much of the same."""
        passed, failed, fatal = (round(count * times) for count in (self.passed, self.failed, self.fatal))
        return attrs.evolve(self, passed=passed, failed=failed, fatal=fatal)


@attrs.frozen
class BoundedOdds:
    """A guard's odds when only bounds on them are known, the same for every retry number."""

    passed: tuple[float, float]
    fatal: tuple[float, float]
    memory: int = 1
    is_memoryless: bool = False

    def corners(self, retry: int) -> tuple[dict[Outcome, float], ...]:  # noqa: ARG002  (the same for every retry)
        """Return the corners of the odds that the bounds allow, each of which adds up to 1."""
        corners: dict[tuple[float, float], dict[Outcome, float]] = {}
        for passed, fatal in product(self.passed, self.fatal):
            over = max(0.0, passed + fatal - 1)
            for less in ((0.0, over), (over, 0.0)):
                p, q = passed - less[0], fatal - less[1]
                if p >= self.passed[0] - 1e-15 and q >= self.fatal[0] - 1e-15:
                    corners[p, q] = {"passed": p, "failed": left_over(p, q), "fatal": q}
        return tuple(corners.values())


@attrs.frozen
class GuardEstimate:
    """One guard's counts, its point, and the interval of its odds of passing and of fatal at the confidence."""

    counts: Counts
    passed: float
    interval: tuple[float, float]
    fatal: float
    fatal_interval: tuple[float, float]


@attrs.frozen
class Estimate:
    """What recorded runs say of a machine.

    `point` is at the rates seen. `lower` bounds success from below at `confidence`; `interval` has it on both sides. `most` bounds
    how often each effect is expected. `if_fatal` is the lower bound when guards may be fatal that never were in the recorded runs.
    `whole_runs` is the lower bound from the recorded runs' ends alone, which needs no independence within runs (None when no ends
    are known). `missing_runs` says how many more runs like these bring the bound to the target: None when none does, or without a
    target.
    """

    point: RunOdds
    confidence: float
    guards: tuple[GuardEstimate, ...]
    runs: int
    lower: float
    interval: tuple[float, float]
    if_fatal: float | None
    whole_runs: float | None
    most: tuple[tuple[str, float], ...]
    independence: tuple[Independence, Independence]
    missing_runs: int | None = None
    notes: tuple[str, ...] = ()


@attrs.frozen
class Estimator:
    """Counts of a machine's guards, from which questions with points or bounds are made."""

    question: Question
    counts: tuple[Counts, ...]
    confidence: float
    fixed_guards: Mapping[str, VerdictOdds]

    def bounded_question(self, *, sides: int = 1, scale: float = 1.0, fatal: bool = False) -> Question:
        """Return the question with bounds for odds: from below on passing and from above on fatal, or on both sides.

        With `fatal`, also what was assumed never to be fatal is bounded by what was seen.
        """
        counts = [count.at_scale(scale) for count in self.counts]
        counts = [attrs.evolve(count, fatal_odds=None) if fatal else count for count in counts]
        risk = (1 - self.confidence) / (sides * max(1, sum(count.bounds for count in counts)))
        guards = {count.guard: _bounded_odds(count, risk, both=sides == 2) for count in counts}  # noqa: PLR2004
        return attrs.evolve(
            self.question, world=attrs.evolve(self.question.world, guards={**self.fixed_guards, **guards})
        )

    def point(self) -> Question:
        """Return the question at the rates seen."""
        points = {count.guard: _point(count) for count in self.counts}
        return attrs.evolve(
            self.question, world=attrs.evolve(self.question.world, guards={**self.fixed_guards, **points})
        )


def _bounded_odds(count: Counts, risk: float, *, both: bool) -> BoundedOdds:
    passed = (at_least(count.passed, count.total, risk), at_most(count.passed, count.total, risk) if both else 1.0)
    if count.fatal_odds is not None:
        fatal = (count.fatal_odds, count.fatal_odds)
        return BoundedOdds((min(passed[0], 1 - fatal[0]), max(min(passed[1], 1 - fatal[0]), 0.0)), fatal)
    least = at_least(count.fatal, count.total, risk) if both else 0.0
    return BoundedOdds(passed, (least, at_most(count.fatal, count.total, risk)))


def estimator(
    machine: Machine, record: RecordedAttempts, *, confidence: float = 0.95, **assumptions: Unpack[OddsAssumptions]
) -> Estimator:
    """Count the verdicts of each guard that may run; a guard with `passes` keeps these odds.

    Odds of fatal that are given or declared are taken as they are; else they are estimated where fatal was seen, and 0 where it
    never was. Raises ParameterError for a guard that may run and has neither recorded verdicts nor odds.
    """
    if not 0 < confidence < 1:
        raise odds_error(f"{confidence:g} is not a confidence: it must lie between 0 and 1")
    free = question(machine, **assumptions)
    guard_names = attrs.evolve(free, world=attrs.evolve(free.world, guards={})).chain().missing
    fixed_guards: dict[str, VerdictOdds] = {name: free.world.guards[name] for name in assumptions.get("passes") or {}}
    fatals = assumptions.get("fatals") or {}
    counts = tuple(_counts(machine, record.attempts, name, fatals) for name in guard_names if name not in fixed_guards)
    for count in counts:
        if not count.total:
            raise odds_error(
                f"no verdict of guard {count.guard} is recorded: record at least one run that asks it, or give --pass "
                f"{count.guard}=0.7"
            )
    return Estimator(free, counts, confidence, fixed_guards)


def _counts(machine: Machine, attempts: Sequence[VerdictSample], guard: str, fatals: Mapping[str, Numbers]) -> Counts:
    outcomes = [attempt.outcome for attempt in attempts if attempt.guard == guard]
    passed, failed, fatal = (outcomes.count(outcome) for outcome in ("passed", "failed", "fatal"))
    fatal_odds = tuple(fatals.get(guard, machine.guard_named[guard].fatal_odds))
    if len(set(fatal_odds)) > 1:
        raise odds_error(f"with recorded runs, --fatal of guard {guard} takes one number for all retries")
    assumption = fatal_odds[0] if fatal_odds else 0.0
    return Counts(guard, passed, failed, fatal, None if fatal and not fatal_odds else assumption)


def estimate(this: Estimator, record: RecordedAttempts, *, target: float | None = None) -> Estimate:
    """Work out points, intervals and bounds, at the machine's parameter values."""
    guard_names = {count.guard for count in this.counts}
    point = this.point().at()
    low = this.bounded_question().at()
    wide = this.bounded_question(sides=2).at()
    success, both = low.success or OddsRange(0.0, 1.0), wide.success or OddsRange(0.0, 1.0)
    guards = this.question.system.machine.guard_named
    quiet = any(count.fatal_odds == 0 and "fatal" in guards[count.guard].outcomes for count in this.counts)
    return Estimate(
        point,
        this.confidence,
        tuple(_guard(count, this.confidence) for count in this.counts),
        len(record.runs),
        success.low,
        (both.low, both.high),
        this.bounded_question(fatal=True).success_at() if quiet and point.is_known else None,
        _whole_runs(this, record),
        tuple((effect.effect, effect.average.high) for effect in low.effects),
        independence([a for a in record.attempts if a.guard in guard_names]),
        None if target is None else missing_runs(this, len(record.runs), point, success.low, target),
        record.notes,
    )


def _point(count: Counts) -> BoundedOdds:
    fatal = count.fatal / count.total if count.fatal_odds is None else count.fatal_odds
    passed = min(count.passed / count.total, 1 - fatal)
    return BoundedOdds((passed, passed), (fatal, fatal))


def _guard(count: Counts, confidence: float) -> GuardEstimate:
    risk = (1 - confidence) / 2
    sides = [(at_least(n, count.total, risk), at_most(n, count.total, risk)) for n in (count.passed, count.fatal)]
    return GuardEstimate(count, count.passed / count.total, sides[0], count.fatal / count.total, sides[1])


def _whole_runs(this: Estimator, record: RecordedAttempts) -> float | None:
    total = sum(record.end_counts.values())
    good = sum(count for state, count in record.end_counts.items() if state in this.question.success)
    return at_least(good, total, 1 - this.confidence) if total else None


def missing_runs(this: Estimator, runs: int, point: RunOdds, lower: float, target: float) -> int | None:
    """Return how many more runs at the same rates bring the lower bound to the target: 0 when it is there, None when none does."""
    if lower >= target:
        return 0
    if point.success is None or point.success.low <= target or not runs:
        return None

    def enough(total: int) -> bool:
        return this.bounded_question(scale=total / runs).success_at() >= target

    low = high = runs
    while not enough(high):
        low, high = high, high * 2
        if high > runs * _MOST_SCALE:
            return None
    while high - low > 1:
        middle = ceil((low + high) / 2)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - runs
