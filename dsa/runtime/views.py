"""What a run has done step by step, folded from its ledger: attempts, feedback history, finalised artifacts.

WorkflowState and EnvironmentState of the agent program are read off these values; nothing here decides anything.
"""

from collections.abc import Iterable

import attrs

from dsa.expr import Outcome
from dsa.machine import Machine, read_guards
from dsa.runtime.ledger import ArtifactEntry, Ledger, VerdictEntry


@attrs.frozen
class Rejection:
    """An artifact that a guard or a person turned down, and why."""

    artifact_id: str
    outcome: Outcome
    feedback: str


@attrs.frozen
class StepView:
    """One step of a workflow, as far as it has got.

    `attempts` counts its artifacts over the whole run, `latest` is the newest of them. `history` is H of
    Definition 3: the rejections since the step last passed, the last and a fatal one included.
    `accepted` is the artifact finalised by the row that set the step's workflow variable, named by `variable`. `redacted` are the names of
    the secrets that the text of `latest` had.
    """

    name: str
    attempts: int = 0
    latest: str | None = None
    history: Ledger[Rejection] = attrs.field(factory=Ledger)
    accepted: str | None = None
    variable: str | None = None
    redacted: tuple[str, ...] = ()

    def after(self, entries: Iterable[ArtifactEntry | VerdictEntry]) -> "StepView":
        """Give the view after an artifact was made, a verdict given, or several of them.

        A rejection joins the history, a pass ends it (Definition 8).
        """
        attempts, latest, redacted = self.attempts, self.latest, self.redacted
        history, rejections = self.history, list[Rejection]()
        for entry in entries:
            if isinstance(entry, ArtifactEntry):
                attempts, latest, redacted = attempts + 1, entry.artifact_id, entry.redacted
            elif (outcome := entry.outcome) == "passed":
                history, rejections = Ledger(), []
            else:
                rejections.append(Rejection(entry.artifact_id, outcome, entry.feedback))
        history = history.extend(rejections) if rejections else history
        return StepView(self.name, attempts, latest, history, self.accepted, self.variable, redacted)

    def finalised(self, variable: str) -> "StepView":
        """Give the view after a row has set the step's workflow variable."""
        return attrs.evolve(self, history=Ledger(), accepted=self.latest, variable=variable)

    def fresh(self) -> "StepView":
        """Give the view with an empty history: what comes next is a new execution."""
        return attrs.evolve(self, history=Ledger())

    def revoked(self) -> "StepView":
        """Give the view without a finalised artifact."""
        return attrs.evolve(self, accepted=None, variable=None)


def guards_for(machine: Machine, state: str, event: str) -> tuple[str, ...]:
    """Give the guards that need a verdict when an event arrives in a state (S2), sorted."""
    found: tuple[str, ...] | None = machine.worked_out.get(("guards", state, event))
    if found is None:
        found = machine.worked_out["guards", state, event] = read_guards(machine.rows_for(state, event))
    return found
