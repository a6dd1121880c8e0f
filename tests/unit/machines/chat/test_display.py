import io
from pathlib import Path

import pytest
from chat_ledgers import Told
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dsa.runtime.timeline import Moment
from machines.chat.chat_display import ChatDisplay
from machines.chat.conversation import BADGES, REASONS
from machines.chat.sql import TableInfo

HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \u202eabc [bold]x[/bold] [/]"


def show(display, entries, *, is_new=True):
    """Show moments of a run on a display."""
    for number, entry in enumerate(entries, 1):
        display.on_moment(Moment("r", number, entry), is_new)


def displayed(told=(), *, pieces=(), said=(), width=200, is_verbose=False):
    """Show entries, then pieces of text, then lines of the display, on a terminal; return what is written, without the colours."""
    file = io.StringIO()
    display = ChatDisplay(Console(file=file, width=width, color_system=None), Path("runs"), is_verbose=is_verbose)
    show(display, told.entries if told else ())
    for piece in pieces:
        display.listen(piece)
    for line in said:
        display.say(line)
    return file.getvalue()


def asked():
    return Told().says("?").asked(("c1", "run_sql")).calls("c1")


def table(columns, rows, row_count=None):
    return {"columns": columns, "rows": rows, "row_count": len(rows) if row_count is None else row_count}


def test_every_reason_has_a_badge():
    assert set(BADGES) == set(REASONS)  # a badge that is missing would end the conversation


@each_row("reason", sorted(REASONS))
def test_reason_is_shown_with_its_badge_and_text(reason):
    shown = displayed(Told().says("?").told(reason))
    assert f"[{BADGES[reason]}] {reason}: because of {reason}\n" in shown


def test_unknown_reasons_are_not_shown():
    assert displayed(Told().told("because")) == ""


def test_verbose_call_is_shown_with_its_fixes_and_transition():
    told = Told().says("?").asked(("c1", "run_sql")).calls("c1", text="SELECT\n  1", rescues=["fence", "alias"])
    told.begins("c1")
    assert "run_sql  SELECT 1 [fixed: fence, alias]\n" in displayed(told, is_verbose=True)
    assert "completed -> planning\n" in displayed(told, is_verbose=True)
    assert displayed(told) == "run_sql  SELECT 1\n", "without --verbose no phases are shown"


def test_call_without_code_is_shown():
    told = Told().says("?").asked(("c1", "run_python")).calls("c1", "run_python", text="").begins("c1", "guide_retry")
    assert displayed(told) == "run_python  \n"


def side_by_side():
    """Two queries begin, and code waits for them."""
    told = Told().says("?").asked(("c1", "run_sql"), ("c2", "run_sql"), ("c3", "run_python"))
    told.calls("c1").begins("c1").calls("c2", text="SELECT 2").begins("c2")
    return told.calls("c3", "run_python", text="3").holds()


def lines(told):
    """Return the lines about calls and the values that were found."""
    return [line.strip() for line in displayed(told).splitlines() if line.strip() not in {"n", "━━━"}]


def test_calls_are_shown_when_they_begin_and_not_while_they_wait():
    assert lines(side_by_side()) == ["run_sql  SELECT 1", "run_sql  SELECT 2"]
    told = side_by_side().came("c2", result=value(2)).came("c1", result=value(1)).calls("c3", "run_python", text="3")
    assert lines(told.begins("c3", "run_python")).count("run_python  3") == 1


def test_result_names_its_call_unless_it_is_right_below_it():
    told = side_by_side().came("c2", result=value(2)).came("c1", result=value(1))
    expected = ["run_sql  SELECT 1", "run_sql  SELECT 2", "2", "result of run_sql  SELECT 1", "1"]
    assert lines(told) == expected
    told = side_by_side().came("c1", result=value(1)).came("c2", result=value(2))
    assert lines(told)[2:] == ["result of run_sql  SELECT 1", "1", "result of run_sql  SELECT 2", "2"]
    told.calls("c3", "run_python", text="3").came("c3", "python_done", result={"value": "3"})
    assert lines(told)[6:] == ["run_python  3", "3"]


def test_refusal_of_a_call_names_it_after_other_output():
    told = Told().says("?").asked(("c1", "run_sql"), ("c2", "run_sql")).calls("c1").begins("c1")
    told.calls("c2", text="SELECT 2").begins("c2", "refuse_call").came("c1", result=value(1))
    told.skips("c2", "invalid_tool_payload")
    assert lines(told)[1:5] == ["run_sql  SELECT 2", "result of run_sql  SELECT 1", "1", "result of run_sql  SELECT 2"]


def value(number):
    return table(["n"], [[number]])


def test_failed_effect_is_shown():
    told = Told()
    told.told("", error=True, message="the server is gone")
    assert displayed(told) == "effect failed: the server is gone\n"


def test_refused_user_event_is_shown():
    assert (
        displayed(Told().refuses("retried", reason="invalid_state")) == "not now: retried is refused (invalid_state)\n"
    )


def test_tool_error_is_shown_with_its_code():
    told = asked().came("c1", "sql_failed", result={"error": {"code": "sql_error", "message": "no\ncolumn x"}})
    assert "sql_error: no column x\n" in displayed(told)


def test_output_value_and_files_are_shown():
    artifacts = [
        {"name": "a.csv", "kind": "csv", "digest": "1", "size_bytes": 1234, "logical_key": "k", "equal_to": None},
        {"name": "b.csv", "kind": "csv", "digest": "1", "size_bytes": 1234, "logical_key": "k", "equal_to": "a1"},
    ]
    told = asked().came("c1", "python_done", artifacts, "failed", result={"output": "one\ntwo\n", "value": "3"})
    shown = displayed(told)
    assert "one\ntwo\n3\nfile: runs/r/files/a.csv (1,234 bytes)\n" in shown
    assert "b.csv" not in shown


