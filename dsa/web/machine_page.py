"""The page of a machine: its file with diagram, checks, proofs and mutants, the progress of the work on them, and the buttons that start and stop it.

When a file changes, it is read again, drawn, and checked in a thread. Proofs and mutants are computed when a person asks for them. Pages wait for the
next version of the fragments.
"""

import asyncio
import importlib
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dsa.checks.report import CheckReport, check, check_sentences, check_word, codes_text, explored_text, rest_texts
from dsa.edge.document_files import locate, read_document, read_text
from dsa.errors import DocumentError, DsaError, MachineError
from dsa.lang import DocumentReading
from dsa.machine import Machine
from dsa.text import plural
from dsa.web.document_markup import DocumentVerdicts, MachineDrawing, all_findings, document_markup, overview
from dsa.web.markup import (
    EMPTY,
    Fragments,
    Markup,
    alert,
    badge,
    join,
    message,
    message_page,
    page,
    post_form,
    prose,
    tag,
    words_explained,
)

#: The time between two looks at a file, and between two reports of progress, in seconds.
_LOOK_S = 0.25
#: The time limit of work: practically none, but the clock of stopped work goes beyond it.
NO_LIMIT_S = 1e9
#: The most properties that a list of documents names for one document.
_MOST_NAMES = 5
#: The text of a page about a file that cannot be read.
_WAITS = "This page continues by itself once the file exists and can be read. For another file, start `dsa web` with its name."
#: The text of a page about a check that a person has stopped: its findings mention the time limit.
_STOP_NOTE = "This check was stopped before its end. What it did not reach is UNKNOWN; where its findings name a time limit, they mean this stop."
_NOTHING = DocumentReading(None, ())
Result = TypeVar("Result")


class StoppableWork(Generic[Result]):
    """Work on a machine in a thread, with its progress. `stop` ends it early; what it has found so far is its result.

    `address` is that of the document's page. `function` takes the machine and this work: its `clock` jumps to the end
    of time once the work is stopped, and `tell` reports its progress.
    """

    def __init__(
        self, function: "Callable[[Machine, StoppableWork[Result]], Result]", address: str, tell: Callable[[], None]
    ) -> None:
        self.address = address
        self.activity, self.fault = "", ""
        self.result: Result | None = None
        self._function, self._tell_pages = function, tell
        self._is_stopped = False
        self._progress = ""
        #: The last task, which may still be ending, and the number of the work that counts.
        self._task: asyncio.Task[None] | None = None
        self._number = 0

    def clock(self) -> float:
        """Return the time in seconds, or infinity once the work is stopped."""
        return math.inf if self._is_stopped else time.perf_counter()

    @property
    def is_stopped(self) -> bool:
        """Whether the work was stopped. Until work begins, this is about the previous work."""
        return self._is_stopped

    def tell(self, progress: str) -> None:
        """Report the progress of the work."""
        self._progress = progress

    def stop(self) -> None:
        """Stop the work, if it is under way; what it has found so far stays."""
        self._is_stopped = self._is_stopped or bool(self.activity)

    def clear(self) -> None:
        """Stop the work, and forget what it has found."""
        self.stop()
        self._number += 1
        self.activity, self.fault, self.result = "", "", None

    def start(self, machine: Machine, activity: str) -> None:
        """Start again with a machine; work under way is stopped first."""
        before = self._task
        self.clear()
        self.activity = activity
        self._task = asyncio.create_task(self._follow(machine, before))
        self._tell_pages()

    async def _follow(self, machine: Machine, before: "asyncio.Task[None] | None") -> None:
        """Do the work once the previous work has ended, and show its progress."""
        number = self._number
        if before is not None:
            await asyncio.wait({before})  # it is stopped, and has the same clock
        if self._number != number:
            return
        self._is_stopped, self._progress = False, ""
        work = asyncio.create_task(asyncio.to_thread(self._function, machine, self))
        while not work.done():
            await asyncio.wait({work}, timeout=_LOOK_S)
            if self._progress and self._number == number:
                self.activity, self._progress = self._progress, ""
                self._tell_pages()
        try:
            result = work.result()
        except (DsaError, ValueError) as fault:
            result, message = None, str(fault)
        else:
            message = ""
        if self._number == number:
            self.activity, self.result, self.fault = "", result, message
            self._tell_pages()


