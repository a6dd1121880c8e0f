"""Any text as a path that git and every file system take, and back.

Takes names (run ids, steps), gives the parts of a path: ASCII letters, digits, `_`, `-` and, where git allows it, `.`
stay; every other byte of the UTF-8 text is `%XX`. What is longer than a file's name may be goes on one folder deeper. A
plus sign is never in it, so that others can make names of their own.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote, unquote

_LONGEST_PART = 200  # bytes; with `.lock` or `+next.lock` behind it a file's name still fits into 255
_EMPTY = "%"  # no name gives a bare percent sign
_MORE = "%"  # ends a part that goes on; no escaped text ends so
_FIRST_DOT = re.compile(r"\A\.")
_BAD_DOT = re.compile(r"\A\.|\.(?=\.|\Z)|\.(?=lock\Z)")  # git-check-ref-format(1)


def path_parts(name: str) -> tuple[str, ...]:
    """Give the parts of a name's path; different names give different paths, none of them above another."""
    safe = _BAD_DOT.sub("%2E", quote(name, safe="", errors="surrogatepass").replace("~", "%7E"))
    pieces = [safe[at : at + _LONGEST_PART] for at in range(0, len(safe), _LONGEST_PART)] or [_EMPTY]
    return tuple(_FIRST_DOT.sub("%2E", piece) for piece in [*(piece + _MORE for piece in pieces[:-1]), pieces[-1]])


def file_name(name: str) -> str:
    """Give one part for a name; long ones are cut, stay different, and cannot be read back."""
    first, *more = path_parts(name)
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{first[:_LONGEST_PART]}+{digest[:16]}" if more else first


def name_of(parts: Sequence[str]) -> str:
    """Give the name of a path that `path_parts` made."""
    safe = "".join([part.removesuffix(_MORE) for part in parts[:-1]] + [parts[-1]])
    return "" if safe == _EMPTY else unquote(safe, errors="surrogatepass")
