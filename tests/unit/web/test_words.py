"""The words that pages explain: those of docs/glossary.md, where they occur in a text and not in an attribute."""

import re
import tomllib
from pathlib import Path

import pytest

from dsa.runtime.run_store import STATUSES
from dsa.web import markup
from dsa.web.markup import EMPTY, badge, glossary, meaning_of, tag, words_explained

ROOT = Path(__file__).parents[3]
GLOSSARY = ROOT / "docs" / "glossary.md"


def explained(*content) -> list[str]:
    """Return the words that are explained for a piece of a page."""
    return re.findall("<dfn>(.*?)</dfn>", words_explained(*content).html)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("environment", ["Environment state"]),
        ("done is of scope workflow", ["Workflow state"]),
        ("fatal", ["Fatal"]),
        ("in doubt: pay 1/1", ["In doubt"]),
        ("2 of 3 properties HOLD; 1 is VIOLATED", ["Holds", "Violated"]),
        ("refused", ["Refusal"]),
        ("rests in: idle", ["Rests in"]),
        ("waits only for a timer in: asking", ["Timer", "Waits only for a timer"]),
        ("what it holds is an unknown residue", []),
        ("fatally sub-guard guard_name", []),
    ],
)
def test_words_are_explained_where_they_occur(text, words):
    assert explained(tag("p", text)) == words


def test_word_in_an_attribute_is_not_explained():
    assert words_explained(tag("p", "nothing", class_="fatal")) == EMPTY


def test_word_in_code_is_not_explained():
    assert explained(tag("pre", '{"verdict": "fatal"}'), tag("p", "outside")) == ["Outside"]


def test_words_are_sorted_and_listed_once():
    assert explained(tag("p", "timer and fatal"), tag("p", "a Fatal verdict")) == ["Fatal", "Timer", "Verdict"]


def test_meanings_are_those_of_the_glossary():
    whole = re.sub(r"[*`]", "", " ".join(GLOSSARY.read_text(encoding="utf-8").split()))
    whole = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", whole)
    assert {word.lower() for word in glossary()} == markup.EXPLAINED_WORDS
    for word, meaning in glossary().items():
        assert f"{word}: {meaning}" in whole
        assert meaning.endswith((".", ")"))


def test_every_status_has_a_meaning():
    assert [status for status in STATUSES if not meaning_of(status)] == []
    assert meaning_of("nothing of the kind") == ""
    assert f'title="{meaning_of("cut off")}"' in badge("cut off").html


def test_package_contains_the_glossary():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    place = build["targets"]["wheel"]["force-include"]["docs/glossary.md"]
    assert ROOT / place == Path(markup.__file__).with_name("static") / "glossary.md"
