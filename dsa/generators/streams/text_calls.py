"""Text calls: calls that a model wrote into its text, found and taken out.

`recover` takes a text and the offered tools. Only offered names count; code (fences, backticks) does not; JSON without any
mark counts only if it is the whole text. So an explanation of how calls are written stays an explanation.

Models write calls in several formats: tags and special tokens, each below with the models that write it. A format is a pattern that opens a
call and a function that reads on from there; it returns the calls and where they end, or None if there are none. A text is
never read again from a later opener once a format has read to its end, so that the cost stays linear.

Calls as JSON are `{"name": .., "arguments": ..}` and other spellings of that. The description of a tool is not a call, although it has its
name.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dsa.generators.streams.offered_tools import Tools, read_object, read_value
from dsa.generators.streams.stream_result import INVALID_ARGUMENTS, TRUNCATED_ARGUMENTS
from dsa.runtime.speech import end_of_value

_NAME_KEYS = ("name", "tool_name", "tool", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "params")
_NAME_FIELD = re.compile(r'["\'](?:name|tool_name|tool|function)["\']\s*:\s*["\']([^"\'\s]+)["\']')


@attrs.frozen
class TextCall:
    """A call found in a text; `arguments` is None where `error` says why. `kinds` are the other rescues."""

    name: str
    arguments: dict[str, object] | None
    error: str | None = None
    id: str | None = None
    text: str = ""
    kinds: tuple[str, ...] = ()


def calls_in(text: str, tools: Tools, *, bare: bool = False) -> tuple[TextCall, ...] | None:
    """Return the calls that a JSON text is: one, or a list of them; None if it is anything else.

    `bare` means that only its form marks it as a call; then it must have arguments.
    """
    result = read_value(text)
    if not result.json:
        return None if bare else _unreadable(text, tools, INVALID_ARGUMENTS)
    value = result.value
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    parts = [_call_of(part, tools, bare=bare) for part in (value if isinstance(value, list) else [value])]
    calls = tuple(attrs.evolve(call, kinds=(*result.rescues, *call.kinds)) for call in parts if call is not None)
    return calls if calls and len(calls) == len(parts) else None


def cut_call(text: str, tools: Tools) -> tuple[TextCall, ...] | None:
    """Return the call that begins a JSON text which ends too early; None if its name was not offered, or is not there yet."""
    return _unreadable(text, tools, TRUNCATED_ARGUMENTS)


def call_of_text(name: str, text: str, *, given_id: str | None = None) -> TextCall:
    """Return a call from its name and the text of its arguments."""
    result = read_object(text)
    error = None if result.value is not None else INVALID_ARGUMENTS
    return TextCall(name, result.value, error, given_id, text, result.rescues)


def _unreadable(text: str, tools: Tools, error: str) -> tuple[TextCall, ...] | None:
    match = _NAME_FIELD.search(text)
    return (TextCall(match[1], None, error, text=text),) if match and match[1] in tools else None


def _call_of(value: Any, tools: Tools, *, bare: bool) -> TextCall | None:  # noqa: ANN401  # JSON of any kind
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    if isinstance(inner, Mapping):
        return _call_of({**inner, "id": value.get("id")}, tools, bare=bare)
    name: str | None = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    name = name and tools.resolve_name(name)
    if name is None or name not in tools or _describes(value):
        return None
    key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if key is None and bare:
        return None
    given_id = value.get("id") if isinstance(value.get("id"), str) and value.get("id") else None
    arguments = value[key] if key is not None else None
    if isinstance(arguments, str) and arguments.strip():
        return call_of_text(name, arguments, given_id=given_id)
    if arguments is None or arguments == "":
        return TextCall(name, {}, id=given_id)
    if isinstance(arguments, dict):
        return TextCall(name, arguments, id=given_id)
    return TextCall(name, None, INVALID_ARGUMENTS, given_id, str(arguments))


def _describes(value: Mapping[str, Any]) -> bool:
    """Return whether an object is the description of a tool, as in requests."""
    parameters = value.get("parameters")
    schema = isinstance(parameters, Mapping) and parameters.get("type") == "object" and "properties" in parameters
    return schema or ("description" in value and "parameters" in value)


_NAME = r"[\w.:/\-]+"
_SPACE = re.compile(r"\s*+")
_BETWEEN = re.compile(r"[\s;,]*+")
#: The closing tags that may follow calls.
CLOSERS = (
    r"</(?:\w+:)?tool_?calls?>|</function_calls?>|</(?:function|invoke)>|<\|tool_call(?:s_section)?_end\|>|<tool_call\|>"
    r"|<\|/tool_call\|>|<\|e[om][tm]_id\|>|<\uff5ctool\u2581calls?\u2581end\uff5c>|\[/TOOL_CALLS\]"
)


@attrs.frozen
class CallText:
    """The text to read, the offered tools, and whether the model finished."""

    text: str
    tools: Tools
    has_ended: bool = True

    def skip(self, position: int, pattern: re.Pattern[str] = _SPACE) -> int:
        """Return where the pattern ends if it matches here; otherwise this place."""
        match = pattern.match(self.text, position)
        return match.end() if match else position


@attrs.frozen
class TextMatch:
    """Calls and where they end; no calls if it is certain that there are none before `end`.

    `begin` is where they begin, if that is before the mark by which they were found.
    """

    calls: tuple[TextCall, ...]
    end: int
    begin: int | None = None


Format = Callable[[CallText, re.Match[str]], TextMatch | None]


def json_in_tag(source: CallText, opener: re.Match[str]) -> TextMatch | None:
    """Read `<tool_call>{"name": .., "arguments": ..}`, several, or a list of them (Hermes, Qwen, Granite, Llama)."""
    position, last = source.skip(opener.end()), None
    calls: list[TextCall] = []
    while source.text[position : position + 1] in {"{", "["}:
        last = end_of_value(source.text, position)
        if last is None:
            return TextMatch((*calls, *(cut_call(source.text[position:], source.tools) or ())), len(source.text))
        calls += calls_in(source.text[position:last], source.tools) or ()
        position = source.skip(last, _BETWEEN)
    return None if last is None else TextMatch(tuple(calls), last)


def only_around(_source: CallText, _opener: re.Match[str]) -> None:
    """Read nothing: this tag comes around calls, and is known so that it is taken out with them."""


def _arguments(source: CallText, name: str, position: int, given_id: str | None = None) -> TextMatch | None:
    """Read the JSON arguments of a call at a position."""
    position = source.skip(position)
    if source.text[position : position + 1] != "{":
        return None
    end = end_of_value(source.text, position)
    if end is None:
        cut = TextCall(name, None, TRUNCATED_ARGUMENTS, given_id, source.text[position:])
        return TextMatch((cut,), len(source.text))
    return TextMatch((call_of_text(name, source.text[position:end], given_id=given_id),), end)


_PARAMETER = re.compile(r"\s*<param(?:eter)?(?:=|\s+name\s*=)\s*[\"']?([^\"'>\s]+)[\"']?[^>]*>")
_CLOSED_VALUE = re.compile(
    r"(.*?)</param(?:eter)?>(?=\s*+(?:<param|</(?:function|invoke)>|</(?:\w+:)?tool_?call>|\Z))", re.DOTALL
)
_OPEN_VALUE = re.compile(r"(.*?)(?=\n[ \t]*<param(?:eter)?[\s=]|\n?</(?:function|invoke)>)", re.DOTALL)
_INNER = re.compile(r"^[ \t]*<param(?:eter)?(?:=|\s+name\s*=)\s*[\"']?([^\"'>\s]+)", re.MULTILINE)
_END = re.compile(r"\s*</(?:function|invoke)>")
_NEXT = re.compile(r"<function[=\s]|<invoke\s|\Z")
_OVER = re.compile(rf"\s*+(?:{CLOSERS}|<(?:\w+:)?tool_?calls?>|<function[=\s]|<invoke\s|\Z)")


def parameters_in_tag(source: CallText, opener: re.Match[str]) -> TextMatch | None:
    """Read `<function=f><parameter=x>..` (Qwen3-Coder), `<invoke name="f"><parameter name="x">..` (MiniMax), or JSON."""
    name = opener["name"]
    if name not in source.tools:
        return None
    if match := _arguments(source, name, opener.end()):
        return attrs.evolve(match, end=source.skip(match.end, _END))
    following = _NEXT.search(source.text, opener.end())
    is_closed = source.text.find("</param", opener.end(), following.start() if following else -1) >= 0
    values: dict[str, str] = {}
    position = opener.end()
    while tag := _PARAMETER.match(source.text, position):
        value = (_CLOSED_VALUE if is_closed else _OPEN_VALUE).match(source.text, tag.end())
        if value is None:
            return _cut(source, name, opener)
        values[tag[1]] = _strip_breaks(value[1])
        position = value.end()
    end = _END.match(source.text, position)
    position = end.end() if end else position
    if not (end and is_closed) and not _OVER.match(source.text, position):
        return None
    if not end and not source.has_ended:  # further parameters may have been about to come
        return _cut(source, name, opener)
    if not end and not values:
        return None
    return TextMatch((_call(source, name, values, source.text[opener.start() : position]),), position)


def _call(source: CallText, name: str, values: dict[str, str], text: str) -> TextCall:
    """Return a call with these values, unless one runs into the next because its end is missing."""
    parameters = source.tools.parameters(name)
    for parameter, value in values.items():
        if any(inner[1] in parameters and inner[1] not in values for inner in _INNER.finditer(value)):
            return TextCall(name, None, INVALID_ARGUMENTS, text=f"{parameter}: {value}")
    return TextCall(
        name,
        {parameter: source.tools.parse_value(name, parameter, value) for parameter, value in values.items()},
        text=text,
    )


def _cut(source: CallText, name: str, opener: re.Match[str]) -> TextMatch:
    cut = TextCall(name, None, TRUNCATED_ARGUMENTS, text=source.text[opener.start() :])
    return TextMatch((cut,), len(source.text))


def _strip_breaks(value: str) -> str:
    """Remove the line breaks between a value and its tags."""
    return value.removeprefix("\n").removesuffix("\n")


_GLM_NAME = re.compile(rf"\s*({_NAME})\s*(?=<arg_key>|</tool_call>)")
_GLM_PAIR = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_GLM_END = re.compile(r"\s*</tool_call>")
_ELEMENT_NAME = re.compile(rf"\s*<name>\s*({_NAME})\s*</name>\s*(?:<(?:arguments|parameters|args)>)?")
_ELEMENT = re.compile(rf"\s*<({_NAME})>(?=\s*\{{)")
_ELEMENT_END = re.compile(r"\s*</[\w.:/\-]+>")


def tool_call_tag(source: CallText, opener: re.Match[str]) -> TextMatch | None:
    """Read the content of a tag of a call: JSON, `<name>`, the tool's own tag, or GLM's keys and values."""
    if match := json_in_tag(source, opener):
        return match
    for pattern in (_ELEMENT_NAME, _ELEMENT):
        name_match = pattern.match(source.text, opener.end())
        if (
            name_match
            and name_match[1] in source.tools
            and (match := _arguments(source, name_match[1], name_match.end()))
        ):
            return attrs.evolve(match, end=source.skip(match.end, _ELEMENT_END))
    name_match = _GLM_NAME.match(source.text, opener.end())
    if name_match is None or name_match[1] not in source.tools:
        return None
    values, position = {}, name_match.end()
    while pair := _GLM_PAIR.match(source.text, position):
        values[pair[1].strip()] = source.tools.parse_value(name_match[1], pair[1].strip(), _strip_breaks(pair[2]))
        position = pair.end()
    if end := _GLM_END.match(source.text, position):
        return TextMatch((TextCall(name_match[1], values, text=source.text[opener.start() : end.end()]),), end.end())
    return _cut(source, name_match[1], opener)


_KIMI = re.compile(rf"\s*((?:functions\.)?({_NAME}?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>")
_KIMI_END = re.compile(r"\s*<\|tool_call_end\|>")


def kimi(source: CallText, opener: re.Match[str]) -> TextMatch | None:
    """Read `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{..}<|tool_call_end|>`; the id is kept unchanged."""
    name_match = _KIMI.match(source.text, opener.end())
    if name_match is None or name_match[2] not in source.tools:
        return None
    match = _arguments(source, name_match[2], name_match.end(), name_match[1] if ":" in name_match[1] else None)
    return match and attrs.evolve(match, end=source.skip(match.end, _KIMI_END))


_MISTRAL = re.compile(rf"\s*({_NAME}?)\s*(?:\[CALL_ID\]\s*([^\[\s]+)\s*)?(?:\[ARGS\]\s*)?(?=\{{)")


def mistral(source: CallText, opener: re.Match[str]) -> TextMatch | None:
    """Read `[TOOL_CALLS]` with a list of calls, or with `f[ARGS]{..}`, `f[CALL_ID]9[ARGS]{..}`, `f{..}`."""
    name_match = _MISTRAL.match(source.text, opener.end())
    if name_match and name_match[1]:
        return (
            _arguments(source, name_match[1], name_match.end(), name_match[2])
            if name_match[1] in source.tools
            else None
        )
    return json_in_tag(source, opener)


_DEEPSEEK = re.compile(
    rf"\s*(?:function<\uff5ctool\u2581sep\uff5c>)?({_NAME})\s*(?:<\uff5ctool\u2581sep\uff5c>)?\s*(?:```(?:json)?\s*)?(?=\{{)"
)
_DEEPSEEK_END = re.compile(r"\s*(?:```)?\s*<\uff5ctool\u2581call\u2581end\uff5c>")


def deepseek(source: CallText, opener: re.Match[str]) -> TextMatch | None:
    """Read a name, its separator and JSON between DeepSeek's tokens; also the older form, `function`, name and a fence."""
    name_match = _DEEPSEEK.match(source.text, opener.end())
    if name_match is None or name_match[1] not in source.tools:
        return None
    match = _arguments(source, name_match[1], name_match.end())
    return match and attrs.evolve(match, end=source.skip(match.end, _DEEPSEEK_END))


