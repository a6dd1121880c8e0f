"""Secrets: values that are removed from texts and JSON, in every form in which they may appear, and replaced by `[secret NAME]`.

- `secrets_in` takes the variables of an environment and a user's options, and returns `Secrets`: variables whose names look like keys, variables
  and patterns that the user names, and tokens with a known shape.
- `Secrets` replaces them. A text without secrets is returned unchanged, and takes almost no time (see `Secrets.suspects`).
- `SecretPattern` searches with RE2, in time that grows with the length of the text. With `re`, a text made for a pattern such as `(a+)+b` takes for
  ever, and a resumed run would get the same text again.

The module reads no file and no environment.
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

#: The marker in the place of a secret: `[secret OPENAI_API_KEY]`.
_MARKER = re.compile(r"\[secret ([^\[\]\n]{1,100})\]")
_ODD_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_MARK = "[secret "
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_SHORTEST_BASE64 = 10
_KNOWN_TO_HTML = "&<>\"'"
#: The break that may be between two characters of base64 in lines, also within JSON.
_BREAKS = r"(?:[\r\n]+[ \t]*|(?:\\+[rn])+[ \t]*)?"
#: The beginning of a character's number in JSON. A backslash alone is too common to search for.
_ESCAPE = "\\u00"
_SHORTEST_LINE = 20
#: Characters from the most common to the rarest in ledgers and in English; other characters are rarer still.
_COMMON = " et\"aidsnrco-:l,2f10uhm\n.gp6b_35`'|k9yvw874/{}x()TEN*q[]#=\\Aj;S^W><ORPDI$!LCMGV+BU~FHKYX@%&zJ?Q"
#: From this rank on, a character that is already searched for is preferred to a new one.
_RARE = 60
#: The number of characters on each side of the rarest one that a search compares, before the whole text is searched.
_AROUND = 6
_RANKS = {character: rank for rank, character in enumerate(_COMMON)}


def marker_names(text: str) -> tuple[str, ...]:
    """Return the names in the markers of a text, sorted."""
    return tuple(sorted(set(_MARKER.findall(text)))) if _MARK in text else ()


def marker(name: str) -> str:
    """Return the marker for a secret's name."""
    return f"{_MARK}{_ODD_IN_A_NAME.sub('_', name)[:100]}]"


class Finder(Protocol):
    """A pattern that finds its matches in a text."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Return start and end of each match, in order."""


@attrs.frozen
class _OwnPattern:
    """A built-in pattern, whose work for a text is bounded by its length."""

    pattern: re.Pattern[str]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Return start and end of each match, in order."""
        return (match.span() for match in self.pattern.finditer(text))


@attrs.frozen
class SecretShape:
    """The pattern of a kind of secret with at least `shortest` characters.

    A text without any of the `anchors` has no such secret; without anchors the pattern is searched in every text.
    """

    name: str
    pattern: Finder
    shortest: int = 1
    anchors: tuple[str, ...] = ()


def _token(name: str, pattern: str, shortest: int, *anchors: str) -> SecretShape:
    return SecretShape(name, _OwnPattern(re.compile(rf"(?<![A-Za-z0-9]){pattern}")), shortest, anchors)


_GITHUB = r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})"
_PEM = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?!-----)[\s\S]){0,20000}(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?"
#: The shapes of well-known tokens. Those of Anthropic begin like OpenAI's.
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
    """One form of a secret's value. With a `pattern`, `text` is a part of the form, and a match of the pattern is widened to the whole base64 word."""

    text: str
    name: str
    pattern: str | None = None


