"""What comes from outside, before a run takes it: that it is JSON, has no secrets, is what the table knows, and is what the policies can read.

Takes an occurrence as somebody sends it, gives it as it is recorded, or raises: then nothing has happened.
"""

from collections.abc import Callable
from typing import Any

from dsa.declarations import OUTSIDE
from dsa.edge.binding import Bindings
from dsa.errors import OccurrenceError
from dsa.meaning import Occurrence, require_known
from dsa.runtime.json_text import text_of
from dsa.runtime.policies import LONGEST_DATA, Answering, canonical_json
from dsa.runtime.run import Run
from dsa.runtime.standing import asked_of_people


class FromOutside:
    """Reads the events that are sent to runs of a binding; `Answering.reads` says what their data has to be."""

    def __init__(self, binding: Bindings) -> None:
        self._secrets = binding.secrets
        declared = [policy.reads for policy in binding.effects.values() if isinstance(policy, Answering)]
        self._reads: dict[str, Callable[[Any], Any]] = {
            event: read for reads in declared for event, read in reads.items()
        }

    def read(self, run: Run, given: Occurrence, at: str | None = None) -> Occurrence:
        """Give an event as it is recorded. One that answers an effect may come from a person where the effect's policy has left it to one.

        OccurrenceError for one that does not come from outside, or whose data is not what it has to be; TypeError or ValueError for data that
        is not JSON, or is nested too deep.
        """
        _require_short(given.event, canonical_json({"data": given.data}))
        require_known(run.machine, given)
        if given.source is not None or not (_is_outside(run, given) or _was_asked(run, given, at)):
            outside = ", ".join(event.name for event in run.machine.events if event.origin == OUTSIDE)
            raise OccurrenceError(f"'{given.event}' does not come from outside; what does: {outside or 'nothing'}")
        data = self._secrets.value(self._data(given))
        _require_short(given.event, text_of(data))  # markers may be longer than the secrets were
        return Occurrence(given.event, given.verdicts, given.source, data)

    def _data(self, given: Occurrence) -> object:
        read = self._reads.get(given.event)
        if read is None:
            return given.data
        try:
            return read(given.data)
        except ValueError as fault:
            raise OccurrenceError(f"'{given.event}' cannot be taken: {fault}") from fault


def _require_short(event: str, written: str) -> None:
    if len(written) > LONGEST_DATA:
        raise OccurrenceError(
            f"'{event}' has data of {len(written):,} characters of JSON, and {LONGEST_DATA:,} are allowed: store it in a file and send the file's path"
        )


def _is_outside(run: Run, given: Occurrence) -> bool:
    return run.machine.event_named[given.event].origin == OUTSIDE


def _was_asked(run: Run, given: Occurrence, at: str | None) -> bool:
    """Tell whether a person may give an answer: one that is asked for now, or, under another key than the outstanding one, late."""
    effect = run.machine.event_named[given.event].origin
    return effect in asked_of_people(run) or (at is not None and "/" in at and at != run.keys.get(effect))


def answered_key(run: Run, given: Occurrence, at: str | None) -> str | None:
    """Return the key of the effect that a person answers with an event: `at`, else that of the outstanding one; None for what answers no effect."""
    if given.source is not None or _is_outside(run, given):
        return None
    return at or run.keys.get(run.machine.event_named[given.event].origin, "")
