"""`dsa run --policy NAME TEXT`, and `dsa resume`, `dsa send`, `dsa replay` for such a run.

Takes what stands on the command line and what is recorded, finds the policies, and gives an exit code.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.faults import UNREADABLE, Ended
from dsa.cli.kept import faults_told
from dsa.cli.policy_outcome import PolicyProgress, tell_policy
from dsa.cli.policy_story import named, policy_how
from dsa.cli.terminal import say, terminal
from dsa.cli.watching import Watching
from dsa.edge.binding import Binding
from dsa.edge.environment import environment_secrets
from dsa.edge.files import read_text
from dsa.errors import DocumentError
from dsa.generators.names import SCRIPTED
from dsa.runs.bindings import DEFAULT_MODEL, bind_policies
from dsa.runs.policy_runs import PolicyEnd, begin, derived_again, take_up
from dsa.runtime.called import ROOT, path_of, policy_standing
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import Handling, PolicyEntry, dump_line
from dsa.runtime.moment import Moment
from dsa.runtime.policies import ACTION_RESULT, TEXT, Step, action_result_step, text_step


@attrs.frozen
class Manner:
    """How a run is performed and shown: where it is kept, with which model and module, taken from a living process or not, who watches.

    For a run that is taken up, None is what it was begun with.
    """

    root: Path
    model: str | None = None
    module: str | None = None
    take: bool = False
    quiet: bool = False
    json_wanted: bool = False
    watching: Watching = attrs.field(factory=Watching)

    @property
    def progress(self) -> PolicyProgress:
        """Who shows the run while it goes."""
        return PolicyProgress(terminal(), quiet=self.quiet or self.json_wanted or self.watching.is_logging)


def or_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--policy NAME` and `--over DIR` to `dsa run`: with them another thing is run than its FILE."""

    @click.option("--policy", metavar="NAME", help="Run this policy: dsa run --policy NAME TEXT.")
    @click.option("--over", metavar="DIR", help="The folder that the policy works on; by default this one.")
    @wraps(command)
    def run(*, policy: str | None, over: str | None, **given: Any) -> None:  # noqa: ANN401  (the command's own)
        if policy is None:
            if over is not None:
                raise click.UsageError("--over goes with --policy NAME")
            if given["file"] is None:
                raise click.UsageError("Missing argument 'FILE', or --policy NAME.")
            command(**given)
        else:
            text = _text(given)
            given = {
                name: given[name] for name in ("model", "module", "quiet", "json_wanted", "watching", "root", "seed")
            }
            seed, root = given.pop("seed"), Path(given.pop("root"))
            sys.exit(run_policy(policy, text, Manner(root, **given), over=over, seed=seed))

    return run


def _text(given: Mapping[str, Any]) -> str:
    """Give what a policy is asked. Raises UsageError when it is asked nothing, and for what goes with FILE alone."""
    text, more = given["file"], given["specification"]
    if more is not None:
        told = f"given are '{text}' and '{more}'. A TEXT of several words needs quotes"
        raise click.UsageError(f"--policy takes one TEXT and no FILE; {told}")
    if text is None or not text.strip():
        raise click.UsageError('--policy needs a TEXT, what the policy is asked: dsa run --policy NAME "..."')
    for option, said in (("--param", given["parameters"]), ("--budget", given["budget"])):
        if said:
            raise click.UsageError(f"{option} goes with FILE: a policy has no parameters and no effects")
    return require_text(text, "TEXT")


def require_text(given: str, what: str) -> str:
    """Give what stands on the command line. Raises UsageError for bytes that are no characters."""
    try:
        given.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise click.UsageError(f"{what} is not UTF-8 text") from fault
    return given


