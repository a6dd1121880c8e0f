"""Fit judge: whether a run may continue under another table, by its history, its status, its effects in progress and its possible futures."""

from each_row import each_row
from stored_runs import begun

from dsa.checks.search.engine import SearchLimits
from dsa.edge.document_files import locate, read_text
from dsa.lang import loads
from dsa.runs.migration import FitJudge
from dsa.runtime.ledger import ArtifactEntry, ResultEntry
from dsa.runtime.policy.policies import event_step
from dsa.runtime.run import oldest_key
from dsa.semantics import Occurrence
from dsa.trace import show_occurrence

AGENT = read_text(locate("dual_state"))
LIMITS = SearchLimits(10_000)
SPECIFICATION, ARTIFACT = Occurrence("specification"), Occurrence("artifact")
FAILED = Occurrence("verdict", {"g": "failed"})
WAITING = """# waiting

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..2   | 0       |

## Events
| event | from    |
| ----- | ------- |
| more  | outside |
| sent  | send    |
| lost  | send    |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| over  | final   |

## Transitions
| source | event    | update | effects   | target |
| ------ | -------- | ------ | --------- | ------ |
| idle   | more     |        | log, send | busy   |
| busy   | more     | n = 1  |           | =      |
| busy   | sent     |        |           | over   |
| busy   | lost     |        |           | over   |
| busy   | after 1m |        | cancel    | idle   |
"""


def fed(text, *occurrences, **parameters):
    """Return a run that was fed these occurrences; each answer goes to the oldest effect that it can answer."""
    run = begun(text, **parameters)
    for occurrence in occurrences:
        event = run.machine.event_named.get(occurrence.event)
        run, _ = run.feed(occurrence, (oldest_key(run.keys, event.origin) or None) if event else None)
    return run


def edited(text, *changes):
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def fit(run, text, *changes, limits=LIMITS):
    return FitJudge(loads(edited(text, *changes)), limits).judge(run)


def waiting(*events):
    return fed(WAITING, *map(Occurrence, events))


def test_run_fits_its_own_machine_in_every_state():
    for occurrences in ([], [SPECIFICATION], [SPECIFICATION, ARTIFACT], [SPECIFICATION, ARTIFACT, FAILED]):
        found = fit(fed(AGENT, *occurrences), AGENT)
        assert (found.verdict, found.why, found.future.verdict) == ("compatible", "", "EQUAL")


def test_compatible_run_may_have_a_different_future():
    change = ("| lost     |        |           | over   |", "| lost     |        | log       | over   |")
    found = fit(waiting("more"), WAITING, change)
    assert (found.verdict, found.future.verdict) == ("compatible", "DIFFERENT")
    assert show_occurrence(found.future.divergence.occurrence) == "lost"
    assert (
        fit(waiting("more"), WAITING, ("| busy   | more     | n = 1  |", "| busy   | more     | n = 2  |")).verdict
        == "compatible"
    )


# -- the history ------------------------------------------------------------------------------------------------------


@each_row(("events", "change", "event"), [
    (["more", "more"], ("| busy   | more     | n = 1  |", "| busy   | more     | n = 2  |"), "more"),
    (["more", "more"], ("| busy   | more     | n = 1  |           | =      |\n", ""), "more"),
    (["more", "more"], ("| n = 1  |           | =      |", "| n = 1  | log       | =      |"), "more"),
    (["more"], ("| log, send | busy   |", "| send, log | busy   |"), "more"),
    (["more", "sent"], ("| sent     |        |           | over   |", "| sent     |        |           | idle   |"), "sent"),
    (["more"], ("| busy   | after 1m |", "| busy   | after 2m |"), "more"),
    (["sent"], ("| sent  | send    |", "| sent  | outside |"), "sent"),
    (["more", "more"], ("| busy   | more     | n = 1  |           | =      |", "| busy   | more     | n = 1  |           | busy   |"), "more"),
], ids=str)  # fmt: skip
def test_first_event_with_another_result_is_named(events, change, event):
    found = fit(waiting(*events), WAITING, change)
    assert found.verdict == "incompatible"
    assert (found.difference.record.event.event, found.difference.record.event.seq) == (event, len(events))


