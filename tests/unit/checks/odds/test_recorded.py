"""Recorded attempts: reading, retry numbers, and tests of independence."""

import json
import random

import pytest
from odds_documents import chain
from odds_worlds import World

from dsa.checks.odds.estimation import VerdictSample, independence, read_attempts, samples_of_run
from dsa.errors import ParameterError

MACHINE = chain("a", "b")


def ledger(*events, name="chain", run="r1", final="succeeded", refused=(), parameters=None):
    lines = [{"kind": "machine", "run": run, "name": name, "digest": "", "parameters": parameters or MACHINE.constants}]
    for seq, verdicts in enumerate(events, 1):
        lines.append({"kind": "event", "seq": seq, "event": "verdict", "verdicts": verdicts})
        last = final if seq == len(events) else "generating.a"
        if seq in refused:
            lines.append({"kind": "refusal", "reason": "late", "message": ""})
        else:
            lines.append({"kind": "row", "line": 3, "source": "validating.a", "target": last})
    return "\n".join(map(json.dumps, lines)) + "\n"


def test_ledger_is_read_as_attempts_with_retry_numbers():
    found = read_attempts(
        MACHINE, [("story.jsonl", ledger({"a": "failed"}, {"a": "failed"}, {"a": "passed"}, {"b": "passed"}))]
    )
    assert found.attempts == (
        VerdictSample("r1", "a", 0, "failed"),
        VerdictSample("r1", "a", 1, "failed"),
        VerdictSample("r1", "a", 2, "passed"),
        VerdictSample("r1", "b", 0, "passed"),
    )
    assert (found.runs, dict(found.end_counts), found.notes) == (("r1",), {"succeeded": 1}, ())


def test_refused_events_are_not_attempts():
    found = read_attempts(MACHINE, [("x", ledger({"a": "failed"}, {"a": "passed"}, {"b": "passed"}, refused={2}))])
    assert [attempt.outcome for attempt in found.attempts] == ["failed", "passed"]


def test_other_machines_and_guards_are_left_out_and_reported():
    found = read_attempts(
        MACHINE,
        [("x", ledger({"a": "passed"}, name="other")), ("y", ledger({"a": "passed", "strange": "failed"}))],
    )
    assert len(found.attempts) == 1
    assert found.notes == (
        "left out: 1 runs of other machines",
        "left out: 1 verdicts of strange, which chain does not have",
    )


def test_ends_of_runs_at_other_parameter_values_do_not_count():
    found = read_attempts(MACHINE, [("x", ledger({"a": "passed"}, parameters={**MACHINE.constants, "rmax.a": 9}))])
    assert (len(found.attempts), dict(found.end_counts)) == (1, {})


def test_attempts_without_a_ledger_are_read_too():
    lines = [{"run": "1", "guard": "a", "verdict": "failed"}, {"run": "1", "guard": "a", "verdict": "fatal"}]
    lines.append({"run": "2", "guard": "a", "verdict": "passed"})
    found = read_attempts(MACHINE, [("attempts.jsonl", "\n".join(map(json.dumps, lines)))])
    assert [(a.run, a.retry, a.outcome) for a in found.attempts] == [
        ("1", 0, "failed"),
        ("1", 1, "fatal"),
        ("2", 0, "passed"),
    ]


def test_trace_is_one_run():
    steps = [
        {"event": "specification", "state": "generating.a"},
        {"event": "verdict", "verdicts": {"a": "failed"}, "state": "generating.a"},
        {"event": "verdict", "verdicts": {"a": "passed"}, "state": "generating.b"},
        {"event": "verdict", "verdicts": {"b": "passed"}, "state": "succeeded"},
    ]
    found = read_attempts(MACHINE, [("t.jsonl", "\n".join(map(json.dumps, steps)))])
    assert [(a.run, a.guard, a.retry) for a in found.attempts] == [
        ("t.jsonl", "a", 0),
        ("t.jsonl", "a", 1),
        ("t.jsonl", "b", 0),
    ]
    assert dict(found.end_counts) == {"succeeded": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"event": "verdict", "verdicts": [1]}', "runs.jsonl: the verdicts of an event are an object"),
        ("{", "runs.jsonl:1: this is not a JSON object"),
        ("\n[1]", "runs.jsonl:2: this is not a JSON object"),
        ('{"guard": "a"}', "runs.jsonl:1: this is neither a line of a ledger nor an attempt"),
        ('{"guard": "a", "verdict": "ok"}', "runs.jsonl:1: 'ok' is not a verdict; verdicts are: passed, failed, fatal"),
    ],
)
def test_invalid_recording_is_refused_with_file_and_reason(text, message):
    with pytest.raises(ParameterError) as refused:
        read_attempts(MACHINE, [("runs.jsonl", text)])
    assert message in str(refused.value)


