"""An answer as a report: Markdown with the figures and tables that it speaks of, and the same as PDF.

Takes a conversation and the files, gives what was made. The same answer over the same artifacts gives the same bytes: no date, no name of a
program stands in them.
"""

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from machines.chat.conversation import Conversation, Turn
from machines.chat.files import Files
from machines.chat.inventory import Artifact, Made

if TYPE_CHECKING:
    from fpdf import FPDF

_FIGURES = frozenset({"png"})
_FONT, _MONO = "text", "mono"
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)


def report_files(conversation: Conversation, files: Files) -> list[dict[str, Any]]:
    """Keep the report of the last turn as Markdown and as PDF, and give both as artifacts."""
    turn = conversation.turn
    shown = artifacts_of(conversation)
    written = {"md": as_markdown(turn, shown, files).encode(), "pdf": as_pdf(turn, shown, files)}
    made = [
        Made(f"report_{turn.number}.{kind}", kind, files.keep(content), len(content), f"report:{turn.number}:{kind}")
        for kind, content in written.items()
    ]
    return conversation.inventory.compared(made)


def artifacts_of(conversation: Conversation) -> list[Artifact]:
    """Give the artifacts that a turn made or that its answer names, each once, oldest first."""
    turn, inventory = conversation.turn, conversation.inventory
    made = {artifact_id for call in turn.calls for artifact_id in call.artifacts}
    return [each for each in inventory if each.artifact_id in made or each.name in turn.answer]


def as_markdown(turn: Turn, artifacts: list[Artifact], files: Files) -> str:
    """Write the report as Markdown; figures and files are linked by their names beside it."""
    parts = [f"# {_title(turn)}", turn.answer.strip()]
    for artifact in artifacts:
        name = files.name_of(artifact)
        parts.append(f"{'!' if artifact.kind in _FIGURES else ''}[{artifact.name}]({name})")
    return "\n\n".join(parts) + "\n"


def as_pdf(turn: Turn, artifacts: list[Artifact], files: Files) -> bytes:
    """Write the report as PDF: the answer with its headings, lists and tables, the names of the files, and each figure.

    An answer that cannot be laid out, as a table of sixty columns, stands there as it was written.
    """
    from fpdf.errors import FPDFException

    try:
        return _written(turn, artifacts, files, _write_formatted)
    except (FPDFException, NotImplementedError):
        return _written(turn, artifacts, files, _write_plain)


def _written(turn: Turn, artifacts: list[Artifact], files: Files, write_answer: Callable[["FPDF", str], None]) -> bytes:
    with _begun(turn) as pdf:
        write_answer(pdf, turn.answer.strip())
        for artifact in artifacts:
            pdf.ln(4)
            pdf.multi_cell(0, 6, f"{artifact.name} ({files.name_of(artifact)})", new_x="LMARGIN", new_y="NEXT")
            if artifact.kind in _FIGURES:
                pdf.image(io.BytesIO(files.content(artifact.digest)), w=pdf.epw, keep_aspect_ratio=True)
        return bytes(pdf.output())


@contextmanager
def _begun(turn: Turn) -> Iterator["FPDF"]:
    """Begin a document with the title; no date and no name of a program stands in it."""
    from fpdf import FPDF

    logging.getLogger("fpdf").setLevel(logging.ERROR)  # it would tell of each letter that a font lacks
    pdf = FPDF(format="A4")
    pdf.set_creation_date(_NO_DATE)
    pdf.set_producer("")
    try:
        _add_fonts(pdf)
        pdf.set_margin(20)
        pdf.add_page()
        pdf.set_font(_FONT, "B", 15)
        pdf.multi_cell(0, 8, _title(turn), wrapmode="CHAR", new_x="LMARGIN", new_y="NEXT")
        pdf.set_font(_FONT, size=10)
        yield pdf
    finally:
        for font in pdf.fonts.values():
            font.ttfont.close()


def _write_plain(pdf: "FPDF", answer: str) -> None:
    pdf.multi_cell(0, 5, answer, wrapmode="CHAR", new_x="LMARGIN", new_y="NEXT")


def _write_formatted(pdf: "FPDF", answer: str) -> None:
    """Write Markdown. It is a model's: no HTML of its own is taken, and no picture is fetched from anywhere."""
    from fpdf.fonts import FontFace

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(answer)
    for before, token in pairwise(tokens):
        if before.type in {"td_open", "th_open"} and token.children:  # in cells stands text alone
            token.children = [Token("text", "", 0, content="".join(child.content for child in token.children))]
    html = str(parser.renderer.render(tokens, parser.options, {}))
    code = FontFace(family=_MONO, size_pt=9)
    pdf.write_html(html, table_line_separators=True, font_family=_FONT, tag_styles={"code": code, "pre": code})


def _add_fonts(pdf: "FPDF") -> None:
    """Give a document fonts that have Greek, Cyrillic and more; a box stands in the place of what they lack."""
    from matplotlib import get_data_path

    folder = Path(get_data_path(), "fonts", "ttf")
    for family, name in ((_FONT, "DejaVuSans"), (_MONO, "DejaVuSansMono")):
        for style, ending in (("", ""), ("B", "-Bold"), ("I", "-Oblique"), ("BI", "-BoldOblique")):
            pdf.add_font(family, style, folder / f"{name}{ending}.ttf")


def _title(turn: Turn) -> str:
    return " ".join(turn.text.split())
