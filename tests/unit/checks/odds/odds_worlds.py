"""Synthetic worlds: recorded runs of steps in order whose true odds are known."""

import attrs

from dsa.checks.odds.estimation import RecordedAttempts, VerdictSample


@attrs.frozen
class World:
    """Runs of `steps` steps with `rmax` retries each.

    Attempts are independent, unless `hard` has odds of passing of which each run draws one for all its attempts, or retries pass less
    often by `drop` each.
    """

    runs: int
    steps: int
    rmax: int = 3
    passes: float = 0.7
    fatal: float = 0.0
    hard: tuple[float, ...] = ()
    drop: float = 0.0

    def attempts(self, rng):
        """Return the attempts of all runs."""
        return [attempt for run in range(self.runs) for attempt in self._run(str(run), rng)]

    def recorded(self, rng):
        """Return the runs as recorded."""
        return RecordedAttempts(tuple(self.attempts(rng)), tuple(map(str, range(self.runs))))

    def _run(self, run, rng):
        passes = rng.choice(self.hard) if self.hard else self.passes
        for step in range(self.steps):
            for retry in range(self.rmax + 1):
                drawn, here = rng.random(), max(0.0, passes - retry * self.drop)
                outcome = "passed" if drawn < here else "fatal" if drawn < here + self.fatal else "failed"
                yield VerdictSample(run, f"s{step}", retry, outcome)
                if outcome != "failed":
                    break
            if outcome != "passed":
                return
