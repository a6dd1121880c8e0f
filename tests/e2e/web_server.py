"""A real `dsa web` in a separate process, and a client with access."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser

import attrs
import httpx
from forked import DSA

LEAVE = """# leave

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| days      | 1..9   | 3       |

## Variables
| variable | scope    | domain  | initial |
| -------- | -------- | ------- | ------- |
| asks     | workflow | 0..days | 0       |

## Events
| event    | from    |
| -------- | ------- |
| asked    | outside |
| again    | outside |
| approved | outside |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| asking  |         |
| granted | final   |

## Transitions
| source | event    | if          | update    | target  |
| ------ | -------- | ----------- | --------- | ------- |
| idle   | asked    |             |           | asking  |
| asking | again    | asks < days | asks += 1 | asking  |
| asking | approved |             |           | granted |

## Properties
- always asks < days
- possible granted
"""


class Outline(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def fields(self, name: str) -> list[str | None]:
        """Return the values of the fields with this name."""
        return [values.get("value") for tag, values in self.elements if values.get("name") == name]

    def values(self, attribute: str, value: str) -> list[str | None]:
        """Return the values of the elements with this attribute."""
        return [values.get("value") for _, values in self.elements if values.get(attribute) == value]

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the elements with the names of their attributes, which no text may change."""
        return [(tag, tuple(values)) for tag, values in self.elements]


@attrs.frozen
class WebServer:
    """A running server: its process, its first address, and a client."""

    process: subprocess.Popen
    address: str
    client: httpx.Client

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    def page(self, path: str) -> Outline:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return Outline(answer.text)

    def start(self, data: str, *, machine: int = 0, **more: str) -> str:
        """Start a run, and return the path of its page once it rests."""
        fields = {"machine": str(machine), "data": data, "form": "text"}
        answer = self.client.post("/runs/new", data=fields | more)
        assert answer.status_code == 200, Outline(answer.text).text
        path = answer.url.raw_path.decode()
        self.until(f"{path}/live?have=&after=0", lambda news: "Send" in news["replace"].get("asks", ""))
        return path

    def until(self, path: str, found, **headers: str) -> dict:
        """Read the events at an address until one matches, and return it."""
        with self.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200
            for number, news in events(answer):
                if found(news):
                    return news | {"id": number}
        raise AssertionError("the stream ended")


def events(answer: httpx.Response) -> Iterator[tuple[str, dict]]:
    """Yield the server-sent events of an answer."""
    number = ""
    for line in answer.iter_lines():
        if line.startswith("id: "):
            number = line[4:]
        elif line.startswith("data: "):
            yield number, json.loads(line[6:])


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return here.getsockname()[1]


@contextmanager
def web_server(folder, *files: str, port: int = 0, runs: str = "", **more: str) -> Iterator[WebServer]:
    """Run `dsa web` in a folder, on a free port or on `port`, with additional environment variables; `runs` is where its runs are stored."""
    where = runs or str(folder / ".dsa")
    # Tests that name a port kill the server, and start it there again.
    program = [sys.executable, "-m", "dsa"] if port else DSA
    command = [*program, "web", *files, "--runs", where, "--port", str(port)]
    surroundings = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), **more}
    with (folder / "stderr.txt").open("a") as errors:
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, env=surroundings
        )
        try:
            address = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", address), (folder / "stderr.txt").read_text()
            base = address.partition("/?")[0]
            with httpx.Client(base_url=base, follow_redirects=True, headers={"origin": base}, timeout=30) as client:
                yield WebServer(process, address, client)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


@contextmanager
def open_web_server(folder) -> Iterator[WebServer]:
    """Show two machines, and give the client access."""
    (folder / "leave.md").write_text(LEAVE)
    with web_server(folder, "leave.md", "dual_state") as here:
        assert here.client.get(here.address).status_code == 200
        yield here
