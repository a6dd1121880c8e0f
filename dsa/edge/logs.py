"""A run as log records: one for each ledger entry, on the logger `dsa`, for whoever has configured it.

Takes entries, gives records of the standard library's `logging`, whose fields say what the entry says but no texts of models or people. A
program that configures nothing sees nothing. `log_to` is what `dsa --log` does.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from dsa.runtime.counting import reasons_of
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DecidedEntry,
    EffectEntry,
    Entry,
    EventEntry,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.moment import Moment
from dsa.runtime.parts import part_in
from dsa.runtime.secrets import Secrets

LOGGER = logging.getLogger("dsa")
LOGGER.addHandler(logging.NullHandler())  # else Python would print warnings of a logger that nobody has configured

LEVELS = ("debug", "info", "warning", "error")
Form = Literal["text", "json"]
Fields = dict[str, Any]


class LedgerLog:
    """Logs the moments of one run; those that were there before it was taken up have been logged then."""

    def __init__(self, logger: logging.Logger = LOGGER) -> None:
        self._logger = logger
        self._run, self._seq, self._state = "", 0, ""
        self._effects: dict[str, str] = {}

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Log what is new."""
        self.take(moment.entry, is_new)

    def take(self, entry: Entry, is_new: bool) -> None:  # noqa: FBT001  (as above)
        """Log an entry if it is new."""
        if type(entry) is EventEntry:  # in half the time of `match`: this sees every entry of every run
            self._seq = entry.seq
        elif type(entry) is RowEntry:
            self._state = entry.target
        elif type(entry) is EffectEntry:
            self._effects[entry.key] = entry.effect
        elif type(entry) is MachineEntry:
            self._run = entry.run
        if is_new and (self._logger.isEnabledFor(logging.INFO) or _may_warn(entry)):
            self._log(entry)

    def _log(self, entry: Entry) -> None:
        kind, level, fields = described(entry)
        if self._logger.isEnabledFor(level):
            where = {"run": self._run, "seq": self._seq, "state": self._state}
            if isinstance(entry, ResultEntry | DecidedEntry):
                where["effect"] = self._effects.get(entry.key, "")
            elif isinstance(entry, ResumedEntry):
                fields["effects"] = [f"{self._effects.get(key, '')} {key}: {said}" for key, said in entry.effects]
            told = {name: value for name, value in (where | fields).items() if value not in (None, "", (), [])}
            self._logger.log(level, kind, extra={"dsa": {"kind": kind, **told}})

    def fault(self, run: str, where: str, traceback: str) -> None:
        """Log what users' code has raised."""
        told = {"kind": "fault", "run": run, "where": where, "traceback": traceback}
        self._logger.debug("fault", extra={"dsa": told})

    def stopped(self, what: str, line: int | None, code: str, message: str) -> None:
        """Log that a failure has stopped the run."""
        told = {"kind": "stopped", "run": self._run, "seq": self._seq, "state": self._state}
        more = {"what": what, "line": line, "code": code, "message": message}
        self._logger.error("stopped", extra={"dsa": told | more})


def _may_warn(entry: Entry) -> bool:
    """Return whether an entry may be worth a warning; everything else is logged as information at most."""
    if type(entry) is ResultEntry:
        return entry.failed  # one that waits for a part is looked at more closely
    return isinstance(entry, RefusalEntry | ResumedEntry | ArtifactEntry)


