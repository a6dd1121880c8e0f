"""Documents with families mean the rows that rules Fa1 to Fa6 expand them to, expanded here by other code."""

import re
from collections import Counter

import pytest
from family_documents import family_documents
from hypothesis import HealthCheck, given, seed, settings
from sample_sizes import sample_size

from dsa.checks.document_diff import canonical, changes
from dsa.declarations import expressions
from dsa.lang import digest, dumps, loads, spell_out

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def claims_of(machine):
    return [(type(each.form), [canonical(part) for part in expressions(each.form)]) for each in machine.properties]


def agree(written, spelled):
    one, other = loads(written), loads(spelled)
    assert [str(row) for row in one.transitions] == [str(row) for row in other.transitions]
    assert [each for each in changes(other, one) if each.aspect != "claims"] == []
    assert claims_of(one) == claims_of(other)
    assert (one.variables, one.events, one.guards) == (other.variables, other.events, other.guards)
    again = loads(dumps(one))
    assert (again, digest(again)) == (one, digest(one))
    assert loads(dumps(spell_out(one))) == one


@settings(max_examples=sample_size(24, full=300), deadline=None, suppress_health_check=SLOW)
@given(family_documents())
def test_document_with_families_means_the_same_as_its_expanded_rows(documents):
    agree(*documents)


@pytest.mark.full
@settings(max_examples=3_000, deadline=None, suppress_health_check=SLOW)
@given(family_documents())
def test_three_thousand_documents_mean_the_same_as_their_expanded_rows(documents):
    agree(*documents)


#: The parts of the language that were added together with families, by how they are written.
ADDITIONS = {
    "families": r"\[[fg]",
    "quantifiers": r"\b(?:all|any|count) [fg]:",
    "neighbours": r"\[[fg][+-]1\]",
    "pending": r"\bpending\b",
    "at once": r"\| ask\[g\] \| [23]",
    "a sleep": r"\| [^|]*\bnap\b[^|]* \| [^|]* \|\n",
}


def test_one_third_of_the_documents_uses_three_additions_at_once():
    found = Counter()

    @seed(1)
    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=SLOW)
    @given(family_documents())
    def count(documents):
        _, _, rows = documents[0].partition("## Transitions")
        used = {
            name
            for name, pattern in ADDITIONS.items()
            if re.search(pattern, documents[0] if name == "at once" else rows)
        }
        found.update({"all": 1, "three": len(used) >= 3, **dict.fromkeys(used, 1)})

    count()
    assert found["three"] * 3 >= found["all"], found
    assert all(found[name] * 20 >= found["all"] for name in ADDITIONS), found
