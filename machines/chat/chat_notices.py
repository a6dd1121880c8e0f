"""What the chat machine says where nothing is done: refused calls, reminders, errors, and the answer itself.

Each effect gives one step with a text for people, the reason by its name (`REASONS`), and what the model is to be told: results of calls
that were not made (`results`), a note (`note`). `conversation.py` reads them from the ledger. An answer can also be a report: Markdown with the
figures and tables that it speaks of, and the same as PDF.
"""

import hashlib
import io
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token

from dsa.guards.feedback import verdict_of
from dsa.runtime.content import Artifact as Judged
from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step, answering, event_step
from machines.chat.chat_resources import ChatResources, Files, resources_in
from machines.chat.conversation import (
    ChatArtifact,
    ChatCall,
    ChatConversation,
    ChatResult,
    ChatTurn,
    NewArtifact,
    PresentedAnswer,
)
from machines.tool_use.records import as_data, read_record
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolResult, refused
from machines.tool_use.transcript import Notice, results_told

if TYPE_CHECKING:
    from fpdf import FPDF

_FIGURES = frozenset({"png"})
_DIGITS = 16
_FONT, _MONO = "text", "mono"
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)


def report_files(conversation: ChatConversation, files: Files) -> tuple[NewArtifact, ...]:
    """Keep the report of the last turn as Markdown and as PDF, and return both as artifacts; the same answer over the same files has one report."""
    turn, shown, inventory = conversation.turn, artifacts_of(conversation), conversation.inventory
    told = "\n".join([turn.answer.strip(), *(each.artifact_id for each in shown)])
    about = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    known = [inventory.latest(f"report:{about}:{kind}") for kind in ("md", "pdf")]
    if all(known):
        return tuple(each.as_made() for each in known if each is not None)
    written = {"md": as_markdown(turn, shown).encode(), "pdf": as_pdf(turn, shown, files)}
    made = [
        NewArtifact(f"report_{turn.number}.{kind}", kind, files.keep(content), len(content), f"report:{about}:{kind}")
        for kind, content in written.items()
    ]
    return conversation.inventory.compared(made)


def artifacts_of(conversation: ChatConversation) -> list[ChatArtifact]:
    """Return the artifacts that a turn made or that its answer names, each once, oldest first."""
    turn, inventory = conversation.turn, conversation.inventory
    made = {artifact_id for call in turn.calls for artifact_id in call.artifacts}
    return [each for each in inventory if each.artifact_id in made or each.name in turn.answer]


def as_markdown(turn: ChatTurn, artifacts: list[ChatArtifact]) -> str:
    """Write the report as Markdown; figures and files are linked by their names beside it."""
    parts = [f"# {_title(turn)}", turn.answer.strip()]
    for artifact in artifacts:
        name = artifact.file_name
        parts.append(f"{'!' if artifact.kind in _FIGURES else ''}[{artifact.name}]({name})")
    return "\n\n".join(parts) + "\n"


def as_pdf(turn: ChatTurn, artifacts: list[ChatArtifact], files: Files) -> bytes:
    """Write the report as PDF: the answer with its headings, lists and tables, the names of the files, and each figure.

    An answer that cannot be laid out, as a table of sixty columns, stands there as it was written.
    """
    from fpdf.errors import FPDFException

    try:
        return _written(turn, artifacts, files, _write_formatted)
    except (FPDFException, NotImplementedError):
        return _written(turn, artifacts, files, _write_plain)


def _written(
    turn: ChatTurn, artifacts: list[ChatArtifact], files: Files, write_answer: Callable[["FPDF", str], None]
) -> bytes:
    with _begun(turn) as pdf:
        write_answer(pdf, turn.answer.strip())
        for artifact in artifacts:
            pdf.ln(4)
            pdf.multi_cell(0, 6, f"{artifact.name} ({artifact.file_name})", new_x="LMARGIN", new_y="NEXT")
            if artifact.kind in _FIGURES:
                pdf.image(io.BytesIO(files.content(artifact.digest)), w=pdf.epw, keep_aspect_ratio=True)
        return bytes(pdf.output())


@contextmanager
def _begun(turn: ChatTurn) -> Iterator["FPDF"]:
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
    """Return a document fonts that have Greek, Cyrillic and more; a box stands in the place of what they lack."""
    from matplotlib import get_data_path

    folder = Path(get_data_path(), "fonts", "ttf")
    for family, name in ((_FONT, "DejaVuSans"), (_MONO, "DejaVuSansMono")):
        for style, ending in (("", ""), ("B", "-Bold"), ("I", "-Oblique"), ("BI", "-BoldOblique")):
            pdf.add_font(family, style, folder / f"{name}{ending}.ttf")


