"""Recorded attempts: what guards said in runs that have been, and whether they said it independently.

Takes lines of JSON: a run's story (`dsa show RUN --jsonl`), a trace (a step a line, with `event`, `verdicts`, `state`), or one attempt a line, `{"run": "a", "guard": "g", "verdict": "passed"}`.
Gives attempts with their retry numbers, and a test of the assumption under every number that the odds come to.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from statistics import fmean
from typing import Any

import attrs

from dsa.checks.odds.assumed import OddsError
from dsa.checks.odds.binomial import two_sided
from dsa.errors import DsaError
from dsa.expr import OUTCOMES, Outcome
from dsa.machine import Machine


@attrs.frozen
class Attempt:
    """One verdict. `retry` counts how many times in a row the guard had failed before it in this run."""

    run: str
    guard: str
    retry: int
    outcome: Outcome


#: Gives the digests that the ledger of a machine's run may have.
Digests = Callable[[Machine], Collection[str]]


@attrs.frozen
class Recorded:
    """The attempts of runs of one machine, run by run, each run's in the order in which they came.

    `ended` counts the runs at this machine's parameter values by the state they were last seen in; one that is not final has not succeeded.
    `notes` says what was left out.
    """

    attempts: tuple[Attempt, ...] = ()
    runs: tuple[str, ...] = ()
    ended: Mapping[str, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


def recorded(machine: Machine, texts: Iterable[tuple[str, str]], digests: Digests | None = None) -> Recorded:
    """Read recorded runs; `texts` are names of files with what is in them, `digests` gives those of this machine's documents.

    Runs of machines with another name are left out, and so are verdicts of guards that this machine does not have. Raises OddsError
    for a line that is neither, for a trace that a check has found, and for a ledger with the digest of another machine.
    """
    reader = _Reader(machine, digests)
    for name, text in texts:
        reader.read(name, text)
    return reader.done()


#: Why a trace that says where it began and where it loops (`dsa.records`) is no recorded run.
_FOUND = "this is a trace that `dsa check --save-traces` found, not a run that has been, and says nothing of how often a guard passes"


def _is_itf(text: str) -> bool:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(whole, dict) and "states" in whole


class _Reader:
    def __init__(self, machine: Machine, digests: Digests | None) -> None:
        self._machine, self._digests = machine, digests
        self._by_run: dict[str, list[tuple[str, Outcome]]] = {}
        self._ended: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def read(self, name: str, text: str) -> None:
        """Read one file."""
        if _is_itf(text):
            raise OddsError(f"{name}: {_FOUND}")
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        parsed = [self._parsed(name, number, line) for number, line in lines]
        if any("kind" in entry for entry in parsed):
            self._ledger(name, parsed)
            return
        if parsed and {"machine", "loop"} <= parsed[0].keys():
            raise OddsError(f"{name}: {_FOUND}")
        if any("event" in entry for entry in parsed):
            self._trace(name, parsed)
            return
        for (number, _), entry in zip(lines, parsed, strict=True):
            if not {"guard", "verdict"} <= entry.keys():
                wanted = '{"run": "a", "guard": "g", "verdict": "passed"}'
                raise OddsError(f"{name}:{number}: neither a ledger's line nor an attempt, such as {wanted}")
            self._said(str(entry.get("run", name)), str(entry["guard"]), entry["verdict"], f"{name}:{number}")

    @staticmethod
    def _parsed(name: str, number: int, line: str) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise OddsError(f"{name}:{number}: this is no JSON object")
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
        last, event = "", dict[str, Any]()
        for entry in entries:
            if entry.get("kind") == "event":
                event = dict(entry)
            elif entry.get("kind") == "row":
                self._verdicts(run, event, name)
                last = str(entry.get("target"))
        constants = self._machine.constants
        if last and first.get("parameters", constants) == constants:
            self._ended[last] = self._ended.get(last, 0) + 1

    def _require_same(self, name: str, first: Mapping[str, Any]) -> None:
        """Raise OddsError when a ledger says that it is of another machine of this name."""
        if self._digests is None or not first.get("digest"):
            return
        try:
            known = self._digests(self._machine.at(first.get("parameters") or {}))
        except (DsaError, TypeError, AttributeError):
            known = ()
        if first["digest"] not in known:
            raise OddsError(
                f"{name}: this run is of another machine {self._machine.name}, as its digest says: the document has changed"
                " since; give --from-runs only runs of this one"
            )

    def _trace(self, name: str, steps: Sequence[Mapping[str, Any]]) -> None:
        """Read a trace: one taken step a line, each with its event, verdicts and the state after it; one file is one run."""
        self._by_run.setdefault(name, [])
        for step in steps:
            if "event" in step:
                self._verdicts(name, step, name)
        last, constants = str(steps[-1].get("state", "")), self._machine.constants
        if last and steps[0].get("parameters", constants) == constants:
            self._ended[last] = self._ended.get(last, 0) + 1

    def _verdicts(self, run: str, entry: Mapping[str, Any], where: str) -> None:
        said = entry.get("verdicts") or {}
        if not isinstance(said, dict):
            raise OddsError(f'{where}: the verdicts of an event are an object, such as {{"g": "passed"}}, not {said!r}')
        for guard, verdict in said.items():
            self._said(run, guard, verdict, where)

    def _said(self, run: str, guard: str, verdict: object, where: str) -> None:
        if verdict not in OUTCOMES:
            raise OddsError(f"{where}: '{verdict}' is no verdict; there are: {', '.join(OUTCOMES)}")
        if guard in self._machine.guard_named:
            outcome = next(outcome for outcome in OUTCOMES if outcome == verdict)
            self._by_run.setdefault(run, []).append((guard, outcome))
        else:
            self._leave_out(f"verdicts of {guard}, which is no guard of {self._machine.name}")

    def _leave_out(self, what: str) -> None:
        self._left_out[what] = self._left_out.get(what, 0) + 1

    def done(self) -> Recorded:
        """Give everything read."""
        attempts: list[Attempt] = []
        for run, said in self._by_run.items():
            attempts += numbered(run, said)
        notes = tuple(f"left out: {count} {what}" for what, count in self._left_out.items())
        return Recorded(tuple(attempts), tuple(self._by_run), self._ended, notes)


def numbered(run: str, said: Iterable[tuple[str, Outcome]]) -> Iterator[Attempt]:
    """Give the retry numbers of one run's verdicts: failed verdicts of the guard in a row before each."""
    failed: dict[str, int] = {}
    for guard, outcome in said:
        yield Attempt(run, guard, failed.get(guard, 0), outcome)
        failed[guard] = failed.get(guard, 0) + 1 if outcome == "failed" else 0


