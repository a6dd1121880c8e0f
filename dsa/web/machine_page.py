"""The machine page: its frame, its addresses, and the buttons that begin and stop work; what it shows is in `watched_document.py`."""

import importlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dsa.web.markup import message_page, page, tag
from dsa.web.watched_document import WatchedDocument


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
            text = "Nothing is open at this address. The page Machines lists those that are open."
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
    """Return a server-sent event; `number` comes back when a page connects again."""
    return f"id: {number}\ndata: {data}\n\n"


async def _odds(request: Request, document: WatchedDocument) -> Response:
    """Answer with the odds; what works them out is loaded once a person asks."""
    return await importlib.import_module("dsa.web.odds_page").show(request, document)


def _start(request: Request, document: WatchedDocument) -> Response:
    """Begin the check, the proofs or the mutants anew."""
    name = request.path_params["work"]
    if name not in document.works:
        return HTMLResponse(message_page("No such work", "Press a button on the machine's page.").html, 404)
    document.start(name)
    return RedirectResponse(document.address, 303)


def _stop(request: Request, document: WatchedDocument) -> Response:
    """Stop the check, the proofs or the mutants; what was found stays."""
    name = request.path_params["work"]
    if name not in document.works:
        return HTMLResponse(message_page("No such work", "Press a button on the machine's page.").html, 404)
    document.works[name].stop()
    return RedirectResponse(document.address, 303)
