import io

from moments import show_to
from rich.console import Console

from dsa.cli.run import Progress
from dsa.edge.document_files import load
from dsa.runtime.ledger import ArtifactEntry, EffectEntry, GuardVerdict, ResultEntry, RowEntry, VerdictEntry
from dsa.runtime.policy.policies import error_step

MACHINE = load("workflow")


def attempt(step, number, outcome, feedback=""):
    target = f"generating.{step}"
    yield RowEntry(1, "idle", target)
    yield EffectEntry(f"{number}/1", "query_llm")
    yield ArtifactEntry(f"{number}/1", step, number, f"{step}{number}", "", seconds=1.25)
    yield VerdictEntry(f"{number}/2", step, number, f"{step}{number}", [GuardVerdict(step, outcome, feedback)], 0.25)


def shown(entries, *, terminal=False, quiet=False, height=24, width=72):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, height=height, color_system=None)
    with Progress(MACHINE, console, quiet=quiet) as progress:
        show_to(progress.on_moment, *entries)
    return console.file.getvalue()


ENTRIES = [*attempt("g_test", 1, "failed", "first\nsecond [bold]"), *attempt("g_test", 2, "passed")]


def test_one_plain_line_is_printed_for_each_attempt():
    assert shown(ENTRIES) == (
        "g_test  attempt  1  rejected    1.5 s  first second [bold]\ng_test  attempt  2  passed      1.5 s\n"
    )


def test_long_feedback_is_cut():
    (line,) = shown(attempt("g_test", 1, "fatal", "x" * 500)).splitlines()
    assert line.endswith("xxx...")
    assert len(line) < 120


def test_quiet_prints_nothing():
    assert shown(ENTRIES, quiet=True) == ""
    assert shown(ENTRIES, quiet=True, terminal=True) == ""


def test_failed_call_is_shown():
    fault = error_step("query_llm", "timeout", "too slow").to_json()
    row, first, *_ = attempt("g_test", 1, "passed")
    assert "error" in shown([row, first, ResultEntry("1/1", (fault,))])


def test_terminal_shows_the_whole_table_at_the_end():
    entries = [entry for number in range(1, 41) for entry in attempt("g_test", number, "failed", f"no {number}.")]
    text = shown(entries, terminal=True, height=10)
    last_table = text.rpartition("step")[2]
    for number in range(1, 41):
        assert f"no {number}." in last_table


def test_persons_text_is_a_separate_attempt():
    person = list(attempt("g_test", 2, "passed"))[1:]
    text = shown([*attempt("g_test", 1, "fatal"), *person])
    assert [line.split()[2:4] for line in text.splitlines()] == [["1", "fatal"], ["2", "passed"]]


def test_terminal_too_narrow_for_a_table_gets_plain_lines():
    assert shown(ENTRIES, terminal=True, width=30) == shown(ENTRIES)


def test_feedback_cannot_control_the_terminal():
    for terminal in (False, True):
        text = shown(attempt("g_test", 1, "failed", "\x1b]0;owned\x07"), terminal=terminal)
        assert "\\x1b]0;owned\\x07" in text
        assert "\x1b]0" not in text


def test_failure_of_another_effect_does_not_end_the_attempt():
    fault = error_step("notify", "gone", "no mail").to_json()
    row, first, *rest = attempt("g_test", 1, "passed")
    assert "passed" in shown([row, first, ResultEntry("1/2", (fault,)), *rest])
    assert "no mail" not in shown([row, first, ResultEntry("1/2", (fault,)), *rest])


def test_failed_try_and_the_next_one_are_both_shown():
    fault = error_step("query_llm", "timeout", "too slow").to_json()
    row, first, *rest = attempt("g_test", 1, "passed")
    lines = shown([row, first, ResultEntry("1/1", (fault,)), *rest]).splitlines()
    assert [line.split()[2:4] for line in lines] == [["1", "error"], ["1", "passed"]]
