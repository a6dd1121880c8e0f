"""Documents with steps, and the machines that they expand to."""

import pytest
from each_row import each_row

from dsa.declarations import Guard, Prompt
from dsa.expr import unparse
from dsa.lang import dumps, loads, read_machine, spell_out
from dsa.semantics import Occurrence, Refusal, start, step

CHAIN = """# w

## Steps
| step | requires | guard      | uses     | rmax | task                 | optional |
| ---- | -------- | ---------- | -------- | ---- | -------------------- | -------- |
| plan |          | syntax     |          | 1    | Plan {specification} |          |
| code | plan     | lint, test | p = plan |      | Follow {p}           |          |
"""
CHOOSING = CHAIN.replace("| code | plan     |", "| code | not plan |")


def run(machine, *percepts):
    """Take a step for each percept, `event` or `event guard.verdict`; return the last state and effects."""
    configuration, effects = start(machine), ()
    for percept in percepts:
        event, _, said = percept.partition(" ")
        taken = step(machine, configuration, Occurrence(event, dict([said.split(".")]) if said else {}))
        if isinstance(taken, Refusal):
            return taken.reason, ()
        configuration, effects = taken.configuration, taken.effects
    return configuration.state, effects


def value(machine, name, *percepts):
    configuration = start(machine)
    for percept in percepts:
        event, _, said = percept.partition(" ")
        configuration = step(
            machine, configuration, Occurrence(event, dict([said.split(".")]) if said else {})
        ).configuration
    return dict(zip([variable.name for variable in machine.variables], configuration.values, strict=True))[name]


def codes(text):
    return [finding.code for finding in read_machine(text).diagnostics]


PLAN = ("specification", "artifact", "verdict plan.passed")


def test_list_of_earlier_steps_makes_a_chain():
    machine = loads(CHAIN)
    assert "choosing" not in machine.state_named
    assert run(machine, "specification") == ("generating.plan", ("query_llm",))
    assert run(machine, "specification", "artifact") == ("validating.plan", ("execute_guard",))
    assert run(machine, *PLAN) == ("generating.code", ("advance_state", "query_llm"))
    assert run(machine, *PLAN, "artifact", "verdict code.passed") == ("succeeded", ("advance_state", "reply_to_user"))


def test_step_declares_its_variables_its_bound_and_its_guard():
    machine = loads(CHAIN)
    assert {p.name: p.default for p in machine.parameters} == {"rmax.plan": 1, "rmax.code": 3, "grants": 1}
    assert {v.name: v.scope for v in machine.variables} == {
        "sigma.plan": "workflow", "sigma.code": "workflow", "retries.plan": "environment", "retries.code": "environment", "grants_used": "environment",
    }  # fmt: skip
    assert machine.guards == (
        Guard("plan", ("verdict",), "syntax"),
        Guard("code", ("verdict",), "in_order", (("of", "lint, test"),)),
    )
    assert machine.at(rmax=7).constants == {"rmax.plan": 7, "rmax.code": 7, "grants": 1}


def test_failed_step_is_retried_until_its_retries_are_used_up():
    machine = loads(CHAIN)
    once = ("specification", "artifact", "verdict plan.failed")
    assert run(machine, *once) == ("generating.plan", ("refine_context", "query_llm"))
    assert value(machine, "retries.plan", *once) == 1
    assert run(machine, *once, "artifact", "verdict plan.failed") == ("failed", ("refine_context", "reply_failure"))
    assert value(machine, "retries.plan", *once, "artifact", "verdict plan.passed") == 0


def test_fatal_step_waits_for_a_person():
    machine = loads(CHAIN)
    fatal = ("specification", "artifact", "verdict plan.fatal")
    assert run(machine, *fatal) == ("escalated.plan", ("escalate_to_user",))
    assert run(machine, *fatal, "approved") == ("generating.code", ("advance_state", "query_llm"))
    assert value(machine, "sigma.plan", *fatal, "approved") is True
    assert run(machine, *fatal, "amended") == ("validating.plan", ("execute_guard",))
    assert run(machine, *fatal, "rejected") == ("generating.plan", ("refine_context", "query_llm"))
    assert run(machine, *fatal, "rejected", "artifact", "verdict plan.fatal", "rejected")[0] == "failed"
    assert run(machine, *fatal, "aborted") == ("failed", ("reply_failure",))
    assert run(machine, *fatal, "granted") == ("generating.plan", ("query_llm",))
    again = (*fatal, "rejected", "artifact", "verdict plan.fatal", "granted")
    assert value(machine, "retries.plan", *again) == 0
    assert run(machine, *again, "artifact", "verdict plan.fatal", "granted") == (
        "escalated.plan",
        ("escalate_to_user",),
    )