def test_refused_event_must_be_refused_there_too():
    run = waiting("sent", "more")
    assert run.ledger[2].reason == "late"
    assert fit(run, WAITING).verdict == "compatible"
    found = fit(
        run,
        edited(WAITING, ("| sent  | send    |\n", "")),
        ("| busy   | sent     |        |           | over   |\n", ""),
    )
    assert "has no event 'sent'" in found.difference.fault


def test_machine_must_start_like_the_run_even_before_any_event():
    begin = ("| idle  | initial |", "| idle  |         |"), ("| busy  |         |", "| busy  | initial |")
    assert (
        fit(waiting(), WAITING, *begin).why
        == "the new machine does not begin as the run did: the run has in idle, the new machine has in busy"
    )
    assert (
        "the run has n = 0, the new machine has n = 1"
        in fit(waiting(), WAITING, ("| 0..2   | 0       |", "| 0..2   | 1       |")).why
    )
    timer = fit(waiting(), WAITING, ("| busy   | after 1m |", "| idle   | after 1m |"))
    assert (
        timer.why
        == "the new machine does not begin as the run did: the run has armed: no timer, the new machine has armed: after 1m of idle"
    )


def test_initial_value_that_the_history_hides_is_compared_too():
    """A row sets n, so the entries of the steps are equal although the initial values differ."""
    found = fit(waiting("more", "more"), WAITING, ("| 0..2   | 0       |", "| 0..2   | 2       |"))
    assert found.why == "the new machine does not begin as the run did: the run has n = 0, the new machine has n = 2"


# -- the status -------------------------------------------------------------------------------------------------------


def test_outstanding_effect_must_be_outstanding_there_too():
    no_answers = edited(
        WAITING, ("| sent  | send    |\n| lost  | send    |", "| sent  | outside |\n| lost  | outside |")
    )
    found = fit(waiting("more"), no_answers)
    assert found.why == "the run has outstanding: send, the new machine has outstanding: nothing"


def test_variable_of_only_one_machine_matters_once_it_changes():
    more = ("| n        | 0..2   | 0       |", "| n        | 0..2   | 0       |\n| x        | 0..1   | 0       |")
    counted = ("| busy   | more     | n = 1  |", "| busy   | more     | n = 1; x = 1 |")
    assert fit(waiting("more"), WAITING, more, counted).verdict == "compatible"
    assert fit(waiting("more", "more"), WAITING, more, counted).difference is not None
    assert fit(fed(edited(WAITING, more), Occurrence("more")), WAITING).verdict == "compatible"


def test_parameters_of_the_run_are_used_and_must_lie_in_the_new_domain():
    run = fed(AGENT, SPECIFICATION, rmax=7)
    assert fit(run, AGENT).machine.constants == {"rmax": 7}
    assert (
        fit(run, AGENT, ("| rmax      | 0..    | 3       |", "| rmax      | 0..    | 5       |")).verdict
        == "compatible"
    )
    found = fit(run, AGENT, ("| rmax      | 0..    | 3       |", "| rmax      | 0..5   | 3       |"))
    assert (
        found.why == "the new machine cannot have the run's parameters: parameter rmax = 7 is outside its domain 0..5"
    )


# -- effects in progress ----------------------------------------------------------------------------------------------


def test_possible_answer_of_an_effect_in_progress_must_be_known():
    change = ("| lost  | send    |\n", ""), ("| busy   | lost     |        |           | over   |\n", "")
    found = fit(waiting("more"), WAITING, *change)
    assert (
        found.why
        == "send 1/2 is under way and may be answered with lost, which is not one of its answers in the new machine"
    )
    assert fit(waiting(), WAITING, *change).verdict == "compatible", "nothing is under way"


def test_recorded_answer_not_taken_yet_must_be_valid():
    run = fed(AGENT, SPECIFICATION, ARTIFACT)
    key = oldest_key(run.keys, "execute_guard")
    said = event_step("execute_guard", "verdict", verdicts={"g": "fatal"}).without_id()
    run = run.record(ResultEntry(key, (said,)))
    assert fit(run, AGENT).verdict == "compatible"
    narrow = (
        "| guard | judges  | is    | note                                    |\n| ----- | ------- | ----- |",
        "| guard | judges  | is    | verdicts |\n| ----- | ------- | ----- |",
    )
    text = edited(AGENT, narrow).replace("| a GuardInterface: passed, failed, fatal |", "| passed, failed |")
    text = edited(
        text,
        (
            "| validating | verdict       | g.fatal                     |                               | escalate_to_user              | escalated  |\n",
            "",
        ),
        ("- on g.failed or g.fatal: satisfied", "- on g.failed: satisfied"),
        ("| verdict g.fatal | escalate_to_user | escalated  |\n", ""),
    )
    assert fit(run, text).why.startswith(
        "execute_guard 2/1 was answered, but the answer is not taken yet, and the new machine cannot take it: guard g cannot say 'fatal'"
    )


