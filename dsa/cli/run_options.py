"""The options that every command takes which starts a run or lets one go on, each with one meaning."""

import math
from collections.abc import Mapping
from functools import wraps
from typing import Any, cast

import attrs
import click
from click.decorators import FC

from dsa.cli.faults import json_option
from dsa.cli.kept import budget_option
from dsa.cli.parameters import param_option, parse_parameters
from dsa.cli.watching import Watching
from dsa.declarations import parse_duration
from dsa.expr import Value
from dsa.generators.names import require_model_name
from dsa.runs.setup import Options
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import MachineEntry


@attrs.frozen
class RunOptions:
    """What was chosen for a run; of a recorded one, None and empty is as it was started.

    `module` binds names, `parameters` are values by name, `budget` are limits, `watching` says what is secret, logged and traced. `wait_s` is how
    many seconds a timer is waited for. `config` is what policies can read, where it is to be another than at the start.
    """

    model: str | None = None
    module: str | None = None
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    budget: tuple[str, ...] = ()
    quiet: bool = False
    json_wanted: bool = False
    watching: Watching = attrs.field(factory=Watching)
    wait_s: float = math.inf
    config: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def shows_nothing(self) -> bool:
        """Return whether no progress is shown: nobody wants it, or log lines take its place."""
        return self.quiet or self.json_wanted or self.watching.is_logging

    def continuing(self, recorded: Recorded) -> "RunOptions":
        """Return this with the secrets that were chosen when a run was started."""
        first = recorded.entries[0]
        started = dict(first.started) if isinstance(first, MachineEntry) else {}
        return attrs.evolve(self, watching=self.watching.continuing(started))

    @property
    def changes(self) -> Options:
        """How a recorded run is bound otherwise than as it was started."""
        return Options(self.module, self.model, budget=self.budget, chosen=self.watching.chosen, config=self.config)


def model_named(_context: click.Context, _option: click.Parameter, model: str | None) -> str | None:
    """Return the model as it is written; to be used as an option's callback. Raises click.BadParameter for what can be no model."""
    if model is not None:
        try:
            require_model_name(model)
        except ValueError as fault:
            raise click.BadParameter(str(fault)) from fault
    return model


def duration_s(_context: click.Context, _option: click.Parameter, written: str) -> float:
    """Return a duration in seconds; to be used as an option's callback. Raises click.BadParameter."""
    duration_ms = 0 if written == "0" else parse_duration(written)
    if duration_ms is None:
        raise click.BadParameter(f"'{written}' is not a duration; write 0s, 90s, 15m, 24h or 2d")
    return duration_ms / 1000


_MODEL = "local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name. Without it: local, or that of the run."


def options_saying(command: FC, model: str, parameter: str) -> FC:
    """Add the options of a run, with what a command says of its models and of its parameters."""

    @click.option("--model", callback=model_named, help=model)
    @click.option("--with", "module", metavar="MODULE", help="Bind names with this module, by its name or file.")
    @param_option(parameter)
    @budget_option
    @json_option
    @click.option("--quiet", is_flag=True, help="Print no progress.")
    @wraps(command)
    def collected(
        *arguments: Any,  # noqa: ANN401  (the command's own)
        model: str | None,
        module: str | None,
        parameters: tuple[str, ...],
        budget: tuple[str, ...],
        watching: Watching,
        quiet: bool,
        json_wanted: bool,
        **given: Any,  # noqa: ANN401  (the command's own)
    ) -> Any:  # noqa: ANN401
        values = parse_parameters(parameters)
        options = RunOptions(model, module, values, budget, quiet, json_wanted, watching)
        return command(*arguments, options=options, **given)

    return cast(FC, collected)


def run_options(command: FC) -> FC:
    """Add these options; the command gets them as one argument, `options`. `watching_options` goes above."""

    @click.option(
        "--wait",
        "wait_s",
        metavar="DURATION",
        callback=duration_s,
        default="60s",
        show_default=True,
        help="Stay while the next timer is due within DURATION, such as 90s, 15m or 24h.",
    )
    @wraps(command)
    def waiting(*arguments: Any, options: RunOptions, wait_s: float, **given: Any) -> Any:  # noqa: ANN401  (the command's own)
        return command(*arguments, options=attrs.evolve(options, wait_s=wait_s), **given)

    return options_saying(cast(FC, waiting), _MODEL, "Set a parameter, such as rmax=5.")
