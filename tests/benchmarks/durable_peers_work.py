"""The same durable work as users of each engine write it; run as a program: ENGINE STATE WARM_UP N FOLDER.

generate -> validate -> (generate | done), N transitions in all, each of which gives a text of 300 characters. STATE is `fixed` (it has the last
texts) or `growing` (it has all of them). The peers' parts import nothing of this project, so that the peers' interpreter runs them. Prints a
JSON object: processor and wall seconds of N transitions after WARM_UP others, their fsyncs (null when they are not counted), bytes of all that is
left.
"""

import asyncio
import ctypes
import gc
import json
import operator
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

TEXT = "t" * 300
#: Makes that number of transitions in a run of that name.
Work = Callable[[str, int], None]

MACHINE = """# loop

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 1..    | 1       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| attempts | 0..most | 1       |

## Events
| event         | from     |
| ------------- | -------- |
| specification | outside  |
| artifact      | generate |
| rejected      | validate |

## States
| state      | kind    |
| ---------- | ------- |
| idle       | initial |
| generating |         |
| validating |         |
| done       | final   |

## Transitions
| source     | event         | if              | update        | effects  | target     |
| ---------- | ------------- | --------------- | ------------- | -------- | ---------- |
| idle       | specification |                 |               | generate | generating |
| generating | artifact      |                 |               | validate | validating |
| validating | rejected      | attempts < most | attempts += 1 | generate | generating |
| validating | rejected      | else            |               |          | done       |
"""


@contextmanager
def dsa(folder: Path, *, growing: bool) -> Iterator[Work]:
    """Runs in a folder: result, event, row and intent in one commit. All texts lie in the ledger anyway."""
    from dsa import Bindings, open_runs
    from dsa.lang import loads
    from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step

    @answering("artifact", is_eager=True)  # like the functions of the others, it waits for nothing
    async def generate(action: Action, _: PolicyContext) -> list[Step]:
        return [event_step(action.policy, "artifact", data=TEXT)]

    @answering("rejected", is_eager=True)
    async def validate(action: Action, _: PolicyContext) -> list[Step]:
        return [event_step(action.policy, "rejected", data=TEXT)]

    binding, machine = Bindings({"generate": generate, "validate": validate}), loads(MACHINE)

    def work(name: str, transitions: int) -> None:
        async def whole() -> None:
            async with open_runs(folder) as runs:
                handle = await runs.start(machine.at(most=transitions // 2), bindings=binding, run_id=name)
                rest = await handle.rest()
            assert (rest.kind, rest.run.seq) == ("finished", transitions + 1)

        asyncio.run(whole())

    yield work


@contextmanager
def langgraph(folder: Path, *, growing: bool) -> Iterator[Work]:
    """LangGraph's StateGraph with SqliteSaver, and the durability that its documentation calls sync."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    class Fixed(TypedDict):
        most: int
        attempts: int
        text: str
        feedback: str

    class Growing(Fixed):
        texts: Annotated[list[str], operator.add]

    def generate(state: Fixed) -> dict[str, Any]:
        return {"attempts": state["attempts"] + 1, "text": TEXT, **({"texts": [TEXT]} if growing else {})}

    def validate(_: Fixed) -> dict[str, Any]:
        return {"feedback": TEXT, **({"texts": [TEXT]} if growing else {})}

    def route(state: Fixed) -> str:
        return "generate" if state["attempts"] < state["most"] else END

    graph = StateGraph(Growing if growing else Fixed)
    graph.add_node("generate", generate)
    graph.add_node("validate", validate)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "validate")
    graph.add_conditional_edges("validate", route)
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        app = graph.compile(checkpointer=saver)

        def work(name: str, transitions: int) -> None:
            begun = {"most": transitions // 2, "attempts": 0, "text": "", "feedback": ""}
            config = {"configurable": {"thread_id": name}, "recursion_limit": transitions + 1}
            ended = app.invoke(begun, config, durability="sync")
            assert ended["attempts"] == transitions // 2

        yield work


@contextmanager
def burr(folder: Path, *, growing: bool) -> Iterator[Work]:
    """Burr's application with its SQLite persister, saved after each action."""
    from burr.core import ApplicationBuilder, State, action, default, expr
    from burr.core.persistence import SQLitePersister

    @action(reads=["attempts", "texts"], writes=["attempts", "text", "texts"])
    def generate(state: State) -> State:
        texts = [*state["texts"], TEXT] if growing else []
        return state.update(attempts=state["attempts"] + 1, text=TEXT, texts=texts)

    @action(reads=["texts"], writes=["feedback", "texts"])
    def validate(state: State) -> State:
        return state.update(feedback=TEXT, texts=[*state["texts"], TEXT] if growing else [])

    @action(reads=[], writes=[])
    def done(state: State) -> State:
        return state

    persister = SQLitePersister.from_values(db_path=str(folder / "burr.db"), table_name="burr_state")
    persister.initialize()

    def work(name: str, transitions: int) -> None:
        app = (
            ApplicationBuilder()
            .with_actions(generate=generate, validate=validate, done=done)
            .with_transitions(
                ("generate", "validate"),
                ("validate", "generate", expr("attempts < most")),
                ("validate", "done", default),
            )
            .with_state(most=transitions // 2, attempts=0, text="", feedback="", texts=[])
            .with_entrypoint("generate")
            .with_identifiers(app_id=name)
            .with_state_persister(persister)
            .build()
        )
        _, _, state = app.run(halt_before=["done"])
        assert state["attempts"] == transitions // 2

    yield work
    persister.connection.close()


def fsyncs() -> int:
    """Return how many fsyncs the library of `tests/crash/faults.c` has counted in this process; AttributeError when it is not there."""
    count: Any = ctypes.CDLL(None).faults_seen
    count.restype = ctypes.c_long
    return int(count())


def count_fsyncs() -> bool:
    """Have all fsyncs counted from now on, if the library is there."""
    process: Any = ctypes.CDLL(None)
    if hasattr(process, "faults_arm"):
        process.faults_arm(b"", 2, 0, ctypes.c_long(0), 0)
    return hasattr(process, "faults_arm")


def measured(engine: str, warm_up: int, transitions: int, folder: Path, *, growing: bool) -> dict[str, Any]:
    """Do the work, and say what it took and left."""
    with ENGINES[engine](folder, growing=growing) as work:
        if warm_up:
            work("warm-up", warm_up)
        gc.collect()
        counts = count_fsyncs()
        wall_s, processor_s = time.perf_counter(), time.process_time()
        work("measured", transitions)
        processor_s, wall_s = time.process_time() - processor_s, time.perf_counter() - wall_s
        made = fsyncs() if counts else None
    left = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"processor_s": processor_s, "wall_s": wall_s, "fsyncs": made, "bytes": left}


ENGINES = {"dsa": dsa, "LangGraph": langgraph, "Burr": burr}

if __name__ == "__main__":
    engine, state, warm_up, transitions, folder = sys.argv[1:]
    took = measured(engine, int(warm_up), int(transitions), Path(folder), growing=state == "growing")
    print(json.dumps(took))
