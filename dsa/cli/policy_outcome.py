"""What becomes of a run of a policy, as it goes and at its end: in words, as JSON, and as an exit code."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dsa.cli.faults import silence
from dsa.cli.kept import line
from dsa.cli.policy_story import happened, policy_doubts, policy_how
from dsa.cli.spent import tokens_and_cost
from dsa.cli.step_lines import step_text
from dsa.cli.terminal import printable
from dsa.runs.policy_runs import PolicyEnd, answer_text
from dsa.runtime.called import ROOT, Called, path_of
from dsa.runtime.ledger import CallEntry, CallResultEntry, DoubtEntry, Entry, PolicyEntry, ResultEntry
from dsa.runtime.moment import Moment
from dsa.runtime.totals import Totals, totals

_STYLES = {0: "bold green", 1: "bold red", 3: "bold yellow"}
_WAITING = 3
_NO_EFFECT = ""  # a run of a policy has no effect that asks a model


class PolicyProgress:
    """Prints a line for each call that gave something of its own. Pass `on_moment` to the run."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._policies: dict[str, str] = {}

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Print what is new."""
        self._note(moment.entry)
        if is_new:
            self._tell(moment.entry)

    def _note(self, entry: Entry) -> None:
        match entry:
            case PolicyEntry(policy=policy):
                self._policies[ROOT] = policy
            case CallEntry(path=path, policy=policy):
                self._policies[path] = policy

    def _tell(self, entry: Entry) -> None:
        match entry:
            case CallResultEntry(path=path, steps=steps) if path != ROOT:
                for step in steps:
                    if step["id"].rpartition("/")[0] == path:
                        self._print(path, step_text(step))
            case DoubtEntry(key=key) | ResultEntry(key=key):
                self._print(path_of(key), happened(entry))

    def _print(self, path: str, said: str) -> None:
        if not self._quiet:
            told = printable(f"{path:<7}  {self._policies.get(path, '')}: {said}")
            self._console.print(told, highlight=False, markup=False, soft_wrap=True)


def exit_code(end: PolicyEnd) -> int:
    """Give 0 for a run that gave its steps, 1 for one that stopped or whose last step is an error, 3 when somebody is asked."""
    stands = end.standing
    if stands.kind == "finished":
        return int(stands.error is not None)
    return _WAITING if stands.kind == "in doubt" else 1


def tell_policy(end: PolicyEnd, console: Console, *, json_wanted: bool) -> int:
    """Print how a run ended, for people or for programs, whoever still reads; give the exit code."""
    try:
        if json_wanted:
            click.echo(policy_as_json(end))
        else:
            _show(end, console)
    except BrokenPipeError:
        silence(sys.stdout)
    return exit_code(end)


def _show(end: PolicyEnd, console: Console) -> None:
    stands, style = end.standing, _STYLES[exit_code(end)]
    where = f" ({end.where})" if end.where else ""
    for told in list(policy_doubts(stands, end.directory)) or [policy_how(stands) + where]:
        console.print(Text(printable(told), "" if told.startswith(" ") else style), soft_wrap=True)
    if stands.kind == "finished" and stands.error is None:
        console.print()
        console.print(Text(printable(answer_text(stands.answer))), soft_wrap=True)
        console.print()
    facts = {"run": str(end.directory), "totals": _spent(end)}
    if stands.kind == "stopped":
        facts["next"] = line("resume", end.directory)
    for name, fact in facts.items():
        console.print(Text.assemble((f"{name:<10}", "dim"), fact), soft_wrap=True)


def _spent(end: PolicyEnd) -> str:
    calls = [call for call in end.standing.calls if call.path != ROOT]
    cached = f" ({end.standing.cached} cached)" if end.standing.cached else ""
    sums = _totals(end)
    models = f", {sums.calls} by models: {tokens_and_cost(sums)}" if sums.calls else ""
    return f"{len(calls)} call{'' if len(calls) == 1 else 's'}{cached}{models}, {end.seconds:.1f} s in all"


def _totals(end: PolicyEnd) -> Totals:
    return totals(end.entries, _NO_EFFECT)


def policy_as_json(end: PolicyEnd) -> str:
    """Give everything that is told of a run's end, and each call, as one JSON object."""
    stands, root = end.standing, end.standing.calls[0]
    outcome = None if stands.kind != "finished" else "failed" if stands.error else "succeeded"
    written: dict[str, Any] = {
        "run": end.run,
        "policy": root.policy,
        "kind": stands.kind,
        "outcome": outcome,
        "exit_code": exit_code(end),
        "answer": answer_text(stands.answer) if outcome == "succeeded" else None,
        "steps": list(stands.answer),
        "failure": _failure(end),
        "in_doubt": [_named(end, call) for call in stands.asked],
        "calls": [_call(end, call) for call in stands.calls],
        "directory": str(end.directory),
        "totals": {**_totals(end).to_json(), "seconds": end.seconds},
    }
    return json.dumps(written, indent=2)


def _named(end: PolicyEnd, call: Called) -> dict[str, Any]:
    return {"key": f"{end.run}/{call.path}", "policy": call.policy, "payload": call.payload, "digest": call.digest}


def _call(end: PolicyEnd, call: Called) -> dict[str, Any]:
    """Give a call without what it gave; `dsa show --json` has that."""
    return {**_named(end, call), "finished": call.steps is not None, "cached": call.is_cached}


def _failure(end: PolicyEnd) -> dict[str, Any] | None:
    """Give what stopped a run, or the error with which it ended."""
    stands = end.standing
    failed = stands.failure or stands.calls[0]
    said: Mapping[str, Any] | None = failed.failure if stands.failure else stands.error
    if said is None or stands.kind == "in doubt":
        return None
    what = {"what": f"{failed.policy} {failed.path}", "line": None, "where": end.where or None}
    return {**what, "code": said.get("code"), "message": said.get("message")}
