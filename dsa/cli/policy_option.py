"""`dsa run --policy NAME TEXT`: the options that make a run of the shipped machine `policy` out of `dsa run`."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.parameters import require_text
from dsa.edge.files import read_text
from dsa.errors import DocumentError
from dsa.generators.names import SCRIPTED


@attrs.frozen
class AskedPolicy:
    """A policy that is asked a text, and what it can read of the command line."""

    policy: str
    text: str
    config: Mapping[str, Any]


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
            command(**given, policy=None)
        else:
            command(**given, policy=AskedPolicy(policy, _text(given), _config(over, given["model"])))

    return run


def _text(given: Mapping[str, Any]) -> str:
    """Return what a policy is asked. Raises UsageError when it is asked nothing, and for two texts."""
    text, more = given["file"], given["specification"]
    if more is not None:
        said = f"given are '{text}' and '{more}'. A TEXT of several words needs quotes"
        raise click.UsageError(f"--policy takes one TEXT and no FILE; {said}")
    if text is None or not text.strip():
        raise click.UsageError('--policy needs a TEXT, what the policy is asked: dsa run --policy NAME "..."')
    if given["data"] is not None:
        raise click.UsageError("--data goes with FILE: a policy is asked a TEXT")
    return require_text(text, "TEXT")


def _config(over: str | None, model: str | None) -> dict[str, Any]:
    """Return what policies can read of the command line beside model and seed. DocumentError for a folder or script that cannot be read."""
    folder = Path(over or ".")
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "there is no such folder"
        raise DocumentError(str(folder), f"{missing}; --over names the one that is searched")
    if model is not None and model.startswith(SCRIPTED):
        read_text(model.removeprefix(SCRIPTED))
    return {"over": str(folder.absolute())}
