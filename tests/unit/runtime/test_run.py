import attrs
import pytest
from each_row import each_row

from dsa.errors import OccurrenceError
from dsa.lang import loads
from dsa.machine import step_of
from dsa.runtime.ledger import (
    ArtifactEntry,
    EffectEntry,
    EventEntry,
    GuardVerdict,
    RefusalEntry,
    RowEntry,
    VerdictEntry,
    dump_line,
    load_lines,
)
from dsa.runtime.run import ArmTimer, DropTimer, Intent, ReplayError, StopEffect, begin, oldest_key, replay
from dsa.semantics import Occurrence

LOOP = """# loop
## Parameters
| parameter | domain | default |
| - | - | - |
| rmax | 0.. | 1 |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| sigma | workflow | bool | false |
| retries | environment | 0..rmax | 0 |
## Events
| event | from |
| - | - |
| specification | outside |
| again | outside |
| artifact | query_llm |
| verdict | execute_guard |
## Guards
| guard | judges |
| - | - |
| g | verdict |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | specification | | | query_llm | generating |
| generating | artifact | | | execute_guard | validating |
| generating | again | | | cancel query_llm, query_llm | generating |
| validating | verdict | g.passed | sigma = true; retries = 0 | note, done | passed |
| validating | verdict | g.failed and retries < rmax | retries += 1 | query_llm | generating |
| validating | verdict | else | | | stuck |
| passed, stuck | specification | | revoke sigma; retries = 0 | query_llm | generating |
"""

MACHINE = loads(LOOP)


def artifact(run, name, key="k", step="g"):
    attempt = run.step(step).attempts + 1
    return run.record(ArtifactEntry(key, step, attempt, name, "digest"))


def verdict(run, name, outcome, feedback="", step="g"):
    said = (GuardVerdict("g", outcome, feedback),)
    return run.record(VerdictEntry("k", step, run.step(step).attempts, name, said))


def attempt(run, name, outcome, feedback=""):
    """Take a run through one attempt."""
    run = artifact(run, name)
    run, _ = run.feed(Occurrence("artifact"))
    run = verdict(run, name, outcome, feedback)
    return run.feed(Occurrence("verdict", {"g": outcome}))[0]


def started(data="Psi"):
    run, commands = begin(MACHINE, "r", digest="abc")
    assert commands == ()
    return run.feed(Occurrence("specification", data=data))


def test_effects_have_stable_keys_and_the_line_of_their_row():
    run, commands = started()
    line = next(row.span.line for row in MACHINE.transitions if row.source == "idle")
    assert commands == (Intent("1/1", "query_llm", "specification", line, "idle", "generating"),)
    assert run.keys == {"1/1": "query_llm"}
    assert list(run.ledger)[1:] == [
        EventEntry(1, "specification", data="Psi"),
        RowEntry(line, "idle", "generating"),
        EffectEntry("1/1", "query_llm"),
    ]


def test_effects_without_answers_have_keys_but_are_not_outstanding():
    run, _ = started()
    run, _ = run.feed(Occurrence("artifact"))
    run, commands = run.feed(Occurrence("verdict", {"g": "passed"}))
    assert [command.key for command in commands] == ["3/1", "3/2"]
    assert run.keys == {}


def test_answer_under_another_key_is_late_and_changes_nothing():
    first, _ = started()
    second, commands = first.feed(Occurrence("again"))
    assert commands[0] == StopEffect("1/1", "query_llm")
    assert commands[1].key == "2/1"
    late, nothing = second.feed(Occurrence("artifact"), "1/1")
    assert nothing == ()
    assert late.configuration == second.configuration
    assert late.keys == second.keys
    assert late.ledger[-1] == RefusalEntry("late", "1/1 is not outstanding", ("again", "artifact"))
    taken, _ = late.feed(Occurrence("artifact"), "2/1")
    assert taken.configuration.state == "validating"


