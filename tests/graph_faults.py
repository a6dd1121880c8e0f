"""A program for the peers' interpreter: gives LangGraph or Burr workflows with one fault each, and prints what became of them as a JSON object.

It imports nothing of this project. The faults are those of README's table; the words are README's too.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, TypedDict

RMAX = 3


def outcome_of(build: Callable[[], Callable[[], str]]) -> str:
    """Return what became of a workflow: refused, stopped by an exception, or what its run says."""
    try:
        run = build()
    except Exception as error:  # noqa: BLE001  (whatever refuses it)
        return f"rejected: {type(error).__name__}"
    try:
        return run()
    except Exception as error:  # noqa: BLE001  (whatever it raises is the result)
        return f"`{type(error).__name__}` at run time"


class Counted(TypedDict):
    n: int


def langgraph() -> dict[str, str]:
    from langgraph.graph import END, START, StateGraph

    def graph_of(route: Callable[[Counted], str] | None, *, lost: bool = False) -> Callable[[], Callable[[], str]]:
        def build() -> Callable[[], str]:
            builder = StateGraph(Counted)
            builder.add_node("work", lambda state: {"n": state["n"] + 1})
            builder.add_edge(START, "work")
            if route is None:
                builder.add_edge("work", END)
            else:
                builder.add_conditional_edges("work", route, {"passed": END, "failed": "work"})
            if lost:
                builder.add_node("lost", lambda _state: {})
                builder.add_edge("lost", END)
            graph = builder.compile()
            return lambda: _passed_bound(graph.invoke({"n": 0})["n"])

        return build

    return {
        "a state nothing leads to": outcome_of(graph_of(None, lost=True)),
        "an outcome that no branch handles": outcome_of(graph_of(lambda _state: "fatal")),
        "a retry counter that passes its bound": outcome_of(
            graph_of(lambda state: "failed" if state["n"] <= RMAX else "passed")
        ),
        "a loop without a counter": outcome_of(graph_of(lambda _state: "failed")),
    }


def burr() -> dict[str, str]:
    from burr.core import ApplicationBuilder, State, action, default, expr, when

    @action(reads=[], writes=["n"])
    def work(state: State) -> State:
        return state.update(n=state["n"] + 1)

    @action(reads=[], writes=[])
    def done(state: State) -> State:
        return state

    @action(reads=[], writes=[])
    def other(state: State) -> State:
        return state

    def application_of(*transitions: tuple[Any, ...], **more: Any) -> Callable[[], Callable[[], str]]:
        def build() -> Callable[[], str]:
            builder = ApplicationBuilder().with_actions(work=work, done=done, **more).with_transitions(*transitions)
            application = builder.with_state(n=0).with_entrypoint("work").build()

            def run() -> str:
                last, _, state = application.run(halt_after=["done", *more])
                if last.name == "work":
                    return "accepted; the run returns without having moved"
                return _passed_bound(state["n"]) if "other" not in more else f"accepted, {last.name} is taken"

            return run

        return build

    both = (("work", "done", expr("n > 0")), ("work", "other", expr("n < 9")))
    return {
        "a state nothing leads to": outcome_of(application_of(("work", "done"), ("lost", "done"), lost=other)),
        "an outcome that no branch handles": outcome_of(application_of(("work", "done", when(n=5)))),
        "two branches true at once": outcome_of(application_of(*both, other=other)).replace(
            "done is taken", "first one wins"
        ),
        "a retry counter that passes its bound": outcome_of(
            application_of(("work", "work", expr(f"n <= {RMAX}")), ("work", "done", default))
        ),
    }


def _passed_bound(n: int) -> str:
    """Return what a run that was let through says: one attempt, or one retry more than the bound."""
    return "not checked" if n > RMAX else "accepted"


if __name__ == "__main__":
    print(json.dumps({"LangGraph": langgraph, "Burr": burr}[sys.argv[1]]()))
