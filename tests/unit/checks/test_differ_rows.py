"""Changes between two documents: rows and declarations compared by meaning, each change with its lines."""

from pathlib import Path

import pytest
from attrs import evolve
from each_row import each_row

from dsa.checks.document_diff import Detail, canonical, changes, same_control
from dsa.edge.document_files import load
from dsa.expr import unparse
from dsa.lang import format_document, loads

TEXT = """# m

Prose.

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 0..9   | 2       |

## Variables
| variable | scope       | domain   | initial |
| -------- | ----------- | -------- | ------- |
| n        | environment | 0..most  | 0       |
| colour   | environment | {r, g_o} | r       |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| stop  | outside |
| done  | work    |

## Guards
| guard | judges | is    | options | pass |
| ----- | ------ | ----- | ------- | ---- |
| g     | done   | cases | k = 2   | 0.5  |

## Cases: g
| call      | expected |
| --------- | -------- |
| add(2, 3) | 5        |

## Generators
| generator | is    | options |
| --------- | ----- | ------- |
| llm       | local | a = 1   |

## Effects
| effect | kind | in doubt | time limit | retries | on failure |
| ------ | ---- | -------- | ---------- | ------- | ---------- |
| work   |      | retry    | 30s        | 1       |            |
| log    |      |          |            |         | stop       |

## States
| state  | kind    |
| ------ | ------- |
| idle   | initial |
| busy   |         |
| busy.a | initial |
| busy.b |         |
| over   | final   |

## Transitions
| source | event      | if                                   | update              | effects   | target | note |
| ------ | ---------- | ------------------------------------ | ------------------- | --------- | ------ | ---- |
| idle   | go         |                                      |                     | log, work | busy   | one  |
| busy   | done       | g.passed                             | n = 0; colour = g_o |           | over   |      |
| busy   | done       | not g.passed and n < most            | n += 1              | work      | busy   |      |
| busy   | done       | else                                 |                     |           | over   |      |
| busy.a | after 2m   |                                      |                     |           | busy.b |      |

## Prompt: work
### Task
```
Do it.
```

## Properties
- always n <= most

## Scenario: one
| percept | action    |
| ------- | --------- |
| go      | log, work |

## Constraints
No network.
"""


def line(part):
    (found,) = [number for number, text in enumerate(TEXT.split("\n"), 1) if part in text]
    return found


def found(*edits, text=TEXT):
    new = text
    for old, other in edits:
        assert new.count(old) == 1, old
        new = new.replace(old, other)
    return changes(loads(text), loads(new))


ROW = "| busy   | done       | not g.passed and n < most            | n += 1              | work      | busy   |"
GO = "| idle   | go         |                                      |                     | log, work | busy   |"


@each_row("edits", [
    [],
    [("Prose.", "Other prose.")],
    [("| one  |", "| two  |")],
    [("not g.passed and n < most            ", "most > n and (not g.passed)          ")],
    [("not g.passed and n < most            ", "not (n >= most) and not g.passed     ")],
    [("n = 0; colour = g_o", "colour = g_o; n = 0")],
    [("n += 1              ", "n = 1 + n           ")],
    [("after 2m  ", "after 120s")],
    [("| log, work | busy   |", "| log, work | busy.a |")],
    [("{r, g_o}", "{g_o, r}")],
    [(f"{GO} one  |\n", ""), ("| busy.a | after 2m ", f"{GO} one  |\n| busy.a | after 2m ")],
    [("| n        | environment | 0..most  | 0       |\n", ""), ("| r       |\n", "| r       |\n| n        | environment | 0..most  | 0       |\n")],
], ids=str)  # fmt: skip
def test_equivalent_text_is_not_a_change(edits):
    assert found(*edits) == ()


def test_layout_is_not_a_change():
    assert (
        changes(
            loads(TEXT),
            loads(
                format_document(TEXT.replace("| idle   | go  ", "|idle|go|").replace("|idle|go|       |", "|idle|go|"))
            ),
        )
        == ()
    )
    for name in ("dual_state", "workflow", "examples/polling"):
        machine = load(name)
        assert changes(machine, machine) == ()


