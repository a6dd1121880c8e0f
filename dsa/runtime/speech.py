"""Speech: a model's text, cleaned and divided into answer, drafts and function calls before any other code sees it.

Every text of every model passes through here, whole or in pieces: `dsa.generators.streams` passes the pieces of servers and of LiteLLM,
`strip_drafts` the texts of other generators. The result does not depend on how the text is cut into pieces. The work is linear in its length.

- Halves of characters are joined (JSON can write surrogates).
- Drafts are between `<think>` and `</think>`. The first mark may be missing, because chat templates write it, and the last one too.
- `gpt-oss` writes channels with marks (https://github.com/openai/harmony): `analysis` is a draft, a message to a function is a call, the rest is the
  answer.
- A mark in a code fence, in backticks or between quotes is text.

`Scanner` finds the end of the first JSON value of a text, also piece by piece, and looks at each character once. Brackets count only outside strings;
strings may have single quotes, as in Python. It knows no numbers and words: a value that is not an object, array or string never ends.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

import attrs

from dsa.runtime.content import Artifact
from dsa.text import is_unicode

_STRUCTURE = re.compile(r"[\"'{}\[\]]")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class Scanner:
    """A search for the end of the first JSON value in pieces of text.

    `end` is the length of the text up to that end, None until the value is complete. `more` says whether other text than white space follows.
    """

    __slots__ = ("_before", "_depth", "_is_escaped", "_quote", "end", "more")

    def __init__(self) -> None:
        self.end: int | None = None
        self.more = False
        self._before = 0
        self._depth = 0
        self._quote = ""
        self._is_escaped = False

    @property
    def open(self) -> bool:
        """Whether a value has begun and not ended."""
        return self.end is None and bool(self._depth or self._quote)

    def feed(self, text: str) -> None:
        """Read the next piece."""
        position = self.advance(text, 0)
        if self.end is not None and not self.more:
            self.more = bool(text[position:].strip())
        self._before += len(text)

    def advance(self, text: str, position: int) -> int:
        """Read a text from a position on, and return the position where the value, or the text, ends."""
        while position < len(text) and self.end is None:
            position = self._in_string(text, position) if self._quote else self._outside(text, position)
        return position

    def _in_string(self, text: str, position: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return position + 1
        match = _IN_STRING[self._quote].search(text, position)
        if match is None:
            return len(text)
        if match[0] == "\\":
            self._is_escaped = True
            return match.end()
        self._quote = ""
        if self._depth == 0:
            self.end = self._before + match.end()
        return match.end()

    def _outside(self, text: str, position: int) -> int:
        bracket = _STRUCTURE.search(text, position)
        if bracket is None:
            return len(text)
        match bracket[0]:
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                if self._depth <= 0:
                    self.end = self._before + bracket.end()
            case quote:
                self._quote = quote
        return bracket.end()


def end_of_value(text: str, start: int = 0) -> int | None:
    """Return the end of the value that begins at `start`; None if it is incomplete."""
    scanner = Scanner()
    scanner.advance(text, start)
    return scanner.end


def values_in(text: str) -> list[str]:
    """Split a text into the values that follow each other in it; the last one may be incomplete."""
    parts, start = [], 0
    while start < len(text):
        end = end_of_value(text, start) or len(text)
        parts.append(text[start:end])
        start = end
    return [part for part in parts if part.strip()]


# -- characters -------------------------------------------------------------------------------------------------------

_FIRST_HALF = ("\ud800", "\udbff")
UNKNOWN = "\ufffd"


def join_halves(text: str) -> str:
    """Return a text with joined halves of characters, and U+FFFD for single halves."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_unicode(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a JSON value with `join_halves` applied to its strings, and to the names in its objects."""
    return each_text(value, join_halves, with_names=True)


def each_text(value: Any, change: Callable[[str], str], *, with_names: bool = False) -> Any:  # noqa: ANN401  (JSON)
    """Return a JSON value with `change` applied to its strings, and with `with_names` also to the names in its objects."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [each_text(each, change, with_names=with_names) for each in value]
    if isinstance(value, dict):
        pairs = ((name, each_text(each, change, with_names=with_names)) for name, each in value.items())
        return {each_text(name, change) if with_names else name: each for name, each in pairs}
    return value


# -- parts of a text --------------------------------------------------------------------------------------------------


@attrs.frozen
class FunctionText:
    """A message to a function instead of the user: the function's name as the model writes it, and the text."""

    recipient: str
    text: str


