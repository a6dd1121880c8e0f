"""Names of both a value of an enumeration and a state, event or effect: which one is meant."""

import re

import pytest
from each_row import each_row

from dsa.checks.explanation import why
from dsa.expr import unparse, walk
from dsa.lang import dumps, loads, read_machine

TEXT = """# m

## Variables
| variable | domain                  | initial |
| -------- | ----------------------- | ------- |
| kind     | {open, pay, look, none} | open    |
| seen     | {open, shut}            | shut    |
| n        | 0..3                    | 0       |

## Events
| event | from    |
| ----- | ------- |
| pay   | outside |
| found | look    |

## States
| state | kind    |
| ----- | ------- |
| open  | initial |
| shut  | final   |

## Transitions
| source | event       | if   | update | effects | target |
| ------ | ----------- | ---- | ------ | ------- | ------ |
| open   | pay         | {if} | {set}  | look    | =      |
| open   | found       |      |        |         | shut   |
| open   | look.failed |      |        |         | =      |

## Properties
- {property}
"""


def reading(condition="kind == none", update="kind = pay", claim="possible open"):
    text = TEXT.replace("{if}", condition).replace("{set}", update).replace("{property}", claim)
    return read_machine(text, "m.md")


def meant(expr):
    """Return what each name of an expression is."""
    return [f"{getattr(node, 'kind', 'value')} {unparse(node)}" for node in walk(expr) if not list(walk(node))[1:]]


def condition_of(claim):
    return reading(claim=claim).machine.properties[0].form.condition


@each_row(
    ("claim", "names"),
    [
        ("always open", ["state open"]),
        ("always kind == open", ["variable kind", "value open"]),
        ("always open == kind", ["value open", "variable kind"]),
        ("always (open) != (kind)", ["value open", "variable kind"]),
        ("always open == shut", ["state open", "state shut"]),
        ("always open == pay == look", ["state open", "event pay", "effect look"]),
        ("always open == open == kind", ["value open", "value open", "variable kind"]),
        ("always kind == open == seen", ["variable kind", "value open", "variable seen"]),
        ("always open == (1 < n) == shut", ["state open", "value 1", "variable n", "state shut"]),
        ("always kind in {open, look}", ["variable kind", "value open", "value look"]),
        ("always open in {kind, seen}", ["value open", "variable kind", "variable seen"]),
        ("always look in {kind, look}", ["value look", "variable kind", "value look"]),
        ("always open in {pay, shut}", ["state open", "event pay", "state shut"]),
        ("always look and kind == look", ["effect look", "variable kind", "value look"]),
        ("always not pay or pay == kind", ["event pay", "value pay", "variable kind"]),
        ("always pay == (kind == pay)", ["event pay", "variable kind", "value pay"]),
        ("always pending look == (kind == look)", ["pending pending look", "variable kind", "value look"]),
    ],
)
def test_name_is_a_value_when_compared_with_an_enumeration(claim, names):
    assert meant(condition_of(claim)) == names


@pytest.mark.parametrize("claim", ["always seen == look", "always none == look", "possible seen in {pay}"])
def test_value_that_the_other_side_lacks_is_reported_as_a_value(claim):
    (found,) = reading(claim=claim).diagnostics
    assert found.code == "DSA204"
    assert re.search(r"the value '\w+' is compared with (the value |a value of \{)", found.message)


def test_ambiguous_names_are_unchanged_after_writing_and_reading():
    machine = reading(
        "kind == look or look == kind", "kind = look; seen = open", "never open == (kind == open)"
    ).machine
    assert loads(dumps(machine)) == machine


@pytest.mark.parametrize("update", ["kind = open", "kind = pay", "kind = look"])
def test_new_value_in_an_update_is_a_value(update):
    assert meant(reading(update=update).machine.transitions[0].updates[0].value) == [f"value {update[7:]}"]


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("open", "open"),
        ("not pay", "pay"),
        ("open == shut", "open shut"),
        ("pay in {look}", "pay look"),
        ("n == open", "open"),
    ],
)
def test_name_in_a_condition_is_undeclared_unless_it_is_a_value(condition, names):
    found = reading(condition).diagnostics
    assert {(each.code, each.hint) for each in found} == {
        (
            "DSA201",
            f"to use '{name}' as a value, compare it with a variable or parameter whose domain contains '{name}'",
        )
        for name in names.split()
    }


def test_why_distinguishes_a_value_from_the_state_of_its_name():
    machine = reading("kind == open").machine
    assert [case.outcome for case in why(machine, "pay", "open", {"kind": "open"}).cases] == ["taken"]
    assert [case.outcome for case in why(machine, "pay", "open", {"kind": "none"}).cases] == ["invalid_state"]
