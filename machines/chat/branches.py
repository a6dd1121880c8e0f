"""Another conversation that begins like this one: a branch at the end of a turn (a worldline, in seed 002's words)."""

import os
import shutil
from pathlib import Path

from dsa.runs.branch import branched, copy_artifacts, length_before
from dsa.runs.folder import new_run_id
from dsa.runs.place import open_artifacts, open_store
from machines.chat.session import NAME


def branch(runs: Path, run_id: str, turn: int) -> str:
    """Make a branch of a conversation after a turn (0: before the first), and give its name.

    What was made until then goes with it. Raises BranchError where the conversation did not rest, UnknownRunError.
    """
    name = new_run_id(NAME)
    with open_store(runs, must_exist=True) as store:
        recorded = store.read(run_id)
        new = branched(recorded, length_before(recorded.entries, "message", turn + 1), name)
        _copy(runs / run_id, runs / name)
        copy_artifacts(new, open_artifacts(runs, run_id), open_artifacts(runs, name))
        store.create(name, new.text, list(new.entries)).release()
    return name


def _copy(old: Path, new: Path) -> None:
    """Give the branch its own folder with the same contents; they never change, so they are links where that is possible."""
    for path in sorted(old.rglob("*")):
        place = new / path.relative_to(old)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.parent.name == "contents" or path.name.startswith("data-"):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, place)
            except OSError:
                shutil.copyfile(path, place)
