"""Notices of the chat machine: refused calls, reminders, errors; and the report of an answer.

Each effect returns one step with a text for people, the name of the reason (`REASONS`), and the part for the model: the results of calls that were not made
(`results`) and a note (`note`). `conversation.py` reads them from the ledger. An answer can also become a report: Markdown with its figures and
tables, and the same as PDF.
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
from dsa.text import plural
from machines.chat.chat_session import ChatResources, Files, resources_in
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
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolResult, fault_result
from machines.tool_use.transcript import Notice, result_contents

if TYPE_CHECKING:
    from fpdf import FPDF

_FIGURES = frozenset({"png"})
_DIGITS = 16
_FONT, _MONO = "text", "mono"
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)


def report_files(conversation: ChatConversation, files: Files) -> tuple[NewArtifact, ...]:
    """Store the report of the last turn as Markdown and as PDF, and return both as artifacts. Equal answers with equal files share one report."""
    turn, artifacts, inventory = conversation.turn, artifacts_of(conversation), conversation.inventory
    text = "\n".join([turn.answer.strip(), *(each.artifact_id for each in artifacts)])
    about = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    reports = [inventory.latest(f"report:{about}:{kind}") for kind in ("md", "pdf")]
    if all(reports):
        return tuple(each.as_new() for each in reports if each is not None)
    contents = {"md": as_markdown(turn, artifacts).encode(), "pdf": as_pdf(turn, artifacts, files)}
    files_made = [
        NewArtifact(f"report_{turn.number}.{kind}", kind, files.keep(content), len(content), f"report:{about}:{kind}")
        for kind, content in contents.items()
    ]
    return conversation.inventory.compare(files_made)


def artifacts_of(conversation: ChatConversation) -> list[ChatArtifact]:
    """Return the artifacts that the last turn made or its answer names, each once, oldest first."""
    turn, inventory = conversation.turn, conversation.inventory
    ids = {artifact_id for call in turn.calls for artifact_id in call.artifacts}
    return [each for each in inventory if each.artifact_id in ids or each.name in turn.answer]


def as_markdown(turn: ChatTurn, artifacts: list[ChatArtifact]) -> str:
    """Return the report as Markdown, with links to figures and files in the same folder."""
    parts = [f"# {_title(turn)}", turn.answer.strip()]
    for artifact in artifacts:
        name = artifact.file_name
        parts.append(f"{'!' if artifact.kind in _FIGURES else ''}[{artifact.name}]({name})")
    return "\n\n".join(parts) + "\n"


def as_pdf(turn: ChatTurn, artifacts: list[ChatArtifact], files: Files) -> bytes:
    """Return the report as PDF: the answer with its headings, lists and tables, the names of the files, and each figure.

    An answer that cannot be formatted, such as a table of sixty columns, is printed as plain text.
    """
    from fpdf.errors import FPDFException

    try:
        return _render(turn, artifacts, files, _write_formatted)
    except (FPDFException, NotImplementedError):
        return _render(turn, artifacts, files, _write_plain)


def _render(
    turn: ChatTurn, artifacts: list[ChatArtifact], files: Files, write_answer: Callable[["FPDF", str], None]
) -> bytes:
    with _document(turn) as pdf:
        write_answer(pdf, turn.answer.strip())
        for artifact in artifacts:
            pdf.ln(4)
            pdf.multi_cell(0, 6, f"{artifact.name} ({artifact.file_name})", new_x="LMARGIN", new_y="NEXT")
            if artifact.kind in _FIGURES:
                pdf.image(io.BytesIO(files.content(artifact.digest)), w=pdf.epw, keep_aspect_ratio=True)
        return bytes(pdf.output())


@contextmanager
def _document(turn: ChatTurn) -> Iterator["FPDF"]:
    """Begin a document with the title, and without the date and the program's name: equal reports are equal files."""
    from fpdf import FPDF

    logging.getLogger("fpdf").setLevel(logging.ERROR)  # it warns of each letter that a font lacks
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
    """Write Markdown from a model: its HTML stays text, and no picture is fetched."""
    from fpdf.fonts import FontFace

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(answer)
    for before, token in pairwise(tokens):
        if before.type in {"td_open", "th_open"} and token.children:  # cells have plain text only
            token.children = [Token("text", "", 0, content="".join(child.content for child in token.children))]
    html = str(parser.renderer.render(tokens, parser.options, {}))
    code = FontFace(family=_MONO, size_pt=9)
    pdf.write_html(html, table_line_separators=True, font_family=_FONT, tag_styles={"code": code, "pre": code})


def _add_fonts(pdf: "FPDF") -> None:
    """Add fonts with Greek, Cyrillic and more to a document; missing characters become boxes."""
    from matplotlib import get_data_path

    folder = Path(get_data_path(), "fonts", "ttf")
    for family, name in ((_FONT, "DejaVuSans"), (_MONO, "DejaVuSansMono")):
        for style, ending in (("", ""), ("B", "-Bold"), ("I", "-Oblique"), ("BI", "-BoldOblique")):
            pdf.add_font(family, style, folder / f"{name}{ending}.ttf")


