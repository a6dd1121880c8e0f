"""The shipped chat and coding machines as they really run: real driver, policies, guards, tools and HTTP; the model and the user are drawn.

What must be true of a run is counted from its ledger and said once more, without a look at the tables. Then faults are planted in the functions that
run, and each must be found by the check that it breaks.
"""

import traceback
from functools import cache
from tempfile import TemporaryDirectory

import attrs
import chat_stories
import coding_stories
import pytest
from chat_server import Said
from coders import call, complete
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from steps_taken import require_definition_4, taken

from dsa.compiled_step import CompiledStep, compiled_step
from dsa.runtime.run import replay
from dsa.semantics import Refusal
from machines.chat.conversation import CALL_EVENTS
from machines.tool_use.tool_agent import PASSED, FunctionGuard

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
CHAT, CODING = chat_stories, coding_stories
BROKEN_OFF, REFUSED = Said("It is", finish="length"), Said("no", status=400)

# -- what is drawn ----------------------------------------------------------------------------------------------------

CHAT_SAYS = (
    CHAT.DONE, CHAT.DONE, Said("See a.png."), BROKEN_OFF, REFUSED, CHAT.calls(CHAT.SQL_CALL), CHAT.calls(CHAT.PYTHON_CALL),
    CHAT.calls(CHAT.BAD_SQL, CHAT.BAD_PYTHON), CHAT.calls(CHAT.NO_CALL, CHAT.SQL_CALL), CHAT.calls(CHAT.PYTHON_CALL, CHAT.PYTHON_CALL, CHAT.SQL_CALL),
)  # fmt: skip
CHAT_STORIES = st.builds(
    CHAT.Story,
    said=st.lists(st.sampled_from(CHAT_SAYS), min_size=1, max_size=10).map(tuple),
    does=st.lists(st.sampled_from(("message", "message", "retried", "dismissed")), max_size=3).map(lambda more: ("message", *more)),
    bounds=st.tuples(*(st.tuples(st.just(name), st.integers(least, 4)) for name, least in (("max_rounds", 1), ("max_calls", 1), ("max_refusals", 0)))),
)  # fmt: skip
PLANS = (CODING.ONE, CODING.TWO, CODING.TWO, CODING.NO_PLAN, CODING.ABSTRACT, CODING.both("write_file c.txt"))
CODING_SAYS = (
    CODING.WRITE, CODING.LOOK, CODING.GIVE_UP, complete(), complete(), CODING.WORDS, CODING.OUT, CODING.SHELL, BROKEN_OFF, REFUSED,
    CODING.calls(CODING.NOTHING, CODING.LOOKING), CODING.calls(CODING.LOOKING, CODING.LOOKING), call("write_file", path="b.txt", content="two\n"),
)  # fmt: skip
DONE = (CODING.WRITE, complete())
ANY = st.lists(st.sampled_from((DONE, DONE, *((said,) for said in CODING_SAYS))), max_size=10).map(
    lambda said: sum(said, ())
)
STUBBORN = st.sampled_from(CODING_SAYS).map(lambda said: (said,) * 8)
CODING_STORIES = st.builds(
    lambda plan, said, **more: CODING.Story((plan, *said), **more),
    plan=st.sampled_from(PLANS),
    said=ANY | STUBBORN,
    does=st.lists(st.sampled_from(("permitted", "permitted", "denied", "again")), max_size=5).map(lambda more: ("goal", *more)),
    bounds=st.tuples(*(st.tuples(st.just(name), st.integers(1, most)) for name, most in (("max_rounds", 12), ("max_turns", 8), ("max_calls", 3)))),
    mode=st.sampled_from(("full-auto", "ask", "read-only")),
    parallel=st.sampled_from((1, 2)),
)  # fmt: skip


# -- what must be true ------------------------------------------------------------------------------------------------


def require_bound(run, what, most, counts, *, until=()):
    """Check that the sum of `counts` over the steps from one of the events `until` to the next is at most `most`."""
    so_far = 0
    for step in taken(run):
        so_far = counts(step) + (0 if step.event.event in until else so_far)
        assert so_far <= most, f"{so_far} {what}, and at most {most} are allowed"


def began(*names):
    """Return what counts the effects of a step that are among these."""
    return lambda step: sum(effect in names for effect in step.effects)


