"""The toolbox: the tools of one run, the look at a call before it is made, and the call itself.

It takes calls with normalised arguments, and returns results for the model with the changes. The guards judge whether a call may happen, from the facts of
`look_at`; in addition each tool enforces its own boundary.
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
from dsa.errors import ToolError
from machines.coding.coding_tools import COMPLETE, TOOLS, Kind, WorkspaceTool
from machines.coding.history import CallMark, WorkspaceHistory
from machines.coding.task_plan import CallFaults, CodingCall, CodingResult, Look, Probe
from machines.coding.test_first import Layout, Places, WriteTested, write_tested
from machines.coding.tools import command_runner
from machines.coding.tools.command_runner import alone
from machines.coding.tools.file_arguments import FILE_TOOLS, FileCall, ListDir, read
from machines.coding.tools.git_tools import GitTools
from machines.coding.tools.mcp_tools import Foreign, ForeignTool, McpServer
from machines.coding.tools.program_rules import Rules, executed_files
from machines.coding.tools.workspace import FileChanges, FileEdit, Workspace
from machines.tool_use.chat_model import Model
from machines.tool_use.records import JsonObject, as_data, one_line, read_record, shell_line
from machines.tool_use.tool_call import CallFault, ToolRequest, fault_result

_LONGEST_COMMAND, _LONGEST_ERROR, _LONGEST_DIFF, _MOST_NAMES = 150, 240, 400_000, 40
#: The file with an agent's permissions, which the agent must not write.
SETTINGS = "dsa.toml"


@attrs.frozen
class CommandResult:
    """The end of a command: its output, and its exit code, or the `signal` or the limit that `ended` it.

    `omitted` counts the characters left out of the output. `put_back` are protected files that it wrote; `not_kept` are changes that undo cannot restore.
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
    """The arguments of `run_cmd`."""

    cmd: Any
    cwd: str = "."
    stdin: str | None = None
    timeout_sec: int = 60


@attrs.frozen
class CallDone:
    """The result of a call, and whether it succeeded."""

    result: CodingResult
    is_done: bool = True


#: The time for the mark after a stopped call, in seconds.
_ORDER_S = 0.5


class _StopCheck:
    """A check whether a call was stopped, and its time for cleaning up is over."""

    def __init__(self, stop: StopSwitch, grace_s: float = 0.0) -> None:
        self._poll, self._grace_s = select.poll(), grace_s
        self._poll.register(stop.fileno(), select.POLLIN)
        self._since_s: float | None = None

    def __call__(self) -> bool:
        if self._since_s is None and self._poll.poll(0):
            self._since_s = time.monotonic()
        return self._since_s is not None and time.monotonic() - self._since_s >= self._grace_s


