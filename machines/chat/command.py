"""`dsa chat [DATA...]`: talk with a model about data; a table decides what it may do.

Interactive, or with `--ask` for scripts. The conversation is kept and can be taken up again after whatever has happened.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dsa.cli.console import terminal
from dsa.cli.faults import INTERRUPTED, JsonCommand
from dsa.cli.kept import budget_option, faults_told, find, runs_option
from dsa.cli.parameters import param_option, parse_parameters
from dsa.cli.run_options import model_named
from dsa.runs.runs import open_runs
from machines.chat.conversation import Turn
from machines.chat.counting import counters_of
from machines.chat.display import Display
from machines.chat.session import Chat, Settings
from machines.chat.talk import Talk

_AS_BEGUN = "--resume goes on as the conversation was begun: it takes no DATA, --format, --param, --budget or --no-.."


@click.command("chat", cls=JsonCommand)
@click.argument("data", nargs=-1, metavar="[DATA]...", type=click.Path(path_type=Path))
@click.option("--ask", "asked", multiple=True, metavar="TEXT", help="Say this and end; several are said in turn.")
@click.option("--model", callback=model_named, help="http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other answers.")
@click.option("--resume", "resumed", metavar="RUN", help="Go on with a conversation: its name, a part of it, or last.")
@click.option("--take", is_flag=True, help="Take it from a process that holds it.")
@click.option("--format", "format_", type=click.Choice(["none", "report"]), default="none", show_default=True, help="report: each answer also as Markdown and PDF.")  # fmt: skip
@param_option("Set a bound, such as max_rounds=8.")
@click.option("--no-dedup", is_flag=True, help="Let everything be done again: to see what the guards are worth.")
@click.option("--no-normalise", is_flag=True, help="Take calls as they are sent: to see what mending is worth.")
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object a turn and nothing else.")
@budget_option
@runs_option
def command(
    asked: tuple[str, ...],
    resumed: str | None,
    root: str,
    *,
    take: bool,
    json_wanted: bool,
    **said: Any,  # noqa: ANN401  (options)
) -> None:
    """Talk with a model about DATA: CSV, Parquet, JSON, SQLite or DuckDB files.

    The model asks with SQL and Python; both run where they can do no harm, files are kept under DIR/RUN/files. Exit code 0: the last turn was
    answered; 1: it ended with an error, or there is no model; 2: DATA or RUN cannot be used; 130: a turn was stopped by Ctrl-C.
    """
    is_other = any(said[name] for name in ("data", "parameters", "budget", "no_dedup", "no_normalise"))
    if resumed is not None and (is_other or said["format_"] != "none"):
        raise click.UsageError(_AS_BEGUN)
    if any(not text.strip() for text in asked) or (json_wanted and not asked):
        raise click.UsageError("say something: --ask TEXT")
    folder, display = Path(root), Display(terminal())
    how: dict[str, Any] = {} if json_wanted else {
        "on_moment": display.on_moment, "listen": display.listen, "notice": display.notice,
    }  # fmt: skip
    with faults_told(folder), open_runs(folder, must_exist=resumed is not None) as runs:
        if resumed is not None:
            resumed = find(runs.ids(), resumed, folder)
            chat = Chat.resume(resumed, runs, model=said["model"], take=take, **how)
        else:
            chat = Chat.begin(_settings(said), runs, **how)
            if not json_wanted:
                display.tables(chat.resources.database.tables)
        chat.resources.warm()
        with chat, asyncio.Runner() as runner:
            if asked:
                code = _asked(runner, chat, asked, display, json_wanted=json_wanted)
            else:
                code = Talk(chat, display).hold(lambda work: _heard(runner, chat, work))
    sys.exit(code)


def _settings(said: Mapping[str, Any]) -> Settings:
    """Put together what the command line says."""
    return Settings(
        said["model"] or "",
        said["data"],
        said["seed"],
        said["format_"],
        not said["no_normalise"],
        not said["no_dedup"],
        parse_parameters(said["parameters"]),
        budget=said["budget"],
    )


def _asked(runner: asyncio.Runner, chat: Chat, asked: tuple[str, ...], display: Display, *, json_wanted: bool) -> int:
    """Say what was given, one after the other."""
    if chat.is_under_way:
        _heard(runner, chat, chat.go_on())
    for text in asked:
        if not json_wanted:
            display.say(f"> {text}")
        turn = _heard(runner, chat, chat.say(text))
        if json_wanted:
            click.echo(json.dumps(turn_told(chat, turn), ensure_ascii=False))
        if turn.ended == "turn_cancelled":
            break
    if not json_wanted:
        retry = " (there /retry goes on with the turn)" if chat.has_failed else ""
        display.say(
            f"{chat.run_id}: {chat.state.rpartition('.')[2]}; go on with: dsa chat --resume {chat.run_id}{retry}"
        )
    return INTERRUPTED if turn.ended == "turn_cancelled" else 1 if chat.has_failed else 0


def _heard(runner: asyncio.Runner, chat: Chat, work: Any) -> Any:  # noqa: ANN401  (a coroutine, and what it gives)
    """Do something with the conversation; Ctrl-C stops the turn, a second one the program."""

    async def heard() -> Any:  # noqa: ANN401
        with _stopped_by_ctrl_c(chat):
            return await work

    return runner.run(heard())


@contextmanager
def _stopped_by_ctrl_c(chat: Chat) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        chat.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, ValueError, RuntimeError):  # elsewhere, or not in the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def turn_told(chat: Chat, turn: Turn) -> dict[str, Any]:
    """Give a turn as a JSON object."""
    calls = [
        {
            "call_id": call.call_id,
            "tool": call.tool,
            "status": call.status,
            "rescues": list(call.rescues),
            "artifacts": call.artifacts,
            "text": call.text,
            "error": call.result["error"] if isinstance(call.result, dict) and "error" in call.result else None,
        }
        for call in turn.calls
    ]
    conversation = chat.conversation
    return {
        "run": chat.run_id,
        "turn": turn.number,
        "state": chat.state,
        "said": turn.text,
        "answer": turn.answer,
        "why": turn.why,
        "calls": calls,
        "artifacts": conversation.inventory.described(),
        "counters": counters_of(conversation),
    }