def test_retry_number_starts_again_after_a_pass_and_after_fatal():
    said = [
        ("g", "failed"),
        ("h", "passed"),
        ("g", "failed"),
        ("g", "passed"),
        ("g", "failed"),
        ("g", "fatal"),
        ("g", "passed"),
    ]
    assert [(a.guard, a.retry) for a in samples_of_run("r", said)] == [
        ("g", 0), ("h", 0), ("g", 1), ("g", 2), ("g", 0), ("g", 1), ("g", 0),
    ]  # fmt: skip


def flagged(world, worlds, seed):
    rng = random.Random(seed)
    found = [independence(world.attempts(rng)) for _ in range(worlds)]
    return [sum(tests[i].is_broken for tests in found) for i in (0, 1)], sum(
        any(test.is_broken for test in tests) for tests in found
    )


@pytest.mark.parametrize(
    "world",
    [World(35, 5), World(12, 5), World(35, 5, passes=0.9), World(60, 1, passes=0.5), World(80, 2, fatal=0.05)],
    ids=str,
)
def test_independent_worlds_are_rarely_suspected(world):
    _, either = flagged(world, 400, seed=3)
    assert either <= 0.08 * 400  # 5 % are to be expected


@pytest.mark.parametrize(
    ("world", "which"),
    [
        (World(70, 5, hard=(0.9, 0.4)), 1),
        (World(35, 5, hard=(0.95, 0.3)), 1),
        (World(150, 1, hard=(0.95, 0.3)), 0),
        (World(70, 5, drop=0.2), 0),
    ],
    ids=str,
)
def test_worlds_with_dependent_attempts_are_flagged(world, which):
    tests, either = flagged(world, 200, seed=5)
    assert either >= 0.95 * 200
    assert tests[which] >= 0.9 * 200


def test_too_few_attempts_have_no_finding():
    tests = independence([VerdictSample("r", "g", 0, "passed"), VerdictSample("s", "g", 0, "failed")])
    assert [(test.rare, test.finding) for test in tests] == [(None, "too few attempts to tell")] * 2


HEAD = {"machine": "chain", "parameters": {}, "state": "idle", "values": {}, "loop": None}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(HEAD) + '\n{"event": "verdict", "verdicts": {"a": "failed"}, "state": "failed"}\n',
        json.dumps({"#meta": {"format": "ITF"}, "states": []}, indent=2),
    ],
)
def test_trace_found_by_a_check_is_not_a_recorded_run(text):
    with pytest.raises(
        ParameterError, match="t: this is a trace that `dsa check --save-traces` wrote, not a recorded run"
    ):
        read_attempts(MACHINE, [("t", text)])


def test_ledger_with_the_digest_of_another_machine_is_refused():
    def digests(machine):
        return {f"of {machine.constants['rmax.a']}"}

    def entry(digest, rmax):
        return ledger({"a": "passed"}, parameters={"rmax.a": rmax}).replace('"digest": ""', f'"digest": "{digest}"')

    assert len(read_attempts(MACHINE, [("x", entry("of 9", 9))], digests).attempts) == 1
    for text in (entry("of 8", 9), entry("of 9", "many")):
        with pytest.raises(
            ParameterError,
            match="x: this run has another digest than machine chain has now, because the document has changed",
        ):
            read_attempts(MACHINE, [("x", text)], digests)
