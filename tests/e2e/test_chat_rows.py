"""Every row of the chat machine changes what a conversation does: none can be deleted or retargeted unnoticed.

`UPDATE_GOLDEN=1 pytest tests/e2e/test_chat_rows.py -k as_expected` writes the stories down anew; read what it wrote.
"""

import os
from functools import cache
from pathlib import Path

import pytest
from chat_stories import STORIES, play, shipped, told
from row_stories import mutants, rows_taken

GOLDEN = Path(__file__).parent.parent / "golden" / "chat"


def _path(name):
    return GOLDEN / f"{name.replace(' ', '_').replace(',', '')}.txt"


@pytest.mark.parametrize("name", STORIES)
def test_the_conversation_is_as_expected(name, tmp_path):
    found = told(shipped(), name, tmp_path) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        _path(name).write_text(found)
    assert found == _path(name).read_text()


@cache
def _rows_taken(name, folder):
    """Give the positions of the rows that a story takes."""
    rest, _ = play(shipped(), STORIES[name], folder)
    return rows_taken(shipped().at(**dict(STORIES[name].bounds)), rest)


@pytest.fixture(scope="session")
def taken(tmp_path_factory):
    """The rows that each story takes."""
    folder = tmp_path_factory.mktemp("taken")
    return {name: _rows_taken(name, folder) for name in STORIES}


def test_every_row_is_taken(taken):
    found = set().union(*taken.values())
    assert [str(row) for n, row in enumerate(shipped().transitions) if n not in found] == []


@pytest.mark.parametrize("number", range(len(shipped().transitions)))
def test_no_row_can_be_deleted_or_retargeted_unnoticed(number, taken, tmp_path):
    stories = [name for name in STORIES if number in taken[name]]
    unnoticed = [
        what
        for what, mutant in mutants(shipped(), number)
        if all(told(mutant, name, tmp_path) + "\n" == _path(name).read_text() for name in stories)
    ]
    assert unnoticed == []
