"""What stands behind the names of the chat machine's table."""

from dsa.runtime.content import GuardInterface
from dsa.runtime.policies import Policy
from machines.chat import guards as judged
from machines.chat.policies import ask_model, next_call, run_python, run_sql
from machines.chat.telling import telling

#: A budget of the whole conversation stops only this: what an answer of the model has asked for is still done.
spenders = ("ask_model",)
effects: dict[str, Policy] = {
    "ask_model": ask_model,
    "next_call": next_call,
    "run_sql": run_sql,
    "run_python": run_python,
    **telling,
}
guards: dict[str, GuardInterface] = judged.guards
