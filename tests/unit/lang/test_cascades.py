"""One fault is reported once, whatever follows from it; several faults are all reported in one reading."""

import pytest

from dsa.lang import read_machine

#: The text to replace, its replacement, and the one finding: its code and the marked text.
ONE_FAULT = {
    "invalid domain": ("| 0..rmax      | 0       |", "| int          | 0       |", "DSA107", "int"),
    "empty domain": ("| 0..rmax      | 0       |", "| 3..rmax - 1  | 3       |", "DSA205", "3..rmax - 1"),
    "unbounded domain": ("| 0..rmax      | 0       |", "| 0..          | 0       |", "DSA205", "0.."),
    "initial value outside the domain": ("| 0..rmax      | 0       |", "| 0..rmax      | -1      |", "DSA205", "-1"),
    "initial value of another type": ("| 0..rmax      | 0       |", "| 0..rmax      | true    |", "DSA204", "true"),
    "empty cell": ("| 0..rmax      | 0       |", "| 0..rmax      |         |", "DSA106", ""),
    "short row": ("| retries  | environment | 0..rmax      | 0       |", "| retries | 0..rmax |", "DSA105", "| retries | 0..rmax |"),
    "long row": ("| over         | final   |", "| over         | final   | x |", "DSA105", "| over         | final   | x |"),
    "bad default": ("| 0..    | 3       |", "| 0..    | three   |", "DSA205", "three"),
    "bad name": ("| g     | verdict | cases |", "| g!    | verdict | cases |", "DSA203", "g!"),
    "mistyped column": ("| event         | from          |", "| event         | form          |", "DSA103", "form"),
    "mistyped required column": ("| state        | kind    |", "| stata        | kind    |", "DSA103", "stata"),
    "missing column": ("| event         | from          |", "| event         | note          |", "DSA104", "| event         | note          |"),
    "invalid kind": ("| idle         | initial |", "| idle         | start   |", "DSA107", "start"),
    "invalid kind of a child": ("| work.writing | initial |", "| work.writing | start   |", "DSA107", "start"),
    "row of dashes that is too short": ("| ------------- | ------------- |", "| ------------- |", "DSA102", "Events"),
    "mistyped section": ("## Guards", "## Guard s:", "DSA110", "Guard s:"),
    "unreadable condition where an effect is emitted": ("|                             |                           | query_llm ", "| ((                          |                           | query_llm ", "DSA108", " "),
    "state declared twice": ("| over         | final   |", "| over         | final   |\n| over         |         |", "DSA202", "over"),
    "guard declared twice": ("| g     | verdict | cases |", "| g     | verdict | cases |\n| g     | verdict | cases |", "DSA202", "g"),
    "guard read twice where it does not judge": ("| work    | after 30s     | colour == red ", "| work    | after 30s     | g.passed or g.failed ", "DSA209", "g.passed"),
    "guard that judges no event": ("| g     | verdict |", "| g     | verdct |", "DSA201", "verdct"),
    "unknown event": ("| work    | after 30s     |", "| work    | wait          |", "DSA201", "wait"),
    "timer without a unit": ("| work    | after 30s     |", "| work    | after 30      |", "DSA107", "after 30"),
    "unknown name": ("| colour == red ", "| color == red ", "DSA201", "color"),
    "unknown value of an enumeration": ("| colour == red ", "| colour == blue ", "DSA201", "blue"),
    "comparison of different types": ("| colour == red ", "| colour == 1 ", "DSA204", "1"),
    "assignment outside the enumeration": ("| colour = green ", "| colour = 3 ", "DSA204", "3"),
    "unknown target": ("| query_llm     | work    |", "| query_llm     | wrok    |", "DSA201", "wrok"),
    "parent that cannot be entered": ("| work.writing | initial |", "| work.writing |         |", "DSA206", "work"),
    "unknown column in a scenario": ("| state   | retries |\n", "| state   | retrys |\n", "DSA103", "retrys"),
    "unknown verdict": ("| verdict g.failed |", "| verdict g.filed |", "DSA201", "g.filed"),
    "property without its end": ("- never done and writing", "- never done and", "DSA109", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_FAULT)
def test_one_fault_is_one_finding(name, faults):
    old, new, code, pointed = ONE_FAULT[name]
    found = faults((old, new))
    errors = [finding for finding in found if finding[0] != "DSA110"] if code != "DSA110" else found[:1]
    assert [(kind, text.strip()) for kind, text in errors] == [(code, pointed.strip())]


def test_mistyped_heading_of_a_section_causes_one_warning_and_one_error(dual):
    found = read_machine(dual.replace("## Variables", "## Variabels")).diagnostics
    assert [finding.severity for finding in found] == ["warning", "error"]
    assert found[0].hint == "did you mean 'variables'?"


def test_document_without_transitions_is_one_finding(dual):
    text = dual[: dual.index("## Transitions")] + dual[dual.index("## Properties") :]
    assert [finding.code for finding in read_machine(text).diagnostics] == ["DSA102"]


def test_table_of_states_without_rows_is_one_finding(dual):
    text = dual[: dual.index("| idle         |")] + dual[dual.index("\n## Transitions") :]
    assert [finding.code for finding in read_machine(text).diagnostics] == ["DSA102"]


def test_all_faults_of_a_document_are_found_in_one_reading(faults):
    found = faults(
        ("| rmax      | 0..    | 3       |", "| rmax      | 0..    | 3       |\n| in        | bool   | true    |"),
        ("{red, green} | red", "{red, red} | red"),
        ("| g     | verdict |", "| g     | verdct |"),
        ("| retries += 1 ", "| retries =+ 1 "),
        ("| idle    | specification |                  ", "| over    | specification | done == 3        "),
        ("- always retries <= rmax", "- always retries <= rmin"),
        ("| artifact         | execute_guard | judging |", "| artifact         | execute_gard  | juging  |"),
    )
    assert [code for code, _ in found] == [
        "DSA203", "DSA202", "DSA201", "DSA207", "DSA204", "DSA108", "DSA201", "DSA201", "DSA201",
    ]  # fmt: skip


def test_name_with_a_faulty_declaration_hides_no_other_fault(faults):
    found = faults(("| 0..rmax      | 0       |", "| int          | 0       |"), ("colour == red", "colr == red"))
    assert found == [("DSA107", "int"), ("DSA201", "colr")]
