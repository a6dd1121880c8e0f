"""Documents with families: public models with their published numbers of states, and the documents they expand to."""

from pathlib import Path

import attrs
import pytest
from each_row import each_row

from dsa.checks.report import check
from dsa.checks.search.exploration import explore
from dsa.errors import DocumentError, MachineError, ParameterError
from dsa.lang import digest, dumps, loads, spell_out

FOLDER = Path(__file__).parents[2] / "golden" / "families"


def text_of(name):
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@each_row(
    ("name", "families", "configurations"),
    [
        ("philosophers", {}, 67),  # Chandy and Misra, as published for Murphi and Spin
        ("two_phase_commit", {}, 288),  # Gray and Lamport, "Consensus on Transaction Commit"
        ("two_phase_commit", {"p": "1..5"}, 8_832),
        ("readers_writers", {}, 21_527),
        ("credit_check", {"b": "{one, other}"}, 27),
        ("credit_check", {}, 93),
    ],
)
def test_public_models_have_their_published_numbers_of_states(name, families, configurations):
    assert explore(loads(text_of(name), families=families)).configurations == configurations


@pytest.mark.full
def test_seven_resource_managers_have_their_published_number_of_states():
    machine = loads(text_of("two_phase_commit"), families={"p": "1..7"})
    assert explore(machine).configurations == 296_448


@each_row(("name", "rows", "most"), [("credit_check", 10, 14), ("philosophers", 7, 9), ("two_phase_commit", 7, 7)])
def test_written_row_is_one_line_for_all_its_instances(name, rows, most):
    machine = loads(text_of(name))
    lines = {row.span.line for row in machine.transitions}
    assert len(lines) == rows <= most
    assert len(machine.transitions) > rows


def test_properties_of_a_credit_check_hold_and_nothing_is_reported():
    report = check(loads(text_of("credit_check")))
    assert not report.diagnostics
    assert {claim.verdict for claim in report.properties} == {"HOLDS"}


def test_row_that_forgets_a_bureau_is_reported_once_with_one_instance():
    text = text_of("credit_check").replace("look[b].failed | pending  ", "look[b].failed | false    ")
    found = [each for each in check(loads(text)).diagnostics if each.code == "DSA305"]
    assert len(found) == 1
    assert "look[equifax].failed" in found[0].message


@each_row("name", ["credit_check", "philosophers", "two_phase_commit", "readers_writers"])
def test_public_model_has_no_diagnostics(name):
    assert not check(loads(text_of(name))).diagnostics


@each_row("name", ["credit_check", "philosophers", "readers_writers", "two_phase_commit"])
def test_document_is_written_back_with_its_families(name):
    machine = loads(text_of(name))
    again = loads(dumps(machine))
    assert again == machine
    assert dumps(again) == dumps(machine)
    assert "## Families" in dumps(machine)


def test_renaming_a_family_does_not_change_the_meaning():
    text = text_of("credit_check")
    renamed = (
        text.replace("[b]", "[who]")
        .replace("all b:", "all who:")
        .replace("any b:", "any who:")
        .replace("| b   ", "| who ")
    )
    assert renamed != text
    assert digest(loads(renamed)) == digest(loads(text))


def test_unknown_family_is_an_error_that_names_the_known_ones():
    with pytest.raises((DocumentError, ValueError), match="known here: 'b'"):
        loads(text_of("credit_check"), families={"c": "1..2"})


def test_expanded_families_are_a_complete_document():
    machine = loads(text_of("credit_check"))
    whole = spell_out(machine)
    assert loads(dumps(whole)) == whole == machine
    assert "Families" not in dumps(whole)
    assert digest(whole) == digest(machine)


@each_row(
    ("index", "message"),
    [
        (
            "2..1",
            "p=2..1: this family has no values: 2..1 is empty; the lower bound, which comes first, must not be greater than the upper one",
        ),
        ("many", "p=many: expected a whole number, 0 or greater, but found 'many'"),
        ("", "p=: expected a whole number, 0 or greater, but nothing follows"),
    ],
)
def test_invalid_index_argument_is_quoted_in_the_error(index, message):
    with pytest.raises(ParameterError) as raised:
        loads(text_of("philosophers"), families={"p": index})
    assert str(raised.value).startswith(message)


def test_row_that_overlaps_itself_without_a_family_is_reported():
    """Such rows occur in a mutant that changes one event of a row with several events."""
    machine = loads(text_of("credit_check"))
    row = machine.transitions[0]
    several = attrs.evolve(machine, transitions=(row, row, *machine.transitions[1:]))
    assert "DSA304" in [finding.code for finding in check(several).diagnostics]


def test_fault_of_a_row_is_reported_once_for_all_its_instances():
    text = text_of("philosophers").replace("at[p] == eat   ", "ate[p] == eat  ")
    with pytest.raises(MachineError) as raised:
        loads(text)
    assert [(each.code, each.message) for each in raised.value.diagnostics] == [("DSA201", "'ate[1]' is not declared")]
