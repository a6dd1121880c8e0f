"""Another conversation that begins like this one: a branch at the end of a turn (a worldline, in seed 002's words)."""

import os
import shutil
from pathlib import Path

from dsa.runs.branch import length_before
from dsa.runs.folder import new_run_id
from dsa.runs.runs import Runs
from machines.chat.session import NAME


def branch(runs: Runs, run_id: str, turn: int) -> str:
    """Make a branch of a conversation after a turn (0: before the first), and return its id.

    What was made until then goes with it. Raises BranchError where the conversation did not rest, UnknownRunError.
    """
    assert runs.root is not None, "conversations are kept in a folder"
    name, length = new_run_id(NAME), length_before(runs.recorded(run_id).entries, "message", turn + 1)
    try:
        _copy(runs.root / run_id, runs.root / name)
        return runs.branch(run_id, length, name)
    except BaseException:
        shutil.rmtree(runs.root / name, ignore_errors=True)
        raise


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