def test_optional_step_is_skipped_when_its_retries_are_used_up():
    machine = loads(
        CHAIN.replace("{specification} |          |", "{specification} | yes      |")
        .replace("| code | plan     |", "| code |          |")
        .replace("p = plan", "        ")
        .replace("{p}", "it")
    )
    lost = ("specification", "artifact", "verdict plan.failed", "artifact", "verdict plan.failed")
    assert run(machine, *lost) == ("generating.code", ("refine_context", "query_llm"))
    assert value(machine, "sigma.plan", *lost) is False


def test_requirements_other_than_a_chain_use_the_state_choosing():
    machine = loads(CHOOSING)
    assert run(machine, "specification") == ("choosing", ("advance_state",))
    assert run(machine, "specification", "advanced") == ("generating.plan", ("query_llm",))
    passed = ("specification", "advanced", "artifact", "verdict plan.passed")
    assert run(machine, *passed) == ("choosing", ("advance_state",))
    assert run(machine, *passed, "advanced") == ("failed", ("reply_precondition_not_met",))


@pytest.mark.parametrize("changed", [("| code | plan     |", "| code | plan, plan |"), ("| plan |          |", "| plan | code     |"), ("code | plan     |", "code | plan and plan |")])  # fmt: skip
def test_only_lists_of_earlier_steps_make_a_chain(changed):
    reading = read_machine(CHAIN.replace(*changed))
    if reading.machine is not None:
        assert ("choosing" in reading.machine.state_named) == ("and" in changed[1])


def test_step_that_requires_a_later_one_is_chosen_after_it():
    swapped = (
        CHAIN.replace("| plan |          |", "| plan | code     |")
        .replace("| code | plan     | lint, test | p = plan |", "| code |          | lint, test |          |")
        .replace("{p}", "it")
    )
    machine = loads(swapped)
    assert run(machine, "specification", "advanced") == ("generating.code", ("query_llm",))


def test_goal_ends_the_workflow_early():
    machine = loads(CHAIN + "\nGoal: plan or code\n")
    assert unparse(machine.goal) == "plan or code"
    passed = ("specification", "advanced", "artifact", "verdict plan.passed")
    assert run(machine, *passed, "advanced") == ("succeeded", ("reply_to_user",))


@pytest.mark.parametrize(
    ("line", "result"),
    [("", None), ("Result: plan\n", "plan"), ("Goal: plan or code\nResult: `plan`\n", "plan")],
)
def test_result_is_the_named_step(line, result):
    machine = loads(f"{CHAIN}\n{line}")
    assert machine.result == result
    assert loads(dumps(machine)) == machine
    assert spell_out(machine).result is None


def test_result_before_the_sections_is_read_too():
    assert loads(CHAIN.replace("## Steps", "Result: plan\n\n## Steps")).result == "plan"


def test_result_does_not_change_the_rows():
    assert loads(CHAIN + "\nResult: plan\n").transitions == loads(CHAIN).transitions


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Result: plna", "DSA214"),
        ("Result:", "DSA107"),
        ("Result: plan, code", "DSA107"),
        ("Result: plan or code", "DSA107"),
    ],
)
def test_fault_of_the_result_is_one_finding(line, code):
    assert codes(f"{CHAIN}\n{line}\n") == [code]


def test_choice_of_the_next_step_is_never_ambiguous():
    machine = loads(CHAIN.replace("| code | plan     |", "| code | plan or not plan |") + "\nGoal: code\n")
    for passed in ((), ("verdict plan.passed",)):
        percepts = ("specification", "advanced", *(("artifact", *passed) if passed else ()))
        state = run(machine, *percepts, *(("advanced",) if passed else ()))[0]
        assert state in {"generating.plan", "generating.code"}