class Toolbox:
    """The tools of a workspace. `folder` is the run's own, outside of the workspace, and has the history of changes.

    Settings: `workspace`, `protected`, `network`, `commands` (rules), `commit`, `test_first`, `mcp`, `polling`, `unconfined`. `model` writes tested
    code; `answer_count` counts the run's answers. Raises ToolError, ValueError, OSError.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self.root = Path(config["workspace"])
        self._config, self._folder = config, folder
        self._protected_patterns = (*(config.get("protected") or ()), SETTINGS)
        self.rules = Rules.from_mapping(config.get("commands") or {})
        self.workspace = Workspace(self.root, self._protected_patterns)
        self._git = GitTools(self.root)
        self.model: Model | None = None
        self.answer_count, self._unkept = 0, ""
        self.progress: Callable[[str], object] = str

    @cached_property
    def history(self) -> WorkspaceHistory:
        """The history of the workspace: a mark before and after each call."""
        history = WorkspaceHistory(self._folder / "history", self.root)
        history.progress = lambda text: self.progress(text)  # noqa: PLW0108  (set later)
        return history

    @cached_property
    def foreign(self) -> Foreign | None:
        """The tools of MCP servers, or None when none are configured."""
        servers = self._config.get("mcp") or {}
        mcp_servers = {name: McpServer.from_mapping(name, table) for name, table in servers.items()}
        return Foreign(mcp_servers) if mcp_servers else None

    @property
    def is_listed(self) -> bool:
        """Whether `tools` is ready."""
        return "tools" in self.__dict__

    @cached_property
    def tools(self) -> Mapping[str, WorkspaceTool]:
        """The tools by name."""
        switches = {"git_commit": self._config.get("commit"), "write_tested": self._config.get("test_first")}
        own = [tool for tool in TOOLS if switches.get(tool.name, True)]
        hosts = ", ".join(self._config.get("network") or ())
        network = f"They can reach only these hosts: {hosts}." if hosts else "They cannot reach the network."
        programs = f"The programs: {', '.join(self.rules.names)}. {network}"
        own = [attrs.evolve(tool, about=f"{tool.about} {programs}") if tool.name == "run_cmd" else tool for tool in own]
        tools = {tool.name: tool for tool in [*own, *map(_as_tool, self.foreign.tools() if self.foreign else ())]}
        for name in self._config.get("polling") or ():
            if name in tools:
                tools[name] = attrs.evolve(tools[name], kind="polling")
        return tools

    # --- before a call ---

    def look_at(self, call: ToolRequest[WorkspaceTool]) -> Look:
        """Return the facts of a call for the guards: its faults, its changes, the permission that it needs."""
        assert call.tool is not None, "a call of an unknown tool has no look"
        name, look = call.tool.name, Look(asks=call.tool.needs)
        if name == "write_tested":
            fault = self.workspace.fault(read_record(WriteTested, call.arguments).files())
            return attrs.evolve(look, faults=CallFaults(inside_workspace=fault))
        if name in FILE_TOOLS:
            return self._file_look(look, read(name, call.arguments))
        if name == "run_cmd":
            return self._command(look, read_record(CommandArguments, call.arguments))
        is_ours = name in {"git_status", "git_diff", "git_log", COMPLETE}
        return look if is_ours else attrs.evolve(look, asks=f"run {name}")

    def _command(self, look: Look, arguments: CommandArguments) -> Look:
        """Return the look at a command: its words, or why it is not allowed."""
        try:
            argv = command_runner.read_command(arguments.cmd)
        except ToolError as error:
            return attrs.evolve(look, faults=CallFaults(command_allowed=str(error)))
        faults = CallFaults(command_allowed=_command_fault(argv, self.rules, self.root, arguments.cwd))
        programs = executed_files(argv, self.root, arguments.cwd)
        return attrs.evolve(look, faults=faults, argv=tuple(argv), asks=f"run {argv[0]}", named=programs)

    def _file_look(self, look: Look, call: FileCall) -> Look:
        """Return the look at a file call: its changes, or why it cannot work, and then it needs no permission."""
        fault = self.workspace.fault(call)
        if fault:
            return attrs.evolve(look, faults=CallFaults(inside_workspace=fault))
        try:
            return attrs.evolve(look, planned=tuple(self.workspace.plan(call)))
        except ToolError as error:
            return attrs.evolve(look, cannot=CallFault(error.code, str(error)))

    def preview(self, call: CodingCall) -> str:
        """Return the effect of a call for a person: a diff, or the command."""
        if call.planned:
            try:
                text = self.workspace.diff(read(call.tool, call.arguments))
            except ToolError as error:
                return str(error)
        elif call.argv:
            text = _command_text(call.argv, read_record(CommandArguments, call.arguments))
        else:
            text = json.dumps(call.arguments, ensure_ascii=False, indent=1)
        left = len(text) - _LONGEST_DIFF
        unseen = f"\n[.. {left:,} characters are not shown: do not allow what you cannot see ..]"
        return text if left <= 0 else text[:_LONGEST_DIFF] + unseen

    # --- a call ---

    def do(self, call: CodingCall, *, key: str, stop: StopSwitch, was_asked: bool = False) -> CallDone:
        """Make a call; `key` is that of its effect. A fault in it is a result; only our own faults raise.

        `was_asked` says that a person allowed it, with the files that its command executes at that time; when one has changed, the call is not made.
        """
        if call.cannot is not None:
            return _failure(call, ToolError(call.cannot.message, code=call.cannot.code))
        if call.kind in {"looking", "polling"}:
            return self._attempt(call, stop)
        try:
            is_tested = call.tool == "write_tested"
            write = self._write_tested(call, stop) if is_tested else None  # this asks a model
            with alone(self.root, stop):
                if was_asked:
                    self._require_unchanged(call)
                names = self._written_paths(call)
                start = self.history.begin(key, f"before {call.tool}", names, _StopCheck(stop))
                outcome = self._attempt(call, stop) if write is None else write()
                over = self.history.end(start, f"after {call.tool}", names, _StopCheck(stop, _ORDER_S))
        except ToolError as error:
            return _failure(call, error)
        return self._with_changes(outcome, over)

    def _require_unchanged(self, call: CodingCall) -> None:
        """Raise ToolError when a file that the command executes has changed since the question."""
        if not call.argv:
            return
        arguments = read_record(CommandArguments, call.arguments)
        before, now = call.named, executed_files(call.argv, self.root, arguments.cwd)
        paths = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
        if paths:
            which = f"{', '.join(paths)} {'has' if len(paths) == 1 else 'have'} changed"
            message = f"not run: {which} since the user was asked about this command; read it, and call again"
            raise ToolError(message, code="changed_since")

    def interrupted_call(self, call: CodingCall, key: str, stop: StopSwitch) -> CallDone:
        """Return the result of an interrupted call that is not made again: the changes since its start."""
        content = fault_result(call.call_id, "interrupted", _INTERRUPTION).content
        outcome = CallDone(CodingResult(call.call_id, content, error=f"{call.tool}: interrupted"), is_done=False)
        mark = self.history.interrupted_call(key, _StopCheck(stop))
        return outcome if mark is None else self._with_changes(outcome, mark)

    def _written_paths(self, call: CodingCall) -> tuple[str, ...]:
        """Return the files that a call says it will write."""
        if call.tool == "write_tested":
            return tuple(map(self.workspace.known_as, read_record(WriteTested, call.arguments).files().paths))
        return tuple(each.path for each in call.planned)

    def _with_changes(self, outcome: CallDone, call: CallMark) -> CallDone:
        changes = (
            [] if call.before == call.after else self.history.changed_files(call.before, call.after, call.new_paths)
        )
        edits = tuple(FileEdit(each.path, each.before, each.after) for each in changes)
        new_paths = tuple(path for path in call.new_paths if any(each.path == path for each in changes))
        unkept, before = self.history.unkept(call.after), self._unkept
        self._unkept = unkept
        remarks = [self.history.lost_text(call.before, call.after), unkept if unkept != before else ""]
        unkept = "; ".join(filter(None, remarks))
        result = attrs.evolve(outcome.result, changes=edits, made=new_paths, unkept=unkept)
        if edits:
            result = attrs.evolve(result, before=call.before, after=call.after)
        return attrs.evolve(outcome, result=result)

    def _attempt(self, call: CodingCall, stop: StopSwitch) -> CallDone:
        try:
            return CallDone(self._call(call, stop))
        except ToolError as error:
            return _failure(call, error)
        except OSError as error:  # a missing workspace raises another exception, which ends the run
            return _failure(call, ToolError(f"the system refuses the call: {_complaint(error)}", code="failed"))

    def _call(self, call: CodingCall, stop: StopSwitch) -> CodingResult:
        if call.tool == "run_cmd":
            return self._run(call, stop)
        return CodingResult(call.call_id, _as_result(self._result_of(call, stop)))

    def _result_of(self, call: CodingCall, stop: StopSwitch) -> object:
        """Return the record of a tool's result."""
        name, arguments = call.tool, call.arguments
        if name in FILE_TOOLS:
            return self.workspace.apply(read(name, arguments), call.planned)
        if name == "git_commit":
            return self._git.git_commit(arguments["message"], written_paths=call.files)
        if name in _GIT:
            return _GIT[name](self._git, arguments)
        assert self.foreign is not None, "any other tool is a server's"
        return self.foreign.call(name, arguments, stop=stop)

    def _write_tested(self, call: CodingCall, stop: StopSwitch) -> Callable[[], CallDone]:
        """Let the model write a module and its tests; return the function that puts them into the workspace."""
        assert self.model is not None, "the tool is only offered with a model"
        arguments = read_record(WriteTested, call.arguments)
        places = Places(self.root, arguments.path, arguments.tests_path)
        run_command = partial(
            command_runner.run, protected_patterns=self._protected_patterns, is_unconfined=bool(self._config.get("unconfined")), stop=stop
        )  # fmt: skip
        tested_code = write_tested(self.model, arguments.specification, Layout(places, run_command), self.answer_count)

        def write() -> CallDone:
            changes = self.workspace.write(arguments.files(tested_code.code, tested_code.tests))
            facts = {"answers": tested_code.attempts, "code": tested_code.code, "tests": tested_code.tests}
            result = {"result": f"{changes.result}; {tested_code.how}", **facts}
            return CallDone(CodingResult(call.call_id, result, usage=tested_code.usage))

        return write

    def _run(self, call: CodingCall, stop: StopSwitch) -> CodingResult:
        arguments = read_record(CommandArguments, call.arguments)
        command = command_runner.run(
            call.argv, root=self.root, cwd=arguments.cwd, stdin=arguments.stdin, timeout_s=arguments.timeout_sec,
            protected_patterns=self._protected_patterns, network=tuple(self._config.get("network") or ()), rules=self.rules,
            is_unconfined=bool(self._config.get("unconfined")), stop=stop,
        )  # fmt: skip
        was_ended = command.end_reason != "exited" and command.code is None and not command.signal
        how = "timed out" if command.timed_out else command.end_reason if was_ended else ""
        rc = f"rc={command.code}" if command.code is not None else command.signal or how
        omission = _omission(command.omitted_count)
        result = CommandResult(
            command.code, command.output, command.signal, how, command.omitted_count, omission, command.removed_paths, command.changed_folders,
        )  # fmt: skip
        outcome = f"{one_line(shell_line(call.argv), _LONGEST_COMMAND)} -> {rc}"
        error = "" if command.code == 0 else one_line(f"{outcome}: {_last_line(command.output)}", _LONGEST_ERROR)
        fault = f"{rc} {_last_line(command.output)}" if error else ""
        return CodingResult(call.call_id, _as_result(result), error, fault, outcome)

    def contents(self) -> str:
        """Return the names at the top of the workspace as text."""
        listing = self.workspace.list_folder(ListDir())
        names, left = [each.name for each in listing.entries], len(listing.entries) + listing.more - _MOST_NAMES
        more = f" and {left} more" if left > 0 else ""
        return f"{', '.join(names[:_MOST_NAMES])}{more}" if names else "nothing yet"

    # --- between calls ---

    def probe(self, files: Sequence[str], commands: Sequence[str], errors: Sequence[str]) -> Probe:
        """Return facts about the workspace, independent of the goal (seed 003, generic state probing)."""
        here = [path for path in files if self.workspace.exists(path)]
        missing = tuple(path for path in files if path not in here)
        return Probe(tuple(files), tuple(here), missing, tuple(commands[-5:]), tuple(errors[-3:]))

    def close(self) -> None:
        """Close the workspace, and stop the servers."""
        self.workspace.close()
        if "foreign" in self.__dict__ and self.foreign is not None:
            self.foreign.close()


