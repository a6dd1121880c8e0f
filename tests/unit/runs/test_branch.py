import asyncio

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.edge.git_artifacts import GitArtifacts
from dsa.errors import DsaError
from dsa.generators import FunctionGenerator
from dsa.lang import digest, loads
from dsa.runs.archive import replay_stored
from dsa.runs.runs import branch_of, copy_artifacts, length_before
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import (
    EffectEntry,
    EventEntry,
    MachineEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
)
from dsa.runtime.run import begin, oldest_key
from dsa.runtime.run_store import StoredRun
from dsa.runtime.status import unfinished_work
from dsa.semantics import Occurrence
from machines.dual_state.bindings import effects

TEXT = """# loop

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| done  | work    |

## Effects
| effect | kind     |
| ------ | -------- |
| work   | sensing  |
| note   | internal |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |

## Transitions
| source | event    | effects    | target |
| ------ | -------- | ---------- | ------ |
| idle   | go       | note, work | busy   |
| busy   | done     |            | idle   |
| busy   | after 1h | cancel     | idle   |
"""
OLD, NEW = "loop-1", "loop-2"


def recorded(moves, *, text=TEXT):
    """Record a run: `go`, with all that follows; `resumed`, the same with a resumption; `refused`, an event; `late`, a timer."""
    machine = loads(text)
    run, _ = begin(machine, OLD, digest=digest(machine), settings={"seed": 0, "about": f"{OLD}/1/1"}, at_ms=1)
    rests = [len(run.ledger)]
    for move in moves:
        if move == "refused":
            run, _ = run.feed(Occurrence("done", data=f"{OLD}/1/1"), "999/1")
        else:
            run, _ = run.feed(Occurrence("go", data={"said": OLD}), at_ms=2)
            seq = run.seq
            run = run.record(result(f"{seq}/1", "note"))
            key = oldest_key(run.keys, "work")
            if move == "resumed":
                run = run.record(ResumedEntry(effects={key: "retry"}))
            if move == "late":
                run, _ = run.feed(Occurrence("after 1h", source="busy"))
            else:
                run = run.record(result(key, "work"))
                run, _ = run.feed(Occurrence("done", data=7), key)
        rests.append(len(run.ledger))
    return StoredRun(OLD, text, run.ledger, 3, "somebody"), rests


def result(key, effect):
    return ResultEntry(key, ({"actor": effect, "type": "text", "payload": {"of": key}},))


lives = st.lists(st.sampled_from(["go", "refused", "late", "resumed"]), max_size=5)


@given(lives, st.data())
def test_branch_equals_its_original_under_another_name(moves, data):
    whole, rests = recorded(moves)
    length = data.draw(st.sampled_from(rests))
    branch = branch_of(whole, length, NEW)
    first, *others = branch.entries
    about = {"seed": 0, "about": f"{OLD}/1/1", "branched_from": {"run": OLD, "entries": length}}
    assert first == attrs.evolve(whole.entries[0], run=NEW, started=about)
    assert others == list(whole.entries[1:length])
    assert (branch.run, branch.text, branch.epoch, branch.holder) == (NEW, TEXT, 0, None)


@given(lives, st.data())
def test_branch_has_the_state_of_its_original_and_can_continue(moves, data):
    whole, rests = recorded(moves)
    length = data.draw(st.sampled_from(rests))
    run, _ = replay_stored(branch_of(whole, length, NEW))
    was, _ = replay_stored(attrs.evolve(whole, entries=type(whole.entries)(whole.entries[:length])))
    assert (run.run_id, run.configuration, run.seq, run.keys) == (NEW, was.configuration, was.seq, was.keys)
    after, (*_, intent) = run.feed(Occurrence("go", data="on"))
    assert (after.configuration.state, intent.key) == ("busy", f"{run.seq + 1}/2")


@given(lives, st.data())
def test_run_can_be_branched_only_where_it_rests(moves, data):
    whole, rests = recorded([*moves, "go"])
    length = data.draw(st.integers(1, len(whole.entries)))
    if length in rests:
        assert len(branch_of(whole, length, NEW).entries) == length
        return
    with pytest.raises(DsaError) as refused:
        branch_of(whole, length, NEW)
    assert refused.value.code == "BranchError"


@pytest.mark.parametrize("kept", [EffectEntry, "note", "work"], ids=str)
def test_branch_is_refused_while_an_effect_is_under_way(kept):
    whole, _ = recorded(["go"])
    names = [entry.steps[0]["actor"] if isinstance(entry, ResultEntry) else type(entry) for entry in whole.entries]
    length = len(names) - names[::-1].index(kept)
    with pytest.raises(DsaError, match=f"run {OLD} cannot be branched after {length} entries"):
        branch_of(whole, length, NEW)