@each_row(
    ("old", "new", "code"),
    [
        ("| code | plan     |", "| code | plna     |", "DSA214"),
        ("| code | plan     |", "| code | code     |", "DSA214"),
        ("| code | plan     |", "| code | not code |", "DSA214"),
        ("| code | plan     |", "| code | plan or |", "DSA108"),
        ("| code | plan     |", "| code | plan > 1 |", "DSA204"),
        ("p = plan", "p = plna", "DSA214"),
        ("p = plan", "p = code", "DSA214"),
        ("p = plan", "p", "DSA107"),
        ("{p}", "{q}", "DSA112"),
        ("{specification}", "{p}", "DSA112"),
        ("| 1    |", "| -1   |", "DSA107"),
        ("| 1    |", "| many |", "DSA107"),
        ("| syntax     |", "|            |", "DSA106"),
        ("| code | plan     |", "| a.b  | plan     |", "DSA203"),
        ("| code | plan     |", "| in   | plan     |", "DSA203"),
        ("| code | plan     |", "| code | plan     | x |", "DSA105"),
        ("| optional |", "| opt |", "DSA103"),
        ("{p}           |          |", "{p} | maybe |", "DSA107"),
    ],
)
def test_one_fault_in_a_step_is_one_finding(old, new, code):
    assert old in CHAIN
    assert codes(CHAIN.replace(old, new, 1)) == [code]


def test_step_declared_twice_is_one_finding():
    assert codes(CHAIN + CHAIN.splitlines()[-1] + "\n") == ["DSA202"]


def test_steps_that_wait_for_each_other_are_reported():
    assert codes(CHAIN.replace("| plan |          |", "| plan | code     |")) == ["DSA214", "DSA214"]


@pytest.mark.parametrize("kind", ["Variables", "Events", "States", "Transitions"])
def test_tables_that_steps_define_cannot_be_declared_beside_them(kind):
    assert codes(CHAIN + f"\n## {kind}\n| a |\n| - |\n| b |\n") == ["DSA111"]


def test_cases_feed_the_guard_of_their_step():
    text = (
        CHAIN.replace("| syntax     |", "|            |")
        + "\n## Cases: plan\n| call | expected |\n| - | - |\n| f(1) | [1, 'a'] |\n"
    )
    machine = loads(text)
    assert machine.steps[0].guards == ("cases",)
    assert machine.cases[0].cases[0].expected == "[1, 'a']"


def test_prompt_of_a_step_may_use_the_names_in_its_column_uses():
    prompt = "\n## Prompt: {}\n### Task\n```\nFollow {{p}} and {{{{x}}}}\n```\n### Feedback\n```\nIt said {{feedback}}\n```\n"
    machine = loads(CHAIN + prompt.format("code"))
    assert machine.prompts == (Prompt("code", task="Follow {p} and {{x}}", feedback="It said {feedback}"),)
    assert codes(CHAIN + prompt.format("plan")) == ["DSA112"]
    assert sorted(codes(CHAIN + prompt.format("cde"))) == ["DSA112", "DSA201"]


@pytest.mark.parametrize("text", [CHAIN, CHOOSING, CHAIN + "\nGoal: plan or code\n\nResult: plan\n"])
def test_expanded_steps_are_a_complete_document(text):
    machine = loads(text)
    assert loads(dumps(machine)) == machine
    whole = spell_out(machine)
    assert (whole.steps, whole.goal, whole.result) == ((), None, None)
    assert loads(dumps(whole)) == whole
    assert spell_out(whole) is whole


def test_bound_may_be_declared_among_the_parameters():
    machine = loads(
        CHAIN
        + "\n## Parameters\n| parameter | domain | default |\n| - | - | - |\n| rmax.plan | 0..5 | 2 |\n| budget | 0.. | 9 |\n"
    )
    assert machine.constants == {"rmax.plan": 2, "rmax.code": 3, "grants": 1, "budget": 9}
    assert loads(dumps(machine)) == machine


@pytest.mark.parametrize("cell", ["`b`", "b   `", "`b  ` ", "` b`"])
def test_backtick_around_or_beside_a_name_does_not_stop_the_reading(cell):
    reading = read_machine(
        f"# m\n\n## Steps\n| step | guard | uses |\n| - | - | - |\n| a | syntax | |\n| {cell} | syntax | a |\n"
    )
    said = [(found.code, found.span.line) for found in reading.diagnostics if found.severity == "error"]
    assert said == [] or {line for _, line in said} == {7}
    if reading.machine is not None:
        assert [step.name for step in reading.machine.steps] == ["a", "b"]