PAIR = loads("""# pair
## Events
| event | from |
| - | - |
| go | outside |
| left_done | left |
| right_done | right |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | left, right, cancel left, left | = |
| idle | left_done | | = |
| idle | right_done | | = |
""")


def test_answer_with_the_key_of_another_effect_is_late():
    run, _ = begin(PAIR, "r")
    run, _ = run.feed(Occurrence("go"))
    run, _ = run.feed(Occurrence("left_done"), oldest_key(run.keys, "right"))
    assert run.ledger[-1].reason == "late"
    run, _ = run.feed(Occurrence("right_done"), oldest_key(run.keys, "right"))
    assert not isinstance(run.ledger[-1], RefusalEntry)


def test_effect_cancelled_by_its_own_row_never_starts():
    run, _ = begin(PAIR, "r")
    run, commands = run.feed(Occurrence("go"))
    assert [command.key for command in commands] == ["1/2", "1/3"]
    assert run.keys == {"1/2": "right", "1/3": "left"}


def test_refusal_is_recorded_and_changes_nothing_else():
    run, _ = begin(MACHINE, "r")
    refused, commands = run.feed(Occurrence("again"))
    assert commands == ()
    assert refused.configuration == run.configuration
    assert refused.ledger[-1].reason == "invalid_state"
    assert refused.ledger[-1].accepted == ("specification",)


def test_malformed_occurrence_raises_and_leaves_no_trace():
    run, _ = started()
    with pytest.raises(OccurrenceError):
        run.feed(Occurrence("gossip"))
    assert len(run.ledger) == 4


def test_history_has_every_rejection_even_the_last_and_fatal_one():
    run, _ = started()
    run = attempt(run, "a1", "failed", "no")
    assert run.configuration.state == "generating"
    run = attempt(run, "a2", "fatal", "never")
    assert run.configuration.state == "stuck"
    assert [(r.artifact_id, r.outcome, r.feedback) for r in run.step("g").history] == [
        ("a1", "failed", "no"),
        ("a2", "fatal", "never"),
    ]
    assert run.step("g").attempts == 2
    assert run.step("g").accepted is None


def test_new_execution_starts_with_an_empty_history():
    run, _ = started()
    run = attempt(attempt(run, "a1", "failed", "no"), "a2", "failed", "no")
    run, _ = run.feed(Occurrence("specification", data="other"))
    assert len(run.step("g").history) == 0
    assert run.specification == "other"
    assert run.step("g").attempts == 2


def test_row_that_sets_workflow_state_accepts_the_newest_artifact():
    run, _ = started()
    run = attempt(attempt(run, "a1", "failed", "no"), "a2", "passed")
    assert run.sigma == {"sigma": True}
    assert run.step("g").accepted == "a2"
    assert len(run.step("g").history) == 0
    assert run.ledger[-3].accepted == (("g", "a2"),)
    assert run.ledger[-3].changed == (("sigma", True), ("retries", 0))


def test_revoked_artifact_is_not_accepted_any_more():
    run, _ = started()
    run = attempt(run, "a1", "passed")
    run, _ = run.feed(Occurrence("specification", data="more"))
    assert run.sigma == {"sigma": False}
    assert run.step("g").accepted is None


def test_run_is_rebuilt_by_folding_its_ledger():
    run, _ = started()
    run = attempt(run, "a1", "failed", "no")
    run, _ = run.feed(Occurrence("again"))
    run, _ = run.feed(Occurrence("verdict", {"g": "passed"}))  # refused
    run = attempt(run, "a2", "passed")
    text = "\n".join(dump_line(entry) for entry in run.ledger)
    assert replay(MACHINE, load_lines(text)) == run


