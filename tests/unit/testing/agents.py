"""A dual-state agent written by hand, as a user would write it, with faults to plant; and automata from a table, to mutate."""

import asyncio

from dsa.testing import RefusedAction, View

OFF_BY_ONE, NO_RESET, BREACH = "off by one", "retries not reset", "workflow state changed on failure"


class HandWrittenAgent:
    """An agent without a table. `fault` names its planted fault."""

    def __init__(self, max_retries, fault=""):
        self.phase, self.retries, self.satisfied = "idle", 0, False
        self.max_retries, self.fault = max_retries, fault

    async def handle(self, event, verdict):
        await asyncio.sleep(0)
        match self.phase, event:
            case "idle", "specification":
                self.phase = "generating"
                return ["query_llm"]
            case "generating", "artifact":
                self.phase = "validating"
                return ["execute_guard"]
            case "validating", "verdict":
                return {"passed": self.accept, "failed": self.refine, "fatal": self.escalate}[verdict]()
        return None

    def accept(self):
        self.phase, self.satisfied = "succeeded", True
        self.retries = self.retries if self.fault == NO_RESET else 0
        return ["advance_state", "reply_to_user"]

    def refine(self):
        if self.retries < self.max_retries + (self.fault == OFF_BY_ONE):
            self.phase, self.retries = "generating", self.retries + 1
            self.satisfied = self.fault == BREACH and self.retries == 2
            return ["refine_context", "query_llm"]
        self.phase = "failed"
        return ["refine_context", "reply_failure"]

    def escalate(self):
        self.phase = "escalated"
        return ["escalate_to_user"]


class Adapted:
    """The agent as an implementation: asynchronous, and it does not say why it refuses."""

    fault = ""

    def start(self, parameters):
        self.agent = HandWrittenAgent(parameters["rmax"], self.fault)

    async def feed(self, occurrence):
        effects = await self.agent.handle(occurrence.event, dict(occurrence.verdicts).get("g"))
        return RefusedAction() if effects is None else effects

    def view(self):
        return View(self.agent.phase, {"retries": self.agent.retries, "satisfied": self.agent.satisfied})


def adapted(fault):
    """Return the adapter of an agent with a fault."""
    return type("Faulty", (Adapted,), {"fault": fault})


class Automaton:
    """An implementation that is only a table: `moves[state][occurrence]` is (answer, state after). It shows no state or values."""

    def __init__(self, moves):
        self.moves = moves

    def start(self, parameters):
        self.state = 0

    def feed(self, occurrence):
        answer, self.state = self.moves[self.state][occurrence]
        return RefusedAction() if answer is None else answer

    def view(self):
        return View()
