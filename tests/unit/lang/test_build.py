"""Sections, columns and cells of whole documents."""

import pytest
from each_row import each_row

from dsa.declarations import Assign, Cancel, Emit, Revoke
from dsa.expr import Arithmetic, Boolean, Choices, Integer, Interval, Name, Not
from dsa.lang import dumps, loads, read_machine
from dsa.semantics import start


def test_document_becomes_a_machine(machine):
    made = machine()
    assert (made.name, made.initial) == ("m", "idle")
    assert [row.source for row in made.transitions] == [
        "idle",
        "work.writing",
        "work.judging",
        "work.judging",
        "work.judging",
        "work",
    ]
    assert start(made).values == (False, 0, "red")
    assert made.values_of == {
        "done": Choices((False, True)),
        "retries": Interval(0, 3),
        "colour": Choices(("red", "green")),
    }
    assert made.transitions[2].updates == (Assign("done", Boolean(value=True)), Assign("retries", Integer(0)))
    assert made.transitions[5].effects == (Cancel(None), Emit("log"))
    assert made.transitions[4].is_else
    assert made.transitions[5].duration_ms == 30_000


def test_every_row_has_the_places_of_its_line_and_cells(machine):
    row = machine().transitions[3]
    assert row.span.line == 42
    place = row.span_of("if")
    assert place.text[place.column - 1 : place.end - 1] == "g.failed and retries < rmax"
    assert row.span_of("nothing") == row.span


@each_row(
    ("text", "code"),
    [
        ("", "DSA101"),
        ("## Transitions\n|source|event|target|\n|-|-|-|\n|a|b|c|\n", "DSA101"),
        ("# two words\n## Transitions\n|source|event|target|\n|-|-|-|\n|a|b|c|\n", "DSA101"),
        ("# m\n# n\n## Transitions\n|source|event|target|\n|-|-|-|\n|a|b|c|\n", "DSA101"),
        ("# m\n", "DSA102"),
        ("# m\n## Transitions\n", "DSA102"),
        ("# m\n## Transitions\n|source|event|target|\n|-|-|-|\n", "DSA102"),
        ("# m\nMachine: other.md\n", "DSA111"),
        (
            "# m\n## Steps\n|step|guard|\n|-|-|\n|a|g|\n\n## Transitions\n|source|event|target|\n|-|-|-|\n|a|b|c|\n",
            "DSA111",
        ),
    ],
)
def test_missing_or_surplus_parts_of_a_document_are_reported(text, code):
    assert code in {finding.code for finding in read_machine(text).diagnostics}


SMALL = "# m\n## Transitions\n| source | event | target |\n|-|-|-|\n| a | go | b |\n| b | go | a |\n"


def test_rows_declare_states_events_and_effects_when_tables_are_missing():
    machine = loads(
        SMALL.replace("target |\n|-", "target | effects |\n|-|-")
        .replace("b |\n", "b | e, f |\n", 1)
        .replace("| a |\n", "| a | f |\n")
    )
    assert [(state.name, state.kind) for state in machine.states] == [("a", "initial"), ("b", "")]
    assert [event.name for event in machine.events] == ["go"]
    assert machine.events[0].span.line == 5
    assert [effect.name for effect in machine.effects] == ["e", "f"]


@each_row(
    "text",
    [
        SMALL.replace("| source | event | target |", "| target | source | event |").replace("| a | go | b |", "| b | a | go |").replace("| b | go | a |", "| a | b | go |"),
        SMALL.replace("source", "`Source`").replace("target", "**target**"),
        SMALL.replace("| a | go | b |", "| `a` | `go` | `b` |"),
        SMALL.replace("|-|-|-|\n", "|-|-|-|-|\n").replace("target |", "target | note |").replace("b |\n", "b | free \\| (text |\n", 1).replace("| a |\n", "| a | |\n"),
        SMALL.replace("\n| b | go", "\n\n## Transitions: second part\n| source | event | target |\n|-|-|-|\n| b | go"),
        SMALL.replace("\n| b | go", "\n\nprose\n\n### Back\n| source | event | target |\n|-|-|-|\n| b | go"),
        SMALL.replace("\n", "\r\n"),
        SMALL.replace("## Transitions", "Transitions\n---\n"),
        SMALL.replace("## Transitions", "##   TRANSITIONS   ##"),
        SMALL.rstrip(),
        "\ufeff" + SMALL,
        "before\n\n" + SMALL + "\n## Notes\nprose\n",
    ],
    ids=["order", "header", "backticks", "note", "parts", "tables", "crlf", "underlined", "case", "no last line end", "bom", "prose"],
)  # fmt: skip
def test_layout_does_not_matter(text):
    assert loads(text) == loads(SMALL)
    assert [finding.code for finding in read_machine(text).diagnostics] == []


