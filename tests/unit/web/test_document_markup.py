"""The result of a check on a page: violated properties come first, and at the row with which a counterexample ends."""

import re
from html import unescape

import pytest
from payments import FAILURE_LINE, payment

from dsa import check
from dsa.checks.report import check_sentences, check_word
from dsa.edge.document_files import read_document
from dsa.lang import read_machine
from dsa.web.document_markup import DocumentVerdicts, all_findings, document_markup, overview

TICKS = """# ticks

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 1..3   | 2       |

## Variables
| variable | scope    | domain  | initial |
| -------- | -------- | ------- | ------- |
| n        | workflow | 0..most | 0       |

## Events
| event | from    | otherwise |
| ----- | ------- | --------- |
| tick  | outside | refused   |
| back  | outside | refused   |
| stop  | outside |           |

## States
| state | kind    |
| ----- | ------- |
| here  | initial |
| there | final   |

## Transitions
| source | event | if       | update | target |
| ------ | ----- | -------- | ------ | ------ |
| here   | tick  | n < most | n += 1 | here   |
| here   | back  | n > 0    | n = 0  | here   |
| here   | stop  |          |        | there  |

## Properties
"""
TICK, STOP = 29, 31


def shown(text: str) -> tuple[str, dict[int, str]]:
    """Return the sentences about a document, and the texts of the notes directly below its rows, by their lines."""
    reading = read_machine(text, "ticks.md")
    report = check(reading.machine)
    html = "".join(each.html for each in document_markup(text, DocumentVerdicts(reading, report), ""))
    rows = re.findall(
        r'id="line(\d+)"[^>]*>(?:(?!</tr>).)*</tr><tr class="notes"><td colspan="\d+">(.*?)</td></tr>', html
    )
    notes = {int(line): " ".join(unescape(re.sub("<[^>]*>", " ", note)).split()) for line, note in rows}
    assert set(re.findall(r'href="#(counterexample\d+)"', html)) <= set(re.findall(r' id="(\w+)"', html))
    return check_sentences(all_findings(reading, report), report), notes


@pytest.mark.parametrize(
    ("claim", "row", "words"),
    [
        ("always n < most", TICK, "the counterexample ends with this row, in step 2"),
        ("never there and n == 1", STOP, "the counterexample ends with this row, in step 2"),
    ],
)
def test_counterexample_is_named_at_its_last_row(claim, row, words):
    sentences, notes = shown(f"{TICKS}- {claim}\n")
    assert sentences.startswith("1 of 1 property is VIOLATED. The text itself has no mistakes (0 errors, 0 warnings")
    violated = {line: note for line, note in notes.items() if "VIOLATED" in note}
    assert list(violated) == [row]
    assert f"VIOLATED {claim}: " in violated[row]
    assert words in violated[row]
    assert "Counterexample" in violated[row]


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ("pay", "returns to where it was after step 1, and repeats for ever"),
        ("", "then nothing happens, for ever"),
    ],
)
def test_endless_counterexample_is_named_at_its_last_row(effects, words):
    notes = shown(payment("asked leads to done", on_failure=effects))[1]
    assert [number for number, note in notes.items() if "VIOLATED" in note] == [FAILURE_LINE]
    assert words in notes[FAILURE_LINE]


def test_property_that_holds_or_has_no_counterexample_marks_no_row():
    sentences, notes = shown(f"{TICKS}- always n <= most\n- possible there and n > most\n")
    assert not [note for note in notes.values() if "counterexample" in note]
    assert sentences.startswith(
        "1 of 2 properties is VIOLATED; 1 of 2 properties HOLD at most = 2 and at most = 1. The text"
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("n < most", "n <= most"), "has errors"),
        (("## Properties\n", "## Properties\n- always n < most\n"), "violated"),
        (("## Properties\n", "## Properties\n- always n <= most\n"), "good"),
    ],
)
def test_word_for_a_check_is_that_of_its_worst_finding(change, word):
    reading = read_machine(TICKS.replace(*change), "ticks.md")
    report = check(reading.machine)
    assert check_word(report) == word
    if word == "has errors":
        assert "The text itself has 1 error (DSA306), 0 warnings" in check_sentences(
            all_findings(reading, report), report
        )


def test_rows_of_another_document_are_named_and_not_linked(tmp_path, monkeypatch):
    rows = TICKS.replace("| back  | outside | refused   |", "| back  | outside |           |")
    (tmp_path / "ticks.md").write_text(f"{rows}- never n == most\n")
    text = "# claims\n\nMachine: ticks.md\n\n## Properties\n- always n < most\n"
    (tmp_path / "claims.md").write_text(text)
    monkeypatch.chdir(tmp_path)
    reading = read_document("claims.md")
    report = check(reading.machine)
    html = "".join(each.html for each in document_markup(text, DocumentVerdicts(reading, report), ""))
    assert f"the counterexample ends with the row in ticks.md:{TICK}" in html
    assert f"#line{TICK}" not in html
    assert f"ticks.md:{TICK + 1} event" in overview(reading, report).html
    own = len(rows.splitlines()) + 1
    assert f"<p>ticks.md:{own}</p>" in html, "a property of the machine is shown above the spec, with its place"
    assert f"ticks.md:{own} never n == most" in overview(reading, report).html
    assert "#line6" in overview(reading, report).html


def test_code_in_backticks_is_marked_as_code():
    text = TICKS.replace("# ticks\n", "# ticks\n\nThe event `tick` <b>counts</b>.\n\nOne ` alone stays.\n")
    html = "".join(each.html for each in document_markup(text, DocumentVerdicts(read_machine(text, "ticks.md")), ""))
    assert "The event <code>tick</code> &lt;b&gt;counts&lt;/b&gt;." in html
    assert "One ` alone stays." in html