def _check(machine: Machine, work: StoppableWork[CheckReport]) -> CheckReport:
    def report_progress(states: int, depth: int) -> None:
        work.tell(f"checking: {plural(states, 'configuration')}, {plural(depth, 'step')} deep")

    return check(machine, time_limit_s=NO_LIMIT_S, clock=work.clock, progress=report_progress)


def _prove(machine: Machine, work: "StoppableWork[WorkFindings]") -> "WorkFindings":
    return _evidence().proofs(machine, work)  # type: ignore[no-any-return]


def _mutate(machine: Machine, work: "StoppableWork[WorkFindings]") -> "WorkFindings":
    return _evidence().survivors(machine, work)  # type: ignore[no-any-return]


def _evidence() -> Any:  # noqa: ANN401  (a module)
    """Load the modules that prove and plant faults, which the server does not need until a person asks."""
    return importlib.import_module("dsa.web.evidence")


@attrs.frozen
class WorkFindings:
    """The results of work, as markup: a summary, and notes by the lines that they are about."""

    summary: Markup
    notes: Mapping[int, Sequence[Markup]]


class WatchedDocument:
    """A document that pages show. `document_reading` is its last reading, `fault` says why there is none.

    `check` is the work that follows each change of the file; `proofs` and `mutants` start when a person asks for them.
    """

    def __init__(self, number: int, file: str) -> None:
        self.file, self.address = file, f"/machines/{number}"
        self.text, self.document_reading, self.fault = "", _NOTHING, ""
        self.check = StoppableWork[CheckReport](_check, self.address, self._tell)
        self.proofs = StoppableWork[WorkFindings](_prove, self.address, self._tell)
        self.mutants = StoppableWork[WorkFindings](_mutate, self.address, self._tell)
        self.drawing, self._table = MachineDrawing(self._tell), EMPTY
        self._results_shown: tuple[object, ...] = (None,) * 5
        self._signature: tuple[int, int] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._change = asyncio.Event()

    @property
    def works(self) -> dict[str, StoppableWork[CheckReport] | StoppableWork[WorkFindings]]:
        """The work on the document, by the names in addresses."""
        return {"check": self.check, "proofs": self.proofs, "mutants": self.mutants}

    @property
    def report(self) -> CheckReport | None:
        """The result of the last check."""
        return self.check.result

    @property
    def machine(self) -> Machine | None:
        """The machine of the document; None while it is not a machine."""
        return self.document_reading.machine

    def required_machine(self) -> Machine:
        """Return the machine that is now in the file. Raises DocumentError and MachineError."""
        self._read()
        if self.fault:
            raise DocumentError(self.file, self.fault.removeprefix(f"{self.file}: "))
        if self.document_reading.machine is None:
            raise MachineError(self.document_reading.diagnostics)
        return self.document_reading.machine

    def has(self, text: str) -> bool:
        """Return whether the file has this text now."""
        try:
            return read_text(locate(self.file)) == text
        except DocumentError:
            return False

    def open(self) -> None:
        """Start to follow the file, if this is not done yet."""
        self._read()
        if self._watch is None:
            self._watch = asyncio.create_task(self._follow())

    def start(self, name: str) -> None:
        """Start work again. The check first reads the file again; the other work needs a document that is a machine."""
        if name == "check":
            self._signature = None
            self._read()
        elif self.machine is not None:
            self.works[name].start(self.machine, "beginning")

    def stop(self) -> None:
        """Stop all work; what it has found so far stays."""
        for work in self.works.values():
            work.stop()

    @property
    def next_change(self) -> asyncio.Event:
        """The event that is set at the next change."""
        return self._change

    def fragments(self) -> Fragments:
        """Return the current parts of the page."""
        results = (self.text, self.fault, self.check.result, self.proofs.result, self.mutants.result)
        if any(new is not old for new, old in zip(results, self._results_shown, strict=True)):
            self._table = join(document_markup(self.text, self._verdicts(), self.address))
            self._results_shown = results
        parts = {"status": self._status(), "table": self._table, "diagram": self.drawing.markup}
        proofs = self._work_state("proofs", "Proofs", ("Prove for all values of the parameters", "Prove again"))
        mutants = self._work_state("mutants", "Mutants", ("Plant small faults", "Plant small faults again"))
        words = words_explained(parts["status"], self._table, proofs, mutants)
        return Fragments({**parts, "words": words, "proofs": proofs, "mutants": mutants})

    def _verdicts(self) -> DocumentVerdicts:
        notes: dict[int, list[Markup]] = {}
        for work in (self.proofs, self.mutants):
            for line, more in work.result.notes.items() if work.result is not None else ():
                notes.setdefault(line, []).extend(more)
        return DocumentVerdicts(self.document_reading, self.check.result, notes)

    def _button(self, name: str, label: str, verb: str = "start") -> Markup:
        """Return the button that starts or stops work."""
        return post_form(
            f"{self.address}/{verb}/{name}", label=label, class_="quiet" if label.endswith("again") else None
        )

    def _status(self) -> Markup:
        """Return what the check is doing or has found; each finding links to its line."""
        again = self._button("check", "Check again")
        if self.fault:
            return join(alert(self.fault), tag("p", prose(_WAITS), class_="hint"), again)
        links = _links(self.address) if self.machine is not None else None
        if self.check.activity:
            activity = tag("p", self.check.activity, class_="activity")
            return join(links, activity, self._button("check", "Stop the check", "stop"))
        if self.check.fault:
            return join(links, alert(self.check.fault), again)
        report = self.report
        if report is None:
            words = tag("p", badge("not a machine"), " ", _mistakes_text(self.document_reading))
            return join(words, overview(self.document_reading, None), again)
        lines = [explored_text(each) for each in report.explorations]
        lines += rest_texts(report)
        more = tag("details", tag("summary", "What was explored"), [tag("p", line) for line in lines])
        words = tag("p", badge(self.word), " ", check_sentences(all_findings(self.document_reading, report), report))
        note = message(_STOP_NOTE) if self.check.is_stopped else None
        return join(links, words, note, overview(self.document_reading, report), more if lines else None, again)

    def _work_state(self, name: str, title: str, labels: tuple[str, str]) -> Markup:
        """Return the progress of work with the button that stops it, or its results with the button that starts it, for the first time or again."""
        work, heading = self.works[name], tag("h2", title)
        if self.machine is None:
            return EMPTY
        if work.activity:
            return join(heading, tag("p", work.activity, class_="activity"), self._button(name, "Stop", "stop"))
        fault = alert(work.fault) if work.fault else None
        summary = work.result.summary if isinstance(work.result, WorkFindings) else None
        return join(heading, fault, summary, self._button(name, labels[summary is not None]))

    @property
    def word(self) -> str:
        """What is known about the document, in a word or two."""
        if self.fault:
            return "error"
        if self.machine is None:
            return "not a machine"
        if self.report is None:
            return "checking"
        return check_word(self.report)

    def glance(self) -> Markup:
        """Return what is known about the document, for a list: a word, what was found, and the violated properties with links; one that was not opened yet is read, but not checked."""
        document_reading, fault = self.document_reading, self.fault
        if self._signature is None:
            try:
                document_reading = read_document(self.file)
            except DocumentError as error:
                fault = str(error)
        if fault:
            return join(badge("error"), " ", fault)
        if document_reading.machine is None:
            return join(badge("not a machine"), " ", _mistakes_text(document_reading))
        if self._signature is None:
            return join(badge("not checked yet"), " Open it to check it.")
        report = self.report
        if report is None:
            return join(badge(self.word), " ", self.check.fault)
        names = [
            tag("li", badge(each.verdict), " ", tag("a", each.text, href=f"{self.address}#line{each.line}"))
            for each in report.properties
            if each.failed
        ]
        more = tag("li", f"{len(names) - _MOST_NAMES} more") if len(names) > _MOST_NAMES else None
        sentences = check_sentences(all_findings(document_reading, report), report)
        failed = tag("ul", names[:_MOST_NAMES], more, class_="plain") if names else None
        return join(badge(self.word), " ", sentences, failed)

    # -- following ---------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self._read()

    def _read(self) -> None:
        """Read the file if it has changed."""
        signature = self._signature_now()
        if signature == self._signature:
            return
        self._signature, self.fault = signature, ""
        try:
            self.text, self.document_reading = read_text(locate(self.file)), read_document(self.file)
        except DocumentError as fault:
            self.text, self.document_reading, self.fault = "", _NOTHING, str(fault)
        for work in self.works.values():
            work.clear()
        self.drawing.draw(self.machine)
        if self.machine is not None:
            self.check.start(self.machine, "checking")
        self._tell()

    def _signature_now(self) -> tuple[int, int]:
        """Return what changes with the file: its time and its size; zeros while it does not exist."""
        try:
            status = locate(self.file).stat()
        except (DocumentError, OSError):
            return (0, 0)
        return status.st_mtime_ns, status.st_size

    def _tell(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _mistakes_text(document_reading: DocumentReading) -> str:
    return f"{codes_text(document_reading.diagnostics)}: nothing is drawn or run until the document is a machine."


def _links(address: str) -> Markup:
    number = address.rpartition("/")[2]
    explore = tag("a", "Explore", href=f"{address}/explore")
    odds = tag("a", "Odds", href=f"{address}/odds")
    return tag("p", explore, " · ", odds, " · ", tag("a", "Start a run", href=f"/runs/new?machine={number}"))


# --- the pages ---


def machine_routes(documents: Sequence[WatchedDocument]) -> list[Route]:
    """Return the routes of the machine pages."""
    return [
        Route("/machines/{number:int}", with_document(documents, _show)),
        Route("/machines/{number:int}/live", with_document(documents, _live)),
        Route("/machines/{number:int}/odds", with_document(documents, _odds)),
        Route("/machines/{number:int}/start/{work}", with_document(documents, _start), methods=["POST"]),
        Route("/machines/{number:int}/stop/{work}", with_document(documents, _stop), methods=["POST"]),
    ]


def with_document(
    documents: Sequence[WatchedDocument],
    answer: Callable[[Request, WatchedDocument], Response | Coroutine[Any, Any, Response]],
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return a handler of requests whose address names a document."""

    async def handler(request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(documents):
            text = "There is no machine at this address. The page Machines lists those that are open."
            return HTMLResponse(message_page("No such machine", text).html, 404)
        documents[number].open()
        result = answer(request, documents[number])
        return result if isinstance(result, Response) else await result

    return handler


async def _show(_request: Request, document: WatchedDocument) -> Response:
    await document.drawing.wait()
    fragments = document.fragments()
    name = document.machine.name if document.machine else Path(document.file).name
    whole = page(
        name,
        tag("h1", name),
        tag("p", tag("code", document.file)),
        tag(
            "div",
            tag(
                "section",
                tag("div", fragments.holders("status"), role="status"),
                fragments.holders("words", "proofs", "mutants"),
                aria_label="Results",
            ),
            tag("section", fragments.holders("diagram"), aria_label="Diagram", class_="beside"),
            tag("section", fragments.holders("table"), aria_label="The document", class_="document"),
            class_="columns",
        ),
        live=f"{document.address}/live?have={'.'.join(fragments.digests)}",
        here="/",
    )
    return HTMLResponse(whole.html)


def _live(request: Request, document: WatchedDocument) -> Response:
    have = request.headers.get("last-event-id") or request.query_params.get("have", "")
    return StreamingResponse(_changes(document, have), media_type="text/event-stream")


async def _changes(document: WatchedDocument, have: str) -> AsyncIterator[str]:
    present = tuple(have.split("."))
    yield "retry: 500\n\n"
    while True:
        change = document.next_change
        now = document.fragments()
        if now.digests != present:
            yield event(".".join(now.digests), now.news(present))
            present = now.digests
        await change.wait()


def event(number: str, data: str) -> str:
    """Return a server-sent event; a page sends `number` back when it connects again."""
    return f"id: {number}\ndata: {data}\n\n"


async def _odds(request: Request, document: WatchedDocument) -> Response:
    """Answer with the odds; the modules that compute them are loaded when a person asks."""
    return await importlib.import_module("dsa.web.odds_page").show(request, document)


def _start(request: Request, document: WatchedDocument) -> Response:
    """Start the check, the proofs or the mutants again."""
    name = request.path_params["work"]
    if name not in document.works:
        return HTMLResponse(message_page("No such task", "Press a button on the machine's page.").html, 404)
    document.start(name)
    return RedirectResponse(document.address, 303)


def _stop(request: Request, document: WatchedDocument) -> Response:
    """Stop the check, the proofs or the mutants; what was found stays."""
    name = request.path_params["work"]
    if name not in document.works:
        return HTMLResponse(message_page("No such task", "Press a button on the machine's page.").html, 404)
    document.works[name].stop()
    return RedirectResponse(document.address, 303)
