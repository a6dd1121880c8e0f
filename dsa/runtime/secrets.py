"""Secrets in texts: found in every form that a value takes on its way, and replaced by a marker that says which it was.

Takes values and patterns with their names, gives texts and JSON without them. Pure: which secrets there are, `dsa.runtime.secrets`
says; it knows no ledger. A text in which nothing is found is given back as it is, and costs next to nothing (see `Secrets.suspects`).

Patterns that a user gives for what models write, searched for by RE2: in time that grows with the text, whatever the pattern and whoever wrote the text.

`re` tries one way after another, so `(a+)+b` takes for ever with a text made for it; then only `kill -9` helps, and a run that is resumed meets the same text.

Which secrets there are: the values of variables whose names say that they are keys, and what a user names.

Takes the variables of an environment, gives `Secrets`. Pure: it is handed the variables, and reads no file.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from itertools import chain, product
from json import dumps
from typing import Any, Protocol
from urllib.parse import quote, quote_plus, unquote

import attrs

from dsa.errors import DsaError

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
    """Return the names of the secrets that a text has had, sorted: those of its markers."""
    return tuple(sorted(set(_MARKER.findall(text)))) if _MARK in text else ()


def marker(name: str) -> str:
    """Return what stands in the place of a secret."""
    return f"{_MARK}{_ODD_IN_A_NAME.sub('_', name)[:100]}]"


class Finder(Protocol):
    """Something that says where it is found in a text."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Return the stretches that belong to it, from and to, in order."""


@attrs.frozen
class _OwnPattern:
    """A pattern of ours, whose work for a text is bounded by its length."""

    pattern: re.Pattern[str]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Return its matches."""
        return (match.span() for match in self.pattern.finditer(text))


@attrs.frozen
class SecretShape:
    """What a kind of secret looks like, which has at least `shortest` characters.

    A text without any of the `anchors` has none; without anchors every text is looked at.
    """

    name: str
    pattern: Finder
    shortest: int = 1
    anchors: tuple[str, ...] = ()


def _token(name: str, pattern: str, shortest: int, *anchors: str) -> SecretShape:
    return SecretShape(name, _OwnPattern(re.compile(rf"(?<![A-Za-z0-9]){pattern}")), shortest, anchors)


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
    SecretShape("private-key", _OwnPattern(re.compile(_PEM)), 27, ("PRIVATE KEY",)),
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

    def __init__(self, values: Mapping[str, str] | None = None, shapes: Iterable[SecretShape] = SHAPES) -> None:
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
        """Return whether a text may have a secret in it: False is certain, and quick.

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
        """Return a text with markers in place of secrets. Doing it again changes nothing."""
        if not self.suspects(text):
            return text
        pieces, end = [], 0
        for match in _MARKER.finditer(text):  # whatever a pattern says, a marker is none
            pieces += [self._without(text[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*pieces, self._without(text[end:])])

    def places(self, text: str) -> tuple[tuple[int, str], ...]:
        """Return where secrets begin in a text, and their names; those that are marked already are not among them."""
        if not self.suspects(text):
            return ()
        without_markers = _MARKER.sub(lambda match: " " * len(match[0]), text)
        return tuple((start, name) for start, _, name in _merged(self._spans(without_markers)))

    def value(self, value: Any) -> Any:  # noqa: ANN401  (JSON)
        """Return a JSON value with markers in its texts and keys, and in place of numbers that are secrets."""
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
        """Yield where secrets stand, from and to, with their names; they may overlap."""
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
    """Return the forms of all values, each text once."""
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
    """Yield a value as it is, and as JSON, Python and URLs write it."""
    once = dumps(value)[1:-1]
    yield from (value, once, dumps(value, ensure_ascii=False)[1:-1], dumps(once)[1:-1], once.replace("/", "\\/"))
    yield from (repr(value)[1:-1], value.replace("\n", "\r\n"))
    as_bytes = _bytes(value)
    urls = (quote(as_bytes, safe=""), quote(as_bytes), quote_plus(as_bytes))
    yield from urls
    yield from (re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url) for url in urls)
    yield from (quote(url, safe="") for url in urls)


def _in_html(value: str) -> Iterator[str]:
    """Yield a value as HTML writes it, by names and by numbers, and as JSON does that goes into HTML: what HTML knows, or all, by numbers."""
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
    """Return a value with some of its characters, or all, written as their numbers."""
    return "".join(written.format(ord(each)) if each in which or not which else each for each in value)


def _lines(value: str) -> Iterator[str]:
    """Yield the lines of a block such as a private key, which stands elsewhere indented or in quotes."""
    if value.startswith("-----BEGIN "):
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))


def _base64(data: bytes) -> Iterator[str]:
    """Yield what is always there when a text with these bytes is written in base64, wherever in it they begin."""
    for before in range(3):
        coded = b64encode(b"\0" * before + data).decode("ascii")
        settled = coded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        if len(settled) >= _SHORTEST_BASE64:
            yield settled


def _base64_again(value: str) -> Iterator[str]:
    """Yield what is always there when base64 of a value is written for URLs, or is of UTF-16, or is in base64 or in a URL once more."""
    once = list(_base64(_bytes(value)))
    yield from (text.translate({ord("+"): "-", ord("/"): "_"}) for text in once)
    yield from (quote(text, safe="") for text in once)
    yield from chain(*(_base64(text.encode()) for text in once))
    yield from chain(*(_base64(value.encode(code, "surrogatepass")) for code in ("utf-16-le", "utf-16-be")))


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


#: Behind so many matches all of a text counts as one: finding them costs at most so many passes over it.
MOST_MATCHES = 2_000


