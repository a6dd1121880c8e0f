"""The odds page names its own fields: no message on it names an option of the command."""

import ast
from pathlib import Path

import pytest

import dsa.checks.odds
from dsa.checks.odds.odds_report import answer_text, odds_answer
from dsa.edge.document_files import load
from dsa.errors import DsaError
from dsa.web.odds_page import in_fields

#: The module whose messages no page shows: those of recorded runs.
ELSEWHERE = {"estimation.py"}
#: Words of messages that no page shows, in modules that have others: of recorded runs, and of properties in a document.
ON_NO_PAGE = ("(with --fatal, you assume that they are not)", "use `dsa odds` with --event")


def messages() -> list[str]:
    """Return the texts with an option in the modules of the odds; a part that is worked out is the word `name`."""
    texts = []
    for path in Path(dsa.checks.odds.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        }
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree) if path.name not in ELSEWHERE else ():
            text = ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "name" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                text = node.value
            if (
                " --" in f" {text}".replace("(--", " --")
                and text not in docstrings
                and not any(each in text for each in ON_NO_PAGE)
            ):
                texts.append(text)
    return texts


def test_every_option_in_a_message_has_a_field():
    assert len(messages()) >= 5
    assert [text for text in map(in_fields, messages()) if "--" in text] == []


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({}, "fill in 'g passes'"),
        (
            {"passes": {"g": (0.5,)}, "target": 0.9, "vary": "nothing"},
            "(the field 'The parameter that the plot and the search vary')",
        ),
    ],
)
def test_message_names_a_field(question, field):
    try:
        text = answer_text(odds_answer(load("dual_state"), **question))
    except DsaError as fault:
        text = str(fault)
    assert field in in_fields(text)
