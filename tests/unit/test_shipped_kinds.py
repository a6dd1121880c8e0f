"""The list of the shipped kinds matches their classes."""

import pytest

from dsa.checks import table_faults
from dsa.generators import generator_kinds as generators
from dsa.guards import guard_kinds as guards
from dsa.runtime.content import ComponentKind

FORMS = {
    "a text": "text",
    "a number": "number",
    "a whole number": "whole",
    "true or false": "flag",
    "names separated by commas": "names",
}
SUPPLIED = {"parts": ("of", "names!"), "generator": ("by", "text")}


def options(kind: ComponentKind) -> dict[str, str]:
    own = {option.name: FORMS[option.form] + "!" * option.is_required for option in kind.options}
    return own | dict(SUPPLIED[name] for name in kind.supplied_arguments if name in SUPPLIED)


@pytest.mark.parametrize(("library", "listed"), [(guards, table_faults.GUARDS), (generators, table_faults.GENERATORS)])
def test_listed_kinds_match_their_classes(library, listed):
    assert {name: options(library.KINDS[name]) for name in library.OWN} == {
        name: dict(known) for name, known in listed.items()
    }
