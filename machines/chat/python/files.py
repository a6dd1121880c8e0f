"""The files that code has made: what they are, by what is in them, and what they are called.

Takes names and bytes that nobody vouches for, gives `MadeFile` or a refusal. HTML and SVG may hold scripts: they are shown without running any.
"""

import json
import re
import unicodedata
from collections.abc import Iterable

import attrs

from machines.chat.python.errors import PythonError

MOST_FILES = 20
MOST_BYTES = 8 * 1024 * 1024
_MOST_NAME = 80
_READ = 1024  # how far into a text its kind is looked for

#: How files of a kind begin.
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"), (b"%PDF-", "pdf"), (b"PAR1", "parquet"),
    (b"ARROW1", "feather"), (b"\x93NUMPY", "npy"), (b"SQLite format 3\0", "sqlite"), (b"\x1f\x8b", "gz"), (b"PK\x03\x04", "zip"),
)  # fmt: skip
#: Names that say the same, and kinds that are a zip inside.
_SAME = {
    "jpeg": "jpg", "htm": "html", "text": "txt", "arrow": "feather", "db": "sqlite", "yml": "yaml", "ndjson": "jsonl",
}  # fmt: skip
_ZIPPED = {"xlsx", "npz", "zip", "ods", "docx", "pptx"}
_TEXTS = {
    "csv", "tsv", "json", "jsonl", "txt", "md", "html", "svg", "xml", "yaml", "toml", "ini", "log", "py", "sql", "tex", "dot",
}  # fmt: skip
_BINARIES = {kind for _, kind in _MAGIC} | _ZIPPED | {"webp"}
_SVG = re.compile(r"\A\ufeff?(?:\s|<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE[^>]*>)*+<svg[\s>]", re.DOTALL)
_HINT = "write CSV, JSON, text, PNG, PDF or SVG, under a name that says so"


@attrs.frozen
class MadeFile:
    """A file that code has left in its working folder. `name` has letters, digits and `._-` only, at most 80 characters.

    `kind` is a word like csv, png, pdf, svg, json, txt, html: what the content is, as far as that shows in it, and what the name says.
    """

    name: str
    kind: str
    content: bytes = attrs.field(repr=False)


def made(found: Iterable[tuple[str, bytes]]) -> tuple[MadeFile, ...]:
    """Make files of paths in the working folder and bytes, by name. PythonError (bad_file) for one that cannot be kept."""
    files: dict[str, MadeFile] = {}
    for path, content in found:
        name = safe_name(path)
        if name in files:
            raise PythonError(
                "bad_file", f"two files would be called '{name}': give them names that differ in letters and digits"
            )
        files[name] = MadeFile(name, kind_of(name, content), content)
    return tuple(files[name] for name in sorted(files))


def safe_name(path: str) -> str:
    """Give the name for a path in the working folder: folders are joined to it by `_`, what is no letter, digit or `._-` becomes `_`."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", path) if not unicodedata.combining(each))
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9._-]", "_", plain)).lstrip("._-") or "file"
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix) >= _MOST_NAME // 2:
        return plain[:_MOST_NAME]
    return f"{stem[: _MOST_NAME - len(suffix) - 1]}.{suffix}"


def kind_of(name: str, content: bytes) -> str:
    """Give what a file is. PythonError (bad_file) when it is not what its name says, or nothing that is kept."""
    said = name.rpartition(".")[2].lower() if "." in name else ""
    said = _SAME.get(said, said)
    magic = _by_magic(content)
    if said in _BINARIES:
        if magic == said or (magic == "zip" and said in _ZIPPED):
            return said
        roughly = "empty" if not content else "bytes of an unknown kind" if _text(content) is None else "text"
        raise _refused(name, f"is no {said}: its content is {magic or roughly}")
    if magic:
        if said in _TEXTS:
            raise _refused(name, f"is no {said}: its content is {magic}")
        return magic
    text = _text(content)
    if text is None:
        raise _refused(name, f"holds bytes of an unknown kind; {_HINT}")
    return _kind_of_text(name, said, text)


def _by_magic(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _MAGIC if content.startswith(start)), "")


def _kind_of_text(name: str, said: str, text: str) -> str:
    if said == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _refused(name, f"is no JSON: {str(error)[:100]}") from error
    if said == "svg" and not _SVG.match(text[:_READ]):
        raise _refused(name, "is no SVG")
    return said if said in _TEXTS else "txt"


def _text(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _refused(name: str, why: str) -> PythonError:
    return PythonError("bad_file", f"the file '{name}' {why}")
