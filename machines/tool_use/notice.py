"""What a machine tells where nothing is done: to people, and to the model.

A notice is a step of an effect without answers; whoever reads the run's ledger takes it from there.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import attrs

from dsa.runtime.ledger import ResultEntry
from dsa.runtime.policies import Step, text_step
from machines.tool_use.call import ToolResult
from machines.tool_use.records import JsonObject, as_data, read_record


@attrs.frozen
class Notice:
    """Why something was not done as the model or the user asked: a reason by its name, and words for people.

    `note` is for the model; `results` are of calls that were not made, by the calls' ids; `drops` says that no call waits any more.
    """

    reason: str
    text: str
    note: str = ""
    results: Mapping[str, JsonObject] = attrs.field(factory=dict)
    drops: bool = False

    def as_step(self, actor: str) -> Step:
        """Return it as the step of an effect."""
        told = as_data(self)
        return text_step(actor, told.pop("text"), about=told)


def results_told(*results: ToolResult) -> dict[str, JsonObject]:
    """Return results as a notice has them."""
    return {result.call_id: result.content for result in results}


AnyNotice = TypeVar("AnyNotice", bound=Notice)


def notices_in(entry: ResultEntry, kind: type[AnyNotice], reasons: Mapping[str, str]) -> Iterator[AnyNotice]:
    """Give the notices of an effect, whose reasons are known."""
    for step in entry.steps:
        told = step["payload"]
        if isinstance(told, dict) and isinstance(told.get("reason"), str) and told["reason"] in reasons:
            yield read_record(kind, {"text": "", **told})