# -- tables -----------------------------------------------------------------------------------------------------------------


def test_small_table_is_shown_whole():
    shown = displayed(asked().came("c1", result=table(["Origin", "n"], [["Europe", 73], ["Japan", None]])))
    for text in ("Origin", "Europe", "73", "Japan", "NULL"):
        assert text in shown
    assert "more" not in shown


def test_table_description_is_one_line_whatever_its_names():
    file = io.StringIO()
    display = ChatDisplay(Console(file=file, width=200, color_system=None), Path("runs"))
    display.tables([TableInfo("a", (("x\u2028y", "BIGINT"),), 1, "a\n> delete it\n.csv")])
    assert file.getvalue() == "table a (a\\n> delete it\\n.csv): 1 rows; x\\U00002028y BIGINT\n"


def test_null_differs_from_texts_that_look_like_null():
    cells = [None, "NULL", "None", "", True, 0.5, ["a", None], {"k": "é"}]
    lines = displayed(asked().came("c1", result=table(["c"], [[cell] for cell in cells]))).splitlines()
    shown = [line.strip() for line in lines[lines.index(next(line for line in lines if "━" in line)) + 1 :]]
    assert shown == ["NULL", '"NULL"', "None", '""', "true", "0.5", '["a", null]', '{"k": "é"}']


def test_long_and_wide_tables_are_cut_and_say_so():
    rows = [[f"r{row}c{column}" for column in range(12)] for row in range(30)]
    shown = displayed(asked().came("c1", result=table([f"k{column}" for column in range(12)], rows, 1_234)))
    assert "r9c7" in shown
    assert "r10c0" not in shown
    assert "r0c8" not in shown
    assert "k8" not in shown
    assert "and 1,224 more rows, 4 more columns\n" in shown


@pytest.mark.parametrize(
    ("rows", "columns", "said"), [(10, 8, ""), (11, 8, "and 1 more rows"), (10, 9, "and 1 more columns")]
)
def test_only_omitted_rows_and_columns_are_mentioned(rows, columns, said):
    cells = [[1] * columns] * rows
    shown = displayed(asked().came("c1", result=table([f"k{at}" for at in range(columns)], cells)))
    assert shown.strip().splitlines()[-1].startswith(said)
    assert ("more" in shown) == bool(said)


def test_long_cells_are_cut():
    shown = displayed(asked().came("c1", result=table(["text"], [["y" * 500]])))
    assert "y" * 38 + ".." in shown
    assert "y" * 39 not in shown


def test_table_without_rows_is_shown_with_its_columns():
    assert "Origin" in displayed(asked().came("c1", result=table(["Origin"], [])))


# -- hostile texts ------------------------------------------------------------------------------------------------------------


def everywhere(text):
    """Put a text in every place that a model, a tool or a file can fill."""
    told = (
        Told()
        .says("?")
        .asked(("c1", "run_sql"), ("c2", "run_python"), content=text)
        .calls("c1", text=text, rescues=[text])
    )
    told.came("c1", result=table([text], [[text]]))
    artifacts = [{"name": text, "kind": text, "digest": "1", "size_bytes": 1, "logical_key": "k", "equal_to": None}]
    told.calls("c2", "run_python").came("c2", "python_done", artifacts, result={"output": text, "value": text})
    told.asked(("c3", "run_sql")).calls("c3").came(
        "c3", "sql_failed", result={"error": {"code": text, "message": text}}
    )
    told.told("turn_failed", text=text).told("", error=True, message=text)
    return displayed(told.refuses(text, reason=text), pieces=[text], said=[text])


def steering(shown):
    return [
        char
        for char in shown
        if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 or char in "\u202e\u2066"
    ]


def test_shown_text_never_controls_the_terminal():
    shown = everywhere(HOSTILE)
    assert steering(shown) == []
    assert "\\x1b[2J" in shown
    assert shown.count("[bold]x[/bold]") >= 8  # unchanged: it is not markup


@given(st.text(max_size=30))
def test_any_text_can_be_shown(text):
    assert steering(everywhere(text)) == []


# -- text as it comes -----------------------------------------------------------------------------------------------------


def test_streamed_text_is_shown_and_the_next_text_begins_a_line():
    assert displayed(pieces=["It ", "is [b]42[/b]"], said=["done"]) == "It is [b]42[/b]\ndone\n"
    assert displayed(pieces=["It is.\n"], said=["done"]) == "It is.\ndone\n"
    assert displayed(pieces=[""], said=["done"]) == "done\n"


def test_answer_without_streaming_is_shown_once():
    told = Told().says("?").happens("answered", {"content": "It is 42."})
    assert displayed(told).count("It is 42.") == 1


def test_streamed_answer_is_not_shown_again():
    file = io.StringIO()
    display = ChatDisplay(Console(file=file, width=200, color_system=None), Path("runs"))
    show(display, Told().says("?").entries)
    display.listen("It is 42.")
    show(display, Told().happens("answered", {"content": "It is 42."}).happens("presented", {"artifacts": []}).entries)
    assert file.getvalue().count("It is 42.") == 1


def test_earlier_entries_are_not_shown_and_leave_no_open_line():
    file = io.StringIO()
    display = ChatDisplay(Console(file=file, width=200, color_system=None), Path("runs"))
    show(display, Told().says("?").happens("answered", {"content": "It is 42."}).entries, is_new=False)
    display.say("It goes on.")
    assert file.getvalue() == "It goes on.\n"


def test_display_lines_are_not_coloured_or_wrapped():
    assert displayed(said=["1 'a' True " + "x" * 300], width=40) == "1 'a' True " + "x" * 300 + "\n"