def _title(turn: ChatTurn) -> str:
    return " ".join(turn.text.split())


_GUIDANCE = (
    "run_python needs code. Send the call again as {example}, with the whole program as one string in `code`: "
    "without a code fence around it, and with no other argument than `timeout`."
)
_EXAMPLE = '{"code": "print(df.describe())", "timeout": 30}'
#: Kinds of files that a user may ask for: the words for a kind, and its file extensions.
_FILE_KINDS = {
    "figure": (re.compile(r"\b(?:plot|chart|graph|histogram|diagram|figure|heat ?map)s?\b", re.IGNORECASE), {"png", "pdf", "svg"}),
    "CSV file": (re.compile(r"\bcsv\b|\bspreadsheet\b", re.IGNORECASE), {"csv"}),
    "PDF": (re.compile(r"\bpdf\b", re.IGNORECASE), {"pdf"}),
}  # fmt: skip
_NEGATION = re.compile(r"\b(?:no|not|without|don't|dont|do not)\b", re.IGNORECASE)
_FILE = re.compile(
    r"(?<![\w/.:-])([A-Za-z0-9_][\w.-]{0,78}\.(?:csv|png|pdf|svg|json|xlsx|html|parquet|txt|md))(?![\w/])"
)


def _resources(context: PolicyContext) -> tuple[ChatResources, ChatConversation]:
    """Return the resources of the conversation, and the conversation."""
    chat = resources_in(context.config, context.run.run_id)
    return chat, chat.conversation(context.run)


def _call_in(action: Action) -> ChatCall:
    return read_record(ChatCall, action.payload["data"])


def _notice(
    action: Action, reason: str, text: str, *results: ToolResult, note: str = "", drops: bool = False
) -> list[Step]:
    return [Notice(reason, text, note, result_contents(*results), drops).as_step(action.policy)]


# --- calls that are not made ---


async def skip_duplicate(action: Action, context: PolicyContext) -> list[Step]:
    """Answer a repeated call with the result of the equal one."""
    _, conversation = _resources(context)
    call = _call_in(action)
    earlier_call = call.earlier
    assert earlier_call is not None, "the guard `fresh` failed because of it"
    earlier = conversation.transcript.call(earlier_call.call_id)
    when = "in this turn" if earlier_call.turn == call.turn else f"in turn {earlier_call.turn}"
    text = f"the same call was made {when} ({earlier_call.call_id})"
    message = f"not made: {text}; this is its result. Continue from there; only the user can ask for a repetition"
    reason = "duplicate_tool_call_skipped"
    return _notice(
        action,
        reason,
        text,
        fault_result(call.call_id, reason, message, result=None if earlier is None else earlier.result),
    )


async def refuse_call(action: Action, context: PolicyContext) -> list[Step]:
    """Answer a call that cannot be made with the reason."""
    call = _call_in(action)
    reason = "invalid_tool_payload" if call.tool else "unknown_tool"
    why = call.fault or _fault_of(action, context)
    return _notice(action, reason, why, fault_result(call.call_id, reason, why))


async def refuse_state(action: Action, context: PolicyContext) -> list[Step]:
    """Answer a call that this phase does not accept."""
    call = _call_in(action)
    phase = context.run.configuration.state.rpartition(".")[2]
    why = f"{call.tool} is not available while {phase}: answer with what you have, or use another tool"
    return _notice(action, "invalid_state", why, fault_result(call.call_id, "invalid_state", why))


async def guide_retry(action: Action, context: PolicyContext) -> list[Step]:
    """Send a Python call back, once a turn, with an explanation of the form."""
    why = _fault_of(action, context)
    hint = f"{why}. {_GUIDANCE.format(example=_EXAMPLE)}"
    reason = "empty_python_payload_retried"
    return _notice(action, reason, why, fault_result(_call_in(action).call_id, reason, hint))


def _fault_of(action: Action, context: PolicyContext) -> str:
    """Return the feedback of the guard `usable` for a call."""
    call = Judged(json.dumps(action.payload["data"]))
    return verdict_of("usable", context.guard("usable"), call, {}).feedback


async def drop_calls(action: Action, context: PolicyContext) -> list[Step]:
    """Answer the waiting calls, which are not made."""
    _, conversation = _resources(context)
    why = "this turn allows no more calls; answer with what you have"
    results = [fault_result(call_id, LEFT_OUT, why) for call_id in conversation.transcript.waiting_ids()]
    return _notice(action, LEFT_OUT, f"{plural(len(results), 'call')} left out", *results, drops=True)


