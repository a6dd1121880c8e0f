"""Documents in files: finds and reads a path, or the name of a shipped machine.

This is the only place where documents are opened. It takes what a user wrote for FILE, and returns texts and machines.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from dsa.errors import Diagnostic, DocumentError, MachineError
from dsa.lang import MOST_CHARACTERS, DocumentReading, machine_of, read_machine, read_spec
from dsa.machine import Machine
from dsa.text import closest

_MOST_LOOKED_AT = 1000
_BYTES_OF_A_CHARACTER = 4  # at most, in UTF-8


def shipped_documents() -> dict[str, Path]:
    """Return the shipped documents by name: `dual_state`, `katas/exhausted`, and the shipped specs as `specs/dual_state`."""
    package = find_spec("machines")
    assert package is not None, "the machines are shipped with this package"
    assert package.origin is not None, "they are a package of files"
    root = Path(package.origin).parent
    documents = {path.parent.name: path for path in root.glob("*/machine.md")}
    others = (path for path in root.glob("*/*.md") if path.name not in {"machine.md", "README.md"})
    documents |= {f"{path.parent.name}/{path.stem}": path for path in others if path.parent.name != "_specs"}
    specs = root / "_specs" if (root / "_specs").is_dir() else root.parent / "specs"
    spec_paths = (path for path in specs.glob("*.md") if path.stem in documents)
    return documents | {f"specs/{path.stem}": path for path in spec_paths}


def locate(name: str, beside: Path | None = None) -> Path:
    """Return the path of a document: as written, relative to `beside`, or a shipped one. Raises DocumentError."""
    path = Path(name)
    candidates = [path] if beside is None else [beside / path, path]
    for candidate in candidates:
        if _is_file(candidate):
            return candidate
    documents = shipped_documents()
    if name in documents:
        return documents[name]
    if os.path.isdir(path):  # noqa: PTH112  (as below)
        raise DocumentError(name, "is a folder; name a document in it")
    suggestion = closest(name, [*documents, *_beside(path)])
    raise DocumentError(name, f"there is no such file, and no shipped machine of that name; {suggestion}")


def locate_from(folder: Path, name: str) -> Path:
    """Return the path of a document as a page in a folder names it; the working folder does not matter. Raises DocumentError."""
    there = folder / name
    if _is_file(there):
        return there
    documents = shipped_documents()
    if name in documents:
        return documents[name]
    names = [os.path.relpath(path, folder) for path in _beside(there)]
    raise DocumentError(
        name,
        f"there is no such file in {folder}, and no shipped machine of that name; {closest(name, [*documents, *names])}",
    )


def _beside(path: Path) -> list[str]:
    """Return the documents in the folder of one that is not there, as a user would write them."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_LOOKED_AT)]
    except (OSError, ValueError):
        return []
    return [str(path.parent / name) for name in names if name.endswith(".md")]


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  (Path's raises OSError for a name too long for any file)


def read_text(path: Path | str) -> str:
    """Read a document as UTF-8; line ends and a byte order mark stay. Raises DocumentError."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise DocumentError(str(path), f"is not UTF-8 text (byte {fault.start})") from fault


def read_bytes(path: Path | str) -> bytes:
    """Read a file as it stands. Raises DocumentError."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as fault:  # a name with a NUL in it is a ValueError
        raise DocumentError(str(path), getattr(fault, "strerror", None) or str(fault)) from fault


def read_document(name: str, families: Mapping[str, str] | None = None) -> DocumentReading:
    """Read a machine or a spec, with its diagnostics. `families` replaces the index of some families of the machine, as text.

    Raises DocumentError when the file cannot be read, and ParameterError for a name that is not a family.
    """
    indices = families or {}
    path = locate(name)
    text = _text_of_a_document(path)
    display_name = name if _is_file(Path(name)) else _display_path(path)
    base_reference = machine_of(text, display_name)
    if base_reference is None:
        return read_machine(text, display_name, indices)
    reference, span = base_reference
    try:
        base = locate(reference, path.parent)
        base_text = _text_of_a_document(base)
    except DocumentError:
        message = f"'{reference}' cannot be read as a document"
        hint = f"write a path from this document's folder, or the name of a shipped machine; {closest(reference, _machines())}"
        return DocumentReading(None, (Diagnostic("DSA113", "error", message, span, hint),))
    if machine_of(base_text) is not None:
        message = f"{reference} is a spec, not a machine"
        return DocumentReading(
            None,
            (Diagnostic("DSA113", "error", message, span, f"write the name of the machine that {reference} is about"),),
        )
    base_reading = read_machine(base_text, _display_path(base), indices)
    return base_reading if base_reading.machine is None else read_spec(text, base_reading.machine, display_name)


def _text_of_a_document(path: Path) -> str:
    """Read a document. Raises DocumentError, without reading it, for a file that is too large."""
    with suppress(OSError):  # reading it raises the same
        size = path.stat().st_size
        if size > _BYTES_OF_A_CHARACTER * MOST_CHARACTERS:
            raise DocumentError(str(path), f"has {size:,} bytes; the limit is {MOST_CHARACTERS:,} characters")
    return read_text(path)


def _machines() -> list[str]:
    return [name for name, path in shipped_documents().items() if path.name == "machine.md"]


def load(name: str, families: Mapping[str, str] | None = None) -> Machine:
    """Read the machine in a file, of a spec, or shipped under a name, with other indices of some families. Raises MachineError or DocumentError."""
    result = read_document(name, families)
    if result.machine is None:
        raise MachineError(result.diagnostics)
    return result.machine


def _display_path(path: Path) -> str:
    """Return a path as a person would write it: relative when it lies below the working folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