#: Every format: what opens it, and what reads it.
FORMATS: tuple[tuple[str, Format], ...] = (
    (r"<(?:\w+:)?tool_?calls?>|<function_calls?>|<\|tool_call\|?>", tool_call_tag),
    (rf"<function=\s*[\"']?(?P<name>{_NAME})[\"']?\s*>", parameters_in_tag),
    (rf"<(?:function|invoke)\s+name\s*=\s*[\"']?(?P<name>{_NAME})[\"']?[^>]*>", parameters_in_tag),
    (r"<\|tool_calls_section_begin\|>|<\uff5ctool\u2581calls\u2581begin\uff5c>", only_around),
    (r"<\|tool_call_begin\|>", kimi),
    (r"\[TOOL_CALLS\]", mistral),
    (r"<\|python_tag\|>", json_in_tag),
    (r"<\uff5ctool\u2581call\u2581begin\uff5c>", deepseek),
)


# -- calls in a text --------------------------------------------------------------------------------------------------


_OPENERS = tuple((re.compile(opener), read) for opener, read in FORMATS)
_ANY_OPENER = "|".join(re.sub(r"\?P<name>", "?:", opener) for opener, _ in FORMATS)
_AFTER = re.compile(rf"(?:\s*+(?:{CLOSERS}))*+\s*+")
#: A fence at the beginning of a line, code within a line, an opener of a call, and an end without an opener.
_MARKS = re.compile(
    r"(?P<fence>^[ ]{0,3}(?:```+|~~~+))"
    r"|(?P<code>`+)"
    rf"|(?P<opener>{_ANY_OPENER})"
    r"|(?P<closer></(?:tool_call|function_call)>)",
    re.MULTILINE,
)
#: A fence that may hold a call: one without a language, or with one in which calls are written.
FENCE_BEGIN = re.compile(r"```(?:json|jsonc|xml|tool_calls?|tool_code|toolcall)?[ ]*\n")
_CLOSING_TAGS = ("</tool_call>", "</function_call>")
_LINE_WITH_BRACE = re.compile(r"(?:\A\s*+|\n[ \t]*+)(?=\{)")
_DANGLING_MARK = re.compile(
    r"(?:<(?:\w+:)?tool_?calls?>?|<function(?:_calls?)?[=>]?|<invoke|<\|?tool_call\|?>?|<\|python_tag\|>|\[TOOL_CALLS\])\s*\Z"
)
_SEPARATORS = re.compile(r"[\s;,]*+")


