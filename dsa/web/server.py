"""The server: its token and its signed cookie admit only the person who started it, and it passes requests to the pages.

It listens only on this computer. The address that it prints has a token for one visit; the visitor gets a cookie. A request is refused unless
its Host is this server and, if it changes something, its Origin too: a page of another site cannot post here, and no other name leads here. The secret
of the cookie outlives a server that is killed, so that open pages connect to the next one at the same port (docs/decisions/0036).
"""

import asyncio
import hmac
import os
import re
import secrets
import socket
import stat
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from dsa.edge.document_files import locate
from dsa.errors import DsaError
from dsa.runs.door import Runs
from dsa.runtime.run_store import DamageError, UnknownRunError
from dsa.web.explorer_page import explorer_routes
from dsa.web.machine_page import WatchedDocument, machine_routes
from dsa.web.markup import (
    Markup,
    hidden_field,
    join,
    meaning_of,
    message,
    message_page,
    page,
    post_form,
    prose,
    tag,
    words_explained,
)
from dsa.web.run_pages import run_list_routes, run_routes

HOST = "127.0.0.1"
#: How long open streams may take to close when the server ends, in seconds.
_GRACE_S = 1
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # other sites get no referrer; with no-referrer, a browser would post forms with the Origin null
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_HOW_TO_GET_IN = prose(
    "Open the address that `dsa web` printed. It lets in one browser only. If another browser has used it, press 'Let in another browser' there, below the list of machines; or end `dsa web` with Ctrl-C and start it again."
)
_MOST_BODY = 2 * 2**20
_SAFE = {"GET", "HEAD"}
#: The number of bytes of a secret, its text, and the most characters to read from a file with one.
_SECRET_BYTES, _SECRET, _MOST_SECRET = 32, re.compile(r"[A-Za-z0-9_-]{43}"), 100


@attrs.frozen
class CookieSecret:
    """The secret of the cookie, and the file that keeps it for the next server; with None it ends with the process."""

    text: str = attrs.field(factory=lambda: secrets.token_urlsafe(_SECRET_BYTES), repr=False)
    path: Path | None = None

    def end(self) -> None:
        """Remove the file; from then on, the cookie is worthless."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def state_folder() -> Path:
    """Return the folder for the state of this user's programs (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "dsa"


def kept_secret(port: int, folder: Path) -> CookieSecret:
    """Return the secret that a killed server of this port left in a folder, or a new one, which is kept there in a file that only this user may read.

    If such a file cannot be kept, the secret ends with the process.
    """
    if not hasattr(os, "getuid"):
        return CookieSecret()
    path = folder / f"web-{port}.secret"
    present = _private_text(path)
    if present is not None:
        return CookieSecret(present, path)
    secret = CookieSecret(path=path)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as stream:
            stream.write(secret.text)
    except OSError:
        return CookieSecret()
    return secret