@each_row(("edits", "kind", "name", "lines", "details"), [
    ([("| n += 1              | work      |", "| n += 2              | log, work |")], "changed", "busy | done | busy", (1, 1), [("update", "n += 1", "n += 2"), ("effects", "work", "log, work")]),
    ([(ROW, ROW.replace("n < most ", "n <= most"))], "changed", "busy | done | busy", (1, 1), [("if", "not g.passed and n < most", "not g.passed and n <= most")]),
    ([(ROW, ROW.replace("| busy   |", "| over   |", 2).replace("| over   |", "| busy   |", 1))], "changed", "busy | done | busy", (1, 1), [("target", "busy", "over")]),
    ([(f"{ROW}      |\n", "")], "removed", "busy | done | busy", (1, None), [("if", "not g.passed and n < most", ""), ("update", "n += 1", ""), ("effects", "work", "")]),
    ([(f"{ROW}      |\n", f"{ROW}      |\n| busy | stop | | | cancel | over | |\n")], "added", "busy | stop | over", (None, 2), [("effects", "", "cancel")]),
    ([(f"{ROW}      |\n", f"{ROW}      |\n" * 2)], "added", "busy | done | busy", (None, 2), [("if", "", "not g.passed and n < most"), ("update", "", "n += 1"), ("effects", "", "work")]),
    ([("| busy   | done       | g.passed      ", "| busy   | done       | else and g.passed ")], "changed", "busy | done | over", (0, 0), [("if", "g.passed", "else and g.passed")]),
    ([("| busy.a | after 2m ", "| busy.b | after 2m ")], "changed", "busy.a | after 2m | busy.b", (3, 3), [("source", "busy.a", "busy.b")]),
    ([("| idle   | go    ", "| idle   | stop  ")], "changed", "idle | go | busy", (-1, -1), [("event", "go", "stop")]),
], ids=str)  # fmt: skip
def test_row_changes_are_listed_with_their_details(edits, kind, name, lines, details):
    (change,) = found(*edits)
    at = line("not g.passed and n < most") - 1
    assert (change.aspect, change.what, change.kind, change.name) == ("control", "transition", kind, name)
    assert (change.old_line, change.new_line) == tuple(offset if offset is None else at + offset for offset in lines)
    assert change.details == tuple(Detail(*each) for each in details)


def test_rows_with_the_most_in_common_are_one_changed_row():
    both = [
        ("| busy   | done       | g.passed ", "| busy   | done       | g.passed and n > 0 "),
        (f"{ROW}      |\n", ""),
    ]
    kinds = [(change.kind, change.name) for change in found(*both)]
    assert kinds == [("changed", "busy | done | over"), ("removed", "busy | done | busy")]


def test_other_initial_child_changes_the_rows_that_lead_to_its_parent():
    first, second = found(
        ("| busy.a | initial |", "| busy.a |         |"), ("| busy.b |         |", "| busy.b | initial |")
    )[:2]
    assert first.details == second.details == (Detail("target", "busy.a", "busy.b"),)
    others = found(("| busy.a | initial |", "| busy.a |         |"), ("| busy.b |         |", "| busy.b | initial |"))[
        2:
    ]
    assert [(change.what, change.name, change.details) for change in others] == [
        ("state", "busy", (Detail("enters", "busy.a", "busy.b"),))
    ]


def test_other_guards_asked_are_a_change():
    """S2: a guard is asked even if its verdict decides nothing."""
    (change,) = found(("| busy   | done       | else   ", "| busy   | done       | else and (g.passed or true)"))
    assert change.kind == "changed"


@each_row(("edit", "what", "kind", "name", "details"), [
    (("| most      | 0..9   | 2 ", "| most      | 0..9   | 3 "), "parameter", "changed", "most", [("default", "2", "3")]),
    (("| most      | 0..9   | 2       |\n", "| most      | 0..9   | 2       |\n| least     | 0..1   | 0       |\n"), "parameter", "added", "least", [("domain", "", "0..1"), ("default", "", "0")]),
    (("environment | 0..most  | 0", "workflow    | 0..most  | 0"), "variable", "changed", "n", [("scope", "environment", "workflow")]),
    (("environment | 0..most  | 0", "environment | 0..9     | 0"), "variable", "changed", "n", [("domain", "0..most", "0..9")]),
    (("environment | {r, g_o} | r  ", "environment | {r, g_o} | g_o"), "variable", "changed", "colour", [("initial", "r", "g_o")]),
    (("| stop  | outside |\n", ""), "event", "removed", "stop", [("from", "outside", "")]),
    (("| stop  | outside |", "| stop  | work    |"), "event", "changed", "stop", [("from", "outside", "work")]),
    (("| g     | done   | cases | k = 2   | 0.5  |", "| g     | done, go | cases | k = 2   | 0.5  |"), "guard", "changed", "g", [("judges", "done", "done, go")]),
    (("| guard | judges | is    | options | pass |\n| ----- | ------ | ----- | ------- | ---- |\n| g     | done   | cases | k = 2   | 0.5  |", "| guard | judges | is    | options | pass | verdicts |\n| ----- | ------ | ----- | ------- | ---- | -------- |\n| g     | done   | cases | k = 2   | 0.5  | passed, failed |"), "guard", "changed", "g", [("verdicts", "failed, fatal, passed", "failed, passed")]),
    (("| over   | final   |", "| over   | final   |\n| far    | final   |"), "state", "added", "far", [("kind", "", "final")]),
    (("| over   | final   |", "| over   |         |"), "state", "changed", "over", [("kind", "final", "")]),
], ids=str)  # fmt: skip
def test_declaration_changes_are_changes_of_control(edit, what, kind, name, details):
    (change,) = found(edit)
    assert (change.aspect, change.what, change.kind, change.name) == ("control", what, kind, name)
    assert change.details == tuple(Detail(*each) for each in details)
    assert not same_control((change,))


def test_other_initial_state_is_a_change():
    both = found(("| idle   | initial |", "| idle   |         |"), ("| busy   |         |", "| busy   | initial |"))
    assert [(change.what, change.details) for change in both] == [("initial state", (Detail("", "idle", "busy.a"),))]