def test_cell_may_list_sources_and_events():
    machine = loads(SMALL.replace("| a | go | b |", "| a, b | stop, after 5m | b |"))
    assert [(row.source, row.event) for row in machine.transitions][:4] == [
        ("a", "stop"), ("a", "after 5m"), ("b", "stop"), ("b", "after 5m"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("after 30s", "after 30s"),
        ("after 60s", "after 60s"),
        ("after 1500ms", "after 1500ms"),
        ("after  24h", "after 24h"),
        ("`after 30s`", "after 30s"),
        ("after\t30s", "after 30s"),
    ],
)
def test_timer_has_the_spelling_of_the_document(text, event):
    assert loads(SMALL.replace("| a | go |", f"| a | {text} |")).transitions[0].event == event


@each_row("text", ["after 30", "after", "after 0s", "after -1s", "after 1.5s", "after 30 s x", "after ٣s", "after 1w"])
def test_timer_needs_a_number_and_a_unit(text):
    (finding,) = read_machine(SMALL.replace("| a | go |", f"| a | {text} |")).diagnostics
    assert finding.code == "DSA107"
    assert "after 30s" in finding.hint


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("retries = 1; done = true", (Assign("retries", Integer(1)), Assign("done", Boolean(value=True)))),
        ("retries -= 1;", (Assign("retries", Arithmetic("-", Name("retries", "variable"), Integer(1))),)),
        ("revoke done", (Revoke("done"),)),
        ("`done = not done`", (Assign("done", Not(Name("done", "variable"))),)),
    ],
)  # fmt: skip
def test_updates_are_read(cell, expected, machine):
    found = machine(("| retries += 1              |", f"| {cell} |")).transitions[3].updates
    assert found == expected


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("retries = 1; retries = 2", "DSA208"),
        ("revoke retries", "DSA204"),
        ("retries = done", "DSA204"),
        ("retries := 1", "DSA108"),
        ("retries", "DSA108"),
        ("rmax = 1", "DSA201"),
        ("retries = g.passed", "DSA209"),
        ("retries = pending query_llm", "DSA201"),
        ("nothing = 1", "DSA201"),
    ],
)
def test_wrong_updates_are_reported(cell, code, faults):
    assert [found for found, _ in faults(("| retries += 1              |", f"| {cell} |"))] == [code]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("log, query_llm", (Emit("log"), Emit("query_llm"))),
        ("cancel", (Cancel(),)),
        ("cancel query_llm, log", (Cancel("query_llm"), Emit("log"))),
        ("`log`", (Emit("log"),)),
    ],
)
def test_effects_are_read(cell, expected, machine):
    assert machine(("| log           | over", f"| {cell} | over")).transitions[2].effects == expected


@pytest.mark.parametrize(
    ("cell", "condition", "is_else"),
    [
        ("", Boolean(value=True), False),
        ("else", Boolean(value=True), True),
        ("else and done", Name("done", "variable"), True),
        ("`else`", Boolean(value=True), True),
    ],
)
def test_conditions_are_read(cell, condition, is_else, machine):
    row = machine(("| else                        |", f"| {cell} |")).transitions[4]
    assert (row.condition, row.is_else) == (condition, is_else)


@pytest.mark.parametrize("cell", ["else or done", "done and else", "else done", "not else", "else and", "(else)"])
def test_else_must_be_the_whole_cell_or_come_first(cell, faults):
    assert [code for code, _ in faults(("| else                        |", f"| {cell} |"))] == ["DSA108"]


def test_state_may_be_written_by_its_last_part_and_a_full_name_wins():
    states = "# m\n## States\n|state|kind|\n|-|-|\n|draft|initial|\n|a|\n|a.draft|initial|\n|a.open||\n## Transitions\n|source|event|target|\n|-|-|-|\n"
    states = states.replace("|a|\n", "|a||\n")
    machine = loads(states + "|draft|go|open|\n|open|go|draft|\n|a.draft|go|a|\n")
    assert [(row.source, row.target) for row in machine.transitions] == [
        ("draft", "a.open"),
        ("a.open", "draft"),
        ("a.draft", "a"),
    ]


def test_ambiguous_last_part_of_a_state_is_reported():
    text = "# m\n## States\n|state|kind|\n|-|-|\n|i|initial|\n|a.x|initial|\n|b.x|initial|\n## Transitions\n|source|event|target|\n|-|-|-|\n|i|go|x|\n"
    (finding,) = read_machine(text).diagnostics
    assert (finding.code, finding.message, finding.hint) == ("DSA201", "'x' may be a.x or b.x", "write the full name")


def test_name_of_event_and_last_part_of_state_is_the_event_in_a_property():
    text = "# m\n## States\n|state|kind|\n|-|-|\n|i|initial|\n|a.x|initial|\n## Transitions\n|source|event|target|\n|-|-|-|\n|i|x|a|\n## Properties\n- never x\n"
    machine = loads(text)
    assert machine.properties[0].form.condition == Name("x", "event")
    assert loads(dumps(machine)) == machine