@attrs.frozen
class SpeechParts:
    """The parts of a model's text: the answer, the drafts, and the calls of functions."""

    answer: str = ""
    drafts: str = ""
    calls: tuple[FunctionText, ...] = ()


def split_speech(text: str) -> SpeechParts:
    """Divide a whole text into its parts."""
    if "<" not in text and text.isascii():  # no mark, no half of a character
        return SpeechParts(text)
    speech = Speech()
    speech.feed(text)
    return speech.finish()


def strip_drafts(artifact: Artifact) -> Artifact:
    """Return a generator's artifact with only the answer as its content; it is empty if the text has only drafts."""
    answer = split_speech(artifact.content).answer
    return artifact if answer == artifact.content else attrs.evolve(artifact, content=answer)


# -- marks ------------------------------------------------------------------------------------------------------------

_TAGS = ("think", "thinking", "thought", "seed:think")
_TOKENS = ("start", "channel", "constrain", "message", "end", "call", "return")
_MARK = re.compile(
    rf"(?P<open><(?:{'|'.join(_TAGS)})>)|(?P<close></(?:{'|'.join(_TAGS)})>)|<\|(?P<token>{'|'.join(_TOKENS)})\|>",
    re.IGNORECASE,
)
_CLOSE = re.compile(rf"</(?:{'|'.join(_TAGS)})>", re.IGNORECASE)
_TOKEN = re.compile(rf"<\|(?P<token>{'|'.join(_TOKENS)})\|>")
_MARKS = (
    *(f"<{tag}>" for tag in _TAGS),
    *(f"</{tag}>" for tag in _TAGS),
    *(f"<|{token}|>" for token in _TOKENS),
)
#: Finds a possible beginning of a mark; most `<` are not one.
_SUSPECT = re.compile(r"<(?:[/|TtSs]|\Z)").search
_BEGINNINGS = frozenset(mark[:size] for mark in _MARKS for size in range(1, len(mark)))
_LONGEST = max(map(len, _BEGINNINGS))
_CHANNEL = r"\s{0,3}(?:analysis|commentary|final)\b"
#: The header of a channel's message, in a text that has had no channels so far.
_HEADER = re.compile(
    rf"(?:<\|start\|>[^<]{{0,100}})?(?:<\|channel\|>{_CHANNEL}[^<\n]{{0,200}}){{1,3}}(?:<\|constrain\|>[^<]{{0,100}})?<\|message\|>"
    r"|<\|start\|>\s{0,9}assistant\b[^<]{0,100}<\|message\|>"
)
_HEADER_BEGUN = re.compile(
    r"(?:<\|start\|>[^<]{0,100})?(?:<\|channel\|>[^<]{0,200}){0,3}(?:<\|constrain\|>[^<]{0,100})?(?P<mark><[|a-z]{0,12}\|?)?"
)
_MOST_HEADER = 1_000
#: The marks at the end of a text.
_END_MARKS = re.compile(r"(?:<\|(?:end|call|return)\|>|\s){0,200}(?P<mark><[|a-z]{0,7}\|?)?")
_TO = re.compile(r"\bto=([^\s<]+)")
_NOBODY = frozenset({"user", "assistant", "all"})
#: A mark beside one of these is text, because the answer speaks about it; a quotation mark after it may also begin the answer.
_QUOTES_BEFORE, _SPEAKING_OF = frozenset("\"'`\\("), frozenset(".,;:")
_QUOTES_AFTER = frozenset("\"'\\)")
_QUOTES = frozenset("\"'`")


def _pending(text: str, start: int) -> int:
    """Return the position of an incomplete mark at the end of a text; the length of the text if there is none."""
    at = text.find("<", max(start, len(text) - _LONGEST))
    while at >= 0:
        if text[at:].lower() in _BEGINNINGS:
            return at
        at = text.find("<", at + 1)
    return len(text)