@attrs.frozen
class Independence:
    """One test of independence: what it looks at, its deviation from what is expected, how rare that is, and what it finds.

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
        """Tell whether attempts do not look independent."""
        return self.rare is not None and self.rare < self.level


#: Chance of a false alarm, over both tests together.
ALARM = 0.05
#: Fewer attempts that could tell anything than this give no answer.
_FEWEST = 5


def independence(attempts: Sequence[Attempt]) -> tuple[Independence, Independence]:
    """Test whether passing depends on the retry number, and whether it depends on how the run went before.

    Both are score tests: sums of products of an attempt's deviation from its guard's mean with what was known before it, which are 0 on
    average when attempts are independent, compared with a normal distribution; two-sided, each at half of ALARM.
    """
    means = _means(attempts)
    return _by_retry(attempts, means), _by_run(attempts, means)


def _means(attempts: Sequence[Attempt]) -> dict[str, float]:
    counts: dict[str, list[int]] = {}
    for attempt in attempts:
        count = counts.setdefault(attempt.guard, [0, 0])
        count[0] += 1
        count[1] += attempt.outcome == "passed"
    return {guard: passed / seen for guard, (seen, passed) in counts.items()}


def _by_retry(attempts: Sequence[Attempt], means: Mapping[str, float]) -> Independence:
    again = {guard: fmean(a.retry > 0 for a in attempts if a.guard == guard) for guard in means}
    total = variance = 0.0
    retries = 0
    for attempt in attempts:
        mean = means[attempt.guard]
        weight = float(attempt.retry > 0) - again[attempt.guard]
        total += weight * ((attempt.outcome == "passed") - mean)
        variance += weight * weight * mean * (1 - mean)
        retries += attempt.retry > 0
    found = f"retries pass {'less' if total < 0 else 'more'} often than first attempts"
    return _tested("passing does not depend on the retry number", total, variance, retries, found)


def _by_run(attempts: Sequence[Attempt], means: Mapping[str, float]) -> Independence:
    total = variance = 0.0
    pairs = 0
    before: dict[str, float] = {}
    working: dict[str, dict[str, float]] = {}
    for attempt in attempts:
        run, guard, mean = attempt.run, attempt.guard, means[attempt.guard]
        episodes = working.setdefault(run, {})
        if attempt.retry == 0:  # what the run did before this piece of work
            before[run] = before.get(run, 0.0) + episodes.pop(guard, 0.0)
        known = before.get(run, 0.0) + sum(so_far for other, so_far in episodes.items() if other != guard)
        deviation = (attempt.outcome == "passed") - mean
        total += known * deviation
        variance += known * known * mean * (1 - mean)
        pairs += known != 0
        episodes[guard] = episodes.get(guard, 0.0) + deviation
    found = "what passes comes in the same runs" if total > 0 else "runs that pass early fail later"
    return _tested("passing does not depend on how the run went before", total, variance, pairs, found)


def _tested(question: str, total: float, variance: float, informative: int, found: str) -> Independence:
    level = ALARM / 2
    if variance <= 0 or informative < _FEWEST:
        return Independence(question, 0.0, None, level, "too few attempts to tell")
    deviation = total / sqrt(variance)
    rare = two_sided(deviation)
    return Independence(question, deviation, rare, level, found if rare < level else "nothing speaks against it")
