"""Every row of the chat and the coding machine changes what a run does: no row can be deleted or retargeted unnoticed.

`UPDATE_GOLDEN=1 pytest tests/e2e/test_machine_rows.py -k as_expected` rewrites the stories; review the difference.
"""

import os
from functools import cache
from pathlib import Path

import chat_stories
import coding_stories
import pytest
from row_stories import mutants, rows_taken

GOLDEN = Path(__file__).parent.parent / "golden"
STORY_MODULES = {"chat": chat_stories, "coding": coding_stories}
STORIES = [(machine, name) for machine, told in STORY_MODULES.items() for name in told.STORIES]
#: A sample of the rows, and all of them in a full run.
ROWS = [
    pytest.param(machine, number, marks=() if number % 10 == 0 else pytest.mark.full)
    for machine, told in STORY_MODULES.items()
    for number in range(len(told.shipped().transitions))
]


def _expected(machine, name):
    return GOLDEN / machine / f"{name.replace(' ', '_').replace(',', '')}.txt"


@pytest.mark.parametrize(("machine", "name"), STORIES)
def test_run_is_as_expected(machine, name, tmp_path):
    found = STORY_MODULES[machine].told(STORY_MODULES[machine].shipped(), name, tmp_path) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        _expected(machine, name).write_text(found)
    assert found == _expected(machine, name).read_text()


@cache
def _rows_taken(machine, name, folder):
    """Return the positions of the rows that a story takes."""
    told = STORY_MODULES[machine]
    rest, _ = told.play(told.shipped(), told.STORIES[name], folder)
    return rows_taken(told.shipped().at(**dict(told.STORIES[name].bounds)), rest)


@pytest.fixture(scope="session")
def taken(tmp_path_factory):
    """The rows that each story takes."""
    folder = tmp_path_factory.mktemp("taken")
    return {(machine, name): _rows_taken(machine, name, folder) for machine, name in STORIES}


@pytest.mark.parametrize("machine", STORY_MODULES)
def test_every_row_is_taken(machine, taken):
    found = set().union(*(rows for (of, _), rows in taken.items() if of == machine))
    assert [str(row) for n, row in enumerate(STORY_MODULES[machine].shipped().transitions) if n not in found] == []


@pytest.mark.parametrize(("machine", "number"), ROWS)
def test_no_row_can_be_deleted_or_retargeted_unnoticed(machine, number, taken, tmp_path):
    told = STORY_MODULES[machine]
    stories = [name for (of, name), rows in taken.items() if of == machine and number in rows]
    unnoticed = [
        what
        for what, mutant in mutants(told.shipped(), number)
        if all(told.told(mutant, name, tmp_path) + "\n" == _expected(machine, name).read_text() for name in stories)
    ]
    assert unnoticed == []