@attrs.frozen
class RecoveredCalls:
    """The calls of a text, in order, and what is left of the text without them."""

    calls: tuple[TextCall, ...]
    rest: str


def recover(text: str, tools: Tools, *, has_ended: bool) -> RecoveredCalls:
    """Find the calls in a text; `has_ended` means that the model finished."""
    if not tools:
        return RecoveredCalls((), text)
    if bare := _whole(text.strip(), tools):
        return RecoveredCalls(bare, "")
    result = _walk(CallText(_open_fence(text), tools, has_ended))
    return result if result.calls else RecoveredCalls((), text)


def without_markers(text: str, tools: Tools) -> str:
    """Remove from a text the calls that were also sent properly: complete ones, and what is left of their marks."""
    rest = recover(text, tools, has_ended=True).rest
    return _DANGLING_MARK.sub("", rest).rstrip() if _DANGLING_MARK.search(rest) else rest


_MOST_LOOKED_AT, _NEAR = 20, 400
_CALL_LIKE = re.compile(r"""(?<!`)\{\s*["'](?:name|tool|tool_name|function)["']\s*:""")
_ARGUMENTS_KEY = re.compile(r"""["'](?:arguments|parameters|args|input|params)["']\s*:""")


def misplaced_call(text: str, tools: Tools) -> str:
    """Return the tool that a text without calls seems to call nevertheless, in a form that cannot be read; empty if there is none.

    It is a tag of a call outside code, or a JSON object with the name of a tool and arguments. One in a fence with text after it is an example.
    """
    if not tools:
        return ""
    body = _open_fence(text)
    position = 0
    while mark := _MARKS.search(body, position):
        if mark["opener"] and (name := _near(body[mark.start() : mark.start() + _NEAR], tools)):
            return name
        position = _after_code(body, mark) if mark["fence"] or mark["code"] else mark.end()
    position = 0
    for _ in range(_MOST_LOOKED_AT):
        match = _CALL_LIKE.search(text, position)
        if match is None:
            break
        position = end_of_value(text, match.start()) or len(text)
        name = _called_tool(text[match.start() : position], tools)
        if name and not _is_example(text, match.start(), position):
            return name
    return ""


