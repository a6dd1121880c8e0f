"""Secrets taken out of what a run keeps: steps, requests, entries, artifacts, before anything is written anywhere.

Takes `Secrets` and the values of this package, gives the same values without them; what has no secret in it is given back as it is. An
artifact that had one says so for ever (`Artifact.redacted`), because its text has the markers.
"""

import json
from typing import TypeVar, cast

import attrs

from dsa.runtime.artifacts import ArtifactStore, Attempt
from dsa.runtime.content import Artifact, GuardResult
from dsa.runtime.ledger import PERSON, ArtifactEntry, Entry, Judgement, VerdictEntry, dump_line, from_json, to_json
from dsa.runtime.policies import Action, Step
from dsa.runtime.secrets import Secrets

AnEntry = TypeVar("AnEntry", bound=Entry)


def step_without(secrets: Secrets, step: Step) -> Step:
    """Give a step without secrets."""
    if not secrets.suspects(f"{step.payload_text}\n{step.actor}\n{step.type}\n{step.id}"):
        return step
    text = secrets.text
    return Step(text(step.id), text(step.actor), text(step.type), secrets.value(step.payload))


def action_without(secrets: Secrets, action: Action) -> Action:
    """Give a request without secrets: what is recorded of it, and what it is compared by. Who performs it gets the request itself."""
    if not secrets.suspects(action.payload_text):
        return action
    return Action(action.policy, secrets.value(action.payload), action.actions)


def entry_without(secrets: Secrets, entry: AnEntry) -> AnEntry:
    """Give an entry without secrets. TypeError or ValueError for one that cannot be written as JSON."""
    if not secrets.suspects(dump_line(entry)):
        return entry
    return cast(AnEntry, from_json(secrets.value(json.loads(json.dumps(to_json(entry))))))


def advice(names: tuple[str, ...]) -> str:
    """Say what is wrong with a text that had secrets in it, to whoever writes it anew."""
    several = "secrets" if len(names) > 1 else "a secret"
    return (
        f"The text contains {several} ({', '.join(names)}), which must not be in it; it is kept with [secret ..] in that place. "
        "Write it without: a program reads such a value from its environment when it runs."
    )


def warily(result: GuardResult, artifact: Artifact) -> GuardResult:
    """Give what a guard's verdict counts as: a text that had secrets in it does not pass, and the feedback says so."""
    if not artifact.redacted:
        return result
    feedback = "\n".join(filter(None, (result.feedback, advice(artifact.redacted))))
    return GuardResult(passed=False, feedback=feedback, fatal=result.fatal)


def never_passed(entry: VerdictEntry, redacted: tuple[str, ...]) -> VerdictEntry:
    """Give a verdict on a text that had secrets in it: no guard has passed it. What a person says stands."""
    judgements = [
        Judgement(said.guard, "failed", "\n".join(filter(None, (said.feedback, advice(redacted)))))
        if said.outcome == "passed" and said.guard != PERSON
        else said
        for said in entry.judgements
    ]
    return attrs.evolve(entry, judgements=judgements)


class RedactingArtifacts:
    """An `ArtifactStore` of one run, that stores texts without secrets in another one. A new artifact's id names the run."""

    def __init__(self, store: ArtifactStore, secrets: Secrets, run_id: str = "") -> None:
        self._store, self._secrets, self._run_id = store, secrets, run_id

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version without secrets, and return it as it is stored; KeyError when a parent is unknown."""
        text, usage = self._secrets.text, artifact.usage
        if usage is not None:
            model, answered = text(usage.model), text(usage.response_model)
            if (model, answered) != (usage.model, usage.response_model):
                usage = attrs.evolve(usage, model=model, response_model=answered)
        content, name = text(artifact.content), text(artifact.artifact_id)
        if (content, name, usage) != (artifact.content, artifact.artifact_id, artifact.usage):
            artifact = attrs.evolve(artifact, content=content, artifact_id=name, usage=usage)
        return self._store.store(artifact, text(author), run_id or self._run_id)

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store what was said of an artifact, without secrets; KeyError when it is unknown."""
        self.record_clean_verdict(entry_without(self._secrets, verdict))

    def record_clean_verdict(self, verdict: VerdictEntry) -> None:
        """Store what was said of an artifact, which has no secrets in it; KeyError when it is unknown."""
        self._store.record_verdict(verdict)

    def attempts(self) -> tuple[Attempt, ...]:
        """Give everything but the texts, in the order in which it was stored."""
        return self._store.attempts()

    def lineage(self, artifact_id: str) -> list[Attempt]:
        """Give the provenance without the texts; KeyError when unknown."""
        return self._store.lineage(artifact_id)

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Give one version; KeyError when there is none of that id."""
        return self._store.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Give the versions that lead to this one, oldest first, itself last; KeyError when unknown."""
        return self._store.get_provenance(artifact_id)


def artifact_flagged(entry: ArtifactEntry, artifact: Artifact) -> ArtifactEntry:
    """Give the record of an artifact with the names of the secrets that its text had."""
    return attrs.evolve(entry, redacted=artifact.redacted) if artifact.redacted else entry
