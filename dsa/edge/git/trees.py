"""Git trees: folders of names, as bytes that are read, changed at one path, and found in.

Takes and gives bytes of tree objects (`MODE NAME NUL SHA`, sorted as git sorts). Where they are stored is not known here.
"""

from collections.abc import Mapping

FILE, FOLDER = "100644", "40000"

#: Entries by name: mode and id, 40 hex digits.
Tree = Mapping[str, tuple[str, str]]


def read_tree(body: bytes) -> Tree:
    """Read a tree object."""
    entries, at = {}, 0
    while at < len(body):
        end = body.index(b"\0", at)
        mode, _, name = body[at:end].decode("utf-8", "surrogateescape").partition(" ")
        at = end + 21
        entries[name] = (mode, body[end + 1 : at].hex())
    return entries


def with_entry(tree: Tree, name: str, mode: str, object_id: str) -> Tree:
    """Give the tree with one entry more, or another in its place."""
    return {**tree, name: (mode, object_id)}


def write_tree(tree: Tree) -> bytes:
    """Write a tree object: names sorted as bytes, those of folders as if a slash stood behind them."""
    written = ((name.encode("utf-8", "surrogateescape"), mode, object_id) for name, (mode, object_id) in tree.items())
    ordered = sorted(written, key=lambda entry: entry[0] + (b"/" if entry[1] == FOLDER else b""))
    return b"".join(b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(id_)) for name, mode, id_ in ordered)
