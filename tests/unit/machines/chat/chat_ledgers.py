"""Ledgers of conversations, written by hand or drawn at random, entry by entry as the chat machine writes them, and the facts that a fold of one gives.

`Told` writes; `lives` draws ledgers in which anything may happen that the table allows, with refused events in between.
"""

import attrs
from hypothesis import strategies as st

from dsa.runtime.ledger import EffectEntry, EventEntry, RefusalEntry, ResultEntry, RowEntry
from machines.chat.conversation import ChatCall, ChatConversation, ChatResult, NewArtifact, conversation_of
from machines.tool_use.records import as_data, read_record
from machines.tool_use.tool_call import ModelAnswer, fault_result


class Told:
    """A ledger that grows. `entries` are its entries, `requests` its lengths when the model was asked."""

    def __init__(self):
        self.entries = []
        self.requests = []
        self._seq = 0
        self._read = ChatConversation()
        self._begun = set()

    @property
    def conversation(self):
        return conversation_of(self.entries)

    @property
    def so_far(self):
        """The conversation so far; quick when asked often while the ledger grows."""
        self._read.take(self.entries[self._read.count :])
        return self._read

    def happens(self, event, data=None, **verdicts):
        """An event that is taken."""
        self._arrives(event, data, verdicts)
        self.entries.append(RowEntry(1, "resting.completed", "working.planning"))
        return self

    def refuses(self, event, data=None, reason="invalid_state", **verdicts):
        """An event that is refused."""
        self._arrives(event, data, verdicts)
        self.entries.append(RefusalEntry(reason, "not now"))
        return self

    def _arrives(self, event, data, verdicts):
        self._seq += 1
        self.entries.append(EventEntry(self._seq, event, verdicts, data=data, at_ms=1_700_000_000_000 + self._seq))

    def asks(self):
        """The model is about to be asked."""
        self.entries.append(EffectEntry(f"{self._seq}/1", "ask_model"))
        self.requests.append(len(self.entries))
        return self

    def says(self, text, *, rerun=False):
        """The user says something."""
        return self.happens("message", {"text": text, "rerun": rerun}).asks()

    def asked(self, *calls, content=""):
        """The model asks for calls: pairs of id and tool, or triples with the provider's id."""
        queued = [
            {"id": call[0], "provider_id": call[-1] if len(call) == 3 else call[0], "name": call[1], "arguments": {}}
            for call in calls
        ]
        return self.happens("asked", answer(content, calls=queued))

    def calls(self, call_id, tool="run_sql", text="SELECT 1", **more):
        """The first queued call is taken."""
        event = {"run_sql": "sql_call", "run_python": "python_call", "": "unknown_call"}[tool]
        call = {"call_id": call_id, "tool": tool, "text": text, "digest": f"d-{text}", **more}
        return self.happens(event, as_recorded(ChatCall, call))

    def begins(self, call_id, tool="run_sql"):
        """The call that was taken begins."""
        self._begun.add(call_id)
        self.entries.append(EffectEntry(f"{self._seq}/1", tool))
        return self

    def holds(self):
        """The call that was taken goes back into the queue."""
        self.entries.append(EffectEntry(f"{self._seq}/1", "hold_call"))
        return self

    def came(self, call_id, event="sql_done", artifacts=(), new="passed", **more):
        """A call has a result; it began right after it was taken, unless it had begun before."""
        if call_id not in self._begun:
            self.begins(call_id, f"run_{event.partition('_')[0]}")
        data = {
            "call_id": call_id,
            "result": {"columns": ["n"], "rows": [[1]], "row_count": 1},
            "artifacts": list(artifacts),
        }
        if event == "sql_done":
            data |= {"intent": intent("cars"), "table": table("t")}
        verdicts = {"new": new} if event.endswith("done") else {}
        return self.happens(event, as_recorded(ChatResult, {**data, **more}), **verdicts)

    def told(self, reason, results=None, **more):
        """An effect without answers has reported a reason."""
        payload = {"text": f"because of {reason}", "reason": reason, "results": results or {}, **more}
        step = {"actor": "effect", "type": "text", "payload": payload}
        self.entries.append(ResultEntry(f"{self._seq}/1", (step,)))
        return self

    def skips(self, call_id, reason):
        """A call was not made."""
        return self.told(reason, {call_id: fault_result(call_id, reason, "no").content})


def answer(content="", **more):
    """The data of an answer of the model."""
    return as_recorded(ModelAnswer, {"content": content, "model": "m", **more})


def as_recorded(kind, data):
    """Return data of an event as the machine writes them, without default values."""
    return as_data(read_record(kind, data))


def intent(*datasets):
    """Return the summary of an SQL result about these datasets."""
    nothing = {"columns": [], "columns_left_out": 0, "dimensions": [], "measures": [], "row_count": 0, "time_scope": []}
    return {"datasets": list(datasets), **nothing}


def table(digest):
    """Return a result of SQL as Python reads it."""
    return {"digest": digest, "columns": [], "types": []}


