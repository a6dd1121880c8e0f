"""`dsa chat` as people type it: refusals, output for programs, and lines that begin with a slash."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from importlib.resources import files

import jsonschema
import pytest
from forked import DSA

SCRIPT = """
```
{"tool_calls": [{"name": "run_sql", "arguments": {"query": "SELECT a, b FROM numbers ORDER BY a"}}]}
```

```
Two rows.
```
"""


@pytest.fixture
def chat(tmp_path):
    """Run the command in a folder with data and a script."""
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "script.md").write_text(SCRIPT)

    def run(*arguments, said="", command="chat", **variables):
        typed, environment = [*DSA, command, *arguments], {**os.environ, **variables}
        how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        return subprocess.run(typed, input=said, check=False, **how)

    return run


def test_json_option_prints_one_object_per_turn(chat):
    done = chat("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["state"], told["turn"]["answer"]) == (0, "resting.completed", "Two rows.")
    assert [(call["status"], call["rescues"]) for call in told["turn"]["calls"]] == [("done", ["alias"])]
    assert told["turn"]["counters"]["rescues"] == {"alias": 1}


def test_line_starting_with_a_slash_is_a_command(chat, tmp_path):
    said = "/artifacts\nWhat is there?\n/artifacts\n/state\n/branch 7\n/branch\n/export out\n/nope\n/end\n"
    done = chat("numbers.csv", "--model", "scripted:script.md", said=said)
    assert done.returncode == 0, done.stderr
    for shown in (
        "there are no artifacts yet",
        "a1    numbers_",
        "guided = false",
        "0 to 1, not '7'",
        "up to the end of turn 1",
        "unknown command /nope",
    ):
        assert shown in done.stdout
    assert done.stdout.rstrip().endswith("ended")
    assert "Two rows." in (tmp_path / "out" / "conversation.md").read_text()
    assert len([*(tmp_path / "out").glob("numbers_*.csv")]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gone.csv", "--model", "scripted:script.md", "--ask", "x"), 2, "gone.csv: does not exist"),
        (("numbers.csv", "--ask", "x"), 1, "the local model cannot call tools"),
        (("numbers.csv", "--model", "scripted:gone.md", "--ask", "x"), 2, "the script cannot be read"),
        (("--resume", "last", "--ask", "x"), 2, "no run is stored here"),
        (("numbers.csv", "--resume", "last"), 2, "--resume continues with the settings of the conversation"),
        (("--model", "scripted:script.md", "--param", "max_rounds=0", "--ask", "x"), 2, "max_rounds"),
    ],
)  # fmt: skip
def test_unusable_arguments_are_reported_in_a_sentence(chat, arguments, code, said):
    done = chat(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_budget_holds_and_survives_a_resume(chat):
    spent = chat(
        "numbers.csv", "--model", "scripted:script.md", "--budget", "ask_model.calls=1", "--ask", "What is there?"
    )
    assert spent.returncode == 1
    assert "budget" in spent.stdout
    again = chat("--resume", "last", "--ask", "And now?")
    assert (again.returncode, "budget" in again.stdout) == (1, True)
    wrong = chat("numbers.csv", "--model", "scripted:script.md", "--budget", "dollars=1", "--ask", "x")
    assert (wrong.returncode, "is not a budget" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [("--ask", " "), ("--json",)])
def test_empty_message_is_refused(chat, arguments):
    done = chat("numbers.csv", "--model", "scripted:script.md", *arguments)
    assert (done.returncode, "give a message that is not empty" in done.stderr) == (2, True)


def test_failed_turn_gives_its_reason_in_text_and_in_json(chat):
    address = "http://127.0.0.1:1/v1#m"
    told = json.loads(chat("numbers.csv", "--model", address, "--ask", "x", "--json").stdout)
    assert "check that the server runs and that the address is right" in told["turn"]["why"]
    shown = chat("numbers.csv", "--model", address, "--ask", "x")
    assert shown.returncode == 1
    assert shown.stdout.count("check that the server runs and that the address is right") == 1
    assert "/retry" in shown.stdout


def test_loaded_tables_are_shown(chat):
    done = chat("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?")
    assert "table numbers (numbers.csv): 2 rows; a BIGINT, b BIGINT" in done.stdout


def test_transcript_repeats_the_printed_conversation(chat, tmp_path):
    done = chat("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?")
    shown = [*DSA, "show", "last", "--transcript"]
    again = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, check=False)
    _tables, *lines, _how = done.stdout.splitlines()
    assert (again.returncode, again.stdout.splitlines()) == (0, lines)
    assert lines[0] == "> What is there?"


def test_sent_message_is_answered_on_the_screen(chat, tmp_path):
    (tmp_path / "two.md").write_text("```\nOne.\n```\n```\nTwo.\n```\n")
    assert chat("numbers.csv", "--model", "scripted:two.md", "--ask", "x").returncode == 0
    typed = [*DSA, "send", "last", "message", "And then?"]
    sent = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [line for line in sent.stdout.splitlines() if "->" not in line][:2] == ["> And then?", "Two."]
    assert "One." not in sent.stdout


def test_export_overwrites_nothing(chat, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "conversation.md").write_text("precious")
    done = chat("numbers.csv", "--model", "scripted:script.md", said="What is there?\n/export mine\n/export new\n")
    assert "nothing was written: mine already contains conversation.md" in done.stdout
    assert (tmp_path / "mine" / "conversation.md").read_text() == "precious"
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_empty_script_is_reported(chat, tmp_path):
    (tmp_path / "empty.md").write_text(" \n")
    done = chat("numbers.csv", "--model", "scripted:empty.md", "--ask", "x")
    assert (done.returncode, "the script has no replies" in done.stderr) == (2, True)


SCHEMA = json.loads(files("dsa.cli").joinpath("run.schema.json").read_text(encoding="utf-8"))
#: Binds the names of the chat machine as the shipped module does, except for one guard.
STRICT = """
from dsa.runtime.content import GuardInterface
from machines.chat import bindings as ours
from machines.tool_use.tool_agent import FunctionGuard