def described(entry: Entry) -> tuple[str, int, Fields]:
    """Give an entry's kind, the level at which it is logged, and what is said of it."""
    match entry:
        case MachineEntry():
            return "machine", logging.INFO, {"machine": entry.name, "digest": entry.digest}
        case EventEntry():
            verdicts = {"verdicts": dict(entry.verdicts)} if entry.verdicts else {}
            return "event", logging.INFO, {"event": entry.event, "timer": entry.source, "key": entry.key, **verdicts}
        case RowEntry():
            changed = {"changed": dict(entry.changed)} if entry.changed else {}
            return "row", logging.INFO, {"line": entry.line, "source": entry.source, **changed}
        case RefusalEntry():
            return "refusal", logging.WARNING, {"reason": entry.reason, "accepted": list(entry.accepted)}
        case EffectEntry():
            return "effect", logging.INFO, {"effect": entry.effect, "key": entry.key}
        case ArtifactEntry() | VerdictEntry() | ResultEntry():
            return _outcome(entry)
        case ResumedEntry(by=by, model=model, module=module):
            about = {"by": by, "model": model, "module": module, "budget": list(entry.budget)}
            return "resumed", logging.WARNING if entry.effects else logging.INFO, about
        case DecidedEntry():
            return "decided", logging.INFO, {"key": entry.about, "handling": entry.handling}
        case CallEntry():
            return "call", logging.DEBUG, {"policy": entry.policy, "key": entry.key, "path": entry.path}
        case CallResultEntry():
            return "call_result", logging.DEBUG, {"key": entry.key, "path": entry.path}
        case ChangeEntry():
            return "change", logging.INFO, {"machine": entry.name, "digest": entry.digest}


def _outcome(entry: ArtifactEntry | VerdictEntry | ResultEntry) -> tuple[str, int, Fields]:
    """Describe what came of an effect. Bad news are warnings."""
    about: Fields = {"key": entry.key, "seconds": round(entry.seconds, 6)}
    if isinstance(entry, ResultEntry):
        codes = [step["payload"].get("code") for step in entry.steps if step["payload"].get("error") is True]
        level = logging.WARNING if entry.failed and part_in(entry) is None else logging.INFO
        reasons = reasons_of(entry)
        more = {**({"code": codes[0]} if codes else {}), **({"reason": reasons[0]} if reasons else {})}
        return "result", level, {**about, **more}
    about |= {"step": entry.step, "attempt": entry.attempt, "artifact": entry.artifact_id}
    if isinstance(entry, VerdictEntry):
        guards = {said.guard: said.outcome for said in entry.judgements}
        return "verdict", logging.INFO, {**about, "verdict": entry.outcome, "guards": guards}
    tokens = {"prompt_tokens": entry.prompt_tokens, "completion_tokens": entry.completion_tokens}
    level = logging.WARNING if entry.redacted else logging.INFO
    return "artifact", level, {**about, "model": entry.model, **tokens, "redacted": list(entry.redacted)}


# -- as `dsa --log` writes it -----------------------------------------------------------------------------------------


class LogLines(logging.Formatter):
    """Writes a record as one line: JSON, or words and `name=value`. Nothing secret, whoever has logged it."""

    def __init__(self, form: Form, secrets: Secrets) -> None:
        super().__init__()
        self._form, self._secrets = form, secrets

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; one that is not about a ledger entry has its message."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: Fields = getattr(record, "dsa", None) or {"kind": "message", "message": self._whole(record)}
        fields = dict(self._secrets.value(fields))
        if self._form == "json":
            return json.dumps(
                {"time": at, "level": record.levelname.lower(), "logger": record.name, **fields}, default=str
            )
        lines = str(fields.pop("traceback", "")).rstrip()  # it is read by people, line by line
        words = " ".join(f"{name}={_plain(value)}" for name, value in fields.items() if name != "kind")
        return "\n".join(filter(None, (f"{at} {record.levelname:<7} {fields['kind']:<11} {words}", lines)))

    def _whole(self, record: logging.LogRecord) -> str:
        traced = [self.formatException(record.exc_info)] if record.exc_info else []
        return "\n".join([record.getMessage(), *traced])


def _plain(value: Any) -> str:  # noqa: ANN401  (JSON)
    """Write a value without blanks, or as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
    is_plain = text.isprintable() and not set(text) & set(" \"'=")
    return text if is_plain or not isinstance(value, str) else json.dumps(text)


@contextmanager
def log_to(stream: TextIO, level: str, form: Form, secrets: Secrets) -> Iterator[None]:
    """Write what is logged on the logger `dsa`, from this level (`LEVELS`) on, to a stream, one line a record."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogLines(form, secrets))
    before, propagated = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
        LOGGER.propagate = propagated
