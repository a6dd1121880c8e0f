"""Prompts, cases, constraints and specs; writing and formatting whole documents."""

import warnings

import pytest

from dsa.declarations import Case, Prompt
from dsa.lang import digest, dumps, format_document, loads, machine_of, read_machine, read_spec


def codes(text):
    return [finding.code for finding in read_machine(text).diagnostics]


PROMPT = "\n## Prompt: query_llm\n### Role\n```\nYou write.\n```\n\n### Task\n~~~text\nDo {specification}\n\n```\ncode\n```\n~~~\n"


def test_prompt_has_parts_with_one_fence_each(dual):
    machine = loads(dual + PROMPT)
    assert machine.prompts == (Prompt("query_llm", role="You write.", task="Do {specification}\n\n```\ncode\n```"),)
    assert loads(dumps(machine)) == machine


@pytest.mark.parametrize(
    "text",
    [
        "### Role\nprose\n",
        "### Rolle\n```\nx\n```\n",
        "### Role\n```\nx\n```\n### Role\n```\ny\n```\n",
        "### Task\n```\n{nothing}\n```\n",
        "### Task\n```\n{specifcation}\n```\n",
        "### Task\n```\n{feedback}\n```\n",
        "### Task\n```\n```\n",
        "prose\n",
        "",
    ],
)
def test_one_fault_in_a_prompt_is_one_finding(text, dual):
    assert codes(dual + "\n## Prompt: query_llm\n" + text) == ["DSA112"]


def test_fault_in_a_prompt_is_marked_at_its_place(dual):
    (finding,) = read_machine(dual + PROMPT.replace("{specification}", "{spec}")).diagnostics
    assert finding.span.text[finding.span.column - 1 : finding.span.end - 1] == "{spec}"


@pytest.mark.parametrize("kind", ["Prompt", "Cases"])
def test_prompts_and_cases_need_one_known_owner(kind, dual):
    body = "### Task\n```\nx\n```\n" if kind == "Prompt" else "| call | expected |\n| - | - |\n| f() | 1 |\n"
    owner = "query_llm" if kind == "Prompt" else "g"
    assert codes(dual + f"\n## {kind}: {owner}\n{body}") == []
    assert codes(dual + f"\n## {kind}: nothing\n{body}") == ["DSA201"]
    assert codes(dual + f"\n## {kind}\n{body}") == ["DSA102"]
    assert codes(dual + 2 * f"\n## {kind}: {owner}\n{body}") == ["DSA202"]


def cases(call, expected):
    return f"\n## Cases: g\n| call | expected |\n| - | - |\n| {call} | {expected} |\n"


@pytest.mark.parametrize(
    ("call", "expected", "case"),
    [
        ("add(2, 3)", "5", Case("add(2, 3)", "5")),
        ("`a.b(x=1)`", "` [1, 'a'] `", Case("a.b(x=1)", "[1, 'a']")),
        (r"f('\|')", r"'a \| b'", Case("f('|')", "'a | b'")),
        (r"re('\d')", r"'\d'", Case(r"re('\d')", r"'\d'")),
        ("f(`x`)", "1", None),
        ("f()", "x", None),
        ("f", "1", None),
        ("f(", "1", None),
        ("f(" * 300 + ")" * 300, "1", None),
        ("f()", "-" * 50_000 + "1", None),
        ("f()", "9" * 5_000, None),
        ("f()", "'\ud800'", Case("f()", "'\ud800'")),
    ],
)
def test_cases_must_be_calls_with_literals(call, expected, case, dual):
    reading = read_machine(dual + cases(call, expected))
    assert [finding.code for finding in reading.diagnostics] in ([], ["DSA107"])
    if case is None or reading.machine is None:
        assert reading.machine is None
        return
    assert reading.machine.cases[0].cases == (case,)
    assert loads(dumps(reading.machine)) == reading.machine


def test_text_of_cases_causes_no_python_warning(dual):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loads(dual + cases(r"f('\d', 1 is 1)", r"'\d'"))
    assert caught == []


@pytest.mark.parametrize(
    "text", ["No network.", "    ## indented code", "- a\n\n  b", "```\nopen", "> q", "<!-- open", "a\n\n\nb  \nc"]
)
def test_constraints_are_preserved_as_written(text, dual):
    machine = loads(dual + f"\n## Constraints\n\n{text}\n")
    assert machine.constraints == text
    assert loads(dumps(machine)) == machine


