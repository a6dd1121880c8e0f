"""Secrets in texts: found in every form that a value takes on its way, and replaced by a marker that says which it was.

Takes values and patterns with their names, gives texts and JSON without them. Pure: which secrets there are, `dsa.runtime.secret_names`
says; it knows no ledger. A text in which nothing is found is given back as it is, and costs next to nothing (see `Secrets.suspects`).
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from itertools import chain, product
from json import dumps
from typing import Any, Protocol
from urllib.parse import quote, quote_plus

import attrs

#: What stands in the place of a secret: `[secret OPENAI_API_KEY]`.
_MARKER = re.compile(r"\[secret ([^\[\]\n]{1,100})\]")
_ODD_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_MARK = "[secret "
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_SHORTEST_BASE64 = 10
_KNOWN_TO_HTML = "&<>\"'"
#: What may stand between two characters of base64 that is written in lines, also within JSON.
_BREAKS = r"(?:[\r\n]+[ \t]*|(?:\\+[rn])+[ \t]*)?"
#: What numbers of characters in JSON begin with; a backslash alone is in every other text.
_ESCAPE = "\\u00"
_SHORTEST_LINE = 20
#: Characters from the commonest to the rarest in ledgers and in English; what is missing here is rarest of all.
_COMMON = " et\"aidsnrco-:l,2f10uhm\n.gp6b_35`'|k9yvw874/{}x()TEN*q[]#=\\Aj;S^W><ORPDI$!LCMGV+BU~FHKYX@%&zJ?Q"
#: From which place on a character is rare enough to be asked for once more, in place of another one that nothing else is asked for by.
_RARE = 60
#: How many characters before and behind the rarest one are looked at, before all of a text is looked through.
_AROUND = 6
_RANKS = {character: rank for rank, character in enumerate(_COMMON)}


def marked(text: str) -> tuple[str, ...]:
    """Give the names of the secrets that a text has had, sorted: those of its markers."""
    return tuple(sorted(set(_MARKER.findall(text)))) if _MARK in text else ()


def marker(name: str) -> str:
    """Give what stands in the place of a secret."""
    return f"{_MARK}{_ODD_IN_A_NAME.sub('_', name)[:100]}]"


class Searched(Protocol):
    """Something that says where it is found in a text."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Give the stretches that belong to it, from and to, in order."""


@attrs.frozen
class _Known:
    """A pattern of ours, whose work for a text is bounded by its length."""

    pattern: re.Pattern[str]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Give its matches."""
        return (match.span() for match in self.pattern.finditer(text))


@attrs.frozen
class Shape:
    """What a kind of secret looks like, which has at least `shortest` characters.

    A text without any of the `anchors` has none; without anchors every text is looked at.
    """

    name: str
    pattern: Searched
    shortest: int = 1
    anchors: tuple[str, ...] = ()


def _token(name: str, pattern: str, shortest: int, *anchors: str) -> Shape:
    return Shape(name, _Known(re.compile(rf"(?<![A-Za-z0-9]){pattern}")), shortest, anchors)


_GITHUB = r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})"
_PEM = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?!-----)[\s\S]){0,20000}(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?"
#: Tokens whose issuers gave them a shape by which they are known; those of Anthropic begin like OpenAI's.
SHAPES = (
    _token("openai-key", r"sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}", 23, "sk-"),
    _token("github-token", _GITHUB, 34, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    _token("gitlab-token", r"glpat-[A-Za-z0-9_-]{20,}", 26, "glpat-"),
    _token("aws-key-id", r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])", 20, "KIA", "SIA"),
    _token("google-key", r"AIza[A-Za-z0-9_-]{35}", 39, "AIza"),
    _token("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", 15, "xox"),
    _token("huggingface-token", r"hf_[A-Za-z0-9]{30,}", 33, "hf_"),
    Shape("private-key", _Known(re.compile(_PEM)), 27, ("PRIVATE KEY",)),
)


@attrs.frozen
class _Needle:
    """One form of a secret's value; with a `pattern`, a part of one, whose places the pattern tells, and what stands around it in base64 belongs to it."""

    text: str
    name: str
    pattern: str | None = None


