"""Ask a person: the guard that judges nothing itself.

It is fatal for every artifact, so that the table's row for a fatal verdict hands the artifact over: a step of a workflow then waits in
`escalated.STEP` for `approved`, `amended`, `rejected`, `granted` or `aborted`.
"""

from dsa.runtime.content import Artifact, GuardInterface, GuardResult


class ReviewGuard(GuardInterface):
    """Hand every artifact to a person; `question` is what the person is asked.

    Put it last: a person should see only what the other guards pass.
    """

    def __init__(self, question: str = "A person has to review this.") -> None:
        self._question = question

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Give the question, as a fatal verdict."""
        return GuardResult(passed=False, feedback=self._question, fatal=True)
