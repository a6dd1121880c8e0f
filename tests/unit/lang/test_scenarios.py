import pytest

from dsa.declarations import Cancel, Emit, RefusedAction, ScenarioStep
from dsa.lang import dumps, loads

LAST = "| verdict g.failed | query_llm     | writing | 1       |"


def read(row, machine):
    return machine((LAST, row)).scenarios[0].steps[2]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (LAST, ScenarioStep("verdict", (("g", "failed"),), (Emit("query_llm"),), "work.writing", (("retries", 1),))),
        ("| verdict | | | |", ScenarioStep("verdict")),
        ("| verdict | - | | |", ScenarioStep("verdict")),
        (
            "| `verdict g.failed` | `cancel, log` | `over` | `2` |",
            ScenarioStep("verdict", (("g", "failed"),), (Cancel(), Emit("log")), "over", (("retries", 2),)),
        ),
        ("| after 30s | cancel query_llm | | |", ScenarioStep("after 30s", (), (Cancel("query_llm"),))),
        ("| query_llm.failed | refused | | |", ScenarioStep("query_llm.failed", (), RefusedAction())),
        ("| artifact | refused: late | | |", ScenarioStep("artifact", (), RefusedAction("late"))),
    ],
)
def test_step_of_a_scenario_is_read_and_written(row, expected, machine):
    assert read(row, machine) == expected
    whole = machine((LAST, row))
    assert loads(dumps(whole)) == whole


@pytest.mark.parametrize(
    ("row", "code", "pointed"),
    [
        ("| verdct | | | |", "DSA201", "verdct"),
        ("| verdict g.filed | | | |", "DSA201", "g.filed"),
        ("| artifact g.failed | | | |", "DSA209", "g.failed"),
        ("| verdict g | | | |", "DSA201", "g"),
        ("| after 31s | | | |", "DSA201", "after 31s"),
        ("| after x | | | |", "DSA107", "after x"),
        ("| artifact | log, lag | | |", "DSA201", "lag"),
        ("| artifact | refused: latte | | |", "DSA107", "refused: latte"),
        ("| artifact | | wrting | |", "DSA201", "wrting"),
        ("| artifact | | | many |", "DSA205", "many"),
        ("| artifact | | | 1 + 1 |", "DSA108", "+"),
        ("| | log | | |", "DSA106", ""),
    ],
)
def test_fault_in_a_step_is_marked_at_its_place(row, code, pointed, faults):
    assert [(kind, text.strip()) for kind, text in faults((LAST, row))] == [(code, pointed)]


@pytest.mark.parametrize(
    ("line", "expected"), [("Parameters: rmax = 1", (("rmax", 1),)), ("Parameters:  rmax=0", (("rmax", 0),))]
)
def test_scenario_has_its_own_parameters(line, expected, machine):
    assert machine(("## Scenario: one\n", f"## Scenario: one\n{line}\n\n")).scenarios[0].parameters == expected


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Parameters: rmx = 1", "DSA201"),
        ("Parameters: rmax", "DSA107"),
        ("Parameters: rmax = -1", "DSA205"),
        ("Parameters: rmax = red", "DSA205"),
        ("Parameters: rmax = 1, rmax = 2", "DSA202"),
    ],
)
def test_wrong_parameters_are_reported(line, code, faults):
    assert [found for found, _ in faults(("## Scenario: one\n", f"## Scenario: one\n{line}\n\n"))] == [code]


def test_values_of_a_step_have_the_order_of_the_variables(machine):
    header = (
        "| state   | retries |\n| ---------------- | ------------- | ------- | ------- |",
        "| colour | done | state   | retries |\n| ---------------- | ------------- | ------- | ------- | - | - |",
    )
    rows = (
        (
            "| specification    | query_llm     | writing | 0       |",
            "| specification    | query_llm     | red | false | writing | 0       |",
        ),
        (
            "| artifact         | execute_guard | judging |         |",
            "| artifact         | execute_guard | red | | judging |         |",
        ),
        (LAST, "| verdict | | | | | |"),
    )
    made = machine(header, *rows)
    assert made.scenarios[0].steps[0].values == (("done", False), ("retries", 0), ("colour", "red"))
    assert made.scenarios[0].steps[1].values == (("colour", "red"),)
    assert loads(dumps(made)) == made


def test_column_note_is_free_text_even_if_a_variable_has_that_name(machine):
    variable = ("| colour   | environment", "| note     | environment | bool | false |\n| colour   | environment")
    made = machine(variable, ("| state   | retries |\n", "| state   | note    |\n"))
    assert made.scenarios[0].steps[0].values == ()


@pytest.mark.parametrize("name", ["C#", "`x`", "a: b", "über | all", "x \\#"])
def test_scenario_may_have_any_name(name, machine):
    made = machine(("## Scenario: one\n", f"## Scenario: {name}\n"))
    assert made.scenarios[0].name == name.strip("`")
    assert loads(dumps(made)) == made