def _is_quoted(before: str, after: str) -> bool:
    """Return whether a mark between two characters is text."""
    return before in _QUOTES_BEFORE or after in _SPEAKING_OF or (after in _QUOTES_AFTER and before.strip() != "")


def _header_parts(role: str, channel: str) -> tuple[list[str], list[str], str]:
    """Return the first word of the role and of the channel, as lists of at most one, and the addressed function or ""."""
    to = _TO.search(f"{role} {channel}")
    who, where = (_TO.sub("", text).split()[:1] for text in (role, channel))
    return who, where, to[1] if to and to[1] not in _NOBODY else ""


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TICKS = re.compile("`+")
_MOST_OF_LINE = 200


class _Place:
    """The place of the end of a text: in a fence, in backticks, at the beginning of a line."""

    __slots__ = ("_fence", "_line", "_ticks")

    def __init__(self) -> None:
        self._fence = self._line = ""
        self._ticks = 0

    @property
    def is_code(self) -> bool:
        return bool(self._fence) or self._ticks > 0

    @property
    def is_beginning(self) -> bool:
        return not self._line.strip()

    def go_on(self, text: str) -> None:
        """Read the next text, which must not end within a run of backticks."""
        first, *lines = text.split("\n")
        self._within(first)
        for line in lines:
            self._end()
            self._within(line)

    def _within(self, part: str) -> None:
        if len(self._line) < _MOST_OF_LINE:
            self._line += part[:_MOST_OF_LINE]
        for run in _TICKS.findall(part):
            self._ticks = len(run) if self._ticks == 0 else 0 if self._ticks == len(run) else self._ticks

    def _end(self) -> None:
        fence = _FENCE.match(self._line)
        if fence and not self._fence:
            self._fence = fence[1] if fence[1][0] == "~" or "`" not in self._line[fence.end() :] else ""
        elif fence and fence[1].startswith(self._fence) and not self._line[fence.end() :].strip():
            self._fence = ""
        self._line, self._ticks = "", 0


# -- pieces -----------------------------------------------------------------------------------------------------------


class _Mode(Enum):
    ANSWER, DRAFT, HEADER, CALL, ASIDE = range(5)


