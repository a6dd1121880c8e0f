"""`dsa export FILE --to TOOL`: the machine as other tools take it."""

import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from dsa.checks.report import check
from dsa.cli.command_line import (
    Word,
    output_option,
    param_option,
    parse_parameters,
    require_file,
    require_other,
    say,
    write,
)
from dsa.edge.document_files import load
from dsa.expr import unparse
from dsa.lang import dumps
from dsa.machine import Machine
from dsa.targets.prism import prism, prism_unsaid
from dsa.targets.promela import promela, promela_unsaid
from dsa.targets.scxml import scxml
from dsa.targets.statechart import statechart_module
from dsa.targets.tla import is_module_name, module_name, tla, tla_config, tla_unsaid
from dsa.targets.xstate import xstate

_MOST, _SECONDS = 10_000, 2.0
_LIMIT_CODE = "DSA312"


def warn_of_errors(file: str, machine: Machine, consequence: str) -> None:
    """Print one sentence on standard error if a machine has errors, with the `consequence` for what is made of it.

    Properties are not judged, and a large machine is explored only in part, so silence does not prove that there are no errors.
    """
    bare = attrs.evolve(machine, properties=())
    report = check(bare, parameters=bare.constants, max_states=_MOST, time_limit_s=_SECONDS, clock=time.perf_counter)
    codes = sorted({f.code for f in report.diagnostics if f.severity == "error"} - {_LIMIT_CODE})
    if codes:
        say(f"{file} has errors: {', '.join(codes)} (see dsa check {file}); {consequence}", err=True)


_ENGINES = {"scxml": "SCXML", "xstate": "XState", "statechart": "python-statemachine"}
_TOOLS = ("promela", "tla", "prism", "scxml", "xstate", "statechart")


@click.command("export")
@click.argument("file")
@click.option("--to", "tool", type=Word(_TOOLS), required=True, help="The tool that will read the result.")
@output_option
@param_option("Set a parameter, such as rmax=1; repeatable.")
def command(file: str, tool: str, output: Path | None, parameters: tuple[str, ...]) -> None:
    """Write a machine in the format of another tool. Its parameters have their default values, or those given with --param.

    promela: SPIN. tla: TLA+, for TLC; if you give -o NAME.tla, a file NAME.cfg is written beside it. prism: Storm and PRISM. scxml: W3C SCXML. xstate:
    XState 5. statechart: a Python module with a python-statemachine class.
    """
    _require_outputs(tool, output, file)
    machine = load(file).at(parse_parameters(parameters))
    texts = _texts(machine, tool, output)
    if output is None:
        write(next(iter(texts.values())))
    else:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
            say(f"wrote {path}")
    warn_of_errors(file, machine, "the exported text has the same faults as the table")
    for line in _unsaid(machine, tool):
        say(f"left out: {line}", err=True)


def _require_outputs(tool: str, output: Path | None, file: str) -> None:
    """Raise UsageError if a file cannot be written, or is the one that is read; also the configuration beside a TLA+ module."""
    require_other(output, file)
    require_file(output, "-o")
    if tool == "tla" and output is not None:
        beside = _configuration(output)
        if beside == output:
            other = output.with_suffix(".tla")
            raise click.UsageError(
                f"-o {output}: TLC's configuration is written beside the module, under this name; give the module another name: -o {other}"
            )
        require_other(beside, file)
        require_file(beside, f"-o {output} also writes")


def _configuration(module: Path) -> Path:
    """Return the file that TLC reads as a module's configuration."""
    return module.with_suffix(".cfg")


def _texts(machine: Machine, tool: str, output: Path | None) -> dict[Path, str]:
    """Return the texts by file. Without -o, the first one is printed."""
    path = output or Path(machine.name)
    match tool:
        case "promela":
            return {path: promela(machine)}
        case "tla":
            name = module_name(machine) if output is None else output.stem
            if not is_module_name(name):
                raise click.UsageError(
                    f"a TLA+ module has the name of its file, and '{name}' is not a valid module name"
                )
            return {path: tla(machine, name), _configuration(path): tla_config(machine)}
        case "prism":
            return {path: prism(machine)}
        case "scxml":
            return {path: scxml(machine)}
        case "xstate":
            return {path: xstate(machine)}
        case _:
            return {path: statechart_module(machine, dumps(machine))}


def _unsaid(machine: Machine, tool: str) -> Iterator[str]:
    """Yield the claims and ends of the machine that the text does not have."""
    claims = {"promela": promela_unsaid, "tla": tla_unsaid, "prism": prism_unsaid}
    if tool in claims:
        yield from claims[tool](machine)
        return
    if tool == "xstate" and machine.properties:
        yield "the properties, because XState runs machines and checks nothing; export to promela or tla"
    for state, end in machine.ends.items():
        yield f"{state}: end when {unparse(end)}: {_ENGINES[tool]} ends only in final states, so the machine goes on waiting there"
