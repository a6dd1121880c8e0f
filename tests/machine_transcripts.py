"""Runs of whole machines with a model that follows a list, as text.

One line an event: the event with its verdicts, the effects it led to, the state reached.
"""

import asyncio

import dsa
from dsa.expr import show_value
from dsa.runs.setup import RunSetup
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import EffectEntry, EventEntry, RefusalEntry, RowEntry
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock


class ReadsTheText(GuardInterface):
    """Says of a text what the text says of itself."""

    def validate(self, artifact, **dependencies):
        if artifact.content == "bad":
            return GuardResult(passed=False, feedback="it is bad")
        return GuardResult(passed=artifact.content != "awful", feedback="", fatal=artifact.content == "awful")


def drive(machine, binding, specification, *sent):
    """Run a machine; what is sent is sent one by one, whenever it waits."""

    async def play():
        async with dsa.open_runs("memory:", clock=StillClock()) as runs:
            handle = runs.begin(RunSetup(machine, binding), run_id="r")
            rest = await handle.drive(Occurrence("specification", data=specification))
            for event, data in sent:
                if rest.kind == "waiting":
                    rest = await handle.drive(Occurrence(event, data=data))
            return rest, handle.artifacts

    return asyncio.run(play())


def story(rest):
    """Tell a run: one line for each event."""
    lines = []
    for entry in rest.run.ledger:
        match entry:
            case EventEntry(event=event, verdicts=verdicts):
                said = " ".join(f"{guard}.{outcome}" for guard, outcome in verdicts)
                lines.append(" ".join(filter(None, (event, said))) + ":")
            case RefusalEntry(reason=reason):
                lines[-1] += f" refused {reason}"
            case RowEntry(target=target, changed=changed):
                shown = "".join(f", {name} = {show_value(value)}" for name, value in changed)
                lines[-1] += f" -> {target}{shown}"
            case EffectEntry(effect=effect):
                head, arrow, tail = lines[-1].partition(" -> ")
                lines[-1] = f"{head} {effect}{arrow}{tail}"
    return "\n".join([*lines, rest.kind if rest.failure is None else str(rest.failure)])