@pytest.mark.parametrize(("edit", "what", "name", "details"), [
    (("| cases | k = 2   | 0.5  |", "| syntax | k = 3   | 0.9  |"), "guard", "g", [("is", "cases", "syntax"), ("options", "k = 2", "k = 3"), ("pass", "0.5", "0.9")]),
    (("| retry    | 30s        | 1 ", "| ask      | 1m         |   "), "effect", "work", [("in doubt", "retry", "ask"), ("time limit", "30s", "1m"), ("retries", "1", "")]),
    (("| log    |      |          |            |         | stop", "| log    |      |          |            |         |     "), "effect", "log", [("on failure", "stop", "")]),
    (("| a = 1   |", "| a = 2   |"), "generator", "llm", [("options", "a = 1", "a = 2")]),
    (("| add(2, 3) | 5  ", "| add(2, 3) | 6  "), "cases", "g", [("", "add(2, 3) = 5", "add(2, 3) = 6")]),
    (("Do it.", "Do it well."), "prompt", "work", [("task", "Do it.", "Do it well.")]),
    (("No network.", "No files."), "document", "", [("constraints", "No network.", "No files.")]),
    (("# m\n", "# another\n"), "document", "", [("name", "m", "another")]),
], ids=str)  # fmt: skip
def test_content_changes_leave_the_control_the_same(edit, what, name, details):
    (change,) = found(edit)
    assert (change.aspect, change.what, change.kind, change.name) == ("content", what, "changed", name)
    assert change.details == tuple(Detail(*each) for each in details)
    assert same_control((change,))


def test_changed_claims_leave_the_control_the_same():
    first, second, third = found(
        ("- always n <= most", "- never n > most"),
        ("| go      | log, work |", "| go      | log, work |\n| stop    | refused   |"),
    )
    assert (first.aspect, first.kind, first.name, first.old_line, first.new_line) == (
        "claims",
        "removed",
        "always n <= most",
        line("- always"),
        None,
    )
    assert (second.kind, second.name, second.old_line, second.new_line) == (
        "added",
        "never n > most",
        None,
        line("- always"),
    )
    assert (third.what, third.kind, third.name) == ("scenario", "changed", "one")
    assert third.details == (Detail("", "; go -> log, work ()", "; go -> log, work (); stop -> refused ()"),)
    assert same_control((first, second, third))


def test_changed_step_of_a_workflow_is_a_change_of_content():
    old = load("workflow")
    name = old.steps[0].name
    new = evolve(old, steps=(evolve(old.steps[0], task="another", generator="mine"), *old.steps[1:]))
    (change,) = changes(old, new)
    assert (change.aspect, change.what, change.name) == ("content", "step", name)
    assert [detail.field for detail in change.details] == ["generator", "task"]


@pytest.mark.parametrize(("one", "other"), [
    ("n < 2 and colour == r", "r == colour and 2 > n"),
    ("0 <= n < 2", "n < 2 and n >= 0"),
    ("not (n < 2)", "n >= 2"),
    ("n * 2 + 1 == 3", "3 == 1 + 2 * n"),
    ("n in {1, 2}", "n == 2 or n == 1"),
    ("n <= 2 or g.passed", "g.passed or not n > 2"),
])  # fmt: skip
def test_equivalent_expressions_have_one_spelling(one, other):
    texts = [
        TEXT.replace("| not g.passed and n < most            |", f"| not g.passed and ({each}) |")
        for each in (one, other)
    ]
    first, second = (canonical(loads(text).transitions[2].condition) for text in texts)
    assert unparse(first) == unparse(second)


def test_other_result_is_a_change_of_the_documents_content():
    text = "# m\n## Steps\n| step | guard |\n| - | - |\n| a | syntax |\n| b | syntax |\n"
    (change,) = changes(loads(text), loads(f"{text}\nResult: a\n"))
    assert (change.aspect, change.what, change.details) == ("content", "document", (Detail("result", "", "a"),))


FAMILIES = (Path(__file__).parents[2] / "golden" / "families" / "credit_check.md").read_text(encoding="utf-8")


def test_changed_row_with_families_is_one_change_at_one_instance():
    rows = [line for line in FAMILIES.splitlines() if line.startswith("| checking | good[b]")]
    other = FAMILIES.replace(rows[1], rows[1].replace("deciding", "declined"))
    (change,) = changes(loads(FAMILIES), loads(other))
    assert change.name == "checking | good[equifax] | deciding (at b = equifax)"
    assert change.details == (Detail("target", "deciding", "declined"),)
    (removed,) = changes(loads(FAMILIES), loads(FAMILIES.replace(f"{rows[0]}\n", "")))
    assert (removed.kind, removed.name) == ("removed", "checking | good[equifax] | = (at b = equifax)")


def test_removed_rows_name_the_index_that_was_left_out():
    found = changes(loads(FAMILIES), loads(FAMILIES, families={"b": "{equifax, experian}"}))
    names = [change.name for change in found if change.what == "transition" and change.kind == "removed"]
    assert len(names) == 6
    assert all(name.endswith("(at b = transunion)") for name in names)