def compiled(text: str, *, longest: bool = False) -> Any:  # noqa: ANN401  (RE2's, which has no types)
    """Return a regular expression that searches bytes in UTF-8; of several matches the longest counts, or the first. ValueError for what is none."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        return re2.compile(text.encode(), options)
    except re2.error as fault:
        why = fault.args[0].decode() if isinstance(fault.args[0], bytes) else fault
        raise ValueError(
            f"'{text}' is no regular expression (of RE2, which has no references and no looks around): {why}"
        ) from fault


class SecretPattern:
    """A regular expression as RE2 has them: without references to groups and without looks around. Of several matches the longest counts.

    Raises ValueError for what is none, and for what matches the empty text.
    """

    def __init__(self, text: str) -> None:
        self._pattern = compiled(text, longest=True)
        if self._pattern.search(b"") is not None:
            raise ValueError(f"'{text}' matches the empty text, so it would be everywhere")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the matches, from and to, in order; behind MOST_MATCHES of them the rest of the text."""
        data = text.encode("utf-8", "surrogatepass")
        done, at, count = 0, 0, 0  # characters before `at`, which counts bytes
        while (match := self._pattern.search(data, at)) is not None:
            start, stop = match.span()
            first = done + _characters(data[at:start])
            count += 1
            if count > MOST_MATCHES:
                yield first, len(text)
                return
            done, at = first + _characters(data[start:stop]), stop
            if start < stop:
                yield first, done
            elif stop == len(data):
                return
            else:  # an edge between two characters, which is no secret: go on behind the next one
                at += len(text[done].encode("utf-8", "surrogatepass"))
                done += 1


def _characters(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))


#: Values of variables that are found by their names have at least so many characters, those that a user names at least so many.
SHORTEST_FOUND, SHORTEST_NAMED = 8, 4
#: The last words of names such as OPENAI_API_KEY, HF_TOKEN, AWS_SECRET_ACCESS_KEY, WATSONX_APIKEY, CIRCLE_OIDC_TOKEN_V2.
_SECRET_NAME = re.compile(
    r"(?:(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|JWT|(?:^|_)(?:PASS|PAT|AUTH))S?"
    r"(?:_(?:PEM|JSON|BASE64|B64|BEDROCK|[VX]?[0-9]+))?|SECRET_ID|WEBHOOK_URL)$",
    re.IGNORECASE,
)
_HEADERS_NAME = re.compile(r"HEADERS$", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@")


class SecretError(DsaError):
    """Raised for a secret that cannot be looked for, and for one that stands where it cannot be taken out."""


@attrs.frozen
class SecretOptions:
    """What a user says about secrets, beside what is found by names.

    `names` of variables, regular expressions, and `spared`: names of variables and shapes that are no secrets.
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    def __or__(self, other: "SecretOptions") -> "SecretOptions":
        """Return both together, each thing once."""
        if not self or not other:
            return self or other
        return SecretOptions(
            tuple(dict.fromkeys(self.names + other.names)),
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            tuple(dict.fromkeys(self.spared + other.spared)),
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.patterns or self.spared)


def is_secret_name(name: str) -> bool:
    """Return whether a variable's name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(environment: Mapping[str, str], chosen: SecretOptions | None = None) -> Secrets:
    """Return the secrets of an environment. SecretError for a value that is too short, and for what is no regular expression.

    A variable that is named and not there is passed over: its value cannot get anywhere from here.
    """
    chosen = chosen or SecretOptions()
    values = dict(_found(environment))
    for name in chosen.names:
        if name in environment:
            values[name] = _named(name, environment[name])
    shapes = [*SHAPES, *_shapes(chosen.patterns)]
    return Secrets(
        {name: value for name, value in values.items() if name.partition(".")[0] not in chosen.spared},
        [shape for shape in shapes if shape.name not in chosen.spared],
    )


def _found(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values that are secrets by their variables' names, or by what they look like."""
    for name, value in environment.items():
        if _HEADERS_NAME.search(name):
            parts = _in_headers(name, value)
        elif is_secret_name(name):
            parts = [(name, value.strip()), *_in_json(name, value)]
        else:
            parts = [(name, password) for password in _PASSWORD_IN_URL.findall(value)] if "://" in value else []
        yield from ((part, text) for part, text in parts if len(text) >= SHORTEST_FOUND)


def _in_headers(name: str, value: str) -> list[tuple[str, str]]:
    """Return the values of headers, as OTEL_EXPORTER_OTLP_HEADERS has them: `key=value,key=value`; of `Bearer x`, x."""
    headers = (part.partition("=") for part in value.split(","))
    return [(f"{name}.{key.strip()}", unquote(text).strip().rpartition(" ")[2]) for key, _, text in headers]


def _in_json(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield the secrets within a value that is a JSON object, as the credentials of a service account are."""
    if value.lstrip().startswith("{"):
        try:
            fields = json.loads(value)
        except (ValueError, RecursionError):
            return
        for key, text in fields.items():
            if isinstance(text, str) and is_secret_name(key):
                yield f"{name}.{key}", text.strip()


def _named(name: str, value: str) -> str:
    value = value.strip()
    if len(value) < SHORTEST_NAMED or value in marker(name):
        few = f"has {len(value)} characters" if len(value) < SHORTEST_NAMED else "is a part of its own marker"
        raise SecretError(f"the value of {name} {few}: texts would not survive that it is taken out of them")
    return value


def _shapes(patterns: Iterable[str]) -> Iterator[SecretShape]:
    for number, pattern in enumerate(patterns, start=1):
        try:
            searched = SecretPattern(pattern)
        except ValueError as fault:
            raise SecretError(str(fault)) from fault
        yield SecretShape(f"pattern-{number}", searched)