def facts(conversation):
    """Return all that a conversation says, as plain values."""
    read = conversation
    said = read.transcript
    counted = (read.retry_count, read.retry_successes, said.answers, read.reasons, said.rescues, read.tools)
    return {
        "turns": [attrs.asdict(turn) for turn in read.turns],
        "artifacts": [attrs.asdict(artifact) for artifact in read.inventory],
        "names": {name: read.inventory.by_name(name) for name in ("a.csv", "b.png", "c.pdf")},
        "queue": list(said.queue),
        "current": None if said.current is None else attrs.asdict(said.current),
        "running": [call.call_id for call in read.running_calls],
        "results": (list(read.intents), read.latest_table),
        "counted": tuple(dict(each) if isinstance(each, dict) else each for each in counted),
        "waiting": said.open_ids(),
        "earlier": [read.earlier(f"d-{text}") for text in TEXTS] if read.turns else [],
        "ids": [said.free_id(f"c{number}") for number in range(4)],
    }


TEXTS = ("SELECT 1", "SELECT 2", "print(1)")
_REFUSED = ("duplicate_tool_call_skipped", "invalid_tool_payload", "unknown_tool", "invalid_state")
_ENDS = ("answered", "cut_off", "cancelled", "limit", "failed", "hangs")


@st.composite
def lives(draw, most_turns=4):
    """Draw the ledger of a conversation; it may end anywhere."""
    told = Told()
    for number in range(draw(st.integers(1, most_turns))):
        told.says(f"turn {number}", rerun=draw(st.booleans()))
        for _ in range(draw(st.integers(0, 3))):
            _round(draw, told)
        _end(draw, told)
        if draw(st.booleans()):
            told.refuses(
                draw(st.sampled_from(["retried", "sql_done", "answered", "message"])), {"text": "?", "result": 1}
            )
    told.entries = told.entries[: draw(st.integers(0, len(told.entries)))] if draw(st.booleans()) else told.entries
    return told


def _round(draw, told):
    """Have the model ask for calls, and each of them happen."""
    known = told.so_far
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        provider_id = draw(st.sampled_from(["c0", "c1"]))
        name = known.transcript.free_id(provider_id, [call[0] for call in calls])
        calls.append((name, draw(st.sampled_from(["run_sql", "run_python", "sing"])), provider_id))
    told.asked(*calls, content=draw(st.sampled_from(["", "Let me see."])))
    running = []
    for name, tool, _ in calls:
        if tool == "run_python":  # it waits for all SQL before it
            while any(each == "run_sql" for _, each in running):
                if draw(st.booleans()):
                    told.calls(name, tool, "print(1)", rescues=["fence"]).holds()
                _result(draw, told, running)
        if _begin(draw, told, name, "" if tool == "sing" else tool):
            running.append((name, tool))
        if running and draw(st.booleans()):
            _result(draw, told, running)
    while running:
        _result(draw, told, running)
    told.happens("no_more_calls").asks()


def _begin(draw, told, name, tool):
    """Take a call, and return whether it begins."""
    text = draw(st.sampled_from(TEXTS if tool else [""]))
    earlier = told.so_far.earlier(f"d-{text}")
    more = {} if earlier is None else {"earlier": attrs.asdict(earlier)}
    told.calls(name, tool, text, rescues=draw(st.sampled_from([[], ["fence"]])), **more)
    if tool and draw(st.integers(0, 2)):
        told.begins(name, tool)
        return True
    guided = tool == "run_python" and draw(st.booleans())
    told.skips(name, "empty_python_payload_retried" if guided else draw(st.sampled_from(_REFUSED)))
    return False


def _result(draw, told, running):
    """Have one of the running calls end."""
    name, tool = running.pop(draw(st.integers(0, len(running) - 1)))
    what = draw(st.sampled_from(["done", "failed"]))
    event = f"{tool.removeprefix('run_')}_{what}"
    if what == "failed":
        told.came(name, event, result=fault_result(name, "sql_error", "no such column").content)
        return
    made = told.so_far.inventory.compare(draw(st.lists(things, max_size=3)))
    is_new = all(each.equal_to is None for each in made)
    told.came(name, event, as_data(made), "passed" if is_new else "failed")
    if not is_new:
        told.told("duplicate_artifact_prevented")


def _end(draw, told):
    """Have the turn end in one of the ways in which it can, or not at all."""
    end = draw(st.sampled_from(_ENDS))
    if end == "answered":
        told.happens("answered", answer("Done.", rescues={"changed_id": 1})).happens("presented", {"artifacts": []})
    elif end == "cut_off":
        told.happens("cut_off", answer(draw(st.sampled_from(["", "I was"])), why="it broke off"))
        told.told("answer_cut_off", note="[Say it again.]").asks()
    elif end == "failed":
        told.happens("cut_off", answer("I was", why="it broke off")).told("limit_reached", drops=True)
        told.happens("retried").asks()
    elif end in {"cancelled", "limit"}:
        told.asked(("x", "run_sql"), ("y", "run_sql"))
        waiting = told.so_far.transcript.open_ids()
        results = {name: fault_result(name, "interrupted", "stopped").content for name in waiting}
        told.told("turn_cancelled", results, drops=True)
    else:
        name = told.so_far.transcript.free_id("c0")
        told.asked((name, "run_sql", "c0")).calls(name)


things = st.builds(
    NewArtifact,
    name=st.sampled_from(["a.csv", "b.png", "c.pdf"]),
    kind=st.just("csv"),
    digest=st.sampled_from([f"content {number}" for number in range(4)]),
    size_bytes=st.just(10),
    logical_key=st.sampled_from(["sql:1", "python:b.png:-"]),
)