def test_ledger_of_another_table_is_refused_at_the_entry_that_differs():
    run, _ = started()
    run = attempt(run, "a1", "failed", "no")
    rows = [attrs.evolve(r, target="stuck") if r.target == "passed" else r for r in MACHINE.transitions]
    assert replay(attrs.evolve(MACHINE, transitions=tuple(rows)), run.ledger).configuration == run.configuration
    rows = [attrs.evolve(r, target="passed") if r.event == "artifact" else r for r in MACHINE.transitions]
    with pytest.raises(ReplayError) as caught:
        replay(attrs.evolve(MACHINE, transitions=tuple(rows)), run.ledger)
    assert isinstance(run.ledger[caught.value.position], RowEntry)


def test_ledger_with_missing_or_extra_entries_is_refused():
    run, _ = started()
    for broken in ([], list(run.ledger)[1:], [*run.ledger, run.ledger[2]]):
        with pytest.raises(ReplayError):
            replay(MACHINE, broken)


TIMED = loads("""# timed
## Events
| event | from |
| - | - |
| go | outside |
| back | outside |
| stay | outside |
| same | outside |
| up | outside |
| out | outside |
## States
| state | kind |
| - | - |
| idle | initial |
| work | |
| work.a | initial |
| work.b | |
| over | final |
## Transitions
| source | event | target |
| - | - | - |
| idle | go | work |
| idle | after 5s | work |
| work.a | go | work.b |
| work.b | back | work.a |
| work.a | stay | = |
| work.a | same | work.a |
| work | up | work |
| work | out | over |
| work | after 1m | = |
| work.a | after 100ms | work.a |
| work.b | after 2s | = |
| * | after 1h | over |
""")

IDLE, A, B = ("idle", "after 5s"), ("work.a", "after 100ms"), ("work.b", "after 2s")
WORK, ANY = ("work", "after 1m"), ("*", "after 1h")
DURATIONS = {IDLE: 5_000, A: 100, B: 2_000, WORK: 60_000, ANY: 3_600_000}


def armed(*timers):
    return {ArmTimer(*timer, DURATIONS[timer]) for timer in timers}


def dropped(*timers):
    return {DropTimer(*timer) for timer in timers}


def timers_after(*events):
    """Return the timer commands of the last of these events."""
    run, commands = begin(TIMED, "r")
    for event in events:
        timer = {"IDLE": IDLE, "A": A, "B": B, "WORK": WORK, "ANY": ANY}.get(event)
        occurrence = Occurrence(timer[1], source=timer[0]) if timer else Occurrence(event)
        run, commands = run.feed(occurrence)
        assert not isinstance(run.ledger[-1], RefusalEntry), event
    return set(commands)


@each_row(
    ("events", "expected"),
    [
        ((), armed(IDLE, ANY)),
        (("go",), dropped(IDLE) | armed(WORK, A)),
        (("go", "go"), dropped(A) | armed(B)),
        (("go", "stay"), set()),
        (("go", "same"), dropped(A) | armed(A)),
        (("go", "up"), dropped(A) | armed(A)),
        (("go", "go", "up"), dropped(B) | armed(A)),
        (("go", "A"), dropped(A) | armed(A)),
        (("go", "A", "WORK"), armed(WORK)),
        (("go", "go", "B"), armed(B)),
        (("go", "out"), dropped(A, WORK, ANY)),
        (("go", "ANY"), dropped(A, WORK, ANY)),
        (("IDLE",), dropped(IDLE) | armed(WORK, A)),
    ],
)
def test_timers_follow_the_states(events, expected):
    """S11: armed on entering, dropped on leaving, started again when the row does not leave."""
    assert timers_after(*events) == expected


def test_step_in_progress_is_named_by_the_last_part_of_the_state():
    assert step_of(MACHINE, "validating") == "g"
    assert step_of(MACHINE, "work.drafting") == "g"  # states may be nested for other reasons
    two = attrs.evolve(MACHINE, guards=(*MACHINE.guards, attrs.evolve(MACHINE.guards[0], name="h")))
    assert step_of(two, "validating") == "loop"
    assert step_of(two, "generating.h") == "h"
