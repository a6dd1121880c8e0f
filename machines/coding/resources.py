"""What the policies of one run work with: its tools, its model, its settings, and what its ledger says so far.

Made from the settings that its run was started with, once in a process, and made again the same after a crash.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dsa.runs.runs import Runs
from dsa.runtime.moment import OnMoment
from dsa.runtime.run import Run
from machines.coding.events import Approval
from machines.coding.loops import Did
from machines.coding.messages import CONTEXT_TOKENS
from machines.coding.settings import settings_of
from machines.coding.toolbox import Toolbox
from machines.coding.work import Work
from machines.tool_use.context import CHARS_PER_TOKEN
from machines.tool_use.known import Known
from machines.tool_use.model import Model, Wanted, model_of

Listener = Callable[[str], object]
#: `ask_model` and `decompose` have 10 minutes: what came of an answer has to be there before.
_ANSWER_S = 580.0
#: Beside the messages there has to be room for what is said of the tools, and for the answer.
_BESIDE_TOKENS = 8_192
MODES = ("ask", "auto-edit", "full-auto", "read-only")


def polled_command(text: str) -> tuple[str, ...]:
    """Return the words of a command in `polling`. ValueError for a quote that is not closed."""
    return tuple(shlex.split(text))


class Resources:
    """Everything of one run. `config` is what it was started with (see `CodingSettings`), `folder` its own folder.

    `listen` is called with the model's text as it comes, `notice` with why a model that failed is asked again, `watch_part` with the moments of its parts, `others` gives what
    was done by those who work beside this run. `runs` are those of the session that holds it; None where no session does.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self.config, self.settings = config, settings_of(config)
        self._folder = folder.parent / self.settings.part_of if self.settings.part_of else folder
        self._work = Work()
        self.listen: Listener = lambda _text: None
        self.notice: Listener = lambda _text: None
        self.watch_part: OnMoment | None = None
        self.runs: Runs | None = None
        self.others: Callable[[], Iterable[Did]] = tuple

    def work(self, run: Run) -> Work:
        """Give what the run's ledger says."""
        if self._work.taken > len(run.ledger):
            self._work = Work()
        self._work.take(run.ledger.after(self._work.taken))
        return self._work

    @property
    def past(self) -> tuple[Did, ...]:
        """Its last actions."""
        return tuple(self._work.past)

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools. Raises as `Toolbox` does."""
        return Toolbox(self.config, self._folder)

    @cached_property
    def model(self) -> Model:
        """Who answers. Raises ModelUnavailable, DocumentError."""
        settings = self.settings
        wanted = Wanted(
            settings.seed or 0,
            settings.temperature,
            settings.max_tokens,
            bool(settings.json_mode),
            _ANSWER_S,
            self.tell,
            self.context_tokens + _BESIDE_TOKENS + (settings.max_tokens or 0),
        )
        return model_of(self.asked_model, wanted)

    @property
    def context_tokens(self) -> int:
        """How long a request may be."""
        return self.settings.context_tokens or CONTEXT_TOKENS

    @property
    def context_chars(self) -> int:
        """The same in characters."""
        return self.context_tokens * CHARS_PER_TOKEN

    @property
    def asked_model(self) -> str:
        """The model as it is named."""
        return self.settings.model or ""

    def tell(self, text: str) -> None:
        """Tell whoever watches how the model is asked."""
        self.notice(text)

    @property
    def parallel(self) -> int:
        """How many subtasks may be worked at together."""
        return self.settings.parallel or 1

    @property
    def files_before(self) -> tuple[str, ...]:
        """What had been written before this run began, where it is a part."""
        return self.settings.files_before or ()

    @property
    def is_test_first(self) -> bool:
        """Tell whether new modules are to be written with their tests."""
        return bool(self.settings.test_first)

    def polls(self, argv: Sequence[str]) -> bool:
        """Tell whether a command is declared as polling: it begins with the words of a command in `polling`."""
        declared = map(polled_command, self.settings.polling or ())
        return any(words and tuple(argv[: len(words)]) == words for words in declared)

    def approval(self, needs: str, asks: str, allowed: set[str]) -> Approval:
        """Say whether a call may happen in this mode: yes, ask, never, and why."""
        mode = self.settings.mode or MODES[0]
        allowed = {*allowed, *(self.settings.allowed or ())}
        if needs == "never":
            return Approval("never", "the configuration does not allow this tool")
        if needs == "look" or asks in allowed:
            return Approval("yes")
        if needs == "ask":
            return self._asking('approve = "ask"')
        if mode == "full-auto" or (mode == "auto-edit" and needs == "edit"):
            return Approval("yes")
        if mode == "read-only":
            return Approval("never", "this run only reads (--mode read-only): look, and answer")
        return self._asking(f"--mode {mode}")

    def _asking(self, said: str) -> Approval:
        """Have the user asked, as was `said`; in a part nobody can be."""
        if self.settings.part_of:
            why = f"leave would be asked for it ({said}), and nobody is asked while several work at once"
            return Approval("never", why)
        return Approval("ask", f"the user is asked first ({said})")

    def close(self) -> None:
        """Let go of the tools."""
        if "toolbox" in self.__dict__:
            self.toolbox.close()


KNOWN = Known(Resources)
resources_in = KNOWN.of
