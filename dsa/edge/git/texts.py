"""The artifacts' texts in the trees of a run: put at a path, and found again.

Takes ids of trees, paths and bytes. The tree of a commit has the newest text of each step, in folders of bounded size: a
commit costs the same however many there are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import attrs

from dsa.edge.git.names import file_name
from dsa.edge.git.objects import DurableObjects
from dsa.edge.git.trees import FILE, FOLDER, Tree, read_tree, with_entry, write_tree
from dsa.edge.git.waiting import wait_for_gc

_PAGE = 100  # steps in one folder
_AT_ONCE = 500  # texts that are looked for together


def new_path(step: str, rank: int) -> str:
    """Give the path for a step's texts; `rank` counts the steps of the run before it."""
    page = rank // _PAGE
    return f"+{page}/{file_name(step)}" if page else file_name(step)


@attrs.define
class Batch:
    """What is written for one record, kept until it is safe."""

    _objects: DurableObjects
    _gc_patience_s: float
    _written: list[tuple[str, str, bytes]] = attrs.field(factory=list)

    def write(self, kind: str, body: bytes) -> str:
        """Write an object and give its id."""
        object_id = self._objects.write(kind, body)
        self._written.append((object_id, kind, body))
        return object_id

    def outlast_gc(self) -> None:
        """Have everything there after all `git gc` that run now: what they took away is written again.

        One that begins later finds what has a ref by then, and takes nothing of it.
        """
        wait_for_gc(self._objects.repository, self._gc_patience_s)
        missing = set(self._objects.missing([object_id for object_id, _, _ in self._written]))
        for object_id, kind, body in self._written:
            if object_id in missing:
                self._objects.write(kind, body)


class Texts:
    """Puts texts into trees, and remembers the trees of the last one."""

    def __init__(self, objects: DurableObjects) -> None:
        self._objects = objects
        self._recent: dict[str, Tree] = {}

    def put(self, root: str | None, path: str, text: bytes, batch: Batch) -> str:
        """Give the tree with a text at a path, in the place of what was there."""
        trees: dict[str, Tree] = {}
        changed = self._with(root, path.split("/"), batch.write("blob", text), batch, trees)
        self._recent = trees
        return changed

    def _with(self, root: str | None, parts: Sequence[str], blob: str, batch: Batch, trees: dict[str, Tree]) -> str:
        tree: Tree = {} if root is None else self._tree(root)
        name, *inner = parts
        if inner:
            mode, below = tree.get(name, ("", ""))
            folder = self._with(below if mode == FOLDER else None, inner, blob, batch, trees)
            tree = with_entry(tree, name, FOLDER, folder)
        else:
            tree = with_entry(tree, name, FILE, blob)
        changed = batch.write("tree", write_tree(tree))
        trees[changed] = tree
        return changed

    def _tree(self, tree_id: str) -> Tree:
        return self._recent.get(tree_id) or read_tree(self._objects.read(tree_id))

    def find(self, places: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
        """Give the texts that stand at paths in trees, each with the name it was asked for by. KeyError: a path is not there."""
        waiting = iter(places.items())
        while some := dict(islice(waiting, _AT_ONCE)):
            yield from self._found(some).items()

    def _found(self, places: Mapping[str, tuple[str, str]]) -> dict[str, bytes]:
        at = {name: tree for name, (tree, _) in places.items()}
        left = {name: path.split("/") for name, (_, path) in places.items()}
        while left:
            trees = {tree_id: read_tree(body) for tree_id, body in self._read(at[name] for name in left).items()}
            at |= {name: trees[at[name]][parts[0]][1] for name, parts in left.items()}
            left = {name: parts[1:] for name, parts in left.items() if parts[1:]}
        bodies = self._read(at.values())
        return {name: bodies[blob] for name, blob in at.items()}

    def _read(self, object_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self._objects.read_all(dict.fromkeys(object_ids))
