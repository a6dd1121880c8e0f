"""Answers as PDF: formatted, the same bytes each time, for any text of a model; nothing is fetched for them."""

import random
import re
import zlib

import pytest

from machines.chat.chat_notices import as_pdf
from machines.chat.chat_session import Files
from machines.chat.conversation import ChatTurn

FRAGMENTS = (
    "# h\n", "text ", "**b**", "*i*", "`c`", "\n\n", "- a\n", "  - b\n", "1. x\n", "> q\n", "```\ncode\n```\n", "| a | b |\n| --- | --- |\n| 1 | **2** |\n",
    "x" * 400, "<b>", "<table><tr>", "&#0;", "\N{CJK UNIFIED IDEOGRAPH-65E5}", "\N{GRINNING FACE}", "\t", "---\n", "[l](javascript:x)", "\x07", "\\", "\n",
)  # fmt: skip


def pdf_of(tmp_path, answer, title="How much?"):
    return as_pdf(ChatTurn(1, title, rerun=False, answer=answer), [], Files(tmp_path))


def drawn(pdf):
    """Return what the pages draw, unpacked."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    return b"".join(_unpacked(each) for each in streams)


def _unpacked(stream):
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def test_equal_answers_give_equal_bytes_without_a_date(tmp_path):
    answer = "## Head\n\nIt *is* **12**.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert pdf_of(tmp_path, answer) == pdf_of(tmp_path, answer)
    assert b"D:2" not in pdf_of(tmp_path, answer)


def test_answer_is_formatted_rather_than_shown_as_markdown(tmp_path):
    formatted, plain = drawn(pdf_of(tmp_path, "**12**")), drawn(pdf_of(tmp_path, "12"))
    assert formatted != plain  # another font
    assert len(formatted) < len(drawn(pdf_of(tmp_path, r"\*\*12\*\*"))) + 40


def test_image_linked_by_the_model_is_not_embedded(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"\x89PNG no picture")
    assert b"/Subtype /Image" not in pdf_of(tmp_path, f"![x]({tmp_path / 'secret.png'}) ![y](http://127.0.0.1:1/x.png)")


@pytest.mark.parametrize("columns", [1, 6, 60])
def test_table_of_any_width_gives_a_pdf(tmp_path, columns):
    row = "|".join(f"cell{number}" for number in range(columns))
    assert pdf_of(tmp_path, f"|{row}|\n|{'---|' * columns}\n|{row}|\n").startswith(b"%PDF")


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 60), marks=pytest.mark.full)], ids=["some", "all"])
def test_any_model_text_gives_a_pdf(tmp_path, seeds):
    for seed in seeds:
        chance = random.Random(seed)
        answer = "".join(chance.choice(FRAGMENTS) for _ in range(25))
        assert pdf_of(tmp_path, answer, title=answer).startswith(b"%PDF"), seed