def test_failure_is_an_event_only_if_the_effect_has_answers(machine, faults):
    row = "| work    | after 30s     |"
    assert machine((row, "| work    | query_llm.failed |")).transitions[5].event == "query_llm.failed"
    assert faults((row, "| work    | log.failed |")) == [("DSA201", "log.failed")]
    text = (
        SMALL.replace("|-|-|-|", "|-|-|-|-|")
        .replace("target |", "target | effects |")
        .replace("b |\n", "b | e |\n", 1)
        .replace("| b | go | a |", "| b | e.failed | a | |")
    )
    assert [finding.code for finding in read_machine(text).diagnostics] == ["DSA201"]


def test_verdicts_of_a_guard_can_be_restricted(machine, faults):
    guards = (
        "| guard | judges  | is    |\n| ----- | ------- | ----- |\n| g     | verdict | cases |",
        "| guard | judges  | verdicts |\n| ----- | ------- | ----- |\n| g     | verdict | failed, passed |",
    )
    assert machine(guards).guards[0].outcomes == ("passed", "failed")
    assert faults(guards, ("g.passed ", "g.fatal ")) == [("DSA201", "g.fatal")]
    assert faults((guards[0], guards[1].replace("passed |", "pased |")))[0] == ("DSA107", "pased")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("| idle | |\n| work.reading | initial |", "both marked as the initial state of 'work'"),
        ("| idle         | initial |\n| other | initial |", "both marked as the initial state"),
        ("| idle         | initial |\n| over.x | |", "state 'over' is final, but has child states"),
    ],
)
def test_second_initial_state_and_final_state_with_children_are_reported(state, message, dual):
    (finding,) = read_machine(dual.replace("| idle         | initial |", state)).diagnostics
    assert finding.code == "DSA206"
    assert message in finding.message


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        ("| over    | specification | | | | idle |", "DSA207", "over"),
        ("| =       | specification | | | | idle |", "DSA207", "="),
        ("| idle    | specification | | | | * |", "DSA207", "*"),
        ("| idle    | ,             | | | | over |", "DSA106", ","),
        ("| `       | specification | | | | over |", "DSA106", "`"),
    ],
)
def test_impossible_rows_are_reported(row, code, text, faults):
    end = "| cancel, log   | over    |\n"
    assert faults((end, end + row + "\n")) == [(code, text)]


def test_each_name_has_only_one_meaning(faults):
    assert (
        faults(("| verdict       | execute_guard |", "| verdict       | execute_guard |\n| retries       | outside |"))[
            0
        ][0]
        == "DSA202"
    )
    assert faults(("{red, green}", "{red, idle, verdict, log}"), ("colour = green", "colour = red")) == []
    assert [code for code, _ in faults(("{red, green}", "{red, retries}"), ("colour = green", "colour = red"))] == [
        "DSA202"
    ]
    assert [code for code, _ in faults(("{red, green}", "{red, g.passed}"), ("colour = green", "colour = red"))] == [
        "DSA202"
    ]
    shared = (
        "| colour   | environment | {red, green} | red     |",
        "| colour   | environment | {red, green} | red     |\n| other | | {red, green} | red |",
    )
    assert faults(shared) == []


def test_table_of_effects_must_be_complete(faults):
    table = "## Effects\n| effect | kind | in doubt | time limit | retries |\n|-|-|-|-|-|\n| query_llm | sensing | retry | 30s | 2 |\n| execute_guard | internal | ask | | |\n"
    found = faults(("## States", table + "\n## States"))
    assert {code for code, _ in found} == {"DSA201"}
    assert {text for _, text in found} == {"log"}


def test_options_are_read_as_pairs(machine, faults):
    def options(text):
        return (
            "| is    |\n| ----- | ------- | ----- |\n| g     | verdict | cases |",
            f"| options |\n| ----- | ------- | ----- |\n| g     | verdict | {text} |",
        )

    assert machine(options("k = 2; of = a, b, c")).guards[0].options == (("k", "2"), ("of", "a, b, c"))
    assert machine(options("`path = a=b.py`")).guards[0].options == (("path", "a=b.py"),)
    assert faults(options("k = 2; of")) == [("DSA107", "of")]
    assert faults(options("`k 2`")) == [("DSA107", "k 2")]
    assert faults(options("k = 2; k = 3")) == [("DSA202", "k = 3")]


def test_table_of_states_without_an_initial_state_is_reported(faults):
    assert faults(
        ("| idle         | initial |", "| idle         |         |"),
        ("| work.writing | initial |", "| work.writing |         |"),
    )[0] == ("DSA206", "States")


@pytest.mark.parametrize("effects", ["bus.cancel", "cancel bus.cancel", "after.all, log"])
def test_reserved_word_in_the_name_of_an_undeclared_effect_is_reported(effects):
    text = f"# m\n## Events\n| event | from |\n| - | - |\n| go | outside |\n## Transitions\n| source | event | effects | target |\n| - | - | - | - |\n| a | go | {effects} | b |\n"
    reading = read_machine(text, "m.md")
    assert reading.machine is None
    assert [(found.code, "is a reserved word" in found.hint) for found in reading.diagnostics] == [("DSA107", True)]