def run_policy(policy: str, text: str, manner: Manner, *, over: str | None, seed: int) -> int:
    """Run a policy over a folder, by default this one; tell what became of it, give the exit code.

    Raises Ended, BindingError for a policy or module that is not there, DocumentError for a folder or script that cannot be read.
    """
    binding = bind_policies(manner.module, chosen=manner.watching.chosen)
    config = _config(manner, over, seed)
    directory = list[Path]()
    progress = manner.progress

    def watch(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if isinstance(moment.entry, PolicyEntry):
            directory.append(manner.root / moment.run)
        progress.on_moment(moment, is_new)

    told = faults_told(manner.root, lambda: directory[0] if directory else None)
    with told, manner.watching.watched(binding.secrets) as watched:
        watched.note("TEXT", text)
        observe = watched.observing(watch)
        end = begin(policy, {"text": text}, binding, root=manner.root, config=config, on_moment=observe)
    return tell_policy(end, terminal(), json_wanted=manner.json_wanted)


def _config(manner: Manner, over: str | None, seed: int) -> dict[str, Any]:
    """Give what policies can read of the command line; paths so that they are found from another folder too."""
    folder = Path(over or ".")
    if not folder.is_dir():
        missing = "is no folder" if folder.exists() else "there is no such folder"
        raise DocumentError(str(folder), f"{missing}; --over names the one that is searched")
    config = {"over": str(folder.absolute()), "model": _model(manner.model or DEFAULT_MODEL), "seed": seed}
    return config | ({"with": absolute_module(manner.module)} if manner.module else {}) | manner.watching.started()


def _model(model: str) -> str:
    """Give a model; of a script, where it is. DocumentError for a script that cannot be read."""
    if model.startswith(SCRIPTED):
        read_text(model.removeprefix(SCRIPTED))
    return absolute_script(model)


def absolute_script(model: str) -> str:
    """Give a model so that its script, if it is one, is found from another folder too."""
    script = model.removeprefix(SCRIPTED)
    return model if script == model else f"{SCRIPTED}{Path(script).absolute()}"


def absolute_module(module: str) -> str:
    """Give a module so that it is found from another folder too."""
    return str(Path(module).absolute()) if module.endswith(".py") else module


def _binding(first: PolicyEntry, manner: Manner) -> Binding:
    """Bind a run's policies as it was begun, or by another module."""
    return bind_policies(manner.module or first.config.get("with"), chosen=manner.watching.chosen)


# -- going on ---------------------------------------------------------------------------------------------------------


def resume_policy(
    recorded: Recorded, manner: Manner, given: Mapping[Handling, tuple[str, ...]], budget: tuple[str, ...]
) -> int:
    """Go on with a run that was cut off, has stopped, or is in doubt; `given` are the keys that are decided. Give the exit code.

    Raises Ended, and UsageError for a key that is decided twice and for a `budget`, which a policy has not.
    """
    if budget:
        raise click.UsageError("--budget goes with a run of a machine: a policy has no effects")
    decided: dict[str, Handling] = {}
    for handling, keys in given.items():
        for key in keys:
            if path_of(key) in decided:
                raise click.UsageError(f"{key} is decided twice")
            decided[path_of(key)] = handling
    stands = policy_standing(recorded.entries)
    if stands.kind == "finished" and not decided and not manner.json_wanted:
        say(f"run {recorded.run} is {policy_how(stands)}")
        return int(stands.error is not None)
    return _taken_up(recorded, manner, decided=decided)


def send_policy(recorded: Recorded, manner: Manner, kind: str, data: object, key: str | None) -> int:
    """Say what a call in doubt gave: a step of this type with this data. Give the exit code. Raises Ended and UsageError."""
    if key is None:
        told = "it takes no events; with --answers KEY you can say what a call in doubt gave (`dsa show` has the keys)"
        raise Ended(f"run {recorded.run} is one of a policy: {told}", UNREADABLE)
    policies = {call.path: call.policy for call in policy_standing(recorded.entries).calls}
    actor = policies.get(path_of(key), "")
    if kind == TEXT and isinstance(data, str):
        step: Step = text_step(actor, data)
    elif kind == ACTION_RESULT and isinstance(data, dict):
        step = action_result_step(actor, data)
    else:
        forms = f"`{TEXT} \"..\"` or `{ACTION_RESULT} --data '{{..}}'`"
        raise click.UsageError(f"what a call gave is written {forms}")
    return _taken_up(recorded, manner, answers={path_of(key): step})


def _taken_up(
    recorded: Recorded,
    manner: Manner,
    *,
    decided: Mapping[str, Handling] | None = None,
    answers: Mapping[str, Step] | None = None,
) -> int:
    first = recorded.entries[0]
    assert isinstance(first, PolicyEntry), "a run of a policy begins with it"
    manner = attrs.evolve(manner, watching=manner.watching.continuing(first.config))
    progress, directory = manner.progress, manner.root / recorded.run
    secrets = environment_secrets(manner.watching.chosen)
    with faults_told(manner.root, lambda: directory), manner.watching.watched(secrets) as watched:
        watched.note("what is sent", [step.payload for step in (answers or {}).values()])
        end: PolicyEnd = take_up(
            manner.root,
            recorded.run,
            lambda first: _binding(first, manner),
            decided=decided,
            answers=answers,
            take=manner.take,
            config={"model": _model(manner.model)} if manner.model else {},
            on_moment=watched.observing(progress.on_moment),
        )
    return tell_policy(end, terminal(), json_wanted=manner.json_wanted)


# -- deriving again ---------------------------------------------------------------------------------------------------


def replay_policy(recorded: Recorded, manner: Manner) -> int:
    """Derive a run again, with what is recorded of its calls, and tell what was compared; give the exit code."""
    first = recorded.entries[0]
    assert isinstance(first, PolicyEntry), "a run of a policy begins with it"
    with faults_told(manner.root):
        derived = derived_again(recorded.entries, _binding(first, manner).policies)
    again = [named(call) for call in derived.calls if call.path in derived.performed]
    digest = hashlib.sha256("\n".join(map(dump_line, recorded.entries)).encode()).hexdigest()
    calls = sum(call.path != ROOT for call in derived.calls)
    if manner.json_wanted:
        facts = {"run": recorded.run, "policy": first.policy, "entries": len(recorded.entries), "calls": calls}
        say(
            json.dumps(
                {**facts, "derived": list(derived.performed), "ends_at": derived.ends_at, "sha256": digest}, indent=2
            )
        )
        return 0
    say(f"run {recorded.run}: {len(recorded.entries)} entries, {calls} calls")
    if again:
        say(f"derived again with recorded results, every request and every step is the same: {', '.join(again)}")
    else:
        say(f"{first.policy} called nobody: there is nothing to derive")
    if derived.ends_at is not None:
        say(f"the ledger ends at call {derived.ends_at}")
    say(f"sha256 {digest}")
    return 0