def _title(turn: ChatTurn) -> str:
    return " ".join(turn.text.split())


_GUIDANCE = (
    "run_python needs code. Send the call again as {example}, with the whole program as one string in `code`: "
    "no fence around it, no other argument but `timeout`."
)
_EXAMPLE = '{"code": "print(df.describe())", "timeout": 30}'
#: Kinds of files that an answer may name or a user may want, with the words for it.
_WANTED = {
    "figure": (re.compile(r"\b(?:plot|chart|graph|histogram|diagram|figure|heat ?map)s?\b", re.IGNORECASE), {"png", "pdf", "svg"}),
    "CSV file": (re.compile(r"\bcsv\b|\bspreadsheet\b", re.IGNORECASE), {"csv"}),
    "PDF": (re.compile(r"\bpdf\b", re.IGNORECASE), {"pdf"}),
}  # fmt: skip
_NOT_WANTED = re.compile(r"\b(?:no|not|without|don't|dont|do not)\b", re.IGNORECASE)
_FILE = re.compile(
    r"(?<![\w/.:-])([A-Za-z0-9_][\w.-]{0,78}\.(?:csv|png|pdf|svg|json|xlsx|html|parquet|txt|md))(?![\w/])"
)


def _read(context: PolicyContext) -> tuple[ChatResources, ChatConversation]:
    """Return what the conversation works with, and the conversation."""
    chat = resources_in(context.config, context.run.run_id)
    return chat, chat.conversation(context.run)


def _call_in(action: Action) -> ChatCall:
    return read_record(ChatCall, action.payload["data"])


def _told(
    action: Action, reason: str, text: str, *results: ToolResult, note: str = "", drops: bool = False
) -> list[Step]:
    return [Notice(reason, text, note, results_told(*results), drops).as_step(action.policy)]


# -- calls that are not made ------------------------------------------------------------------------------------------------


async def skip_duplicate(action: Action, context: PolicyContext) -> list[Step]:
    """Return the result of the equal call again."""
    _, conversation = _read(context)
    call = _call_in(action)
    known = call.earlier
    assert known is not None, "the guard `fresh` has found it"
    earlier = conversation.transcript.call(known.call_id)
    when = "in this turn" if known.turn == call.turn else f"in turn {known.turn}"
    text = f"an equal call was made {when} ({known.call_id})"
    said = f"not made: {text}; this is what it gave. Go on from there; only the user can ask for it to be done again"
    reason = "duplicate_tool_call_skipped"
    return _told(
        action, reason, text, refused(call.call_id, reason, said, result=None if earlier is None else earlier.result)
    )


async def refuse_call(action: Action, context: PolicyContext) -> list[Step]:
    """Return why a call cannot be made."""
    call = _call_in(action)
    reason = "invalid_tool_payload" if call.tool else "unknown_tool"
    why = call.fault or _fault_of(action, context)
    return _told(action, reason, why, refused(call.call_id, reason, why))


async def refuse_state(action: Action, context: PolicyContext) -> list[Step]:
    """Return that the phase takes no such call."""
    call = _call_in(action)
    phase = context.run.configuration.state.rpartition(".")[2]
    why = f"{call.tool} is not taken while {phase}: answer with what there is, or use another tool"
    return _told(action, "invalid_state", why, refused(call.call_id, "invalid_state", why))


async def guide_retry(action: Action, context: PolicyContext) -> list[Step]:
    """Send a Python call back, once a turn, with how to write it."""
    why = _fault_of(action, context)
    hint = f"{why}. {_GUIDANCE.format(example=_EXAMPLE)}"
    reason = "empty_python_payload_retried"
    return _told(action, reason, why, refused(_call_in(action).call_id, reason, hint))


def _fault_of(action: Action, context: PolicyContext) -> str:
    """Return what the guard `usable` says of a call."""
    call = Judged(json.dumps(action.payload["data"]))
    return verdict_of("usable", context.guard("usable"), call, {}).feedback


async def drop_calls(action: Action, context: PolicyContext) -> list[Step]:
    """Answer every call that waits: it was not made."""
    _, conversation = _read(context)
    results = _refused_all(conversation, LEFT_OUT, "this turn takes no more calls; answer with what there is")
    return _told(action, LEFT_OUT, f"{len(results)} calls left out", *results, drops=True)


