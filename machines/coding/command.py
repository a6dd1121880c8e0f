"""`dsa code GOAL`: have a model work at a goal in a folder; a table decides what it may do.

Interactive where leave is asked for at a terminal. The run is kept and can be taken up again after whatever has happened.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.faults import Ended
from dsa.cli.kept import budget_option, faults_told, find, runs_option
from dsa.cli.model import model_named
from dsa.cli.parameters import parse_parameters
from dsa.cli.run_policy import absolute_script
from dsa.cli.terminal import terminal
from dsa.edge.runs import open_store
from machines.coding.configuration import PARAMETERS, TEMPERATURE, checked, default_model, read_configuration
from machines.coding.counting import counters_of
from machines.coding.display import Display, totals
from machines.coding.plan import TEMPLATES, Task, template
from machines.coding.resources import MODES
from machines.coding.session import EXIT, Agent, Settings, unfinished_run

_INTERRUPTED, _UNREADABLE, _ASKED = 130, 2, 3


@click.command("code")
@click.argument("goal", required=False, default="")
@click.option(
    "--workspace",
    "-w",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The folder to work in.",
)
@click.option(
    "--model",
    default=None,
    callback=model_named,
    help="http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE. Default: Ollama's OLLAMA_MODEL.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=None,
    help="What happens without asking: nothing, edits, everything, or only looking.",
)
@click.option(
    "--template",
    "-t",
    "named",
    default=None,
    metavar="NAME",
    help=f"Tasks that are there already: {', '.join(TEMPLATES)}, or your own.",
)
@click.option("--network", multiple=True, metavar="HOST", help="A host that commands may reach; none by default.")
@click.option(
    "--test-first", is_flag=True, help="Offer write_tested: tests are written first, then code until it passes them."
)
@click.option(
    "--json-mode",
    is_flag=True,
    help="For models that call no tools: they fill in a JSON schema. Needed for `--model local`.",
)
@click.option("--seed", type=int, default=None, help="Another seed gives other answers.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=None,
    help="Settings; default: dsa.toml or pyproject.toml here.",
)
@click.option(
    "--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Set a bound: max_rounds, max_turns, max_calls."
)
@budget_option
@click.option("--resume", "resumed", metavar="RUN", help="Go on with a run: its name, a part of it, or last.")
@click.option("--fresh", is_flag=True, help="Begin anew although the same goal was cut off here.")
@click.option("--take", is_flag=True, help="Take the run from a process that holds it.")
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object at the end and nothing else.")
@runs_option
def command(
    goal: str,
    resumed: str | None,
    root: str,
    *,
    take: bool,
    json_wanted: bool,
    fresh: bool,
    **said: Any,  # noqa: ANN401  (options)
) -> None:
    """Work at GOAL: break it into tasks, and call tools until they are done.

    The same goal in the same folder is taken up where it was cut off. Exit code 0: done or answered; 1: rounds used up, blocked or stopped; 2: it
    cannot be begun; 3: a person is needed; 130: interrupted, and can be resumed.
    """
    if bool(goal) == bool(resumed):
        raise click.UsageError("say a GOAL, or --resume RUN")
    runs, display = Path(root), Display(terminal())
    how: dict[str, Any] = {} if json_wanted else {"observe": display.observe, "listen": display.listen}
    with faults_told(runs):
        agent = _agent(goal, resumed, runs, said, how, take=take, fresh=fresh)
        with agent:
            code = _worked(agent, display, is_quiet=json_wanted)
            _report(agent, display, code, is_json=json_wanted)
    sys.exit(code)


def _agent(
    goal: str,
    resumed: str | None,
    runs: Path,
    said: Mapping[str, Any],
    how: Mapping[str, Any],
    *,
    take: bool,
    fresh: bool,
) -> Agent:
    """Begin, or take up what was cut off."""
    workspace = said["workspace"].resolve()
    if resumed is not None:
        with open_store(runs, must_exist=True) as store:
            resumed = find(store, resumed, runs)
    elif not fresh:
        resumed = unfinished_run(goal, workspace, runs)
    if resumed is not None:
        click.echo(f"taken up as it was begun: {resumed}; --fresh begins anew", err=True)
        return Agent.resume(resumed, runs, model=said["model"], take=take, **how)
    if not workspace.is_dir():
        raise Ended(f"{workspace}: there is no such folder to work in", _UNREADABLE)
    try:
        return Agent.begin(_settings(goal, workspace, said), runs, **how)
    except (ValueError, OSError) as error:
        raise Ended(str(error), _UNREADABLE) from error


def _settings(goal: str, workspace: Path, said: Mapping[str, Any]) -> Settings:
    """Put together what the file says and what the command line says before it."""
    config = read_configuration(Path.cwd(), said["file"], workspace)
    own, bounds = config.pop("templates", {}), {name: config.pop(name) for name in PARAMETERS if name in config}
    given = {
        "model": said["model"],
        "mode": said["mode"],
        "seed": said["seed"],
        "json_mode": said["json_mode"] or None,
        "test_first": said["test_first"] or None,
    }
    lists = {name: list(said[name]) or None for name in ("network", "budget")}
    config |= checked({name: value for name, value in {**given, **lists}.items() if value is not None})
    config = {"temperature": TEMPERATURE, "seed": 0, "mode": MODES[0], **config, "workspace": str(workspace)}
    config["model"] = absolute_script(config.get("model") or default_model())
    bounds |= parse_parameters(said["parameters"])
    return Settings(goal, config, _tasks(said["named"], goal, own), bounds)


def _tasks(named: str | None, goal: str, own: Mapping[str, object]) -> tuple[Task, ...]:
    if named is None:
        return ()
    if named not in TEMPLATES and named not in own:
        known = ", ".join([*TEMPLATES, *own])
        raise Ended(f"there is no template '{named}'; there are: {known}", _UNREADABLE)
    return template(named, goal, own)


def _worked(agent: Agent, display: Display, *, is_quiet: bool) -> int:
    """Work until the end, or until somebody has to say something who is not there."""
    try:
        with asyncio.Runner() as runner:
            runner.run(agent.go_on())
            while agent.asks is not None and not is_quiet and sys.stdin.isatty():
                runner.run(_allowed(agent, agent.asks, display))
    except KeyboardInterrupt:
        return _INTERRUPTED
    return EXIT.get(agent.state, _ASKED)


def _allowed(agent: Agent, call: Mapping[str, Any], display: Display) -> Any:  # noqa: ANN401  (a coroutine)
    """Ask the user for leave; always is for calls of the same kind: all edits, or all runs of the program."""
    display.asks(call["tool"], agent.asked_shown)
    answer = input(f"may {call['tool']} happen? [y]es, [a]lways, [n]o, or why not: ").strip()
    if answer.lower() in {"y", "yes", "a", "always"}:
        return agent.permit(always=answer.lower().startswith("a"))
    return agent.deny("" if answer.lower() in {"", "n", "no"} else answer)


def _report(agent: Agent, display: Display, code: int, *, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(told(agent), ensure_ascii=False))
        return
    display.say(f"{agent.run_id}: {agent.state}; {totals(agent.work, int(agent.values['rounds']))}")
    if agent.asks is not None:
        display.asks(agent.asks["tool"], agent.asked_shown)
        display.say(f"dsa send {agent.run_id} permitted lets it happen; denied WHY does not")
    elif code == _INTERRUPTED:
        display.say(f"go on with: dsa code --resume {agent.run_id}")


def told(agent: Agent) -> dict[str, Any]:
    """Give how the work stands as a JSON object."""
    work = agent.work
    tasks: Sequence[Any] = [attrs.asdict(chapter) for chapter in work.chapters]
    return {
        "run": agent.run_id,
        "state": agent.state,
        "goal": work.goal,
        "rounds": agent.values["rounds"],
        "tasks": tasks,
        "answer": work.answer,
        "files": work.files_written,
        "commands": work.commands,
        "asks": None if agent.asks is None else {name: agent.asks[name] for name in ("tool", "arguments")},
        "counters": counters_of(work),
    }
