"""The tools of one run: what they are, whether a call would leave the workspace, and doing it.

Takes calls with normalised arguments, gives what the model is told and what has changed. Whether a call may happen the guards say, by what
`looked_at` finds; each tool has its own boundary all the same.
"""

import json
import posixpath
import select
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.sandbox.command_sandbox import StopSwitch
from machines.coding.coding_tools import COMPLETE, TOOLS, Kind, WorkspaceTool
from machines.coding.history import CallMark, WorkspaceHistory
from machines.coding.servers.mcp_tools import Foreign, ForeignTool, McpServer
from machines.coding.task_plan import CallFaults, CodingCall, CodingResult, Look, Probe
from machines.coding.test_first import Layout, Places, WriteTested, write_tested
from machines.coding.tools import command_runner
from machines.coding.tools.command_runner import alone
from machines.coding.tools.file_arguments import FILE_TOOLS, FileCall, ListDir, read
from machines.coding.tools.git_tools import GitTools
from machines.coding.tools.program_rules import Rules, executed
from machines.coding.tools.workspace import FileChanges, FileEdit, Workspace
from machines.coding.tools.workspace_paths import WorkspaceToolError
from machines.tool_use.chat_model import Model
from machines.tool_use.records import JsonObject, as_data, read_record, shell_line, short
from machines.tool_use.tool_call import CallFault, ToolRequest, refused

_LONGEST_COMMAND, _LONGEST_ERROR, _LONGEST_DIFF, _MOST_NAMES = 150, 240, 400_000, 40
#: What says what an agent may do is not for the agent to write.
SETTINGS = "dsa.toml"


@attrs.frozen
class CommandResult:
    """How a command ended, and what it has printed: its exit code, or the `signal` or the limit that `ended` it.

    `omitted` characters of its output are left out; what it must not write was `put_back`, what is not undone is `not_kept`.
    """

    rc: int | None
    output: str
    signal: str = ""
    ended: str = ""
    omitted: int = 0
    left_out: str = ""
    put_back: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()


@attrs.frozen
class CommandArguments:
    """What `run_cmd` is asked with."""

    cmd: Any
    cwd: str = "."
    stdin: str | None = None
    timeout_sec: int = 60


@attrs.frozen
class CallDone:
    """What came of a call, and whether it was done."""

    came: CodingResult
    is_done: bool = True


#: How long the mark behind a call that was stopped may take, in seconds.
_ORDER_S = 0.5


class _StopCheck:
    """Says whether a call was stopped, and so long ago that nothing more is done for it."""

    def __init__(self, stop: StopSwitch, grace_s: float = 0.0) -> None:
        self._waiting, self._grace_s = select.poll(), grace_s
        self._waiting.register(stop.fileno(), select.POLLIN)
        self._since_s: float | None = None

    def __call__(self) -> bool:
        if self._since_s is None and self._waiting.poll(0):
            self._since_s = time.monotonic()
        return self._since_s is not None and time.monotonic() - self._since_s >= self._grace_s


