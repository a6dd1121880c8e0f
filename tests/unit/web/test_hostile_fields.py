"""Texts of models, people, files and providers in every field that a page of runs has: none becomes an element."""

import asyncio
from typing import get_args

import attrs
import pytest
from hostile_texts import ALL_AT_ONCE, HOSTILE, faults_of_run, foreign_in

import dsa
from dsa.lang import read_machine
from dsa.runtime import ledger
from dsa.runtime.artifacts import AttemptRecord
from dsa.runtime.content import Artifact, Usage
from dsa.runtime.run_store import RunSummary, Summary
from dsa.web.document_markup import DocumentVerdicts, document_markup, overview
from dsa.web.markup import join, message_page, tag
from dsa.web.run_feed import RunFeed
from dsa.web.run_pages import _attempt, _run_page, _run_table

MACHINE = """# pay

A text.

## Parameters
| parameter | domain | default | note |
| --------- | ------ | ------- | ---- |
| most      | 1..9   | 3       | why  |

## Variables
| variable | scope    | domain  | initial | note |
| -------- | -------- | ------- | ------- | ---- |
| asks     | workflow | 0..most | 0       | why  |

## Events
| event | from    | note |
| ----- | ------- | ---- |
| asked | outside | why  |
| bye   | outside | why  |

## States
| state | kind    | note |
| ----- | ------- | ---- |
| idle  | initial | why  |
| open  |         | why  |
| done  | final   | why  |

## Effects
| effect | kind     | note |
| ------ | -------- | ---- |
| tell   | actuator | why  |

## Transitions
| source | event | if          | update    | effects | target | note |
| ------ | ----- | ----------- | --------- | ------- | ------ | ---- |
| idle   | asked | asks < most | asks += 1 |         | open   | why  |
| open   | bye   |             |           | tell    | done   | why  |

## Properties
- always asks <= most
- possible done

## Scenario: a day
| percept | action | state |
| ------- | ------ | ----- |
| asked   |        | open  |
"""
ERROR = {"id": "e", "actor": "tell", "type": "text", "payload": {"error": True, "code": "BAD", "message": "m", "traceback": "t"}}  # fmt: skip
TEXT = {"id": "t", "actor": "tell", "type": "text", "payload": {"text": "t", "data": {"rows": [["cell"]], "columns": ["name"]}}}  # fmt: skip
QUESTION = {"id": "q", "actor": "tell", "type": "question", "payload": {"text": "q"}}
PART = {"id": "p", "actor": "tell", "type": "text", "payload": {"code": "PART_WAITS", "part": {"run": "r", "waits_for": {"bye": "1"}, "due_ms": None}}}  # fmt: skip
#: An entry of each kind, or several, with every field filled in.
ENTRIES = (
    ledger.ChangeEntry("pay", "0" * 64, "text", {"most": 3}, "pay.md", 1),
    ledger.EventEntry(2, "bye", {"g": "failed"}, "open", {"note": ["deep", {"er": "text"}], ALL_AT_ONCE: 1}, "1/1", 1, "1"),
    ledger.RefusalEntry("late", "message", ("bye",)),
    ledger.RowEntry(30, "open", "done", {"asks": 1}, {"plot": "r/0123456789ab"}),
    ledger.EffectEntry("2/1", "tell"),
    *(ledger.ResultEntry("2/1", (each,), 0.5, 1) for each in (ERROR, TEXT, QUESTION, PART)),
    ledger.ArtifactEntry("1/1", "plot", 1, "r/0123456789ab", "0" * 64, ("r/a",), "llm", "model", 1.0, 1, 2, 0.5, "other", ("KEY",)),
    ledger.VerdictEntry("1/1", "plot", 1, "r/0123456789ab", (ledger.GuardVerdict("g", "fatal", "feedback", review=True),), 1.0),
    ledger.ResumedEntry("ann", 1, "model", "module", ("tokens=5",), {"2/1": "retry"}, {"2/1/1.1": "fail"}),
    ledger.DecidedEntry("2/1", "retry", "1.1", 1),
    ledger.CallEntry("2/1", "1.1", "search", "0" * 64, {"query": "q"}, ("search",)),
    ledger.CallResultEntry("2/1", "1.1", (TEXT,)),
)  # fmt: skip


def run_with(tmp_path, entries, judge):
    """Return the result of a function of the place of runs, the id of a run, and its news with more entries."""
    (tmp_path / "pay.md").write_text(MACHINE)
    (tmp_path / "bindings.py").write_text(
        "async def tell(action, context):\n    return []\n\neffects = {'tell': tell}\n"
    )

    async def scenario():
        async with dsa.open_runs("memory:") as runs:
            run = await runs.start(str(tmp_path / "pay.md"), "?")
            await run.rest()
            news = await runs.look(run.id)
            return judge(runs, run.id, attrs.evolve(news, entries=(*news.entries, *entries)))

    return asyncio.run(scenario())


