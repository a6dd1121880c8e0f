import importlib
import re
from pathlib import Path

import attrs
import pytest

from dsa.runtime.policy.policies import (
    Action,
    Step,
    action_call_step,
    action_result_step,
    answering,
    approval_step,
    error_step,
    event_step,
    is_approved,
    text_step,
)


def test_actions_compare_by_value_and_can_be_keys():
    one, same = Action("p", {"a": 1, "b": [2]}, frozenset({"x"})), Action("p", {"b": [2], "a": 1}, frozenset({"x"}))
    assert one == same
    assert {one: "found"}[same] == "found"
    assert one != Action("p", {"a": 1}, frozenset({"x"}))


def test_payload_cannot_be_changed():
    given = {"list": [1]}
    action = Action("p", given)
    given["list"].append(2)
    action.payload["list"].append(3)
    assert action.payload == {"list": [1]}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        action.policy = "q"


@pytest.mark.parametrize(
    "payload", [{"a": object()}, {"a": {1, 2}}, {"a": float("nan")}, {1: "a"}, {"a": [{"b": ({None: 1},)}]}]
)
def test_non_json_payload_is_refused(payload):
    with pytest.raises((TypeError, ValueError)):
        Action("p", payload)
    with pytest.raises((TypeError, ValueError)):
        Step("1", "a", "text", payload)


@pytest.mark.parametrize(
    ("policy", "index"), [("look[3]", 3), ("look[north]", "north"), ("look", None), ("look[a.b]", "a.b")]
)
def test_action_of_a_family_has_its_index(policy, index):
    assert Action(policy).index == index


def test_canonical_shapes_of_events_errors_and_texts():
    assert event_step("execute_guard", "verdict", verdicts={"g": "failed"}, data={"artifact_id": "1"}).to_json() == {
        "id": "",
        "actor": "execute_guard",
        "type": "event",
        "payload": {"event": "verdict", "verdicts": {"g": "failed"}, "data": {"artifact_id": "1"}},
    }
    assert error_step("p", "NOT_FOUND", "gone").payload == {"error": True, "code": "NOT_FOUND", "message": "gone"}
    assert text_step("p", "hello", about={"step": "g"}).payload == {"text": "hello", "step": "g"}


def test_canonical_shapes_of_calls():
    pay = Action("pay", {"amount": 1})
    assert action_call_step("assistant", pay, step_id="7").to_json() == {
        "id": "7",
        "actor": "assistant",
        "type": "action_call",
        "payload": {"policy": "pay", "payload": {"amount": 1}, "digest": pay.digest},
    }
    assert action_result_step("pay", {"paid": True}).to_json() == {
        "id": "",
        "actor": "pay",
        "type": "action_result",
        "payload": {"paid": True},
    }


def test_steps_survive_json_and_equal_steps_have_equal_lines():
    step, other = text_step("a", "x", about={"b": 1, "a": 2}), text_step("a", "x", about={"a": 2, "b": 1})
    assert Step(**step.to_json()) == step
    assert step.canonical() == other.canonical()
    assert step.canonical() != Step("", "a", "text", {"text": "x"}).canonical()


def test_digest_of_an_action_covers_policy_payload_and_allowed_actions():
    action = Action("p", {"a": 1}, frozenset({"x", "y"}))
    assert action.digest == Action("p", {"a": 1}, frozenset({"y", "x"})).digest
    others = [Action("q", {"a": 1}, action.actions), Action("p", {"a": 2}, action.actions), Action("p", {"a": 1})]
    assert action.digest not in {other.digest for other in others}


def test_approval_releases_only_the_call_it_names_langgraph_8026():
    """In LangGraph an approval is bound only to its place, so that the approval of 1 releases 82000 (langgraph#8026)."""
    small, large = Action("pay", {"amount": 1}), Action("pay", {"amount": 82_000})
    said = [approval_step("person", small.digest)]
    assert is_approved(small, said)
    assert not is_approved(large, said)
    assert not is_approved(Action("refund", {"amount": 1}), said)
    assert not is_approved(Action("pay", {"amount": 1}, frozenset({"shell"})), said)


def test_last_decision_on_a_call_counts_and_other_steps_are_not_approvals():
    pay = Action("pay", {"amount": 1})
    yes, no = approval_step("person", pay.digest), approval_step("person", pay.digest, approve=False, text="why?")
    assert not is_approved(pay, [])
    assert not is_approved(pay, [yes, no])
    assert is_approved(pay, [no, yes, approval_step("person", "another", approve=False)])
    assert not is_approved(pay, [text_step("person", "yes", about={"digest": pay.digest, "approved": True})])
    assert not is_approved(pay, [Step("", "person", "approval", {"digest": pay.digest, "approved": "no"})])


def test_policy_can_declare_its_answers():
    @answering("done", "not_done")
    async def policy(_action, _context):
        return []

    assert policy.answers == {"done", "not_done"}


def test_public_names_are_where_the_page_says():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "policies.md").read_text("utf-8")
    rows = re.findall(r"^\| `(dsa\.[a-z_.]+)` +\| (.*) +\|$", page, re.MULTILINE)
    named = {name: module for module, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert all(hasattr(importlib.import_module(module), name) for name, module in named.items())
    assert set(named) >= {
        "Policy", "Action", "Step", "Ledger", "Registry", "loop_wrapper", "invoke_action", "run", "PolicyContext",
    }  # fmt: skip