class Secrets:
    r"""Values by name, each looked for in all its forms, and shapes. Nothing of it shows a value.

    A value's forms are the value itself, as JSON writes it (once and twice, with `\u0026` for what HTML knows), as Python, HTML and URLs (once and twice) write it, and in
    base64, whatever stands around it there, wherever its lines end; of a block of several lines (a private key) also its lines.
    """

    __slots__ = ("_by_rarest", "_escaped", "_free", "_needles", "_shapes", "_shortest", "names")

    def __init__(self, values: Mapping[str, str] | None = None, shapes: Iterable[Shape] = SHAPES) -> None:
        self._needles = _sorted_needles(values or {})
        self._shapes = tuple(shapes)
        self._free = tuple(shape.pattern for shape in self._shapes if not shape.anchors)
        anchors = [anchor for shape in self._shapes for anchor in shape.anchors]
        wanted = [*anchors, *(needle.text for needle in self._needles)]
        self._by_rarest = _by_rarest(text for text in wanted if _ESCAPE not in text)
        self._escaped = _any_of(text for text in wanted if _ESCAPE in text)  # of a value that has something to escape
        lengths = [*(len(needle.text) for needle in self._needles), *(shape.shortest for shape in self._shapes)]
        self._shortest = min(lengths, default=0)
        #: What is looked for, by name.
        self.names = tuple(dict.fromkeys([*(values or {}), *(shape.name for shape in self._shapes)]))

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names)})"

    def suspects(self, text: str) -> bool:
        """Tell whether a text may have a secret in it: False is certain, and quick.

        Each thing that is looked for is asked for by its rarest character first: where that is missing, as it mostly is, one search for
        one character has settled it for all that share it; where it is not, what stands around it is looked at.
        """
        if len(text) < self._shortest:
            return False
        for rarest, search in self._by_rarest:
            if rarest in text and search(text):
                return True
        if self._escaped is not None and _ESCAPE in text and self._escaped(text):
            return True
        return bool(self._free) and any(next(pattern.spans(text), None) for pattern in self._free)

    def text(self, text: str) -> str:
        """Give a text with markers in place of secrets. Doing it again changes nothing."""
        if not self.suspects(text):
            return text
        pieces, end = [], 0
        for match in _MARKER.finditer(text):  # whatever a pattern says, a marker is none
            pieces += [self._without(text[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*pieces, self._without(text[end:])])

    def places(self, text: str) -> tuple[tuple[int, str], ...]:
        """Give where secrets begin in a text, and their names; those that are marked already are not among them."""
        if not self.suspects(text):
            return ()
        without_markers = _MARKER.sub(lambda match: " " * len(match[0]), text)
        return tuple((start, name) for start, _, name in _merged(self._spans(without_markers)))

    def value(self, value: Any) -> Any:  # noqa: ANN401  (JSON)
        """Give a JSON value with markers in its texts and keys, and in place of numbers that are secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = repr(value)
            without = self.text(written)
            return value if without == written else without
        return value

    def _without(self, text: str) -> str:
        pieces, end = [], 0
        for start, stop, name in _merged(self._spans(text)):
            pieces += [text[end:start], marker(name)]
            end = stop
        return "".join([*pieces, text[end:]])

    def _spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Give where secrets stand, from and to, with their names; they may overlap."""
        for needle in self._needles:
            start = text.find(needle.text)
            if needle.pattern is not None:
                matches = re.finditer(needle.pattern, text) if start >= 0 else ()
                yield from ((*_widened(text, *match.span()), needle.name) for match in matches)
                continue
            while start >= 0:
                yield start, start + len(needle.text), needle.name
                start = text.find(needle.text, start + 1)
        for shape in self._shapes:
            yield from ((start, stop, shape.name) for start, stop in shape.pattern.spans(text))


def _by_rarest(wanted: Iterable[str]) -> tuple[tuple[str, Callable[[str], object]], ...]:
    """Sort texts under the rarest character of each; give with the character what finds the middle of any of its texts."""
    found: dict[str, list[str]] = {}
    for text in dict.fromkeys(wanted):
        rarest = max(text, key=lambda character: (character in found and _rank(character) >= _RARE, _rank(character)))
        found.setdefault(rarest, []).append(text)
    return tuple((rarest, re.compile(_around(rarest, texts)).search) for rarest, texts in found.items())


def _around(rarest: str, texts: Iterable[str]) -> str:
    """Return a regular expression for what stands around the rarest character in any of the texts: it begins with what is beside it, which is mostly wrong, and at once."""
    places = ((text, text.index(rarest)) for text in texts)
    cut = {(text[max(0, place - _AROUND) : place], text[place + 1 : place + 1 + _AROUND]) for text, place in places}
    before, after = {one[-1:] for one, _ in cut}, {other[:1] for _, other in cut}
    beside = "" if "" in before else f"(?<=[{re.escape(''.join(sorted(before)))}]{re.escape(rarest)})"
    beside += "" if "" in after else f"(?=[{re.escape(''.join(sorted(after)))}])"
    every = (f"{re.escape(other)}(?<={re.escape(one + rarest + other)})" for one, other in sorted(cut))
    return f"{re.escape(rarest)}{beside}(?:{'|'.join(every)})"


def _rank(character: str) -> int:
    return _RANKS.get(character, len(_RANKS))


def _any_of(wanted: Iterable[str]) -> Callable[[str], object] | None:
    """Return what finds any of some texts; None where there are none."""
    texts = [re.escape(text) for text in dict.fromkeys(wanted)]
    return re.compile("|".join(texts)).search if texts else None


def _merged(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Put overlapping spans together, under the name of the longest."""
    merged: list[tuple[int, int, str]] = []
    longest = 0
    for start, stop, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            before, end, named = merged[-1]
            merged[-1] = before, max(end, stop), name if stop - start > longest else named
            longest = max(longest, stop - start)
        else:
            merged.append((start, stop, name))
            longest = stop - start
    return merged


def _widened(text: str, start: int, stop: int) -> tuple[int, int]:
    """Take in what belongs to the same word of base64."""
    while start > 0 and text[start - 1] in _BASE64:
        start -= 1
    while stop < len(text) and text[stop] in _BASE64:
        stop += 1
    while stop < len(text) and text[stop] == "=":
        stop += 1
    return start, stop


# -- the forms of a value ---------------------------------------------------------------------------------------------


def _sorted_needles(values: Mapping[str, str]) -> tuple[_Needle, ...]:
    """Give the forms of all values, each text once."""
    found: dict[tuple[str, str | None], _Needle] = {}

    def add(text: str, name: str, pattern: str | None = None) -> None:
        found.setdefault((text, pattern), _Needle(text, name, pattern))

    for name, value in values.items():
        for text in chain(_plain(value), _in_html(value), _lines(value)):
            add(text, name)
        for text in _base64(_bytes(value)):
            whole, middle = _BREAKS.join(map(re.escape, text)), len(text) // 2
            add(text[:middle], name, whole)  # a line break, wherever it is, leaves one of the halves whole
            add(text[middle:], name, whole)
        for text in _base64_again(value):
            add(text, name, re.escape(text))
    return tuple(found.values())


def _plain(value: str) -> Iterator[str]:
    """Give a value as it is, and as JSON, Python and URLs write it."""
    once = dumps(value)[1:-1]
    yield from (value, once, dumps(value, ensure_ascii=False)[1:-1], dumps(once)[1:-1], once.replace("/", "\\/"))
    yield from (repr(value)[1:-1], value.replace("\n", "\r\n"))
    as_bytes = _bytes(value)
    urls = (quote(as_bytes, safe=""), quote(as_bytes), quote_plus(as_bytes))
    yield from urls
    yield from (re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url) for url in urls)
    yield from (quote(url, safe="") for url in urls)


def _in_html(value: str) -> Iterator[str]:
    """Give a value as HTML writes it, by names and by numbers, and as JSON does that goes into HTML: what HTML knows, or all, by numbers."""
    named = escape(value, quote=False)
    yield from (
        named,
        escape(value),
        named.replace('"', "&quot;").replace("'", "&#39;"),
        named.replace('"', "&#34;").replace("'", "&#39;"),
    )
    for written in ("&#{};", "&#x{:x};", "&#x{:X};"):
        yield from (_by_numbers(value, written, _KNOWN_TO_HTML), _by_numbers(value, written))
    once = dumps(value)[1:-1]
    for written, known in product(("\\u{:04x}", "\\u{:04X}"), ("<>&", "<>&'+`")):
        text = _by_numbers(once, written, known)
        yield from (text, text.replace("\\", "\\\\"))


def _by_numbers(value: str, written: str, which: str = "") -> str:
    """Give a value with some of its characters, or all, written as their numbers."""
    return "".join(written.format(ord(each)) if each in which or not which else each for each in value)


def _lines(value: str) -> Iterator[str]:
    """Give the lines of a block such as a private key, which stands elsewhere indented or in quotes."""
    if value.startswith("-----BEGIN "):
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))


def _base64(data: bytes) -> Iterator[str]:
    """Give what is always there when a text with these bytes is written in base64, wherever in it they begin."""
    for before in range(3):
        coded = b64encode(b"\0" * before + data).decode("ascii")
        settled = coded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        if len(settled) >= _SHORTEST_BASE64:
            yield settled


def _base64_again(value: str) -> Iterator[str]:
    """Give what is always there when base64 of a value is written for URLs, or is of UTF-16, or is in base64 or in a URL once more."""
    once = list(_base64(_bytes(value)))
    yield from (text.translate({ord("+"): "-", ord("/"): "_"}) for text in once)
    yield from (quote(text, safe="") for text in once)
    yield from chain(*(_base64(text.encode()) for text in once))
    yield from chain(*(_base64(value.encode(code, "surrogatepass")) for code in ("utf-16-le", "utf-16-be")))


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