def test_artifacts_must_belong_to_the_same_step():
    """A second guard gives the step another name, which has no artifacts yet."""
    second = edited(
        AGENT, ("| g     | verdict | cases | a", "| h     | verdict | cases | b |\n| g     | verdict | cases | a")
    )
    run = fed(AGENT, SPECIFICATION)
    assert fit(run, second).verdict == "compatible"
    run = run.record(ArtifactEntry(oldest_key(run.keys, "query_llm"), "g", 1, "a" * 64, "b" * 64))
    assert (
        fit(run, second).why
        == "the artifacts of step g belong to the state idle, which works on a step dual_state in the new machine"
    )


# -- possible futures -------------------------------------------------------------------------------------------------


def test_future_fault_makes_the_run_incompatible():
    found = fit(waiting("more"), WAITING, ("| busy   | lost     |        |           | over   |\n", ""))
    assert (found.verdict, found.trouble.refusal.reason, show_occurrence(found.trouble.occurrence)) == (
        "incompatible",
        "invalid_state",
        "lost",
    )
    assert found.why == "the new machine may reach a fault that the old machine does not reach"
    broken = edited(WAITING, ("| busy   | lost     |        |           | over   |\n", ""))
    assert (
        fit(
            fed(broken, Occurrence("more")),
            broken,
            ("| sent     |        |           | over   |", "| sent     |        | log       | over   |"),
        ).verdict
        == "compatible"
    )


def test_fault_that_the_run_cannot_reach_leaves_it_compatible():
    """The run has left the state in which a new row would leave the domain, unless a timer leads back there."""
    change = (
        ("| more  | outside |", "| more  | outside |\n| jump  | outside |"),
        (
            "| busy   | sent     |",
            "| idle   | jump     | n += 3 |           | =      |\n| busy   | sent     |",
        ),
    )
    assert fit(waiting("more"), WAITING, *change).trouble.refusal.reason == "out_of_domain"
    onwards = edited(WAITING, ("| cancel    | idle   |", "| cancel    | over   |"))
    assert fit(fed(onwards, Occurrence("more")), onwards, *change).verdict == "compatible"
    assert fit(fed(onwards), onwards, *change).verdict == "incompatible"


def test_limit_makes_the_verdict_unknown():
    change = ("| busy   | more     | n = 1  |", "| busy   | more     | n = 2  |")
    found = fit(waiting("more"), WAITING, change, limits=SearchLimits(1))
    assert (found.verdict, found.why) == ("UNKNOWN", "stopped at the limit of 1 configurations")


def test_future_is_computed_once_for_runs_with_different_histories():
    fitting = FitJudge(loads(WAITING), LIMITS)
    first, second = fitting.judge(waiting("more")), fitting.judge(waiting("sent", "more"))
    assert first.future is second.future


TWO_WAYS = """# two_ways

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..1   | 0       |

## Events
| event | from    |
| ----- | ------- |
| one   | outside |
| other | outside |
| sent  | send    |
| lost  | send    |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| over  | final   |

## Transitions
| source | event | if     | update | effects | target |
| ------ | ----- | ------ | ------ | ------- | ------ |
| idle   | one   |        |        | send    | busy   |
| idle   | other |        | n = 1  | send    | busy   |
| busy   | sent  |        |        |         | over   |
| busy   | lost  |        |        |         | over   |
"""


def test_two_runs_in_one_state_may_have_different_verdicts():
    fitting = FitJudge(loads(edited(TWO_WAYS, ("| busy   | lost  |        |", "| busy   | lost  | n == 0 |"))), LIMITS)
    runs = [fed(TWO_WAYS, Occurrence(event)) for event in ("one", "other", "one")]
    assert [fitting.judge(run).verdict for run in runs] == ["compatible", "incompatible", "compatible"]
