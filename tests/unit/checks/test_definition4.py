"""S9 (Definition 4): rows that may set workflow state, and rows that may not."""

from each_row import each_row
from example_machines import FALSE, assign, compare, failed, fatal, passed, placed, ranged, states, var

from dsa.checks.table_faults import definition4, possible
from dsa.declarations import Event, Guard, Revoke, Transition, Variable
from dsa.expr import TRUE, And, BooleanDomain, Count, Integer, Member, Name, Not, Or
from dsa.lang import loads
from dsa.machine import Machine

SET = (assign("sigma", TRUE),)
BOTH = And((passed("g"), passed("h")))


def codes(*rows, judges=("judged",), outcomes=("passed", "failed", "fatal")):
    machine = Machine(
        "m", placed(rows), states("a"), "a",
        variables=(
            Variable("sigma", "workflow", BooleanDomain(), FALSE),
            Variable("flag", "environment", BooleanDomain(), FALSE),
            Variable("x", "environment", ranged(0, 3), Integer(0)),
        ),
        events=(Event("judged"), Event("approved")),
        guards=(Guard("g", judges, outcomes=outcomes), Guard("h", judges)),
    )  # fmt: skip
    return [finding.code for finding in definition4(machine)]


def row(condition=TRUE, updates=SET, event="judged", **more):
    return Transition("a", event, "=", condition, updates=updates, **more)


@each_row("condition", [
    passed(),
    BOTH,
    And((passed(), Or((passed("h"), fatal("g"))))),
    And((compare("x", "<", 3), passed())),
    Not(Or((failed(), fatal()))),
    And((passed(), Not(failed()))),
    And((Or((var("flag"), Not(var("flag")))), passed())),
    Or((And((var("flag"), Not(var("flag")))), passed())),  # the first half can never be true
    compare(Count(BOTH.operands), "==", 2),
    Not(compare(Count((failed("g"), fatal("g"), failed("h"), fatal("h"))), ">", 0)),
    And((var("flag"), Member(Count(BOTH.operands), (Integer(2),)))),
])  # fmt: skip
def test_condition_that_implies_its_guards_passed_is_accepted(condition):
    assert codes(row(condition)) == []


@each_row("condition", [
    TRUE,
    failed(),
    Not(fatal()),
    Or((passed(), failed())),
    Or((passed(), var("flag"))),
    Or((passed("g"), passed("h"))),
    And((passed("g"), Not(fatal("h")))),
    compare("x", "<", 3),
    compare(Count(BOTH.operands), ">=", 1),
    compare(Count((*BOTH.operands, var("flag"))), "==", 3),  # a comparison that reads a variable is free
    compare(Count((*BOTH.operands, Name("", "pending"))), "==", 3),
])  # fmt: skip
def test_condition_that_does_not_imply_a_pass_is_an_error(condition):
    assert codes(row(condition)) == ["DSA210"]


def test_assigning_false_needs_a_pass_too():
    assert codes(row(failed(), (assign("sigma", FALSE),))) == ["DSA210"]


def test_only_outcomes_that_the_guard_has_count():
    assert codes(row(Not(failed())), outcomes=("passed", "failed")) == []


def test_else_is_the_negation_of_its_sibling_conditions():
    others = [row(failed(), ()), row(fatal(), ())]
    assert codes(row(is_else=True), *others) == []
    assert codes(row(is_else=True), others[0]) == ["DSA210"]
    assert codes(row(is_else=True), row(compare("x", "<", 1), ())) == ["DSA210"]
    assert codes(row(passed(), is_else=True), row(failed("h"), ()), row(fatal("h"), ())) == []


def test_revocations_and_events_without_a_guard_are_only_noted():
    assert codes(row(failed(), (Revoke("sigma"),))) == ["DSA211"]
    assert codes(row(event="approved")) == ["DSA211"]


def test_event_that_a_guard_judges_needs_a_pass():
    assert codes(row(event="approved"), judges=("approved",)) == ["DSA210"]


def test_environment_variables_may_be_set_without_a_pass():
    assert codes(row(failed(), (assign("flag", TRUE),))) == []


def test_atom_has_one_value_within_a_condition():
    assert not possible(And((var("flag"), Not(var("flag")))), {}, {})
    assert possible(And((var("flag"), Not(compare("x", "<", 1)))), {}, {})


def test_many_guards_do_not_multiply_the_work():
    names = [f"g{number}" for number in range(40)]
    rows = placed([Transition("a", "judged", "=", And(tuple(map(passed, names))), updates=SET)])
    machine = Machine(
        "m", rows, states("a"), "a",
        variables=(Variable("sigma", "workflow", BooleanDomain(), FALSE),),
        events=(Event("judged"),), guards=tuple(Guard(name, ("judged",)) for name in names),
    )  # fmt: skip
    assert definition4(machine) == ()


CHAPTERS = """# chapters

## Families
| family | index |
| ------ | ----- |
| c      | 1..3  |

## Variables
| variable | scope       | domain | initial |
| -------- | ----------- | ------ | ------- |
| accepted | workflow    | bool   | false   |
| ready[c] | workflow    | bool   | false   |
| spoilt   | environment | bool   | false   |

## Events
| event    | from         |
| -------- | ------------ |
| go       | outside      |
| seen[c]  | outside      |
| done[c]  | translate[c] |

## Guards
| guard | judges  |
| ----- | ------- |
| whole | done[c] |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| working |         |
| printed | final   |

## Transitions
| source  | event    | if                           | update          | effects             | target  |
| ------- | -------- | ---------------------------- | --------------- | ------------------- | ------- |
| idle    | go       |                              |                 | all c: translate[c] | working |
| working | seen[c]  |                              | ready[c] = true |                     | =       |
| working | done[c]  | whole.passed and not pending | accepted = true |                     | printed |
| working | done[c]  | whole.passed and pending     |                 |                     | =       |
| working | done[c]  | else                         | spoilt = true   |                     | printed |
"""


def notes(text):
    return [(each.message, each.hint) for each in definition4(loads(text)) if each.code == "DSA211"]


def test_notes_name_variables_and_events_as_written():
    messages = {message for message, _ in notes(CHAPTERS)}
    assert messages == {
        "the row for 'seen[c]' in state 'working' sets 'ready[c]', but the event 'seen[c]' does not carry the verdict of a guard",
        "the row for 'done[c]' in state 'working' sets 'accepted', but it looks only at the verdicts on one answer, and another answer may have failed before",
    }


@each_row(("claims", "update", "hint"), [
    ("", "spoilt = true", "a row for a failed answer already sets 'spoilt': add a property that this variable and 'accepted' are never both true"),
    ("- never spoilt", "spoilt = true", "a row for a failed answer already sets 'spoilt': add a property that this variable and 'accepted' are never both true"),
    ("- never accepted and spoilt", "spoilt = true", "'spoilt' remembers a failed answer, and the property 'never accepted and spoilt' is about both variables: nothing is missing if this property says what you mean"),
    ("- never accepted and spoilt", "", "add a variable that is set when an answer fails, and a property that this variable and 'accepted' are never both true"),
])  # fmt: skip
def test_hint_asks_only_for_what_is_missing(claims, update, hint):
    text = CHAPTERS.replace("spoilt = true", update) + (f"\n## Properties\n{claims}\n" if claims else "")
    assert {each for message, each in notes(text) if "another answer may have failed" in message} == {hint}
