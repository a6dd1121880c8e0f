"""An answer as a report: Markdown with the figures and tables that it speaks of, and the same as PDF.

Takes a conversation and the files, gives what was made. The same answer over the same artifacts gives the same bytes: no date, no name of a
program stands in them.
"""

import io
import textwrap
import warnings
from typing import Any

from machines.chat.conversation import Conversation, Turn
from machines.chat.files import Files
from machines.chat.inventory import Artifact, Made

_FIGURES = frozenset({"png"})
_WIDTH, _LINES = 92, 58
_PAGE_INCHES = (8.27, 11.69)  # A4


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
    """Write the report as PDF: the text first, then a page for each figure."""
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    lines = [line for text in turn.answer.strip().splitlines() for line in textwrap.wrap(text, _WIDTH) or [""]]
    buffer = io.BytesIO()
    described = {"CreationDate": None, "Producer": None, "Creator": None}
    with warnings.catch_warnings(), PdfPages(buffer, metadata=described) as pages:
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # a box stands in its place
        for start in range(0, max(1, len(lines)), _LINES):
            page = Figure(figsize=_PAGE_INCHES)
            if start == 0:
                page.text(0.1, 0.94, textwrap.shorten(_title(turn), 60), fontsize=14, weight="bold", parse_math=False)
            body = "\n".join(lines[start : start + _LINES])
            page.text(0.1, 0.91, body, fontsize=9, va="top", linespacing=1.3, parse_math=False)
            pages.savefig(page)
        for artifact in artifacts:
            if artifact.kind in _FIGURES:
                page = Figure(figsize=_PAGE_INCHES)
                axes = page.add_axes((0.08, 0.1, 0.84, 0.8))
                axes.imshow(imread(io.BytesIO(files.content(artifact.digest)), format="png"))
                axes.set_title(artifact.name, fontsize=10)
                axes.axis("off")
                pages.savefig(page)
    return buffer.getvalue()


def _title(turn: Turn) -> str:
    return " ".join(turn.text.split())