def _near(text: str, tools: Tools) -> str:
    return next((name for name in tools.schemas if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)), "")


def _called_tool(text: str, tools: Tools) -> str:
    """Return the name of the tool that a JSON text, complete or not, calls; empty if it is not a call of a tool."""
    if calls := calls_in(text, tools, bare=True):
        return calls[0].name
    cut = cut_call(text, tools) if _ARGUMENTS_KEY.search(text) and read_value(text).json is False else None
    return cut[0].name if cut else ""


def _is_example(text: str, start: int, end: int) -> bool:
    """Return whether a place lies in a fence with text after it."""
    position = 0
    while mark := _MARKS.search(text, position):
        if mark.start() > start:
            return False
        position = _after_code(text, mark) if mark["fence"] or mark["code"] else mark.end()
        if mark["fence"] and position >= end:
            return bool(text[position:].strip())
    return False


def _open_fence(text: str) -> str:
    """Return the content of a fence around the whole text, if it has a call."""
    body = _fence_body(text.strip())
    return body if body is not None and _MARKS.search(body) else text


def _fence_body(text: str) -> str | None:
    """Return the content of a text that is one fence; None for anything else."""
    begin = FENCE_BEGIN.match(text)
    if begin is None or not text.endswith("```") or begin.end() > len(text) - 3:
        return None
    body = text[begin.end() : -3]
    return None if "```" in body else body.strip()


