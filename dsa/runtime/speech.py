"""Where the first JSON value of a text ends, told piece by piece: each character is looked at once.

Brackets count outside strings only. A string may stand in single quotes too, as Python writes them. It knows no
numbers and no words: a value that is neither object, array nor string never ends.

Speech: what a model says, taken apart and cleaned before anything else sees it.

Every text of every model passes here, whole or piece by piece: those of servers and of LiteLLM in `dsa.generators.streams`, those of any other generator in `heard`.
Halves of characters are joined, drafts are told from the answer, and calls that stand in a channel of their own are taken out of it. However a text is
cut into pieces, it comes to the same. Pure, and linear in the length of the text.

Drafts stand between `<think>` and `</think>`, where the beginning may be missing (chat templates write it themselves) and the end too. `gpt-oss` writes
its channels with marks (https://github.com/openai/harmony): `analysis` is a draft, what is addressed to a function is a call, the rest is the answer.
A mark in code, that is in a fence, in backticks or between quotes, is text.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

import attrs

from dsa.runtime.content import Artifact

_STRUCTURE = re.compile(r"[\"'{}\[\]]")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class Scanner:
    """Feed it pieces; `end` is how many characters the first value takes, None until it is complete.

    `more` says that something but white space came after it.
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
        """Take the next piece."""
        position = self.advance(text, 0)
        if self.end is not None and not self.more:
            self.more = bool(text[position:].strip())
        self._before += len(text)

    def advance(self, text: str, position: int) -> int:
        """Go through a text from a position on, up to the end of the value; give where that is."""
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
    """Return where the value ends that begins at `start`; None when the text ends before it does."""
    scanner = Scanner()
    scanner.advance(text, start)
    return scanner.end


def values_in(text: str) -> list[str]:
    """Cut a text into the values that stand in it one after the other; the last may be incomplete."""
    parts, start = [], 0
    while start < len(text):
        end = end_of_value(text, start) or len(text)
        parts.append(text[start:end])
        start = end
    return [part for part in parts if part.strip()]


# -- characters -------------------------------------------------------------------------------------------------------

_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = ("\ud800", "\udbff")
UNKNOWN = "\ufffd"


def is_unicode(text: str) -> bool:
    """Return whether a text has no halves of characters, as JSON can write them."""
    return text.isascii() or _HALF.search(text) is None


def join_halves(text: str) -> str:
    """Return a text in which halves of characters are joined, and those that stand alone are U+FFFD."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_unicode(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a JSON value all of whose texts are `joined`, names in its objects too."""
    return each_text(value, join_halves, with_names=True)