def require_a_turn_is_bounded(run, bounds):
    """Check that the answers, calls and refusals of a turn stay within the bounds."""
    turn = ("message", "retried")
    made = lambda step: step.event.event in CALL_EVENTS and not {"drop_calls", "hold_call"}.intersection(step.effects)  # noqa: E731
    refused = began("skip_duplicate", "refuse_call", "refuse_state", "note_cut_off")
    require_bound(run, "answers", bounds["max_rounds"], began("ask_model"), until=turn)
    require_bound(run, "calls", bounds["max_calls"], made, until=turn)
    require_bound(run, "refusals", bounds["max_refusals"], refused, until=turn)


def require_what_was_delivered(run):
    """An answer is delivered where it names no file that is not there, and until the next message."""
    answer, delivered = "", False
    for step in taken(run):
        event = step.event
        answer = event.data.get("content") or "" if event.event == "answered" else answer
        if event.event in {"message", "presented"}:
            delivered = event.event == "presented" and "a.png" not in answer
        now = step.after["delivered"]
        assert now == delivered, f"delivered = {now} after {event.event}, and the answer is {answer!r}"


def require_the_work_is_bounded(run, bounds):
    """Check that the answers of the goal and of each subtask, and the calls of an answer, stay within the bounds; answers that never came do not count."""
    turns = lambda step: ("ask_model" in step.effects) - (step.event.event == "ask_model.failed")  # noqa: E731
    rounds = lambda step: turns(step) + (step.event.event == "apart" and "work_apart" in step.effects)  # noqa: E731
    require_bound(run, "rounds", bounds["max_rounds"], rounds)
    require_bound(run, "turns", bounds["max_turns"], turns, until=("next_subtask",))
    require_bound(run, "calls", bounds["max_calls"], began("run_tool"), until=("probed",))


def require_evidence(run):
    """A subtask is kept as completed only if a tool gave a result in it, and no longer than until the next one."""
    shown = False
    for step in taken(run):
        if step.event.event in {"next_subtask", "apart"}:
            shown = False
        shown = shown or step.event.event == "tool_done"
        assert shown or not step.after["completed"], (
            f"{step.event} left a subtask completed that no tool had a result in"
        )


def require_leave(run, mode):
    """Check that a tool runs only after every guard passed its call or a person permitted it; a tool that writes runs without a person's permission only in mode full-auto."""
    for step in taken(run):
        if "run_tool" not in step.effects:
            continue
        event = step.event
        said = {outcome for guard, outcome in event.verdicts if guard != "beside"}  # whether it may run beside others
        assert event.event == "permitted" or said == {"passed"}, f"{event} ran a tool"
        writes = event.event == "tool_call" and event.data["tool"] == "write_file"
        assert not writes or mode == "full-auto", f"{event} wrote in mode {mode} without asking a person"


def require_escalation(run):
    """The fifth of equal calls ends the work, and after a fatal verdict nothing more is done."""
    steps = taken(run)
    written = [
        step.event.data["arguments"]
        for step in steps
        if step.event.event == "tool_call" and step.event.data["tool"] == "write_file"
    ]
    fatal = [position for position, step in enumerate(steps) if dict(step.event.verdicts).get("not_looping") == "fatal"]
    assert fatal in ([], [len(steps) - 1]), "the work went on after a fatal verdict"
    most = max(map(written.count, written), default=0)
    assert most < 5 or fatal, f"{most} equal calls, and the work went on"


# -- the runs ---------------------------------------------------------------------------------------------------------


@cache
def bounds_of(told, given):
    """Return the parameters of a machine with what a story says of them."""
    return {**told.shipped().constants, **dict(given)}


def require_chat(story):
    """Hold a conversation, and look at it."""
    with TemporaryDirectory() as folder:
        rest, played = CHAT.play(CHAT.shipped(), story, folder)
    run = rest.run
    assert rest.failure is None, rest.failure
    assert played.faults == []
    require_definition_4(run)
    require_a_turn_is_bounded(run, bounds_of(CHAT, story.bounds))
    require_what_was_delivered(run)
    assert replay(run.machine, run.ledger) == run


def require_coding(story):
    """Work at a goal, and look at what was done."""
    with TemporaryDirectory() as folder:
        rest, played = CODING.play(CODING.shipped(), story, folder)
    run = rest.run
    assert rest.failure is None, rest.failure
    assert played.faults == []
    require_definition_4(run)
    require_the_work_is_bounded(run, bounds_of(CODING, story.bounds))
    require_evidence(run)
    require_leave(run, story.mode)
    require_escalation(run)
    assert replay(run.machine, run.ledger) == run