spenders, effects = ours.spenders, ours.effects
guards = {**ours.guards, "usable": FunctionGuard(object, lambda call: ("failed", "nothing is to be looked at"))}
"""


#: Records each start of Python in the sandbox, recognized by `-S`, which no other process of a conversation gets.
STARTS = """
import sys
from machines.chat.bindings import effects, guards, spenders

def note(event, details):
    if event == "subprocess.Popen" and "-S" in details[1]:
        with open("starts.txt", "a") as file:
            file.write("started\\n")

sys.addaudithook(note)
"""
TALKS = ("numbers.csv", "--model", "scripted:script.md", "--with", "starts.py")


@pytest.mark.parametrize(
    ("arguments", "said"), [(("--ask", "What is there?"), ""), ((), "What is there?\n/end\n")], ids=["asked", "piped"]
)
def test_non_interactive_conversation_without_code_does_not_start_python(chat, tmp_path, arguments, said):
    (tmp_path / "starts.py").write_text(STARTS)
    done = chat(*TALKS, *arguments, said=said)
    assert (done.returncode, "Two rows." in done.stdout) == (0, True), done.stderr
    assert not (tmp_path / "starts.txt").exists()


def test_python_starts_while_a_user_types(chat, tmp_path):
    """At a terminal, before anything is typed. This also shows that the test above would notice a start."""
    (tmp_path / "starts.py").write_text(STARTS)
    ours, theirs = pty.openpty()
    command = [*DSA, "chat", *TALKS]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, text=True) as talk:
        give_up = time.monotonic() + 60
        while not (tmp_path / "starts.txt").exists():
            assert time.monotonic() < give_up
            os.sched_yield()
        os.write(ours, b"/end\n")
        talk.communicate()
        assert talk.returncode == 0
    os.close(ours)
    os.close(theirs)


def test_json_of_each_turn_matches_the_run_schema(chat):
    first = ("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?", "--ask", "And?", "--json")
    *told, last = (json.loads(line) for line in chat(*first).stdout.splitlines())
    for each in (*told, last):
        jsonschema.validate(each, SCHEMA)
        assert (each["machine"], each["kind"], each["directory"]) == ("chat", "waiting", f".dsa/{each['run']}")
    assert [(each["exit_code"], each["turn"]["number"]) for each in (*told, last)] == [(0, 1), (1, 2)]
    refused = chat("numbers.csv", "--resume", "last", "--json", "--ask", "x")
    found = json.loads(refused.stdout)
    jsonschema.validate(found, SCHEMA)
    assert (found["kind"], found["exit_code"], refused.returncode) == ("unreadable", 2, 2)


def test_module_given_by_with_is_used_also_on_resume(chat, tmp_path):
    (tmp_path / "strict.py").write_text(STRICT)
    begun = chat("numbers.csv", "--model", "scripted:script.md", "--with", "strict.py", "--ask", "What is there?")
    assert "nothing is to be looked at" in begun.stdout, begun.stderr
    (tmp_path / "strict.py").unlink()
    again = chat("--resume", "last", "--ask", "And?")
    assert (again.returncode, "strict.py: no such Python file" in again.stderr) == (2, True), again.stderr
    missing = chat("numbers.csv", "--model", "scripted:script.md", "--with", "nothing", "--ask", "x")
    assert (missing.returncode, "there is no module 'nothing'" in missing.stderr) == (2, True)


def test_named_secret_is_never_stored_not_even_on_resume(chat, tmp_path):
    (tmp_path / "two.md").write_text("```\nOne.\n```\n```\nTwo.\n```\n")
    begun = ("numbers.csv", "--model", "scripted:two.md", "--secret", "MINE", "--ask", "Is it hunter22?")
    done = chat(*begun, MINE="hunter22")
    assert (done.returncode, "--ask contains a secret" in done.stderr) == (0, True), done.stderr
    again = chat("last", command="resume", said="It was hunter22\n", MINE="hunter22")
    assert (again.returncode, "contains a secret" in again.stderr, "Two." in again.stdout) == (0, True, True)
    assert not any(b"hunter22" in path.read_bytes() for path in (tmp_path / ".dsa").rglob("*") if path.is_file())
    unset = chat("numbers.csv", "--secret", "GONE", "--ask", "x")
    assert (unset.returncode, "--secret takes the name of a variable" in unset.stderr) == (2, True)


def test_quiet_and_log_options_replace_the_display(chat):
    asked = ("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?")
    for more in (("--quiet",), ("--log", "info")):
        done = chat(*asked, *more)
        answer, how = done.stdout.splitlines()
        assert (done.returncode, answer, ": completed; to continue" in how) == (0, "Two rows.", True), done.stderr
        assert ("sql_call" in done.stderr) == ("--log" in more)
    odd = chat(*asked, "--log", "inof")
    assert (odd.returncode, "did you mean" in odd.stderr) == (2, True), odd.stderr


def test_resume_continues_the_conversation_as_it_was_started(chat, tmp_path):
    (tmp_path / "many.md").write_text("".join(f"```\n{word}.\n```\n" for word in ("One", "Two", "Three")))
    assert chat("numbers.csv", "--model", "scripted:many.md", "--ask", "x").returncode == 0
    done = chat("last", command="resume", said="And then?\n/state\nAnd then?\n")
    assert done.returncode == 0, done.stderr
    assert "One." not in done.stdout
    told = [
        done.stdout.index(text)
        for text in ("/help lists", "Two.", "resting.completed", "Three.", "to continue: dsa chat")
    ]
    assert told == sorted(told)
    ended = chat("last", command="resume", said="/end\n")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "> ended")
    over = chat("last", command="resume", said="And?\n")
    assert "is finished: closed" in over.stdout


def test_resume_keeps_deduplication_off(chat, tmp_path):
    (tmp_path / "twice.md").write_text(SCRIPT + SCRIPT)
    begun = ("numbers.csv", "--model", "scripted:twice.md", "--no-dedup", "--ask", "What is there?")
    assert chat(*begun).returncode == 0
    again = chat("last", command="resume", said="And now?\n")
    assert ("skipped, done already" in again.stdout, again.stdout.count("Two rows.")) == (False, 1), again.stdout


def test_exported_tables_contain_no_formulas(chat, tmp_path):
    code = (
        r"open('made.csv', 'w').write('a,b\n=1+1,-5\nx;@y,+3\n'); open('made.tsv', 'w').write('a\tb\n\t=1+1\n-5\tx\n')"
    )
    calls = (
        ("run_sql", {"query": "SELECT '=1+1' AS \"@a\", -5 AS b UNION ALL SELECT 'x;@y', 3 ORDER BY b"}),
        ("run_python", {"code": code}),
    )
    answers = [
        f"```\n{json.dumps({'tool_calls': [{'name': name, 'arguments': given}]})}\n```\n" for name, given in calls
    ]
    (tmp_path / "made.md").write_text("\n".join([*answers, "```\nDone.\n```\n"]))
    done = chat("numbers.csv", "--model", "scripted:made.md", said="Make tables.\n/export out\n/end\n")
    assert done.returncode == 0, done.stderr
    made = {
        path.suffix + path.name[:4]: path.read_text() for path in (tmp_path / "out").iterdir() if path.suffix != ".md"
    }
    assert sorted(made.values()) == [
        "'@a,b\n'=1+1,-5\nx;'@y,3\n",
        "a\tb\n\t'=1+1\n-5\tx\n",
        "a,b\n'=1+1,-5\nx;'@y,+3\n",
    ]


ENDLESS = (
    "CREATE VIEW boom AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) AS x FROM c"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_stops_loading_an_endless_view_and_leaves_nothing_behind(tmp_path, number):
    with sqlite3.connect(tmp_path / "x.db") as data:
        data.execute(ENDLESS)
    data.close()
    (tmp_path / "script.md").write_text(SCRIPT)
    line = "from dsa.cli.main import main; main()"
    typed = [sys.executable, "-c", line, "chat", "x.db", "--model", "scripted:script.md", "--ask", "x"]
    process = subprocess.Popen(typed, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        while process.poll() is None and not [*tmp_path.glob(".dsa/*/.data-*/data.duckdb")]:
            time.sleep(0.01)
        (work,) = tmp_path.glob(".dsa/*/.data-*")
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == (130 if number == signal.SIGINT else -number), said
    end = time.monotonic() + 60
    while number != signal.SIGINT and work.parent.exists():  # the loading process notices that its parent is gone
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not work.parent.exists()


def test_view_over_its_load_limit_is_reported_with_the_variable_to_set(chat, tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as data:
        data.execute(ENDLESS)
    data.close()
    done = chat("x.db", "--model", "scripted:script.md", "--ask", "x", DSA_LOAD_S="1")
    told = "x.db view boom: takes longer to load than the limit of 1 s. Nothing was loaded: leave the file out, or set DSA_LOAD_S to more seconds"
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert [*tmp_path.glob(".dsa/*/*")] == []
