"""A conversation with a model on a terminal: text as it comes, in the same line, and lines of our own between. It writes; it decides nothing."""

from rich.console import Console
from rich.text import Text

from dsa.cli.terminal import printable


class Lines:
    """Writes lines, and text that comes in pieces; `part` stands before each line where several write at the same time."""

    def __init__(self, console: Console, part: str = "") -> None:
        self.console, self.part = console, part
        #: Whether text of the model was shown that belongs to the answer that comes now; whoever shows the whole answer sets it back.
        self.has_text = False
        self.is_in_line = False

    def listen(self, text: str) -> None:
        """Show a piece of the model's text."""
        if self.part:  # others write at the same time
            self.line(text.strip())
            return
        self.console.print(Text(printable(text)), end="", soft_wrap=True)
        self.has_text = self.has_text or bool(text)
        self.is_in_line = not text.endswith("\n") if text else self.is_in_line

    def line(self, text: str, style: str = "") -> None:
        """Show lines of our own."""
        self.end()
        for each in text.splitlines() or [""]:
            badge = Text(f"{self.part}| ", style="magenta") if self.part else Text()
            self.console.print(badge + Text(printable(each), style=style), soft_wrap=True)

    def end(self) -> None:
        """End a line that the model has begun."""
        if self.is_in_line:
            self.console.print()
            self.is_in_line = False

    def say(self, text: str) -> None:
        """Show a line of our own."""
        self.line(text)