# -- JSON that is the whole text -----------------------------------------------------------------------------------


def _whole(text: str, tools: Tools) -> tuple[TextCall, ...]:
    """Return the calls that a text is, bare or in one fence, also with an end tag that has no opener."""
    body = _fence_body(text) or text
    has_closing_tag = body.endswith(_CLOSING_TAGS)
    while body.endswith(_CLOSING_TAGS):
        body = body[: body.rindex("</")].rstrip()
    calls: list[TextCall] = []
    position = 0
    while body[position : position + 1] in {"{", "["}:
        end = end_of_value(body, position)
        part = calls_in(body[position:end], tools, bare=not has_closing_tag) if end else None
        if not end or part is None:
            return ()
        calls += part
        between = _SEPARATORS.match(body, end)
        position = between.end() if between else end
    return tuple(calls) if position == len(body) else ()


# -- calls among other text ----------------------------------------------------------------------------------------


def _walk(source: CallText) -> RecoveredCalls:
    """Go through a text from mark to mark."""
    text = source.text
    calls: list[TextCall] = []
    parts: list[str] = []
    position = parts_end = since = 0  # where to continue, what is kept so far, where JSON without an opener may begin
    wrapper_begin = -1  # where the tags just before this begin
    while mark := _MARKS.search(text, position):
        if text[position : mark.start()].strip():
            wrapper_begin = -1
        if mark["fence"] or mark["code"]:
            position, wrapper_begin = _after_code(text, mark), -1
            continue
        match = _read(source, mark) if mark["opener"] else _read_unopened(source, since, mark)
        position = match.end if match else mark.end()
        if match and match.calls:
            begin = (
                match.begin
                if match.begin is not None
                else wrapper_begin
                if wrapper_begin >= parts_end
                else mark.start()
            )
            calls += match.calls
            parts.append(text[parts_end:begin])
            after = _AFTER.match(text, match.end)
            position = parts_end = since = after.end() if after else match.end
        elif mark["closer"]:
            since = position
        wrapper_begin = -1 if match else mark.start() if wrapper_begin < 0 else wrapper_begin
    if not calls:
        return RecoveredCalls((), text)
    return RecoveredCalls(tuple(calls), ("".join(parts) + text[parts_end:]).strip())