def test_underlined_heading_does_not_belong_to_the_constraints(dual):
    assert loads(dual + "\nConstraints\n-----------\nNo network.\n").constraints == "No network."


def test_digest_depends_on_the_meaning_only(dual):
    assert digest(loads(dual)) == digest(loads(dual.replace("## States", "prose\n\n## States").replace("|  ", "| ")))
    assert digest(loads(dual)) != digest(loads(dual.replace("after 30s", "after 31s")))


SPEC = "# more\n\nMachine: `other.md`\n\n## Properties\n- possible over\n\n## Scenario: two\n| percept | action |\n| - | - |\n| specification | query_llm |\n"


def test_spec_adds_properties_and_scenarios_to_its_machine(dual):
    machine = loads(dual)
    name, span = machine_of(SPEC, "s.md")
    assert (name, span.line, span.column) == ("other.md", 3, 10)
    assert machine_of(dual) is None
    read = read_spec(SPEC, machine)
    assert read.diagnostics == ()
    assert len(read.machine.properties) == 3
    assert [scenario.name for scenario in read.machine.scenarios] == ["one", "two"]


def test_spec_states_how_its_machine_declares_effects_and_variables(dual):
    said = "## Effects\n| effect | in doubt | time limit |\n| - | - | - |\n| query_llm | ask | |\n\n## Variables\n| variable | domain | initial |\n| - | - | - |\n| retries | 0..rmax | 0 |\n\n## Properties"
    machine = loads(dual)
    read = read_spec(SPEC.replace("## Properties", said), machine)
    assert read.diagnostics == ()
    assert [(each.declaration.name, each.columns) for each in read.machine.spec_declarations] == [
        ("query_llm", (("in doubt", "in_doubt"),)),
        ("retries", (("domain", "domain"), ("initial", "initial"))),
    ]
    assert (read.machine.effects, read.machine.variables) == (machine.effects, machine.variables)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("possible over", "possible ober", "DSA201"),
        ("possible over", "possibly over", "DSA109"),
        ("| query_llm |", "| query_lm |", "DSA201"),
        ("## Properties", "## Guards\n| guard |\n| - |\n\n## Properties", "DSA111"),
        ("## Properties", "## Effects\n| effect |\n| - |\n| query_lm |\n\n## Properties", "DSA201"),
        (
            "## Properties",
            "## Effects\n| effect | in doubt |\n| - | - |\n| query_llm | perhaps |\n\n## Properties",
            "DSA107",
        ),
    ],
)
def test_faults_of_a_spec_are_reported(old, new, code, dual):
    read = read_spec(SPEC.replace(old, new), loads(dual), "s.md")
    assert read.machine is None
    assert [(finding.code, finding.span.path) for finding in read.diagnostics] == [(code, "s.md")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "## Transitions\n|source|if|\n|-|:-:|\n|a ,b|x+1>2|\n",
            "## Transitions\n| source | if        |\n| ------ | :-------: |\n| a, b   | x + 1 > 2 |\n",
        ),
        ("## Variables\n| initial |\n|---|\n| `1+1` |\n", "## Variables\n| initial |\n| ------- |\n| `1+1`   |\n"),
        (
            "## Transitions\n| if |\n|-|\n| else   and  x |\n| x ! y |\n",
            "## Transitions\n| if         |\n| ---------- |\n| else and x |\n| x ! y      |\n",
        ),
        ("## Transitions\n| a | b |\n|-|-|\n| 1 |\n", "## Transitions\n| a | b |\n|-|-|\n| 1 |\n"),
        ("## Other\n|a|\n|-|\n", "## Other\n|a|\n|-|\n"),
        ("## States\r\n|state|\r\n|-|\n|a|", "## States\r\n| state |\r\n| ----- |\n| a     |"),
    ],
)
def test_tables_of_the_language_are_formatted(text, expected):
    assert format_document(text) == expected
    assert format_document(expected) == expected


def test_hint_lists_as_many_values_as_fit_a_line():
    values = ", ".join(f"v{number}" for number in range(5_000))
    text = f"# m\n## Variables\n| variable | domain | initial |\n| - | - | - |\n| x | {{{values}}} | idle |\n## Transitions\n| source | event | target |\n| - | - | - |\n| a | go | a |\n"
    (finding,) = [each for each in read_machine(text).diagnostics if "'idle'" in each.message]
    assert finding.hint == "allowed here: 'v0', 'v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'v7', 'v8', 'v9', 'v10', 'v11', ..."