def explore(machine, count, *, of_seed=None, **more):
    """Draw stories of a machine, the same ones where a seed is given, and look at the run of each."""
    stories, require = {"chat": (CHAT_STORIES, require_chat), "coding": (CODING_STORIES, require_coding)}[machine]

    @settings(max_examples=count, deadline=None, suppress_health_check=SLOW, report_multiple_bugs=False, **more)
    @given(stories)
    def search(story):
        require(story)

    (search if of_seed is None else seed(of_seed)(search))()


COUNTS = [25, pytest.param(1_000, marks=pytest.mark.full)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("machine", ["chat", "coding"])
def test_run_keeps_its_promises_whatever_the_model_says(machine, count):
    explore(machine, count)


# -- planted faults ---------------------------------------------------------------------------------------------------


def moves_otherwise(patch, change):
    """Let the step that runs execute give other values: `change` gives them of the variables, the values before and after, and the occurrence."""

    def faulty(compiled, here, occurrence):
        found = chosen(compiled, here, occurrence)
        if isinstance(found, Refusal):
            return found
        move, values = found
        return move, tuple(
            change(*each, occurrence) for each in zip(compiled.machine.variables, here.values, values, strict=True)
        )

    chosen = CompiledStep.move
    patch.setattr(CompiledStep, "move", faulty)


def set_on_failure(patch):
    def change(variable, _before, after, occurrence):
        return variable.scope == "workflow" or after if "failed" in dict(occurrence.verdicts).values() else after

    moves_otherwise(patch, change)


def kept_when_taken_back(patch):
    moves_otherwise(
        patch, lambda variable, before, after, _: before or after if variable.scope == "workflow" else after
    )


def one_more(name):
    def plant(patch):
        def faulty(compiled, here, occurrence):
            machine = compiled.machine
            known = patient.setdefault(machine.constants[name], machine.at(**{name: machine.constants[name] + 1}))
            return chosen(compiled_step(known), here, occurrence)

        patient = {}
        chosen = CompiledStep.move
        patch.setattr(CompiledStep, "move", faulty)

    plant.__name__ = f"one_more_of_{name}"
    return plant


def always_passes(told, guard):
    def plant(patch):
        def faulty(*arguments, **options):
            binding = real(*arguments, **options)
            return attrs.evolve(binding, guards={**binding.guards, guard: FunctionGuard(object, lambda _said: PASSED)})

        real = told.bind
        patch.setattr(told, "bind", faulty)

    plant.__name__ = f"{guard}_always_passes"
    return plant


FAULTS = (
    ("chat", set_on_failure, "require_definition_4"),
    ("chat", kept_when_taken_back, "require_what_was_delivered"),
    ("chat", one_more("max_rounds"), "require_a_turn_is_bounded"),
    ("chat", one_more("max_calls"), "require_a_turn_is_bounded"),
    ("chat", one_more("max_refusals"), "require_a_turn_is_bounded"),
    ("chat", always_passes(CHAT, "files_there"), "require_what_was_delivered"),
    ("coding", set_on_failure, "require_definition_4"),
    ("coding", kept_when_taken_back, "require_evidence"),
    ("coding", one_more("max_rounds"), "require_the_work_is_bounded"),
    ("coding", one_more("max_turns"), "require_the_work_is_bounded"),
    ("coding", one_more("max_calls"), "require_the_work_is_bounded"),
    ("coding", always_passes(CODING, "has_evidence"), "require_evidence"),
    ("coding", always_passes(CODING, "approved"), "require_leave"),
    ("coding", always_passes(CODING, "not_looping"), "require_escalation"),
)


#: Seeds that come to a fault soon; others take some hundred stories.
SOON = {
    ("coding", "kept_when_taken_back"): 7,
    ("coding", "one_more_of_max_calls"): 5,
    ("coding", "approved_always_passes"): 1,
    ("coding", "not_looping_always_passes"): 3,
}


@pytest.mark.parametrize(("machine", "plant", "check"), FAULTS, ids=lambda each: getattr(each, "__name__", each))
def test_planted_fault_is_found_by_its_check(machine, plant, check, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError) as found:
        explore(machine, 300, of_seed=SOON.get((machine, plant.__name__), 0), phases=[Phase.generate], database=None)
    assert check in {frame.name for frame in traceback.extract_tb(found.tb)}
