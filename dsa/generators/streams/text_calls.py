"""Calls that a model wrote into its text, found and taken out.

Takes a text and the tools that were offered. Only offered names count; code (fences, backticks) does not; JSON without any
mark counts only when it is the whole text. So an explanation of how calls are written stays an explanation.
"""

import re

import attrs

from dsa.generators.streams.payloads import TextCall, calls_in
from dsa.generators.streams.scanner import end_of_value
from dsa.generators.streams.text_formats import CLOSERS, FORMATS, Found, Source
from dsa.generators.streams.tools import Tools

_OPENERS = tuple((re.compile(opener), read) for opener, read in FORMATS)
_ANY_OPENER = "|".join(re.sub(r"\?P<name>", "?:", opener) for opener, _ in FORMATS)
_AFTER = re.compile(rf"(?:\s*+(?:{CLOSERS}))*+\s*+")
#: A fence at the beginning of a line, code within a line, what opens a call, and the end of one that nothing opened.
_MARKS = re.compile(
    r"(?P<fence>^[ ]{0,3}(?:```+|~~~+))"
    r"|(?P<code>`+)"
    rf"|(?P<opener>{_ANY_OPENER})"
    r"|(?P<closer></(?:tool_call|function_call)>)",
    re.MULTILINE,
)
#: A fence that may hold a call: of no language, or of one in which calls are written.
FENCE_BEGIN = re.compile(r"```(?:json|jsonc|xml|tool_calls?|tool_code|toolcall)?[ ]*\n")
_UNOPENED = ("</tool_call>", "</function_call>")
_LINE_WITH_BRACE = re.compile(r"(?:\A\s*+|\n[ \t]*+)(?=\{)")
THOUGHT = re.compile(r"</think(?:ing)?>")
_DANGLING = re.compile(
    r"(?:<(?:\w+:)?tool_?calls?>?|<function(?:_calls?)?[=>]?|<invoke|<\|?tool_call\|?>?|<\|python_tag\|>|\[TOOL_CALLS\])\s*\Z"
)
_SEPARATORS = re.compile(r"[\s;,]*+")


@attrs.frozen
class Recovered:
    """The calls of a text, in order, and what is left of the text without them."""

    calls: tuple[TextCall, ...]
    rest: str


def recover(text: str, tools: Tools, *, ended: bool) -> Recovered:
    """Find the calls in a text; `ended` says that the model had said all it wanted to."""
    if not tools:
        return Recovered((), text)
    spoken = max((match.end() for match in THOUGHT.finditer(text)), default=0)
    if bare := _whole(text[spoken:].strip(), tools):
        return Recovered(bare, text[:spoken].rstrip())
    recovered = _walked(Source(_unfenced(text, spoken), tools, ended), spoken)
    return recovered if recovered.calls else Recovered((), text)


def without_markers(text: str, tools: Tools) -> str:
    """Take out of a text what belongs to calls that were also sent properly: whole ones, and what is left of their marks."""
    rest = recover(text, tools, ended=True).rest
    return _DANGLING.sub("", rest).rstrip() if _DANGLING.search(rest) else rest


def _unfenced(text: str, spoken: int) -> str:
    """Open a fence that is around all that is said: a call that stands in it is meant."""
    body = _fenced(text[spoken:].strip())
    return text[:spoken] + body if body is not None and _MARKS.search(body) else text


def _fenced(text: str) -> str | None:
    """Give what stands in the one fence that a text is; None for all else."""
    begin = FENCE_BEGIN.match(text)
    if begin is None or not text.endswith("```") or begin.end() > len(text) - 3:
        return None
    body = text[begin.end() : -3]
    return None if "```" in body else body.strip()


# -- JSON that is the whole text -----------------------------------------------------------------------------------


def _whole(text: str, tools: Tools) -> tuple[TextCall, ...]:
    """Give the calls that a text is, bare or in one fence, also with the end of a tag that nothing opened."""
    body = _fenced(text) or text
    marked = body.endswith(_UNOPENED)
    while body.endswith(_UNOPENED):
        body = body[: body.rindex("</")].rstrip()
    calls: list[TextCall] = []
    position = 0
    while body[position : position + 1] in {"{", "["}:
        end = end_of_value(body, position)
        found = calls_in(body[position:end], tools, bare=not marked) if end else None
        if not end or found is None:
            return ()
        calls += found
        between = _SEPARATORS.match(body, end)
        position = between.end() if between else end
    return tuple(calls) if position == len(body) else ()


# -- calls among other text ----------------------------------------------------------------------------------------


def _walked(source: Source, start: int) -> Recovered:
    """Go through a text from mark to mark."""
    text = source.text
    calls: list[TextCall] = []
    kept: list[str] = []
    position = shown = since = start  # where to look on, what is kept so far, where JSON without an opener may begin
    wrapped = -1  # where tags begin that stand right before
    while mark := _MARKS.search(text, position):
        if text[position : mark.start()].strip():
            wrapped = -1
        if mark["fence"] or mark["code"]:
            position, wrapped = _after_code(text, mark), -1
            continue
        found = _read(source, mark) if mark["opener"] else _unopened(source, since, mark)
        position = found.end if found else mark.end()
        if found and found.calls:
            begin = found.begin if found.begin is not None else wrapped if wrapped >= shown else mark.start()
            calls += found.calls
            kept.append(text[shown:begin])
            after = _AFTER.match(text, found.end)
            position = shown = since = after.end() if after else found.end
        elif mark["closer"]:
            since = position
        wrapped = -1 if found else mark.start() if wrapped < 0 else wrapped
    if not calls:
        return Recovered((), text)
    return Recovered(tuple(calls), (text[:start] + "".join(kept) + text[shown:]).strip())


def _read(source: Source, mark: re.Match[str]) -> Found | None:
    opener, read = next(
        (found, read) for pattern, read in _OPENERS if (found := pattern.match(source.text, mark.start()))
    )
    return read(source, opener)


def _after_code(text: str, mark: re.Match[str]) -> int:
    """Give where code ends: a fence at one like it, or never; backticks at as many of them on their line, or at once."""
    if mark["fence"]:
        fence = mark["fence"].strip()
        closing = re.compile(rf"^[ ]{{0,3}}{re.escape(fence)}[ ]*$", re.MULTILINE).search(text, mark.end())
        return closing.end() if closing else len(text)
    line_end = text.find("\n", mark.end())
    closing_at = text.find(mark["code"], mark.end(), line_end if line_end >= 0 else len(text))
    return closing_at + len(mark["code"]) if closing_at >= 0 else mark.end()


def _unopened(source: Source, since: int, closer: re.Match[str]) -> Found | None:
    """Read the JSON that stands before the end of a tag which nothing opened."""
    before = source.text[since : closer.start()]
    brace = _LINE_WITH_BRACE.search(before)
    calls = calls_in(before[brace.end() :], source.tools) if brace else None
    return Found(calls, closer.end(), begin=since + brace.end()) if brace and calls else None