def _read(source: CallText, mark: re.Match[str]) -> TextMatch | None:
    openers = ((pattern.match(source.text, mark.start()), read) for pattern, read in _OPENERS)
    return next(read(source, opener) for opener, read in openers if opener)


def _after_code(text: str, mark: re.Match[str]) -> int:
    """Return where code ends: a fence at the next one like it, or never; backticks at the same number of them on their line, or at once."""
    if mark["fence"]:
        fence = mark["fence"].strip()
        match = re.compile(rf"^[ ]{{0,3}}{re.escape(fence)}[ ]*$", re.MULTILINE).search(text, mark.end())
        return match.end() if match else len(text)
    line_end = text.find("\n", mark.end())
    closing_at = text.find(mark["code"], mark.end(), line_end if line_end >= 0 else len(text))
    return closing_at + len(mark["code"]) if closing_at >= 0 else mark.end()


def _read_unopened(source: CallText, since: int, closer: re.Match[str]) -> TextMatch | None:
    """Read the JSON before an end tag that has no opener."""
    before = source.text[since : closer.start()]
    brace = _LINE_WITH_BRACE.search(before)
    calls = calls_in(before[brace.end() :], source.tools) if brace else None
    return TextMatch(calls, closer.end(), begin=since + brace.end()) if brace and calls else None
