"""The steps of a run, one event after the other, and Definition 4 as a check of them: judged by what `step` returns, not by what the ledger says it returned."""

import attrs

from dsa.runtime.ledger import EffectEntry, EventEntry, Record, RowEntry
from dsa.runtime.run import begin
from dsa.semantics import Occurrence


@attrs.frozen
class Taken:
    """An event that was taken: the effects that it began, the workflow state before it and after it."""

    event: EventEntry
    effects: tuple[str, ...]
    before: dict
    after: dict

    @property
    def said(self):
        """The verdicts that it brought."""
        return {outcome for _, outcome in self.event.verdicts}


def taken(run):
    """Return what was taken, in order; the workflow state is what the step gives, whatever the ledger says of it."""
    (now, _), found = begin(run.machine, run.run_id), []
    for entry in run.ledger:
        if isinstance(entry, EventEntry):
            before, event = now.sigma, entry
            given_then = Occurrence(event.event, event.verdicts, event.source, event.data)
            now, _ = now.feed(given_then, event.key, at_ms=event.at_ms, at=event.at)
        elif isinstance(entry, Record):
            now = now.record(entry)
        elif isinstance(entry, RowEntry):
            found.append(Taken(event, (), before, now.sigma))
        elif isinstance(entry, EffectEntry):
            found[-1] = attrs.evolve(found[-1], effects=(*found[-1].effects, entry.effect))
    return found


def require_definition_4(run, by_person=()):
    """Workflow state is set only where guards have spoken and all have passed, or by these events; a failed guard changes none of it."""
    for step in taken(run):
        if step.event.event in by_person:
            continue
        assert step.said <= {"passed"} or step.before == step.after, f"{step.event} changed {step.before}"
        assert step.said or not any(step.after[name] and not step.before[name] for name in step.after), (
            f"nobody judged {step.event}"
        )