def each_text(value: Any, change: Callable[[str], str], *, with_names: bool = False) -> Any:  # noqa: ANN401  (JSON)
    """Return a JSON value whose texts are changed, the names in its objects too `with_names`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [each_text(each, change, with_names=with_names) for each in value]
    if isinstance(value, dict):
        pairs = ((name, each_text(each, change, with_names=with_names)) for name, each in value.items())
        return {each_text(name, change) if with_names else name: each for name, each in pairs}
    return value


# -- what is said -----------------------------------------------------------------------------------------------------


@attrs.frozen
class FunctionText:
    """What is addressed to a function and not to the user: its name as the model writes it, and the text."""

    recipient: str
    text: str


@attrs.frozen
class SpeechParts:
    """A text taken apart."""

    answer: str = ""
    drafts: str = ""
    calls: tuple[FunctionText, ...] = ()


def split_speech(text: str) -> SpeechParts:
    """Take a whole text apart."""
    if "<" not in text and text.isascii():  # no mark, no half of a character
        return SpeechParts(text)
    speech = Speech()
    speech.feed(text)
    return speech.finish()


def strip_drafts(artifact: Artifact) -> Artifact:
    """Return what a generator has given, with the answer alone for its content. An answer that is nothing but drafts is an empty one."""
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
#: Finds what may begin a mark, or none: most of what has the character is not.
_SUSPECT = re.compile(r"<(?:[/|TtSs]|\Z)").search
_BEGINNINGS = frozenset(mark[:size] for mark in _MARKS for size in range(1, len(mark)))
_LONGEST = max(map(len, _BEGINNINGS))
_CHANNEL = r"\s{0,3}(?:analysis|commentary|final)\b"
#: What begins a message of a channel, where nothing has shown yet that the text has channels.
_HEADER = re.compile(
    rf"(?:<\|start\|>[^<]{{0,100}})?(?:<\|channel\|>{_CHANNEL}[^<\n]{{0,200}}){{1,3}}(?:<\|constrain\|>[^<]{{0,100}})?<\|message\|>"
    r"|<\|start\|>\s{0,9}assistant\b[^<]{0,100}<\|message\|>"
)
_HEADER_BEGUN = re.compile(
    r"(?:<\|start\|>[^<]{0,100})?(?:<\|channel\|>[^<]{0,200}){0,3}(?:<\|constrain\|>[^<]{0,100})?(?P<mark><[|a-z]{0,12}\|?)?"
)
_MOST_HEADER = 1_000
#: Ends of messages behind the last word.
_TRAILING = re.compile(r"(?:<\|(?:end|call|return)\|>|\s){0,200}(?P<mark><[|a-z]{0,7}\|?)?")
_TO = re.compile(r"\bto=([^\s<]+)")
_NOBODY = frozenset({"user", "assistant", "all"})
#: Beside these a mark is spoken of, and marks nothing; a quotation mark behind it may also begin the answer.
_QUOTING, _SPEAKING_OF = frozenset("\"'`\\("), frozenset(".,;:")
_QUOTED = frozenset("\"'\\)")
_QUOTES = frozenset("\"'`")


def _pending(text: str, start: int) -> int:
    """Return where the end of a text may begin a mark; its length where it does not."""
    at = text.find("<", max(start, len(text) - _LONGEST))
    while at >= 0:
        if text[at:].lower() in _BEGINNINGS:
            return at
        at = text.find("<", at + 1)
    return len(text)


def _is_quoted(before: str, after: str) -> bool:
    """Return whether a mark between two characters is spoken of."""
    return before in _QUOTING or after in _SPEAKING_OF or (after in _QUOTED and before.strip() != "")


def _header_parts(role: str, channel: str) -> tuple[list[str], list[str], str]:
    """Return who speaks and in which channel, a word or none, and the function that is addressed, if one is."""
    to = _TO.search(f"{role} {channel}")
    who, where = (_TO.sub("", text).split()[:1] for text in (role, channel))
    return who, where, to[1] if to and to[1] not in _NOBODY else ""


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TICKS = re.compile("`+")
_MOST_OF_LINE = 200


class _Place:
    """Where the end of a text stands: in a fence, in backticks, at the beginning of a line."""

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
        """Take what comes next; runs of backticks are whole."""
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
    """Feed it pieces; each gives what of the answer can be shown now. `finish` gives all.

    What is shown is the beginning of the answer, but for one thing that only the end of drafts tells: that they were some, where nothing began them.
    Then `begins_anew` is true, until the next piece.
    """

    def __init__(self) -> None:
        self.begins_anew = False
        self._is_plain = False  # nothing is held, something was said: a piece without a mark is the answer's
        self._mode = _Mode.ANSWER
        self._half = self._pending = ""
        self._answer: list[str] = []
        self._drafts: list[str] = []
        self._calls: list[FunctionText] = []
        self._piece: list[str] = []  # of the draft, or the call, that goes on
        self._blank: list[str] = []  # before the first word
        self._is_trimmed = False
        self._place, self._placed_pieces = _Place(), 0
        self._spoken_of = 0  # beginnings of drafts that stand in the answer as text
        self._opening_mark = ""
        self._has_channels = self._is_over = False
        self._breaks = ""
        self._header: dict[str, str] = {}
        self._part = "role"
        self._recipient = ""
        self._scanner: Scanner | None = None
        self._has_begun = False

    def feed(self, text: str) -> str:
        """Take the next piece, and return what can be shown."""
        if self._is_plain and ("<" not in text or not _SUSPECT(text)) and (text.isascii() or not _HALF.search(text)):
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
        """Return all that was said."""
        if not self._is_over:
            self._is_over = True
            rest, self._half = UNKNOWN * bool(self._half), ""
            self._walk(rest)
            self._close()
            self._answer += self._blank * (not self._is_trimmed)
            self._is_plain = False
        return SpeechParts("".join(self._answer), "\n".join(filter(None, self._drafts)), tuple(self._calls))

    def _close(self) -> None:
        """End what goes on."""
        text = "".join(self._piece)
        self._piece = []
        if self._mode is _Mode.DRAFT and self._opening_mark:  # never closed, in the middle of an answer: it was none
            self._say(f"{self._opening_mark}{text}")
        elif self._mode is _Mode.CALL:
            self._calls.append(FunctionText(self._recipient, text))
        elif self._mode is not _Mode.ANSWER:
            self._drafts.append(text or " ".join(self._header.values()) * (self._mode is _Mode.HEADER))
        self._mode = _Mode.ANSWER

    def _walk(self, text: str) -> str:
        """Go through a text from mark to mark."""
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
        """Take what stands before a mark; without one all but what may become one, which is held. Return where it ends."""
        end = mark.start() if mark else len(text) if self._is_over else _pending(text, at)
        if end > at:
            take(text[at:end])
        return end if mark else self._hold(text, end)

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _in_answer(self, text: str, at: int, output: list[str]) -> int:
        mark = _MARK.search(text, at)
        at = self._before_mark(text, at, mark, lambda said: output.append(self._say(said)))
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
        """Add to the answer, and return what is new of it. White space before the first word waits for it; behind drafts it goes."""
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
        """Begin a draft; None where the mark is text."""
        if self._answer and (self._place.is_code or not self._place.is_beginning):
            self._spoken_of += not self._place.is_code
            return None
        self._opening_mark = mark[0] if self._answer else ""
        self._mode, self._is_trimmed = _Mode.DRAFT, self._is_trimmed or not self._answer
        self._blank = []
        return mark.end()

    def _at_closing(self, text: str, mark: re.Match[str]) -> int | None:
        """Take all that was said for a draft; None where the mark is text."""
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
        """Return whether a mark that would end drafts is one that the answer speaks of."""
        if self._spoken_of:  # so was its beginning
            self._spoken_of -= 1
            return True
        return _is_quoted(self._answer[-1][-1:] if self._answer else "", text[mark.end() : mark.end() + 1])

    def _at_token(self, text: str, mark: re.Match[str]) -> int | None:
        """Take a mark of a channel; None where it is text."""
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
            is_open = mark["token"] in {"end", "call", "return"} and _TRAILING.fullmatch(text, mark.start())
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
        if before in _QUOTES and text.startswith(before, mark.end()):  # the draft speaks of it
            self._piece.append(mark[0])
            return mark.end()
        self._drafts.append("".join(self._piece))
        self._piece, self._mode, self._opening_mark = [], _Mode.ANSWER, ""
        return mark.end()

    def _after_token(self, mark: re.Match[str]) -> int:
        """Go on behind a mark of a channel, outside of calls."""
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