def _private_text(path: Path) -> str | None:
    """Return the secret in a file, if the file belongs to this user, nobody else may read or write it, and it is complete."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(file, encoding="ascii", errors="replace") as stream:
        status = os.fstat(stream.fileno())
        is_private = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
        text = stream.read(_MOST_SECRET) if is_private else ""
    return text if _SECRET.fullmatch(text) else None


class Gate:
    """The gate in front of the pages. `port` is the server's; a token lets one browser in, and `secret` is the cookie of those that were let in."""

    def __init__(self, port: int, secret: CookieSecret | None = None) -> None:
        self.port, self.secret = port, secret or CookieSecret()
        self.hosts = frozenset({f"{HOST}:{port}", f"localhost:{port}"})
        self._tokens: set[str] = set()
        self._app: ASGIApp | None = None

    def around(self, app: ASGIApp) -> "Gate":
        """Put the gate in front of this application."""
        self._app = app
        return self

    @property
    def cookie(self) -> str:
        """The cookie's name, which has the port, because cookies do not tell ports apart."""
        return f"dsa_{self.port}"

    def address(self) -> str:
        """Return a new address that lets one browser in."""
        token = secrets.token_urlsafe(24)
        self._tokens.add(token)
        return f"http://{HOST}:{self.port}/?token={token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        assert self._app is not None, "it stands in front of an application"
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:  # noqa: ANN401  (ASGI's message)
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        answer = self._answer(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is not let in; None for one that is."""
        host = request.headers.get("host", "")
        if host not in self.hosts:
            return refusal(403, "Wrong host", f"This server answers to {', '.join(sorted(self.hosts))} only.")
        origin = request.headers.get("origin")
        if origin is None and request.method not in _SAFE:
            return refusal(
                403, "Unknown origin", "The forms of these pages send the header Origin, but this request has none."
            )
        if origin is not None and origin != f"http://{host}":
            return refusal(403, "Another origin", "A page of another site cannot send requests to this server.")
        if not request.headers.get("content-length", "0").isdecimal() or "transfer-encoding" in request.headers:
            return refusal(411, "No length", "A request must give its length in the header Content-Length.")
        if int(request.headers.get("content-length", "0")) > _MOST_BODY:
            return refusal(
                413, "Too much", f"A form may have at most {_MOST_BODY:,} bytes; keep larger data in a file."
            )
        return self._admission(request)

    def _admission(self, request: Request) -> Response | None:
        """Exchange a token for the cookie, or require the cookie."""
        token = request.query_params.get("token")
        if token is not None and request.url.path == "/" and request.method in _SAFE and token in self._tokens:
            self._tokens.discard(token)
            answer: Response = RedirectResponse("/", 303)
            answer.set_cookie(self.cookie, self.secret.text, httponly=True, samesite="strict", path="/")
            return answer
        if request.url.path.startswith("/static/"):
            return None  # this is not private: it makes refusals readable
        present = request.cookies.get(self.cookie, "")
        if hmac.compare_digest(present.encode(), self.secret.text.encode()):
            return RedirectResponse("/", 303) if token is not None else None
        return refusal(401, "Not let in", _HOW_TO_GET_IN)


def refusal(status: int, title: str, text: str | Markup) -> Response:
    """Return a page that says why a request is refused."""
    return HTMLResponse(message_page(title, text).html, status)


def application(files: tuple[str, ...], runs: Runs, gate: Gate) -> ASGIApp:
    """Return the application for documents and runs, behind its gate."""
    documents = tuple(WatchedDocument(number, file) for number, file in enumerate(files))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        for document in documents:
            document.stop()
        gate.secret.end()  # only a server that is killed leaves it behind

    async def machines(_request: Request) -> Response:
        glances = await asyncio.to_thread(lambda: [each.glance() for each in documents])
        return HTMLResponse(_machines_page(documents, glances).html)

    async def invitation(_request: Request) -> Response:
        address = tag("input", value=gate.address(), readonly=True, aria_label="Address", class_="wide")
        text = "Open this address in the other browser on this computer. The address works for one browser only."
        return HTMLResponse(page("Another browser", tag("h1", "Another browser"), tag("p", text), address).html)

    routes = [
        Route("/", machines),
        Route("/invitation", invitation, methods=["POST"]),
        *machine_routes(documents),
        *explorer_routes(documents),
        *run_list_routes(documents),
        *run_routes(),
        Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
    ]
    handlers: Mapping[Any, Any] = {
        404: _not_found,
        UnknownRunError: _unknown,
        DamageError: _damage,
        DsaError: _fault,
        500: _bug,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.state.documents, app.state.runs = documents, runs
    return gate.around(app)


async def _not_found(_request: Request, _fault: Exception) -> Response:
    return refusal(404, "No such page", "There is nothing at this address. Choose a page above.")


async def _unknown(request: Request, _fault: Exception) -> Response:
    name = request.path_params.get("run", "")
    return refusal(404, "No such run", f"There is no run '{name}' here. The page Runs lists all runs.")


async def _fault(_request: Request, fault: Exception) -> Response:
    return refusal(409, "This cannot be done", str(fault))


async def _damage(_request: Request, fault: Exception) -> Response:
    meaning = meaning_of("damaged")
    advice = "The folder of runs is left unchanged. Restore it from a copy, or begin the run again."
    is_one = isinstance(fault, DamageError) and fault.run is not None
    title = "This run is damaged" if is_one else "The folder of runs is damaged"
    return refusal(409, title, join(f"{fault}. Damaged means: {meaning} {advice}"))


async def _bug(_request: Request, _fault: Exception) -> Response:
    return refusal(500, "A bug in dsa", prose("The terminal in which `dsa web` runs shows the traceback."))


def _machines_page(documents: tuple[WatchedDocument, ...], glances: Sequence[Markup]) -> Markup:
    items = [
        tag("li", tag("a", each.file, href=each.address), " ", glance)
        for each, glance in zip(documents, glances, strict=True)
    ]
    empty = message(
        "No machine is open here. Start `dsa web FILE..` with the files of your machines. `dsa new NAME` writes one to begin with, and `dsa web dual_state` opens a shipped one."
    )
    invitation = post_form("/invitation", hidden_field("again", "1"), label="Let in another browser", class_="quiet")
    return page(
        "Machines",
        tag("h1", "Machines"),
        tag("ul", items, class_="plain") if items else empty,
        words_explained(*glances),
        invitation,
        here="/",
    )


def listening_socket(port: int) -> socket.socket:
    """Return a socket of this computer, bound to a port; 0 means a free one. Raises DsaError for a port that is in use.

    It names its protocol, because asyncio then turns off Nagle's algorithm, with which an answer waits up to 40 ms for the browser.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as fault:
        listener.close()
        raise DsaError(f"port {port} cannot be used: {fault.strerror}; choose another with --port") from fault
    return listener


def serve(
    files: tuple[str, ...], open_place: Callable[[], Runs], *, port: int, opens: bool, say: Callable[[str], None]
) -> None:
    """Serve the pages until the process is interrupted; `say` prints the address. With port 0 the system chooses one, and no secret is kept.

    Raises DocumentError for a file that does not exist, DsaError if runs cannot be kept or the port is in use.
    """
    for file in files:
        locate(file)
    with listening_socket(port) as listener:
        gate = Gate(listener.getsockname()[1], kept_secret(port, state_folder()) if port else None)
        asyncio.run(_serve(files, open_place, listener, gate, opens=opens, say=say))


async def _serve(
    files: tuple[str, ...], open_place: Callable[[], Runs], listener: socket.socket, gate: Gate, *, opens: bool, say: Callable[[str], None]
) -> None:  # fmt: skip
    async with open_place() as runs:
        listener.listen()  # a browser that is faster than the server has to wait
        config = uvicorn.Config(
            application(files, runs, gate), log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S, lifespan="on", server_header=False, ws="none"
        )  # fmt: skip
        address = gate.address()
        say(f"{address}\n(Ctrl-C ends the server; runs that it drives can be resumed)")
        if opens:
            webbrowser.open(address)
        await uvicorn.Server(config).serve(sockets=[listener])
