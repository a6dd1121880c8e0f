import attrs
import pytest

from dsa.runtime.policies import Action, Step, answering, error_step, event_step, text_step


def test_actions_are_values_and_keys():
    one, same = Action("p", {"a": 1, "b": [2]}, frozenset({"x"})), Action("p", {"b": [2], "a": 1}, frozenset({"x"}))
    assert one == same
    assert {one: "found"}[same] == "found"
    assert one != Action("p", {"a": 1}, frozenset({"x"}))


def test_nothing_changes_a_payload():
    given = {"list": [1]}
    action = Action("p", given)
    given["list"].append(2)
    action.payload["list"].append(3)
    assert action.payload == {"list": [1]}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        action.policy = "q"


@pytest.mark.parametrize("payload", [{"a": object()}, {"a": {1, 2}}, {"a": float("nan")}])
def test_a_payload_that_is_not_json_is_refused(payload):
    with pytest.raises((TypeError, ValueError)):
        Action("p", payload)
    with pytest.raises((TypeError, ValueError)):
        Step("1", "a", "text", payload)


def test_canonical_shapes():
    assert event_step("execute_guard", "verdict", verdicts={"g": "failed"}, data={"artifact_id": "1"}).to_json() == {
        "id": "",
        "actor": "execute_guard",
        "type": "event",
        "payload": {"event": "verdict", "verdicts": {"g": "failed"}, "data": {"artifact_id": "1"}},
    }
    assert error_step("p", "NOT_FOUND", "gone").payload == {"error": True, "code": "NOT_FOUND", "message": "gone"}
    assert text_step("p", "hello", about={"step": "g"}).payload == {"text": "hello", "step": "g"}


def test_a_policy_can_say_what_it_answers():
    @answering("done", "not_done")
    async def policy(_action, _context):
        return []

    assert policy.answers == {"done", "not_done"}