def _as_result(record: object) -> JsonObject:
    """Return a tool's result as JSON for the model; the event has the changed files in another place."""
    return {"result": record.result} if isinstance(record, FileChanges) else as_data(record)


def _failure(call: CodingCall, error: ToolError) -> CallDone:
    line = " ".join(str(error).split())
    content = fault_result(call.call_id, error.code, str(error)).content
    fault = f"{error.code} {call.arguments.get('path', '')}"
    return CallDone(
        CodingResult(call.call_id, content, one_line(f"{call.tool}: {line}", _LONGEST_ERROR), fault), is_done=False
    )


_INTERRUPTION = "the call was interrupted, and its effects are unknown: check them before you repeat it"


def _command_text(argv: Sequence[str], arguments: CommandArguments) -> str:
    """Return everything that determines a command: its words, its folder, and its standard input, which may be the program."""
    lines = [shell_line(argv)]
    if (where := posixpath.normpath(arguments.cwd)) != ".":
        lines.append(f"in the folder {shell_line([where])}")
    if arguments.stdin:
        lines += ["with this standard input:", *(f"| {each}" for each in arguments.stdin.splitlines())]
    return "\n".join(lines)


def _command_fault(argv: Sequence[str], rules: Rules, root: Path, cwd: str) -> str:
    """Return why a command is not allowed, also for a path or name that the system cannot look up: with a NUL, or too long."""
    try:
        return command_runner.fault(argv, rules, root, cwd)
    except (OSError, ValueError) as error:
        return f"the command has an impossible path or name: {_complaint(error)}"


def _complaint(error: Exception) -> str:
    """Return the system's message without the path, which may be anything."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _as_tool(each: ForeignTool) -> WorkspaceTool:
    """Return a server's tool. Its claim to be read-only counts only when the user allows all of the server's calls."""
    reads = each.reads_only and each.approve == "always"
    needs = {"never": "never", "always": "look", "ask": "ask"}.get(each.approve or "", "run")
    kind: Kind = "looking" if reads else "running"
    return WorkspaceTool(each.name, each.description, schema=each.schema, kind=kind, needs=needs)


def _omission(omitted_count: int) -> str:
    """Return the note on omitted output, or an empty text."""
    how = "let the command print less, or print into a file and read the file"
    return f"{omitted_count:,} characters of the output are left out: {how}" if omitted_count else ""


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


_GIT: dict[str, Callable[[GitTools, JsonObject], object]] = {
    "git_status": lambda git, _: git.git_status(),
    "git_diff": lambda git, arguments: git.git_diff(arguments.get("path"), arguments.get("staged", False)),
    "git_log": lambda git, arguments: git.git_log(arguments.get("count", 10), arguments.get("path")),
}