def _refused_all(conversation: ChatConversation, reason: str, why: str) -> list[ToolResult]:
    return [refused(call_id, reason, why) for call_id in conversation.transcript.waiting()]


async def note_duplicate(action: Action, context: PolicyContext) -> list[Step]:
    """Return which artifacts were there already."""
    _, conversation = _read(context)
    came = read_record(ChatResult, {"result": {}, "call_id": "", **action.payload["data"]})
    names = [(each.name, each.equal_to) for each in came.artifacts if each.equal_to]
    said = "; ".join(f"{name} is {known} ({conversation.inventory[known].name})" for name, known in names)
    return _told(action, "duplicate_artifact_prevented", said)


# -- answers ----------------------------------------------------------------------------------------------------------------


async def note_cut_off(action: Action, _context: PolicyContext) -> list[Step]:
    """Tell the model that its answer cannot be used."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _told(action, "answer_cut_off", answer.why, note=answer.note)


@answering("presented")
async def present(action: Action, context: PolicyContext) -> list[Step]:
    """Look which files an answer lacks, and make the report if one is wanted and nothing is lacking."""
    chat, conversation = _read(context)
    chat.files.shown(conversation.inventory)
    lacking = what_is_missing(conversation, {table.source for table in chat.database.tables})
    made = report_files(conversation, chat.files) if chat.wants_report and not lacking else ()
    return [event_step(action.policy, "presented", data=as_data(PresentedAnswer(made, tuple(lacking))))]


def what_is_missing(conversation: ChatConversation, sources: Iterable[str]) -> list[str]:
    """Return which files an answer names that are not there, and which kind of file the user wanted and nobody made."""
    turn, inventory, known = conversation.turn, conversation.inventory, set(sources)
    named = [name for name in dict.fromkeys(_FILE.findall(turn.answer)) if name not in known]
    lacking = [f"the file {name}, which the answer names" for name in named if inventory.named(name) is None]
    made = [inventory[artifact_id] for call in turn.calls for artifact_id in call.artifacts]
    here = [*made, *(found for name in named if (found := inventory.named(name)) is not None)]
    for what, (words, kinds) in _WANTED.items():
        wanted = words.search(turn.text) and not _NOT_WANTED.search(turn.text)
        if wanted and not _is_there(here, kinds):
            lacking.append(f"a {what}, which the user wants")
    return lacking


def _is_there(artifacts: Iterable[ChatArtifact], kinds: set[str]) -> bool:
    return any(artifact.kind in kinds for artifact in artifacts)


async def remind(action: Action, _context: PolicyContext) -> list[Step]:
    """Tell the model what its answer is missing."""
    said = "; ".join(read_record(PresentedAnswer, action.payload["data"]).missing)
    note = f"[Not there: {said}. Make it with a tool, or answer without it.]"
    return _told(action, "answer_incomplete", said, note=note)


async def note_missing(action: Action, _context: PolicyContext) -> list[Step]:
    """Tell the user what an answer is missing."""
    said = "; ".join(read_record(PresentedAnswer, action.payload["data"]).missing)
    return _told(action, "answer_incomplete", said)


# -- turns that end otherwise -------------------------------------------------------------------------------------------------


async def note_cancelled(action: Action, context: PolicyContext) -> list[Step]:
    """Answer the calls of a turn that the user has stopped."""
    return _stopped(action, context, "turn_cancelled", "the user stopped the turn")


async def report_time_out(action: Action, context: PolicyContext) -> list[Step]:
    """Return that a turn has taken too long."""
    return _stopped(action, context, "turn_timed_out", "the turn took longer than its time limit")


async def report_limit(action: Action, context: PolicyContext) -> list[Step]:
    """Return that a turn has reached a bound."""
    return _stopped(action, context, "limit_reached", "the turn reached its bound on answers, calls or refusals")


async def report_error(action: Action, context: PolicyContext) -> list[Step]:
    """Return what failed."""
    data = action.payload["data"]
    said = data.get("message") if isinstance(data, dict) else None
    return _stopped(action, context, "turn_failed", str(said or "it failed"))


def _stopped(action: Action, context: PolicyContext, reason: str, text: str) -> list[Step]:
    _, conversation = _read(context)
    return _told(action, reason, text, *_refused_all(conversation, "interrupted", text), drops=True)


telling: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        skip_duplicate, refuse_call, refuse_state, guide_retry, drop_calls, note_duplicate, note_cut_off, remind, note_missing,
        note_cancelled, report_time_out, report_limit, report_error,
    )
} | {"present": present}  # fmt: skip