def test_fields_of_every_kind_of_entry_make_no_element(tmp_path):
    assert {type(each) for each in ENTRIES} | {ledger.MachineEntry} == set(get_args(ledger.Entry))
    faults, seen = run_with(tmp_path, ENTRIES, lambda *run: faults_of_run(*run, ALL_AT_ONCE))
    assert faults == []
    assert seen >= {"data", "text", "message", "feedback", "author", "model", "response_model", "query", "rows", "columns", "by", "file", "name"}  # fmt: skip


@pytest.mark.parametrize("field", ["state", "machine", "outcome", "waits_for", "in_doubt", "about", "failure", "timers", "run", "holder", "queue", "damage"])  # fmt: skip
def test_fields_of_summaries_make_no_element(tmp_path, field):
    def judge(runs, run, news):
        faults = []
        for text in (ALL_AT_ONCE, *HOSTILE):
            value = {text: text} if field in {"waits_for", "in_doubt"} else (text,) if field == "timers" else text
            for status in ("waiting", "due", "stopped", "finished", "in doubt"):
                summary, whole = attrs.evolve(news.summary.summary, status=status), news.summary
                if hasattr(summary, field):
                    whole = attrs.evolve(whole, summary=attrs.evolve(summary, **{field: value}))
                else:
                    whole = attrs.evolve(whole, summary=summary, **{field: value})
                if text is ALL_AT_ONCE:
                    name = text if field == "run" else run
                    faults += foreign_in(_run_page(RunFeed(runs, name, attrs.evolve(news, summary=whole)), None).html)
                faults += foreign_in(_run_table([whole], 1).html)
        return faults

    assert run_with(tmp_path, (), judge) == []


def test_every_text_field_of_a_summary_is_tested():
    texts = {
        each.name for kind in (Summary, RunSummary) for each in attrs.fields(kind) if each.type not in {int, int | None}
    }
    fields = {"state", "machine", "outcome", "waits_for", "in_doubt", "about", "failure", "timers", "run", "holder", "queue", "damage"}  # fmt: skip
    assert texts - fields == {"status", "summary", "parent", "parts"}, "of these, pages show the first alone"


def test_current_speech_of_a_model_makes_no_element(tmp_path):
    def judge(runs, run, news):
        feed = RunFeed(runs, run, news)
        feed.speech, feed.fault = ALL_AT_ONCE, ALL_AT_ONCE
        return _run_page(feed, None).html

    html = run_with(tmp_path, (), judge)
    assert html.count("&lt;iframe src=//evil.example&gt;") == 2
    assert foreign_in(html) == []


class Texts:
    """A store in which every artifact has the same text."""

    def get_artifact(self, _artifact_id):
        return Artifact(ALL_AT_ONCE)


def test_fields_of_attempts_make_no_element():
    text = ALL_AT_ONCE
    judgement = ledger.GuardVerdict(text, "fatal", text)
    usage = Usage(text, 1.0, 1, 1, 0.5, text)
    verdict = ledger.VerdictEntry(text, text, 1, text, (judgement,), 1.0)
    attempt = AttemptRecord(text, text, 1, text, "other", ("other",), text, usage, (verdict,), (text,), text)
    html = _attempt(attempt, {"other": attrs.evolve(attempt, artifact_id="other")}, Texts()).html
    assert html.count("&lt;iframe src=//evil.example&gt;") > 5
    assert foreign_in(html) == []


def test_every_cell_and_line_of_a_document_makes_no_element():
    lines, count = MACHINE.splitlines(), 0
    places = [
        (row, cell)
        for row, line in enumerate(lines)
        for cell in (range(1, line.count("|")) if line.startswith("|") and "---" not in line else [0])
        if line.strip()
    ]
    for number, (row, cell) in enumerate(places):
        text = HOSTILE[number % len(HOSTILE)].replace("|", "").replace("\x00", "") + ALL_AT_ONCE.replace("|", "")
        cells = lines[row].split("|")
        cells[cell] = f" {text} " if cell else f"{cells[0][:3]}{text}"
        mean = "\n".join([*lines[:row], "|".join(cells), *lines[row + 1 :]]) + "\n"
        reading = read_machine(mean, f"{HOSTILE[0]}.md", {})
        html = join(overview(reading, None), document_markup(mean, DocumentVerdicts(reading), "/machines/0")).html
        assert foreign_in(html) == [], (row, cell)
        count += "&lt;iframe src=//evil.example&gt;" in html
    assert count > len(places) * 0.9, "they are shown"


def test_foreign_element_in_a_page_is_detected():
    assert foreign_in(message_page("a", "b", tag("p", "c")).html) == []
    for text in ('<img src=x onerror="x">', "<svg onload=alert(1)>", "<a href='javascript:x'>", "<p style='x'>", "<!-- x", "<b\x00>", "<meta http-equiv=refresh>",
                 "<form action=//evil.example>", "<script>x</script>", "<link rel=stylesheet href=//evil.example>", "<iframe>", "<details ontoggle=x>"):  # fmt: skip
        assert foreign_in(f"<p>{text}</p>") != [], text