class Secrets:
    r"""Secret values by name, each searched for in all its forms, and shapes of secrets. Its repr shows no value.

    The forms of a value are: the value itself; JSON strings (once and twice, with `\u0026` for the characters of HTML); Python strings; HTML; URLs
    (once and twice); base64, with any text around it and any line breaks. Of a block of several lines, such as a private key, each line is a form.
    """

    __slots__ = ("_by_rarest", "_escape_search", "_free", "_needles", "_shapes", "_shortest", "names")

    def __init__(self, values: Mapping[str, str] | None = None, shapes: Iterable[SecretShape] = SHAPES) -> None:
        self._needles = _sorted_needles(values or {})
        self._shapes = tuple(shapes)
        self._free = tuple(shape.pattern for shape in self._shapes if not shape.anchors)
        anchors = [anchor for shape in self._shapes for anchor in shape.anchors]
        texts = [*anchors, *(needle.text for needle in self._needles)]
        self._by_rarest = _by_rarest(text for text in texts if _ESCAPE not in text)
        # Of a value that has something to escape.
        self._escape_search = _any_of(text for text in texts if _ESCAPE in text)
        lengths = [*(len(needle.text) for needle in self._needles), *(shape.shortest for shape in self._shapes)]
        self._shortest = min(lengths, default=0)
        #: The names of the values and shapes.
        self.names = tuple(dict.fromkeys([*(values or {}), *(shape.name for shape in self._shapes)]))

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names)})"

    def suspects(self, text: str) -> bool:
        """Return whether a text may have a secret in it. False is certain, and fast.

        Forms are grouped by their rarest character. If a text does not have that character, which is the usual case, one search rules out the whole
        group; otherwise the characters around it are compared.
        """
        if len(text) < self._shortest:
            return False
        for rarest, search in self._by_rarest:
            if rarest in text and search(text):
                return True
        if self._escape_search is not None and _ESCAPE in text and self._escape_search(text):
            return True
        return bool(self._free) and any(next(pattern.spans(text), None) for pattern in self._free)

    def text(self, text: str) -> str:
        """Return a text with markers in place of secrets. A second call changes nothing."""
        if not self.suspects(text):
            return text
        pieces, end = [], 0
        for match in _MARKER.finditer(text):  # a user's pattern may match a marker, which is not a secret
            pieces += [self._without(text[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*pieces, self._without(text[end:])])

    def places(self, text: str) -> tuple[tuple[int, str], ...]:
        """Return the positions of secrets in a text, with their names. Markers do not count."""
        if not self.suspects(text):
            return ()
        without_markers = _MARKER.sub(lambda match: " " * len(match[0]), text)
        return tuple((start, name) for start, _, name in _merge_spans(self._spans(without_markers)))

    def value(self, value: Any) -> Any:  # noqa: ANN401  (JSON)
        """Return a JSON value with markers in its strings and keys, and in place of secret numbers."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = repr(value)
            without = self.text(text)
            return value if without == text else without
        return value

    def _without(self, text: str) -> str:
        pieces, end = [], 0
        for start, stop, name in _merge_spans(self._spans(text)):
            pieces += [text[end:start], marker(name)]
            end = stop
        return "".join([*pieces, text[end:]])

    def _spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and name of each secret; these may overlap."""
        for needle in self._needles:
            start = text.find(needle.text)
            if needle.pattern is not None:
                matches = re.finditer(needle.pattern, text) if start >= 0 else ()
                yield from ((*_widen(text, *match.span()), needle.name) for match in matches)
                continue
            while start >= 0:
                yield start, start + len(needle.text), needle.name
                start = text.find(needle.text, start + 1)
        for shape in self._shapes:
            yield from ((start, stop, shape.name) for start, stop in shape.pattern.spans(text))


def _by_rarest(needles: Iterable[str]) -> tuple[tuple[str, Callable[[str], object]], ...]:
    """Group texts by their rarest character; return each character with a search for any of its texts."""
    by_character: dict[str, list[str]] = {}
    for text in dict.fromkeys(needles):
        rarest = max(
            text, key=lambda character: (character in by_character and _rank(character) >= _RARE, _rank(character))
        )
        by_character.setdefault(rarest, []).append(text)
    return tuple((rarest, re.compile(_around(rarest, texts)).search) for rarest, texts in by_character.items())


def _around(rarest: str, texts: Iterable[str]) -> str:
    """Return a regular expression for the characters around the rarest one in any of the texts.

    It tests the direct neighbours first, because that fails fast in most texts.
    """
    places = ((text, text.index(rarest)) for text in texts)
    contexts = {
        (text[max(0, place - _AROUND) : place], text[place + 1 : place + 1 + _AROUND]) for text, place in places
    }
    before, after = {one[-1:] for one, _ in contexts}, {other[:1] for _, other in contexts}
    beside = "" if "" in before else f"(?<=[{re.escape(''.join(sorted(before)))}]{re.escape(rarest)})"
    beside += "" if "" in after else f"(?=[{re.escape(''.join(sorted(after)))}])"
    every = (f"{re.escape(other)}(?<={re.escape(one + rarest + other)})" for one, other in sorted(contexts))
    return f"{re.escape(rarest)}{beside}(?:{'|'.join(every)})"


def _rank(character: str) -> int:
    return _RANKS.get(character, len(_RANKS))


def _any_of(words: Iterable[str]) -> Callable[[str], object] | None:
    """Return a search for any of the texts, or None if there are none."""
    texts = [re.escape(text) for text in dict.fromkeys(words)]
    return re.compile("|".join(texts)).search if texts else None


def _merge_spans(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Merge overlapping spans under the name of the longest."""
    groups: list[tuple[int, int, str]] = []
    longest = 0
    for start, stop, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        if groups and start < groups[-1][1]:
            before, end, name_before = groups[-1]
            groups[-1] = before, max(end, stop), name if stop - start > longest else name_before
            longest = max(longest, stop - start)
        else:
            groups.append((start, stop, name))
            longest = stop - start
    return groups


def _widen(text: str, start: int, stop: int) -> tuple[int, int]:
    """Widen a span to the whole base64 word around it."""
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
    needles: dict[tuple[str, str | None], _Needle] = {}

    def add(text: str, name: str, pattern: str | None = None) -> None:
        needles.setdefault((text, pattern), _Needle(text, name, pattern))

    for name, value in values.items():
        for text in chain(_plain(value), _in_html(value), _lines(value)):
            add(text, name)
        for text in _base64(_bytes(value)):
            whole, middle = _BREAKS.join(map(re.escape, text)), len(text) // 2
            add(text[:middle], name, whole)  # a line break, wherever it is, leaves one of the halves whole
            add(text[middle:], name, whole)
        for text in _base64_again(value):
            add(text, name, re.escape(text))
    return tuple(needles.values())


def _plain(value: str) -> Iterator[str]:
    """Yield the value itself, and its forms in JSON, Python and URLs."""
    once = dumps(value)[1:-1]
    yield from (value, once, dumps(value, ensure_ascii=False)[1:-1], dumps(once)[1:-1], once.replace("/", "\\/"))
    yield from (repr(value)[1:-1], value.replace("\n", "\r\n"))
    as_bytes = _bytes(value)
    urls = (quote(as_bytes, safe=""), quote(as_bytes), quote_plus(as_bytes))
    yield from urls
    yield from (re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url) for url in urls)
    yield from (quote(url, safe="") for url in urls)


def _in_html(value: str) -> Iterator[str]:
    """Yield the forms of a value in HTML, by names and by numbers, and in JSON for HTML, with the characters of HTML, or all, as numbers."""
    entities = escape(value, quote=False)
    yield from (
        entities,
        escape(value),
        entities.replace('"', "&quot;").replace("'", "&#39;"),
        entities.replace('"', "&#34;").replace("'", "&#39;"),
    )
    for form in ("&#{};", "&#x{:x};", "&#x{:X};"):
        yield from (_by_numbers(value, form, _KNOWN_TO_HTML), _by_numbers(value, form))
    once = dumps(value)[1:-1]
    for form, characters in product(("\\u{:04x}", "\\u{:04X}"), ("<>&", "<>&'+`")):
        text = _by_numbers(once, form, characters)
        yield from (text, text.replace("\\", "\\\\"))


def _by_numbers(value: str, form: str, characters: str = "") -> str:
    """Return a value with some of its characters, or all, as numbers."""
    return "".join(form.format(ord(each)) if each in characters or not characters else each for each in value)


def _lines(value: str) -> Iterator[str]:
    """Yield the lines of a block such as a private key, which may be indented or quoted elsewhere."""
    if value.startswith("-----BEGIN "):
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))


def _base64(data: bytes) -> Iterator[str]:
    """Yield the base64 that every encoded text with these bytes has, for each of the three alignments."""
    for before in range(3):
        code = b64encode(b"\0" * before + data).decode("ascii")
        middle = code[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        if len(middle) >= _SHORTEST_BASE64:
            yield middle


def _base64_again(value: str) -> Iterator[str]:
    """Yield the same for URL-safe base64, for UTF-16, and for base64 inside base64 or a URL."""
    once = list(_base64(_bytes(value)))
    yield from (text.translate({ord("+"): "-", ord("/"): "_"}) for text in once)
    yield from (quote(text, safe="") for text in once)
    yield from chain(*(_base64(text.encode()) for text in once))
    yield from chain(*(_base64(value.encode(code, "surrogatepass")) for code in ("utf-16-le", "utf-16-be")))


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


#: After this many matches the rest of a text counts as one: finding them costs at most this many passes over it.
MOST_MATCHES = 2_000


def compile_pattern(text: str, *, longest: bool = False) -> Any:  # noqa: ANN401  (RE2's, which has no types)
    """Return an RE2 regular expression for bytes in UTF-8, with leftmost-longest or leftmost-first matches. Raises ValueError for an invalid one."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        return re2.compile(text.encode(), options)
    except re2.error as fault:
        why = fault.args[0].decode() if isinstance(fault.args[0], bytes) else fault
        raise ValueError(
            f"'{text}' is not a valid regular expression (RE2, without backreferences and lookaround): {why}"
        ) from fault


class SecretPattern:
    """A user's regular expression in the syntax of RE2, without backreferences and lookaround. Matches are the longest ones.

    Raises ValueError for an invalid expression, and for one that matches the empty text.
    """

    def __init__(self, text: str) -> None:
        self._pattern = compile_pattern(text, longest=True)
        if self._pattern.search(b"") is not None:
            raise ValueError(f"'{text}' matches the empty text, so it would match everywhere")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each match, in order; after MOST_MATCHES of them the rest of the text."""
        data = text.encode("utf-8", "surrogatepass")
        position, byte_position, count = 0, 0, 0  # characters before `at`, which counts bytes
        while (match := self._pattern.search(data, byte_position)) is not None:
            start, stop = match.span()
            first = position + _characters(data[byte_position:start])
            count += 1
            if count > MOST_MATCHES:
                yield first, len(text)
                return
            position, byte_position = first + _characters(data[start:stop]), stop
            if start < stop:
                yield first, position
            elif stop == len(data):
                return
            else:  # an empty match between two characters is not a secret: continue after the next one
                byte_position += len(text[position].encode("utf-8", "surrogatepass"))
                position += 1


def _characters(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))


#: The shortest values: of variables that are recognised by their names, and of variables that a user names.
SHORTEST_FOUND, SHORTEST_NAMED = 8, 4
#: The last words of names such as OPENAI_API_KEY, HF_TOKEN, AWS_SECRET_ACCESS_KEY, WATSONX_APIKEY, CIRCLE_OIDC_TOKEN_V2.
_SECRET_NAME = re.compile(
    r"(?:(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|JWT|(?:^|_)(?:PASS|PAT|AUTH))S?"
    r"(?:_(?:PEM|JSON|BASE64|B64|BEDROCK|[VX]?[0-9]+))?|SECRET_ID|WEBHOOK_URL)$",
    re.IGNORECASE,
)
_HEADERS_NAME = re.compile(r"HEADERS$", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@")


def secret_error(message: str) -> DsaError:
    """Return the error for a secret that cannot be searched for, and for one in a place from which it cannot be removed."""
    return DsaError(message, code="SecretError")


@attrs.frozen
class SecretOptions:
    """A user's choice of secrets, in addition to those that are recognised by their names.

    `names` are variables, `patterns` regular expressions, `spared` the variables and shapes that are not secrets.
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    def __or__(self, other: "SecretOptions") -> "SecretOptions":
        """Return the union of both."""
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


def secrets_in(environment: Mapping[str, str], options: SecretOptions | None = None) -> Secrets:
    """Return the secrets of an environment. Raises DsaError for a value that is too short, and for an invalid regular expression.

    A name in the options without a variable is ignored: it has no value that could appear anywhere.
    """
    options = options or SecretOptions()
    values = dict(_named_values(environment))
    for name in options.names:
        if name in environment:
            values[name] = _required_value(name, environment[name])
    shapes = [*SHAPES, *_shapes(options.patterns)]
    return Secrets(
        {name: value for name, value in values.items() if name.partition(".")[0] not in options.spared},
        [shape for shape in shapes if shape.name not in options.spared],
    )


def _named_values(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values that are secrets by the names of their variables, or by their form."""
    for name, value in environment.items():
        if _HEADERS_NAME.search(name):
            parts = _in_headers(name, value)
        elif is_secret_name(name):
            parts = [(name, value.strip()), *_in_json(name, value)]
        else:
            parts = [(name, password) for password in _PASSWORD_IN_URL.findall(value)] if "://" in value else []
        yield from ((part, text) for part, text in parts if len(text) >= SHORTEST_FOUND)


def _in_headers(name: str, value: str) -> list[tuple[str, str]]:
    """Return the values in a list of headers such as OTEL_EXPORTER_OTLP_HEADERS, `key=value,key=value`; of `Bearer x`, the x."""
    headers = (part.partition("=") for part in value.split(","))
    return [(f"{name}.{key.strip()}", unquote(text).strip().rpartition(" ")[2]) for key, _, text in headers]


def _in_json(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield the secrets in a value that is a JSON object, such as the credentials of a service account."""
    if value.lstrip().startswith("{"):
        try:
            fields = json.loads(value)
        except (ValueError, RecursionError):
            return
        for key, text in fields.items():
            if isinstance(text, str) and is_secret_name(key):
                yield f"{name}.{key}", text.strip()


def _required_value(name: str, value: str) -> str:
    value = value.strip()
    if len(value) < SHORTEST_NAMED or value in marker(name):
        few = (
            f"has {len(value)} characters"
            if len(value) < SHORTEST_NAMED
            else "is a part of the marker that would replace it"
        )
        raise secret_error(f"the value of {name} {few}, so removing it would destroy other text")
    return value


def _shapes(patterns: Iterable[str]) -> Iterator[SecretShape]:
    for number, pattern in enumerate(patterns, start=1):
        try:
            finder = SecretPattern(pattern)
        except ValueError as fault:
            raise secret_error(str(fault)) from fault
        yield SecretShape(f"pattern-{number}", finder)
