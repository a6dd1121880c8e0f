"""Any text: reading gives a machine or says why not, and formatting never fails."""

import re

import pytest
from documents import NASTY, shipped_texts, slowest, texts
from each_row import each_row
from sample_sizes import sample_size

from dsa.lang import dumps, format_document, loads, read_machine
from dsa.semantics import start

_LINE_END = re.compile(r"\r\n|\r|\n")


def require_sound(text: str) -> bool:
    """Read and format a text, and check what is promised of any text; return whether it is a machine."""
    reading = read_machine(text)
    is_error = any(finding.severity == "error" for finding in reading.diagnostics)
    assert (reading.machine is None) == is_error
    lines = _LINE_END.split(text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text)
    for finding in reading.diagnostics:
        span = finding.span
        assert 1 <= span.line <= len(lines), finding
        assert span.text == lines[span.line - 1], finding
        assert 1 <= span.column <= span.end <= len(span.text) + 2, finding
        assert len(finding.message) < 1_000, finding
        assert len(finding.render()) < 4_000, finding
    laid_out = format_document(text)
    if laid_out != text:
        assert format_document(laid_out) == laid_out
        assert read_machine(laid_out).machine == reading.machine
    if reading.machine is None:
        return False
    written = dumps(reading.machine)
    again = loads(written)
    assert again == reading.machine
    assert dumps(again) == written
    start(again)
    return True


def require_all_sound(count: int, seed: int) -> None:
    machines = sum(require_sound(text) for text in texts(count, seed))
    assert count * 0.1 < machines < count * 0.6, "a test needs some texts that are machines and some that are not"


def test_any_text_is_read_and_formatted():
    require_all_sound(120, seed=2026)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_any_of_many_texts_is_read_and_formatted(seed):
    require_all_sound(1_000, seed)


#: One cell of each kind in dual_state; one of them is tried with each value, all in a full run.
_CELLS = (
    "| initial",
    "| 0..rmax",
    "| g.passed",
    "| retries += 1",
    "| query_llm",
    "| generating",
    "| verdict g.failed",
    "| 0..",
    "| cases",
)


def dual_state_text() -> str:
    return next(shipped for shipped in shipped_texts() if shipped.startswith("# dual_state"))


def require_sound_in_cell(word: str, nasty: str) -> None:
    text = dual_state_text()
    assert f"{word} " in text
    require_sound(text.replace(f"{word} ", f"| {nasty} ", 1))


@each_row(("place", "nasty"), list(enumerate(NASTY)))
def test_nasty_value_is_read_in_prose_and_in_a_cell(place, nasty):
    if place % sample_size(3, full=1) == 0:
        prose = dual_state_text().replace("- always retries", f"- always {nasty}")
        require_sound(prose.replace(": refinement loop", f": {nasty}"))
    require_sound_in_cell(_CELLS[place % len(_CELLS)], nasty)


@pytest.mark.full
@pytest.mark.parametrize("word", _CELLS)
def test_every_nasty_value_is_read_in_every_cell(word):
    for nasty in NASTY:
        require_sound_in_cell(word, nasty)


def test_slowest_text_is_found():
    seconds, text = slowest(20, 1, read_machine)
    assert seconds > 0
    assert text in set(texts(20, 1))
