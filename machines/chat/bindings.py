"""Bindings of the chat machine: the policies and guards of its table.

The guards judge whether a call may be made, whether its artifacts are new, and whether an answer has its files. They read only the event, where
`next_call` and the tools put the facts of the conversation.
"""

from dsa.runtime.content import GuardInterface
from dsa.runtime.policy.policies import Policy
from machines.chat.chat_notices import notice_effects
from machines.chat.conversation import ChatCall, PresentedAnswer
from machines.chat.policies import ask_model, next_call, run_python, run_sql
from machines.tool_use.tool_agent import PASSED, FunctionGuard, Verdict, verdict_for


def _usable(call: ChatCall) -> Verdict:
    """Pass a call with SQL or code that compiles. The tool itself reports an unknown column."""
    return verdict_for(call.fault if call.text.strip() else f"the call of {call.tool} is empty")


def _fresh(call: ChatCall) -> Verdict:
    """Pass a call unless this turn or a recent successful one had an equal call. The user may ask for a repetition, once a turn."""
    earlier = call.earlier
    if earlier is None:
        return PASSED
    in_turn = earlier.turn == call.turn
    if not in_turn and (call.rerun or not earlier.ok):
        return PASSED
    when = "in this turn" if in_turn else f"in turn {earlier.turn}"
    return "failed", f"there was an equal call {when}: {earlier.call_id}"


def _new(answer: PresentedAnswer) -> Verdict:
    """Pass new artifacts unless one with equal content exists."""
    return verdict_for("; ".join(f"{each.name} is {each.equal_to}" for each in answer.artifacts if each.equal_to))


def _files_there(answer: PresentedAnswer) -> Verdict:
    """Pass an answer if no file is missing: none that it names, and none that the user asked for."""
    return verdict_for("; ".join(answer.missing))


guards: dict[str, GuardInterface] = {
    "usable": FunctionGuard(ChatCall, _usable),
    "fresh": FunctionGuard(ChatCall, _fresh),
    "new": FunctionGuard(PresentedAnswer, _new),
    "files_there": FunctionGuard(PresentedAnswer, _files_there),
}
#: A budget of the whole conversation stops only this effect: the calls of an answer are still made.
spenders = ("ask_model",)
effects: dict[str, Policy] = {
    "ask_model": ask_model,
    "next_call": next_call,
    "run_sql": run_sql,
    "run_python": run_python,
    **notice_effects,
}
