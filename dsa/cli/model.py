"""What is written for `--model`, looked at before anything is begun."""

import click

from dsa.generators.names import require_model_name


def model_named(_context: click.Context, _option: click.Parameter, model: str | None) -> str | None:
    """Give the model as it is written; to be used as an option's callback. Raises click.BadParameter for what can be no model."""
    if model is not None:
        try:
            require_model_name(model)
        except ValueError as fault:
            raise click.BadParameter(str(fault)) from fault
    return model
