"""What stands behind the names of the coding machine's table."""

from dsa.runtime.content import GuardInterface
from dsa.runtime.policies import Policy
from machines.coding import guards as judged
from machines.coding.parts import work_apart
from machines.coding.policies import advance, ask_approval, ask_model, decompose, next_call, probe, run_tool
from machines.coding.telling import telling

#: A budget of the whole run stops only these: what an answer of the model has asked for is still done, and the work pauses.
spenders = ("decompose", "ask_model", "work_apart")
effects: dict[str, Policy] = {
    "decompose": decompose,
    "probe": probe,
    "ask_model": ask_model,
    "next_call": next_call,
    "run_tool": run_tool,
    "advance": advance,
    "work_apart": work_apart,
    "ask_approval": ask_approval,
    **telling,
}
guards: dict[str, GuardInterface] = judged.guards