class Toolbox:
    """The tools of a workspace. `folder` is the run's own, outside of it: the history of changes lies there.

    Settings: `workspace`, `protected`, `network`, `commands` (rules), `commit`, `test_first`, `mcp`, `polling`, `unconfined`. `model` is who writes
    tested code, `asked` how many answers the run has had of it. Raises ToolError, ValueError, OSError.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self.root = Path(config["workspace"])
        self._config, self._folder = config, folder
        self._protected = (*(config.get("protected") or ()), SETTINGS)
        self.rules = Rules.from_mapping(config.get("commands") or {})
        self.workspace = Workspace(self.root, self._protected)
        self._git = GitTools(self.root)
        self.model: Model | None = None
        self.asked, self._unkept = 0, ""
        self.progress: Callable[[str], object] = str

    @cached_property
    def history(self) -> WorkspaceHistory:
        """What the workspace was like before and after each call."""
        history = WorkspaceHistory(self._folder / "history", self.root)
        history.progress = lambda text: self.progress(text)  # noqa: PLW0108  (set later)
        return history

    @cached_property
    def foreign(self) -> Foreign | None:
        """The tools of MCP servers; None where none are configured."""
        servers = self._config.get("mcp") or {}
        named = {name: McpServer.from_mapping(name, table) for name, table in servers.items()}
        return Foreign(named) if named else None

    @property
    def is_listed(self) -> bool:
        """Return whether `tools` is at hand, so that nobody waits for it."""
        return "tools" in self.__dict__

    @cached_property
    def tools(self) -> Mapping[str, WorkspaceTool]:
        """The tools by their names."""
        wanted = {"git_commit": self._config.get("commit"), "write_tested": self._config.get("test_first")}
        own = [tool for tool in TOOLS if wanted.get(tool.name, True)]
        hosts = ", ".join(self._config.get("network") or ())
        reached = f"Of the network they reach {hosts} alone." if hosts else "They reach no network."
        programs = f"The programs: {', '.join(self.rules.names)}. {reached}"
        own = [attrs.evolve(tool, about=f"{tool.about} {programs}") if tool.name == "run_cmd" else tool for tool in own]
        found = {tool.name: tool for tool in [*own, *map(_as_tool, self.foreign.tools() if self.foreign else ())]}
        for name in self._config.get("polling") or ():
            if name in found:
                found[name] = attrs.evolve(found[name], kind="polling")
        return found

    # -- before a call --------------------------------------------------------------------------------------------------

    def looked_at(self, call: ToolRequest[WorkspaceTool]) -> Look:
        """Return what the guards have to know of a call: its faults, what it would change, what it asks leave for."""
        assert call.tool is not None, "a call of no tool is not looked at"
        name, look = call.tool.name, Look(asks=call.tool.needs)
        if name == "write_tested":
            fault = self.workspace.fault(read_record(WriteTested, call.arguments).files())
            return attrs.evolve(look, faults=CallFaults(inside_workspace=fault))
        if name in FILE_TOOLS:
            return self._planned(look, read(name, call.arguments))
        if name == "run_cmd":
            return self._command(look, read_record(CommandArguments, call.arguments))
        is_ours = name in {"git_status", "git_diff", "git_log", COMPLETE}
        return look if is_ours else attrs.evolve(look, asks=f"run {name}")

    def _command(self, look: Look, asked: CommandArguments) -> Look:
        """Return what a command would run, or why it is none that is allowed."""
        try:
            argv = command_runner.asked(asked.cmd)
        except WorkspaceToolError as error:
            return attrs.evolve(look, faults=CallFaults(command_allowed=str(error)))
        faults = CallFaults(command_allowed=_command_fault(argv, self.rules, self.root, asked.cwd))
        named = executed(argv, self.root, asked.cwd)
        return attrs.evolve(look, faults=faults, argv=tuple(argv), asks=f"run {argv[0]}", named=named)

    def _planned(self, look: Look, asked: FileCall) -> Look:
        """Return what a call would change, or why it cannot be done: then nobody is asked for leave."""
        fault = self.workspace.fault(asked)
        if fault:
            return attrs.evolve(look, faults=CallFaults(inside_workspace=fault))
        try:
            return attrs.evolve(look, planned=tuple(self.workspace.planned(asked)))
        except WorkspaceToolError as error:
            return attrs.evolve(look, cannot=CallFault(error.code, str(error)))

    def shown(self, call: CodingCall) -> str:
        """Return what a call would do, for a person: a diff, or the command."""
        if call.planned:
            try:
                text = self.workspace.diff(read(call.tool, call.arguments))
            except WorkspaceToolError as error:
                return str(error)
        elif call.argv:
            text = _command_shown(call.argv, read_record(CommandArguments, call.arguments))
        else:
            text = json.dumps(call.arguments, ensure_ascii=False, indent=1)
        left = len(text) - _LONGEST_DIFF
        unseen = f"\n[.. {left:,} characters are not shown: do not let this happen unseen ..]"
        return text if left <= 0 else text[:_LONGEST_DIFF] + unseen

    # -- a call ---------------------------------------------------------------------------------------------------------

    def do(self, call: CodingCall, *, key: str, stop: StopSwitch, was_asked: bool = False) -> CallDone:
        """Do a call; `key` is that of its effect. What goes wrong in it is told; only a fault of ours raises.

        `was_asked`: a person has let it happen, for the files that its command executes as they were then; it is not done when one is another now.
        """
        if call.cannot is not None:
            return _failed(call, WorkspaceToolError(call.cannot.code, call.cannot.message))
        if call.kind in {"looking", "polling"}:
            return self._done(call, stop)
        try:
            is_tested = call.tool == "write_tested"
            write = self._tested(call, stop) if is_tested else None  # a model is asked
            with alone(self.root, stop):
                if was_asked:
                    self._require_unchanged(call)
                names = self._written(call)
                begun = self.history.begin(key, f"before {call.tool}", names, _StopCheck(stop))
                done = self._done(call, stop) if write is None else write()
                over = self.history.end(begun, f"after {call.tool}", names, _StopCheck(stop, _ORDER_S))
        except WorkspaceToolError as error:
            return _failed(call, error)
        return self._with_changes(done, over)

    def _require_unchanged(self, call: CodingCall) -> None:
        """Raise ToolError when a file that the command executes is not what it was when leave was asked for."""
        if not call.argv:
            return
        asked = read_record(CommandArguments, call.arguments)
        known, now = call.named, executed(call.argv, self.root, asked.cwd)
        changed = sorted(path for path in {*known, *now} if known.get(path) != now.get(path))
        if changed:
            which = f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed"
            told = f"not run: {which} since leave was asked for this command; look at it, and ask for the command again"
            raise WorkspaceToolError("changed_since", told)

    def cut_off(self, call: CodingCall, key: str, stop: StopSwitch) -> CallDone:
        """Return what is known of a call that was cut off and is not done again: what has changed since it began."""
        told = refused(call.call_id, "interrupted", _INTERRUPTED).content
        done = CallDone(CodingResult(call.call_id, told, error=f"{call.tool}: interrupted"), is_done=False)
        found = self.history.cut_off(key, _StopCheck(stop))
        return done if found is None else self._with_changes(done, found)

    def _written(self, call: CodingCall) -> tuple[str, ...]:
        """Name the files that a call will write, as far as it says so."""
        if call.tool == "write_tested":
            return tuple(map(self.workspace.known_as, read_record(WriteTested, call.arguments).files().paths))
        return tuple(each.path for each in call.planned)

    def _with_changes(self, done: CallDone, call: CallMark) -> CallDone:
        changes = [] if call.before == call.after else self.history.changed(call.before, call.after, call.made)
        told = tuple(FileEdit(each.path, each.before, each.after) for each in changes)
        made = tuple(path for path in call.made if any(each.path == path for each in changes))
        unkept, before = self.history.unkept(call.after), self._unkept
        self._unkept = unkept
        told_too = [self.history.lost(call.before, call.after), unkept if unkept != before else ""]
        unkept = "; ".join(filter(None, told_too))
        came = attrs.evolve(done.came, changes=told, made=made, unkept=unkept)
        if told:
            came = attrs.evolve(came, before=call.before, after=call.after)
        return attrs.evolve(done, came=came)

    def _done(self, call: CodingCall, stop: StopSwitch) -> CallDone:
        try:
            return CallDone(self._called(call, stop))
        except WorkspaceToolError as error:
            return _failed(call, error)
        except OSError as error:  # a workspace that is gone raises another one, which ends the run
            return _failed(call, WorkspaceToolError("failed", f"the system refuses it: {_complaint(error)}"))

    def _called(self, call: CodingCall, stop: StopSwitch) -> CodingResult:
        return (
            self._ran(call, stop)
            if call.tool == "run_cmd"
            else CodingResult(call.call_id, _told(self._found(call, stop)))
        )

    def _found(self, call: CodingCall, stop: StopSwitch) -> object:
        """Return what a tool found, as its record."""
        name, given = call.tool, call.arguments
        if name in FILE_TOOLS:
            return self.workspace.apply(read(name, given), call.planned)
        if name == "git_commit":
            return self._git.git_commit(given["message"], written=call.files)
        if name in _GIT:
            return _GIT[name](self._git, given)
        assert self.foreign is not None, "a tool that is not ours is a server's"
        return self.foreign.call(name, given, stop=stop)

    def _tested(self, call: CodingCall, stop: StopSwitch) -> Callable[[], CallDone]:
        """Have a module and its tests written; gives what puts them into the workspace."""
        assert self.model is not None, "the tool is offered where a model is asked"
        asked = read_record(WriteTested, call.arguments)
        places = Places(self.root, asked.path, asked.tests_path)
        run = partial(
            command_runner.run, protected=self._protected, unconfined=bool(self._config.get("unconfined")), stop=stop
        )
        tested = write_tested(self.model, asked.specification, Layout(places, run), self.asked)

        def write() -> CallDone:
            found = self.workspace.write(asked.files(tested.code, tested.tests))
            told = {"answers": tested.attempts, "code": tested.code, "tests": tested.tests}
            result = {"result": f"{found.result}; {tested.how}", **told}
            return CallDone(CodingResult(call.call_id, result, usage=tested.usage))

        return write

    def _ran(self, call: CodingCall, stop: StopSwitch) -> CodingResult:
        asked = read_record(CommandArguments, call.arguments)
        ran = command_runner.run(
            call.argv, root=self.root, cwd=asked.cwd, stdin=asked.stdin, timeout_s=asked.timeout_sec,
            protected=self._protected, network=tuple(self._config.get("network") or ()), rules=self.rules,
            unconfined=bool(self._config.get("unconfined")), stop=stop,
        )  # fmt: skip
        was_ended = ran.ended != "exited" and ran.code is None and not ran.signal
        how = "timed out" if ran.timed_out else ran.ended if was_ended else ""
        rc = f"rc={ran.code}" if ran.code is not None else ran.signal or how
        told = CommandResult(
            ran.code, ran.output, ran.signal, how, ran.omitted, _left_out(ran.omitted), ran.removed, ran.changed
        )
        outcome = f"{short(shell_line(call.argv), _LONGEST_COMMAND)} -> {rc}"
        failed = "" if ran.code == 0 else short(f"{outcome}: {_last_line(ran.output)}", _LONGEST_ERROR)
        fault = f"{rc} {_last_line(ran.output)}" if failed else ""
        return CodingResult(call.call_id, _told(told), failed, fault, outcome)

    def contents(self) -> str:
        """Name what lies in the workspace itself, not in its folders."""
        found = self.workspace.listed(ListDir())
        names = [each.name for each in found.entries]
        left = len(names) + found.more - _MOST_NAMES
        more = f" and {left} more" if left > 0 else ""
        return f"{', '.join(names[:_MOST_NAMES])}{more}" if names else "nothing yet"

    # -- between calls --------------------------------------------------------------------------------------------------

    def probe(self, written: Sequence[str], ran: Sequence[str], errors: Sequence[str]) -> Probe:
        """Return facts about the workspace, none of them about a goal (seed 003, generic state probing)."""
        here = [path for path in written if self.workspace.exists(path)]
        missing = tuple(path for path in written if path not in here)
        return Probe(tuple(written), tuple(here), missing, tuple(ran[-5:]), tuple(errors[-3:]))

    def close(self) -> None:
        """Let go of the workspace, and end the servers."""
        self.workspace.close()
        if "foreign" in self.__dict__ and self.foreign is not None:
            self.foreign.close()


def _told(found: object) -> JsonObject:
    """Return the JSON that a model gets of what a tool found; which files have changed stands beside it in the event."""
    return {"result": found.result} if isinstance(found, FileChanges) else as_data(found)


def _failed(call: CodingCall, error: WorkspaceToolError) -> CallDone:
    line = " ".join(str(error).split())
    told = refused(call.call_id, error.code, str(error)).content
    fault = f"{error.code} {call.arguments.get('path', '')}"
    return CallDone(
        CodingResult(call.call_id, told, short(f"{call.tool}: {line}", _LONGEST_ERROR), fault), is_done=False
    )


_INTERRUPTED = "it was cut off in the middle; nobody knows what came of it: look before you do it again"


def _command_shown(argv: Sequence[str], asked: CommandArguments) -> str:
    """Return all that makes a command do what it does: where it runs and what it reads may be the program."""
    lines = [shell_line(argv)]
    if (where := posixpath.normpath(asked.cwd)) != ".":
        lines.append(f"in the folder {shell_line([where])}")
    if asked.stdin:
        lines += ["reading on its standard input:", *(f"| {each}" for each in asked.stdin.splitlines())]
    return "\n".join(lines)


def _command_fault(argv: Sequence[str], rules: Rules, root: Path, cwd: str) -> str:
    """Return why a command is not run; also where the system can look up no such path or module: a NUL, a name that is too long."""
    try:
        return command_runner.fault(argv, rules, root, cwd)
    except (OSError, ValueError) as error:
        return f"the command has a path or a name that cannot be there: {_complaint(error)}"


def _complaint(error: Exception) -> str:
    """Return what the system says, without the path: that may be anything."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _as_tool(each: ForeignTool) -> WorkspaceTool:
    """Return a server's tool. That it only reads is its own claim: it counts where the user lets all of the server's calls happen."""
    reads = each.reads_only and each.approve == "always"
    needs = {"never": "never", "always": "look", "ask": "ask"}.get(each.approve or "", "run")
    kind: Kind = "looking" if reads else "running"
    return WorkspaceTool(each.name, each.description, schema=each.schema, kind=kind, needs=needs)


def _left_out(omitted: int) -> str:
    """Return what of an output is not given; nothing where all is."""
    how = "have it print less, or into a file, and read that"
    return f"{omitted:,} characters of its output are left out: {how}" if omitted else ""


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


_GIT: dict[str, Callable[[GitTools, JsonObject], object]] = {
    "git_status": lambda git, _: git.git_status(),
    "git_diff": lambda git, given: git.git_diff(given.get("path"), given.get("staged", False)),
    "git_log": lambda git, given: git.git_log(given.get("count", 10), given.get("path")),
}
