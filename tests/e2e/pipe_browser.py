"""A Chromium without a window, controlled through its debugging pipe: no library, no port."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_LIMIT_S, _LOOK_S = 30, 0.05
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
]


class PageLeftError(Exception):
    """The page was left during a request."""


class Browser:
    """One tab of a browser. `complaints` are the errors of scripts, and the refusals of the content security policy."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._rest, self._number, self._session = to_browser, from_browser, b"", 0, None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters) -> dict:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.complaints.append(json.dumps(answer["params"]))
            if answer.get("id") == self._number:
                if "navigated" in str(answer.get("error")):
                    raise PageLeftError(answer)
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError("the browser has ended")

    def _messages(self) -> Iterator[dict]:
        while True:
            message, end, rest = self._rest.partition(b"\0")
            if end:
                self._rest = rest
                yield json.loads(message)
            elif data := os.read(self._from, 2**20):
                self._rest += data
            else:
                return

    def evaluate(self, code: str):
        """Return the value of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, code: str):
        """Wait until JavaScript in the page gives a true value, and return it; an element is true, but has no value here."""
        end, code = time.monotonic() + _LIMIT_S, f"((it) => it instanceof Node || it)({code})"
        while True:
            with suppress(PageLeftError):  # the next page answers
                if value := self.evaluate(code):
                    return value
            assert time.monotonic() < end, f"{code}\n{self.text}"
            time.sleep(_LOOK_S)

    def until_it_reads(self, *words: str) -> None:
        """Wait until all of these words are visible in the page, and its script listens to keys."""
        reads = f"{json.dumps(words)}.every((each) => document.body?.innerText.includes(each))"
        self.until(f"document.readyState === 'complete' && {reads}")

    def visit(self, address: str) -> None:
        """Go to an address, and wait until the page is loaded."""
        self.evaluate("window.isLeft = true")
        self.call("Page.navigate", url=address)
        self.until("!window.isLeft && document.readyState === 'complete'")

    @property
    def text(self) -> str:
        """The visible text of the page."""
        return self.evaluate("document.body.innerText")

    def press(self, words: str) -> None:
        """Press the button, link or summary with these words."""
        self.until(
            f"(() => {{ const it = [...document.querySelectorAll('button, a, summary')].find((each) => each.textContent.trim() === {json.dumps(words)}); "
            "if (it) it.click(); return Boolean(it); })()"
        )

    def write(self, name: str, text: str) -> None:
        """Type a text into the field with this name, replacing its content."""
        field = f"document.querySelector({json.dumps(f'[name={json.dumps(name)}]')})"
        self.until(f"(() => {{ const it = {field}; if (it) {{ it.focus(); it.select(); }} return Boolean(it); }})()")
        self.call("Input.insertText", text=text)

    def show_at(self, width: int, *, is_dark: bool = False) -> None:
        """Set the width of the page in pixels, and a light or dark scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """Return a screenshot as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser(folder) -> Iterator[Browser]:
    """Run a browser with its profile in a folder."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    command = [
        "bash",
        "-c",
        f'exec "$@" 3<&{to_read} 4>&{from_write}',
        "bash",
        CHROMIUM,
        *_FLAGS,
        f"--user-data-dir={folder}",
    ]
    process = subprocess.Popen(
        command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(to_write, from_read)
    finally:
        process.terminate()
        process.wait(_LIMIT_S)
        os.close(to_write)
        os.close(from_read)
