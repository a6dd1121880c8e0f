"""A search for secrets in everything that runs leave: each file, each text in a database, each object of a git repository."""

import base64
import gzip
import json
import sqlite3
import subprocess
from pathlib import Path
from urllib.parse import quote, quote_plus


def forms(value):
    """Return the forms of a value that must not occur anywhere, as bytes."""
    texts = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(value))[3:-3],
    }
    texts |= {repr(value)[1:-1], quote(value), quote(value, safe=""), quote_plus(value)}
    found = {text.encode() for text in texts}
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + value.encode())
        found.add(coded[(before * 8 + 5) // 6 : (before + len(value.encode())) * 8 // 6])
    return found


def written(root):
    """Return the contents below a folder, as pairs of place and bytes: files, texts in databases, git's objects."""
    for path in sorted(path for path in Path(root).rglob("*") if path.is_file()):
        yield str(path), path.read_bytes()
        if path.suffix == ".db":
            yield from _in_database(path)
    for repository in Path(root).rglob("*.git"):
        command = ["git", "-C", repository, "cat-file", "--batch-all-objects", "--batch"]
        yield str(repository), subprocess.run(command, check=True, capture_output=True).stdout


def _in_database(path):
    connection = sqlite3.connect(path)
    try:
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table}").fetchall():
                for cell in row:
                    yield f"{path}: {table}", cell if isinstance(cell, bytes) else str(cell).encode()
    finally:
        connection.close()


def places(values, pairs):
    """Return the places where any form of a value occurs, each with that form."""
    wanted = [form for value in values for form in forms(value)]
    return sorted(
        {
            (where, form.decode(errors="replace"))
            for where, content in pairs
            for form in wanted
            if form in _plain(content)
        }
    )


def _plain(content):
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
