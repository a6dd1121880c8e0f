"""What stands behind the names of the chat machine's table: policies, and guards.

The guards judge whether a call may be made, whether what it gave is new, and whether an answer has its files. What they need to know of the conversation stands in the event, put
there by `next_call` and by the tools.
"""

from dsa.runtime.content import GuardInterface
from dsa.runtime.policy.policies import Policy
from machines.chat.chat_notices import telling
from machines.chat.conversation import ChatCall, PresentedAnswer
from machines.chat.policies import ask_model, next_call, run_python, run_sql
from machines.tool_use.tool_agent import PASSED, FunctionGuard, Verdict, failed_for


def _usable(call: ChatCall) -> Verdict:
    """Pass a call whose SQL or code is there and compiles. Whether a column exists, the tool says."""
    return failed_for(call.fault if call.text.strip() else f"the call of {call.tool} is empty")


def _fresh(call: ChatCall) -> Verdict:
    """Pass a call unless an equal one was made in this turn, or of late and gave a result; the user may want it done again, once a turn."""
    earlier = call.earlier
    if earlier is None:
        return PASSED
    in_turn = earlier.turn == call.turn
    if not in_turn and (call.rerun or not earlier.ok):
        return PASSED
    when = "in this turn" if in_turn else f"in turn {earlier.turn}"
    return "failed", f"an equal call was made {when}: {earlier.call_id}"


def _new(made: PresentedAnswer) -> Verdict:
    """Pass what a tool made unless an artifact with equal content is there."""
    return failed_for("; ".join(f"{each.name} is {each.equal_to}" for each in made.artifacts if each.equal_to))


def _files_there(given: PresentedAnswer) -> Verdict:
    """Pass an answer that lacks no file: none that it names, and none that the user wanted."""
    return failed_for("; ".join(given.missing))


guards: dict[str, GuardInterface] = {
    "usable": FunctionGuard(ChatCall, _usable),
    "fresh": FunctionGuard(ChatCall, _fresh),
    "new": FunctionGuard(PresentedAnswer, _new),
    "files_there": FunctionGuard(PresentedAnswer, _files_there),
}
#: A budget of the whole conversation stops only this: what an answer of the model has asked for is still done.
spenders = ("ask_model",)
effects: dict[str, Policy] = {
    "ask_model": ask_model,
    "next_call": next_call,
    "run_sql": run_sql,
    "run_python": run_python,
    **telling,
}