class Speech:
    """A model's text in pieces: `feed` returns the part of the answer that can be shown now, `finish` returns everything.

    The shown parts together are the beginning of the answer, with one exception: drafts without a first mark are recognised only at their end. Then
    `begins_anew` is True until the next piece, and what was shown before was a draft.
    """

    def __init__(self) -> None:
        self.begins_anew = False
        self._is_plain = False  # True: nothing is pending, and a piece without a mark belongs to the answer
        self._mode = _Mode.ANSWER
        self._half = self._pending = ""
        self._answer: list[str] = []
        self._drafts: list[str] = []
        self._calls: list[FunctionText] = []
        self._piece: list[str] = []  # of the draft, or the call, that goes on
        self._blank: list[str] = []  # before the first word
        self._is_trimmed = False
        self._place, self._placed_pieces = _Place(), 0
        self._spoken_of = 0  # marks of beginnings that are text in the answer
        self._opening_mark = ""
        self._has_channels = self._is_over = False
        self._breaks = ""
        self._header: dict[str, str] = {}
        self._part = "role"
        self._recipient = ""
        self._scanner: Scanner | None = None
        self._has_begun = False

    def feed(self, text: str) -> str:
        """Read the next piece, and return the text that can be shown."""
        if self._is_plain and ("<" not in text or not _SUSPECT(text)) and is_unicode(text):
            self._answer.append(text)
            return text
        self.begins_anew = False
        text = self._half + text
        self._half = text[-1:] if _FIRST_HALF[0] <= text[-1:] <= _FIRST_HALF[1] else ""
        new_text = self._walk(join_halves(text.removesuffix(self._half) if self._half else text))
        self._is_plain = self._mode is _Mode.ANSWER and not (self._pending or self._half or self._blank or self._breaks)
        self._is_plain = self._is_plain and bool(self._answer) and not self.begins_anew
        return new_text

    def finish(self) -> SpeechParts:
        """End the text, and return its parts."""
        if not self._is_over:
            self._is_over = True
            rest, self._half = UNKNOWN * bool(self._half), ""
            self._walk(rest)
            self._close()
            self._answer += self._blank * (not self._is_trimmed)
            self._is_plain = False
        return SpeechParts("".join(self._answer), "\n".join(filter(None, self._drafts)), tuple(self._calls))

    def _close(self) -> None:
        """End the present draft or call."""
        text = "".join(self._piece)
        self._piece = []
        # A draft in the middle of an answer that never ends is text.
        if self._mode is _Mode.DRAFT and self._opening_mark:
            self._say(f"{self._opening_mark}{text}")
        elif self._mode is _Mode.CALL:
            self._calls.append(FunctionText(self._recipient, text))
        elif self._mode is not _Mode.ANSWER:
            self._drafts.append(text or " ".join(self._header.values()) * (self._mode is _Mode.HEADER))
        self._mode = _Mode.ANSWER

    def _walk(self, text: str) -> str:
        """Read a text from mark to mark, and return the new part of the answer."""
        text, at, output = self._pending + text, 0, list[str]()
        self._pending = ""
        steps = (self._in_answer, self._in_draft, self._in_header, self._in_call, self._in_aside)  # by mode
        while at < len(text):
            at = steps[self._mode.value](text, at, output)
        return "".join(output)

    def _hold(self, text: str, start: int) -> int:
        self._pending = text[start:]
        return len(text)

    def _before_mark(self, text: str, at: int, mark: re.Match[str] | None, take: Callable[[str], object]) -> int:
        """Pass the text before a mark to `take`; without a mark, all but a possible beginning of one, which stays pending. Return the position after it."""
        end = mark.start() if mark else len(text) if self._is_over else _pending(text, at)
        if end > at:
            take(text[at:end])
        return end if mark else self._hold(text, end)

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _in_answer(self, text: str, at: int, output: list[str]) -> int:
        mark = _MARK.search(text, at)
        at = self._before_mark(text, at, mark, lambda content: output.append(self._say(content)))
        if mark is None:
            return at
        self._place.go_on("".join(self._answer[self._placed_pieces :]))
        self._placed_pieces = len(self._answer)
        step = self._at_opening if mark["open"] else self._at_closing if mark["close"] else self._at_token
        after = step(text, mark)
        if after is None:
            output.append(self._say(mark[0]))
            return mark.end()
        return after

    def _say(self, text: str) -> str:
        """Add a text to the answer, and return the new part. White space before the first word waits for that word; after drafts it is dropped."""
        if not self._answer:
            if text.isspace():
                self._blank.append(text)
                return ""
            text = text.lstrip() if self._is_trimmed else "".join([*self._blank, text])
            self._blank = []
        elif self._breaks and text.strip():
            text = self._breaks + text.lstrip()
        elif self._breaks:
            return ""
        self._breaks = ""
        self._answer.append(text)
        return text

    def _at_opening(self, _text: str, mark: re.Match[str]) -> int | None:
        """Begin a draft and return the position after the mark; None if the mark is text."""
        if self._answer and (self._place.is_code or not self._place.is_beginning):
            self._spoken_of += not self._place.is_code
            return None
        self._opening_mark = mark[0] if self._answer else ""
        self._mode, self._is_trimmed = _Mode.DRAFT, self._is_trimmed or not self._answer
        self._blank = []
        return mark.end()

    def _at_closing(self, text: str, mark: re.Match[str]) -> int | None:
        """Make everything so far a draft, and return the position after the mark; None if the mark is text."""
        if mark.end() == len(text) and not self._is_over:
            return self._hold(text, mark.start())
        if self._place.is_code or self._is_spoken_of(text, mark):
            return None
        self._drafts.append("".join(self._answer))
        self.begins_anew = bool(self._answer)
        self._answer, self._blank, self._is_trimmed, self._breaks = [], [], True, ""
        self._place, self._placed_pieces = _Place(), 0
        return mark.end()

    def _is_spoken_of(self, text: str, mark: re.Match[str]) -> bool:
        """Return whether a mark that would end drafts is text, because the answer speaks about it."""
        if self._spoken_of:  # so was the mark of the beginning
            self._spoken_of -= 1
            return True
        return _is_quoted(self._answer[-1][-1:] if self._answer else "", text[mark.end() : mark.end() + 1])

    def _at_token(self, text: str, mark: re.Match[str]) -> int | None:
        """Read a mark of a channel, and return the position after it; None if it is text."""
        if self._place.is_code:
            return None
        if self._has_channels:
            return self._after_token(mark)
        if mark["token"] in {"start", "channel"}:
            if _HEADER.match(text, mark.start()):
                self._has_channels = True
                return self._after_token(mark)
            is_open = len(text) - mark.start() <= _MOST_HEADER and _HEADER_BEGUN.fullmatch(text, mark.start())
            if is_open and self._is_over and not self._answer:
                self._has_channels = True
                return self._after_token(mark)
        else:
            is_open = mark["token"] in {"end", "call", "return"} and _END_MARKS.fullmatch(text, mark.start())
            if is_open and self._is_over:
                return len(text)
        return self._hold(text, mark.start()) if is_open and not self._is_over else None

    # -- drafts and channels ------------------------------------------------------------------------------------------

    def _in_draft(self, text: str, at: int, _output: list[str]) -> int:
        mark = _CLOSE.search(text, at)
        at = self._before_mark(text, at, mark, self._piece.append)
        if mark is None:
            return at
        if mark.end() == len(text) and not self._is_over:
            return self._hold(text, mark.start())
        before = self._piece[-1][-1:] if self._piece else ""
        if before in _QUOTES and text.startswith(before, mark.end()):  # the draft speaks about the mark
            self._piece.append(mark[0])
            return mark.end()
        self._drafts.append("".join(self._piece))
        self._piece, self._mode, self._opening_mark = [], _Mode.ANSWER, ""
        return mark.end()

    def _after_token(self, mark: re.Match[str]) -> int:
        """Continue after a mark of a channel, outside calls."""
        word = mark["token"].lower()
        if word == "start":
            self._header, self._part, self._mode = {}, "role", _Mode.HEADER
        elif word == "channel":
            if self._mode is not _Mode.HEADER:
                self._header = {}
            self._header["channel"], self._part, self._mode = "", "channel", _Mode.HEADER
        elif self._mode is not _Mode.HEADER:
            self._breaks = "\n\n" if self._answer else ""
        elif word == "constrain":
            self._part = "type"
        elif word == "message":
            self._begin_message()
        else:
            self._mode = _Mode.ANSWER
        return mark.end()

    def _in_header(self, text: str, at: int, _output: list[str]) -> int:
        mark = _TOKEN.search(text, at)
        at = self._before_mark(text, at, mark, self._head)
        return at if mark is None else self._after_token(mark)

    def _head(self, text: str) -> None:
        self._header[self._part] = (self._header.get(self._part, "") + text)[:_MOST_HEADER]

    def _begin_message(self) -> None:
        who, where, self._recipient = _header_parts(self._header.get("role", ""), self._header.get("channel", ""))
        self._place, self._placed_pieces = _Place(), len(self._answer)
        self._breaks = "\n\n" if self._answer else ""
        if who not in ([], ["assistant"]):
            self._mode = _Mode.ASIDE
        elif self._recipient:
            self._mode, self._scanner, self._has_begun = _Mode.CALL, None, False
        else:
            self._mode = _Mode.ASIDE if where == ["analysis"] else _Mode.ANSWER

    def _in_call(self, text: str, at: int, _output: list[str]) -> int:
        mark = _TOKEN.search(text, at)
        at = self._before_mark(text, at, mark, self._call)
        if mark is None:
            return at
        if self._scanner is not None and self._scanner.open:  # within its JSON
            self._call(mark[0])
            return mark.end()
        self._close()
        return self._after_token(mark)

    def _call(self, text: str) -> None:
        if not self._has_begun and text.strip():
            self._has_begun = True
            self._scanner = Scanner() if text.lstrip().startswith("{") else None
        if self._scanner is not None:
            self._scanner.feed(text)
        self._piece.append(text)

    def _in_aside(self, text: str, at: int, _output: list[str]) -> int:
        mark = _TOKEN.search(text, at)
        at = self._before_mark(text, at, mark, self._piece.append)
        if mark is None:
            return at
        self._close()
        return self._after_token(mark)