async def hold_call(_action: Action, _context: PolicyContext) -> list[Step]:
    """Do nothing: the conversation reads from the ledger that the call is first in the queue again."""
    return []


async def note_duplicate(action: Action, context: PolicyContext) -> list[Step]:
    """Report the artifacts that existed already, for people."""
    _, conversation = _resources(context)
    result = read_record(ChatResult, {"result": {}, "call_id": "", **action.payload["data"]})
    inventory, first_names = conversation.inventory, dict[str, str]()
    texts = []
    for each in result.artifacts:
        first = first_names.setdefault(each.digest, each.name)
        if equal := inventory.equal(each.digest):
            texts.append(f"{each.name} is {equal.artifact_id} ({equal.name})")
        elif first != each.name:
            texts.append(f"{each.name} is {first}")
    text = "; ".join(texts)
    return _notice(action, "duplicate_artifact_prevented", text)


# --- answers ---


async def note_cut_off(action: Action, _context: PolicyContext) -> list[Step]:
    """Send the model a note that its answer cannot be used."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _notice(action, "answer_cut_off", answer.why, note=answer.note)


@answering("presented")
async def present(action: Action, context: PolicyContext) -> list[Step]:
    """Answer with the files that are missing from an answer, and with the report if the user wants one and nothing is missing."""
    chat, conversation = _resources(context)
    chat.files.publish(conversation.inventory)
    missing = what_is_missing(conversation, {table.source for table in chat.database.tables})
    report = report_files(conversation, chat.files) if chat.wants_report and not missing else ()
    return [event_step(action.policy, "presented", data=as_data(PresentedAnswer(report, tuple(missing))))]


def what_is_missing(conversation: ChatConversation, sources: Iterable[str]) -> list[str]:
    """Return the files that an answer names but that do not exist, and the kinds of files that the user asked for but does not get."""
    turn, inventory, source_names = conversation.turn, conversation.inventory, set(sources)
    names = [name for name in dict.fromkeys(_FILE.findall(turn.answer)) if name not in source_names]
    missing = [f"the file {name}, which the answer names" for name in names if inventory.by_name(name) is None]
    artifacts = [inventory[artifact_id] for call in turn.calls for artifact_id in call.artifacts]
    here = [*artifacts, *(artifact for name in names if (artifact := inventory.by_name(name)) is not None)]
    for what, (words, kinds) in _FILE_KINDS.items():
        is_asked_for = words.search(turn.text) and not _NEGATION.search(turn.text)
        if is_asked_for and not _is_there(here, kinds):
            missing.append(f"a {what}, which the user asked for")
    return missing


def _is_there(artifacts: Iterable[ChatArtifact], kinds: set[str]) -> bool:
    return any(artifact.kind in kinds for artifact in artifacts)


async def remind(action: Action, _context: PolicyContext) -> list[Step]:
    """Send the model a note on what is missing from its answer."""
    lacks = "; ".join(read_record(PresentedAnswer, action.payload["data"]).missing)
    note = f"[Missing: {lacks}. Make it with a tool, or answer without it.]"
    return _notice(action, "answer_incomplete", lacks, note=note)


async def note_missing(action: Action, _context: PolicyContext) -> list[Step]:
    """Report to the user what is missing from an answer."""
    lacks = "; ".join(read_record(PresentedAnswer, action.payload["data"]).missing)
    return _notice(action, "answer_incomplete", lacks)


# --- turns without an answer ---


async def note_cancelled(action: Action, context: PolicyContext) -> list[Step]:
    """Report that the user stopped the turn."""
    return _end_turn(action, context, "turn_cancelled", "the user stopped the turn")


async def report_time_out(action: Action, context: PolicyContext) -> list[Step]:
    """Report that a turn took too long."""
    return _end_turn(action, context, "turn_timed_out", "the turn took longer than its time limit")


async def report_limit(action: Action, context: PolicyContext) -> list[Step]:
    """Report that a turn reached a limit."""
    return _end_turn(action, context, "limit_reached", "the turn reached its limit of answers, calls or refusals")


async def report_error(action: Action, context: PolicyContext) -> list[Step]:
    """Report a failure."""
    data = action.payload["data"]
    message = data.get("message") if isinstance(data, dict) else None
    return _end_turn(action, context, "turn_failed", str(message or "it failed"))


def _end_turn(action: Action, context: PolicyContext, reason: str, text: str) -> list[Step]:
    _, conversation = _resources(context)
    results = [fault_result(call_id, "interrupted", text) for call_id in conversation.transcript.open_ids()]
    return _notice(action, reason, text, *results, drops=True)


notice_effects: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        skip_duplicate, refuse_call, refuse_state, guide_retry, drop_calls, hold_call, note_duplicate, note_cut_off, remind, note_missing,
        note_cancelled, report_time_out, report_limit, report_error,
    )
} | {"present": present}  # fmt: skip
