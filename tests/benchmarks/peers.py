"""The dual-state machine as users of other libraries would write it; each gives a function `work(events) -> events`.

All take the same events: `artifact` and a failed `verdict` in turn, with so large a bound that retries never end.
"""

from collections.abc import Callable
from typing import Any, Protocol

RMAX = 10**9
Work = Callable[[], int]


def by_hand(events: int) -> Work:
    """An if/elif function that returns the new state, retries and effects."""

    def step(state: str, retries: int, event: str, verdict: str | None) -> tuple[str, int, tuple[str, ...]]:
        if state == "generating":
            if event == "artifact":
                return "validating", retries, ("execute_guard",)
        elif state == "validating":
            if event == "verdict":
                if verdict == "passed":
                    return "succeeded", 0, ("advance_state", "reply_to_user")
                if verdict == "failed" and retries < RMAX:
                    return "generating", retries + 1, ("refine_context", "query_llm")
                if verdict == "fatal":
                    return "escalated", retries, ("escalate_to_user",)
                return "failed", retries, ("refine_context", "reply_failure")
        elif state == "idle" and event == "specification":
            return "generating", 0, ("query_llm",)
        raise ValueError(event)

    def work() -> int:
        state, retries, _ = step("idle", 0, "specification", None)
        for _ in range(events // 2):
            state, retries, _ = step(state, retries, "artifact", None)
            state, retries, _ = step(state, retries, "verdict", "failed")
        return events

    return work


def automat(events: int) -> Work:
    """Automat's typed builder. It has no guards: the caller chooses the input."""
    from automat import TypeMachineBuilder

    class Memory:
        retries = 0

    class Inputs(Protocol):
        def artifact(self) -> tuple[str, ...]: ...
        def failed(self) -> tuple[str, ...]: ...

    builder = TypeMachineBuilder(Inputs, Memory)
    generating, validating = builder.state("generating"), builder.state("validating")
    generating.upon(Inputs.artifact).to(validating).returns(("execute_guard",))

    @validating.upon(Inputs.failed).to(generating)
    def refine(inputs: Inputs, memory: Memory) -> tuple[str, ...]:
        memory.retries += 1
        return ("refine_context", "query_llm")

    new = builder.build()

    def work() -> int:
        agent = new(Memory())
        for _ in range(events // 2):
            agent.artifact()
            agent.failed()
        return events

    return work


def transitions(events: int) -> Work:
    """transitions, one machine for one model."""
    from transitions import Machine

    class Agent:
        retries, said = 0, ""

        def may_retry(self) -> bool:
            return self.said == "failed" and self.retries < RMAX

        def has_passed(self) -> bool:
            return self.said == "passed"

        def retry(self) -> None:
            self.retries += 1

    def work() -> int:
        agent: Any = Agent()
        Machine(
            agent,
            states=["generating", "validating", "succeeded", "failed"],
            transitions=[
                {"trigger": "artifact", "source": "generating", "dest": "validating"},
                {"trigger": "verdict", "source": "validating", "dest": "succeeded", "conditions": "has_passed"},
                {
                    "trigger": "verdict",
                    "source": "validating",
                    "dest": "generating",
                    "conditions": "may_retry",
                    "after": "retry",
                },
                {"trigger": "verdict", "source": "validating", "dest": "failed"},
            ],
            initial="generating",
        )
        agent.said = "failed"
        for _ in range(events // 2):
            agent.artifact()
            agent.verdict()
        return events

    return work


def python_statemachine(events: int) -> Work:
    """python-statemachine's StateChart with conditions and actions as methods."""
    from statemachine import State, StateChart

    class Agent(StateChart):
        generating = State(initial=True)
        validating = State()
        succeeded = State(final=True)
        failed = State(final=True)
        artifact = generating.to(validating)
        verdict = (
            validating.to(succeeded, cond="has_passed")
            | validating.to(generating, cond="may_retry", on="retry")
            | validating.to(failed)
        )
        retries, said = 0, "failed"

        def has_passed(self) -> bool:
            return self.said == "passed"

        def may_retry(self) -> bool:
            return self.said == "failed" and self.retries < RMAX

        def retry(self) -> None:
            self.retries += 1

    def work() -> int:
        agent = Agent()
        for _ in range(events // 2):
            agent.send("artifact")
            agent.send("verdict")
        return events

    return work


def sismic(events: int) -> Work:
    """sismic, from its YAML."""
    from sismic.interpreter import Interpreter
    from sismic.io import import_from_yaml

    chart = import_from_yaml(
        """
statechart:
  name: dual_state
  preamble: retries = 0
  root state:
    name: root
    initial: generating
    states:
      - name: generating
        transitions:
          - event: artifact
            target: validating
      - name: validating
        transitions:
          - event: verdict
            guard: event.said == 'failed' and retries < 10**9
            target: generating
            action: retries = retries + 1
          - event: verdict
            guard: event.said == 'passed'
            target: succeeded
      - name: succeeded
        type: final
"""
    )

    def work() -> int:
        running = Interpreter(chart)
        running.execute()
        for _ in range(events // 2):
            running.queue("artifact").execute()
            running.queue("verdict", said="failed").execute()
        return events

    return work
