"""Commits: written, read, and walked from a branch's tip back to what is known.

Takes and gives bytes and ids; what a message means is not known here. The history of a run is the chain of first parents.
"""

import attrs

from dsa.edge.git.objects import DurableObjects

_WHO = b"dsa <dsa@localhost>"  # people and models stand in the message; git's own identities have no use here


@attrs.frozen
class Commit:
    """One commit. `parent` is its first."""

    commit_id: str
    tree: str
    parent: str | None
    message: str


def commit_bytes(tree: str, parent: str | None, message: bytes, *, now_s: float) -> bytes:
    """Write a commit object; `now_s` counts from 1970, UTC."""
    above = [f"parent {parent}".encode("ascii")] if parent else []
    who = b"%s %d +0000" % (_WHO, now_s)
    return b"\n".join([f"tree {tree}".encode("ascii"), *above, b"author " + who, b"committer " + who, b"", message])


def read_commit(commit_id: str, body: bytes) -> Commit:
    """Read a commit object; one that somebody else has made may be in any encoding."""
    head, _, message = body.partition(b"\n\n")
    lines = head.decode("utf-8", "replace").split("\n")
    parents = [line.removeprefix("parent ") for line in lines if line.startswith("parent ")]
    return Commit(
        commit_id, lines[0].removeprefix("tree "), parents[0] if parents else None, message.decode("utf-8", "replace")
    )


def history(objects: DurableObjects, tip: str, known: str | None) -> list[Commit]:
    """Give the commits from the first to `tip`, or from the one after `known`, oldest first.

    When `known` is not among them the first one given has another parent than `known`, and may not be the first there is.
    """
    found: list[Commit] = []
    at: str | None = tip
    while at is not None and at != known:
        body = objects.loose(at)
        if body is None:
            found.extend(_packed(objects, at, known))
            break
        found.append(read_commit(at, body))
        at = found[-1].parent
    return found[::-1]


def _packed(objects: DurableObjects, tip: str, known: str | None) -> list[Commit]:
    ids = objects.first_parents(tip, known)
    bodies = objects.read_all(ids)
    return [read_commit(commit_id, bodies[commit_id]) for commit_id in ids]
