r"""A record as a commit message, for people and `git log`, and back exactly.

Takes and gives attempts and verdicts; knows no repository. The message is a subject and one block of trailers
(git-interpret-trailers(1)). A value of several lines is folded, each of its lines behind `  | `, so that no text can be
taken for a trailer. What is not printable is written `\uXXXX` and a backslash `\\`: git stores no NUL, and no text
may move a terminal's cursor.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from dsa.runtime.artifacts import Attempt
from dsa.runtime.content import Usage
from dsa.runtime.ledger import Judgement, VerdictEntry

T = TypeVar("T")

_KIND = "Dsa-Record"
_FOLD = "  |"
_NEXT = "\0"  # stands for the fold while a message is read; no message of ours has one
_LONGEST_TITLE = 60
_ESCAPED = re.compile(r"\\(?:\\|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def message_of(run_id: str, record: Attempt | VerdictEntry, path: str = "") -> bytes:
    """Write the message of a record. `path` is where the commit's tree has the artifact's text."""
    if isinstance(record, Attempt):
        kind, number, title, trailers = "artifact", record.version, "", [*_attempt_trailers(record), ("Path", path)]
    else:
        kind, number, title, trailers = "verdict", record.attempt, f" {record.outcome}", _verdict_trailers(record)
    about = [(_KIND, kind), ("Run", run_id), ("Step", record.step), ("Attempt", str(number))]
    subject = f"{_line(record.step)[:_LONGEST_TITLE]}: attempt {number}{title}".replace("\n", " ")
    return "\n".join([subject, "", *(_trailer(name, value) for name, value in (*about, *trailers)), ""]).encode()


def _attempt_trailers(attempt: Attempt) -> list[tuple[str, str]]:
    return [
        ("Artifact", attempt.artifact_id),
        ("Content-Digest", attempt.content_digest),
        *([("Refines", attempt.parent_id)] if attempt.parent_id else []),
        *(("Uses", used_id) for used_id in attempt.dependency_ids),
        ("Generator", attempt.author),
        *(("Redacted", name) for name in attempt.redacted),
        *([] if attempt.usage is None else _usage_trailers(attempt.usage)),
    ]


def _usage_trailers(usage: Usage) -> list[tuple[str, str]]:
    counted = ("Prompt-Tokens", usage.prompt_tokens), ("Completion-Tokens", usage.completion_tokens)
    cost = [] if usage.cost_usd is None else [("Cost-Usd", repr(float(usage.cost_usd)))]
    tokens = [(name, str(int(count))) for name, count in counted if count is not None]
    answered = [("Response-Model", usage.response_model)] if usage.response_model else []
    return [("Model", usage.model), *answered, ("Seconds", repr(float(usage.seconds))), *tokens, *cost]


def _verdict_trailers(verdict: VerdictEntry) -> list[tuple[str, str]]:
    said = [
        pair
        for judgement in verdict.judgements
        for pair in (("Guard", judgement.guard), ("Outcome", judgement.outcome), ("Feedback", judgement.feedback))
    ]
    about = [("Artifact", verdict.artifact_id), ("Verdict", verdict.outcome)]
    return [*about, *said, ("Seconds", repr(float(verdict.seconds))), ("Key", verdict.key)]


def _trailer(name: str, value: str) -> str:
    if "\n" in value:
        return "\n".join([f"{name}: |", *(f"{_FOLD} {_line(line)}" for line in value.split("\n"))])
    line = _line(value)
    return f"{name}: {line}" if line != "|" else f"{name}: \\u007c"


def _line(text: str) -> str:
    """Write a text without ends of lines as it can be shown."""
    text = text.replace("\\", "\\\\")
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else _code(c) for c in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004  (four hex digits)


# -- and back ---------------------------------------------------------------------------------------------------------


def record_in(message: str) -> tuple[Attempt | VerdictEntry, str] | None:
    """Read a record and its path; None when the commit is somebody else's. ValueError when something is missing."""
    _, _, block = message.partition("\n\n")
    if not block.startswith(f"{_KIND}: "):
        return None
    fields = _fields(block)
    try:
        if fields[_KIND] == ["artifact"]:
            return _attempt(fields), fields["Path"][0]
        return _verdict(fields), ""
    except KeyError as missing:
        raise ValueError(f"the trailer {missing.args[0]} is missing") from missing


def _fields(block: str) -> Mapping[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in block.replace(f"\n{_FOLD}", _NEXT).removesuffix("\n").split("\n"):
        name, _, value = line.partition(":")
        fields.setdefault(name, []).append(_text(value))
    return fields


def _text(value: str) -> str:
    value = "\n".join(line[1:] for line in value.split(_NEXT)[1:]) if _NEXT in value else value[1:]
    if "\\" not in value:
        return value
    return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)) if found[1] or found[2] else "\\", value)


def _attempt(fields: Mapping[str, list[str]]) -> Attempt:
    one = {name: values[0] for name, values in fields.items()}
    return Attempt(
        one["Artifact"], one["Step"], int(one["Attempt"]), one["Content-Digest"], one.get("Refines"),
        tuple(fields.get("Uses", ())), one["Generator"], _usage(one) if "Model" in one else None,
        redacted=tuple(fields.get("Redacted", ())), run_id=one["Run"],
    )  # fmt: skip


def _usage(one: Mapping[str, str]) -> Usage:
    prompt, completion = (_read(int, one.get(name)) for name in ("Prompt-Tokens", "Completion-Tokens"))
    cost = _read(float, one.get("Cost-Usd"))
    return Usage(one["Model"], float(one["Seconds"]), prompt, completion, cost, one.get("Response-Model", ""))


def _read(kind: Callable[[str], T], value: str | None) -> T | None:
    return None if value is None else kind(value)


def _verdict(fields: Mapping[str, list[str]]) -> VerdictEntry:
    said: Iterable[Any] = zip(*(fields.get(name, ()) for name in ("Guard", "Outcome", "Feedback")), strict=True)
    return VerdictEntry(
        fields["Key"][0], fields["Step"][0], int(fields["Attempt"][0]), fields["Artifact"][0],
        tuple(Judgement(*judgement) for judgement in said), float(fields["Seconds"][0]),
    )  # fmt: skip