def test_branch_between_an_event_and_its_step_is_refused():
    whole, _ = recorded(["go"])
    length = len(whole.entries) - 1
    with pytest.raises(DsaError, match=f"run {OLD} cannot be branched between entries {length} and {length + 1}"):
        branch_of(whole, length, NEW)


@pytest.mark.parametrize("length", [-1, 0, 100])
def test_length_outside_the_run_is_refused(length):
    whole, _ = recorded(["go"])
    with pytest.raises(
        DsaError, match=f"run {OLD} has {len(whole.entries)} entries; it cannot be branched after entry {length}"
    ):
        branch_of(whole, length, NEW)


def test_original_is_unchanged_by_a_branch():
    whole, rests = recorded(["go", "go"])
    before = list(whole.entries)
    branch_of(whole, rests[1], NEW)
    assert list(whole.entries) == before


def test_branch_of_a_branch_names_the_branch():
    whole, rests = recorded(["go", "go"])
    third = branch_of(branch_of(whole, rests[2], NEW), rests[1], "loop-3")
    first = third.entries[0]
    assert isinstance(first, MachineEntry)
    assert (first.run, dict(first.started)["branched_from"]) == ("loop-3", {"run": NEW, "entries": rests[1]})
    assert [entry.key for entry in third.entries if isinstance(entry, EffectEntry)] == ["1/1", "1/2"]


# -- artifacts ----------------------------------------------------------------------------------------------------------

STEPS = """# drafting

## Steps
| step | guard | rmax | task  |
| ---- | ----- | ---- | ----- |
| note | good  | 2    | Write |
"""


class Says(GuardInterface):
    """Fatal once, then passed."""

    def __init__(self):
        self.results = [GuardResult(passed=False, feedback="look", fatal=True)]

    def validate(self, artifact, **dependencies):
        return self.results.pop() if self.results else GuardResult(passed=True)


@pytest.mark.parametrize("kind", ["memory", "git"])
def test_branch_finds_copied_artifacts_by_id_and_makes_its_own(tmp_path, kind):
    machine = loads(STEPS)
    old, new = (GitArtifacts(tmp_path / "r.git", n) if kind == "git" else MemoryArtifacts() for n in (OLD, NEW))
    binding = Bindings(effects, {"note": Says()}, {"llm": FunctionGenerator(lambda _prompt: "same")})
    run, commands = begin(machine, OLD, digest=digest(machine))
    driver = Driver(run, binding, old, commands=commands)
    rested = asyncio.run(driver.drive(Occurrence("specification", data="x"))).run
    length = len(rested.ledger)
    whole = asyncio.run(driver.drive(Occurrence("rejected", data="no"))).run
    branch = branch_of(StoredRun(OLD, STEPS, whole.ledger, 0, None), length, NEW)
    copy_artifacts(branch, old, new)
    [copied] = new.attempts()
    assert copied == attrs.evolve(old.attempts()[0], verdicts=copied.verdicts)
    assert [said.outcome for said in copied.verdicts] == ["fatal"]
    run, _ = replay_stored(branch)
    rest = asyncio.run(Driver(run, binding, new, left=unfinished_work(run)).drive(Occurrence("rejected", data="no")))
    assert rest.run.outcome == "succeeded", rest
    made = new.get_artifact(rest.run.step("note").accepted)
    assert made.artifact_id.startswith(f"{NEW}/")
    assert (made.version, made.parent_id) == (2, copied.artifact_id)
    assert [each.artifact_id for each in new.get_provenance(made.artifact_id)] == [
        copied.artifact_id,
        made.artifact_id,
    ]
    assert made.artifact_id != whole.step("note").accepted


# -- where to branch ------------------------------------------------------------------------------------------------------


def test_length_before_an_event_counts_only_events_that_were_taken():
    whole, rests = recorded(["go", "refused", "go", "late"])
    assert [length_before(whole.entries, "go", number) for number in (1, 2, 3, 4)] == [
        rests[0],
        rests[2],
        rests[3],
        rests[4],
    ]


def test_refused_event_is_not_counted():
    whole, rests = recorded(["go", "refused"])
    assert isinstance(whole.entries[rests[1]], EventEntry)
    assert length_before(whole.entries, "done", 1) == rests[1] - 2
    assert length_before(whole.entries, "done", 2) == rests[2]


def test_length_before_an_event_that_never_came_is_the_whole_run():
    whole, _ = recorded(["go"])
    assert length_before(whole.entries, "never", 1) == len(whole.entries)
    assert isinstance(whole.entries[-1], RowEntry)
