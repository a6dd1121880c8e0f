"""`dsa check FILE...`: everything that can be found out about documents without running them."""

import importlib
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.checks.engines.choose import automatic
from dsa.checks.explore import MAX_STATES
from dsa.checks.report import Report, check
from dsa.cli.as_json import as_json, as_sarif
from dsa.cli.faults import UNREADABLE, JsonCommand, json_option, tell_json
from dsa.cli.outputs import require_file, require_folder
from dsa.cli.parameters import SECONDS, max_states_option, param_option, parse_parameters
from dsa.cli.progress import Working
from dsa.cli.terminal import say
from dsa.cli.told import tell
from dsa.edge.files import locate, read_document
from dsa.errors import DocumentError, DsaError, MachineError, ParameterError
from dsa.expr import Value
from dsa.lang import Reading
from dsa.machine import Machine


@attrs.frozen
class _Options:
    """What was asked for besides the files."""

    values: dict[str, Value] | None
    each_value: bool
    strict: bool
    max_states: int
    time_limit_s: float | None
    traces: int
    module: str | None


@attrs.frozen
class _Checked:
    """One file and what was found in it; `fault` is why it could not be read, `unbound` what a module does not bind as it must be."""

    file: str
    reading: Reading
    report: Report | None
    fault: DsaError | None = None
    unbound: str = ""

    def code(self, *, strict: bool) -> int:
        """Give the exit code."""
        if self.fault is not None:
            return UNREADABLE
        if self.report is None or self.unbound:
            return 1
        warned = strict and any(found.severity == "warning" for found in self.reading.diagnostics)
        return int(self.report.failed or warned)


@click.command("check", cls=JsonCommand)
@click.argument("files", nargs=-1, required=True)
@param_option("Explore at this value only; repeatable.")
@click.option(
    "--each-value",
    is_flag=True,
    help="Explore at each value of the parameters, those of --param fixed; at most 64 combinations.",
)
@click.option("--strict", is_flag=True, help="Warnings too make the exit code 1.")
@max_states_option(MAX_STATES)
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop after so many seconds.")
@click.option(
    "--traces",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Show up to N counterexamples that take different rows, and the nearest run that passes.",
)
@click.option("--trace", "trace", metavar="FILE", help="Run a recorded trace again, and watch the properties on it.")
@click.option(
    "--save-traces",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write every counterexample and witness here, as JSONL.",
)
@click.option("--itf", is_flag=True, help="Write them in the Informal Trace Format instead.")
@click.option(
    "--with",
    "module",
    metavar="MODULE",
    help="Also look whether this module, by its name or file, binds all names. It is imported; nothing is run.",
)
@click.option("--certificate", metavar="OUT", help="Write what HOLDS so that `dsa verify` accepts it.")
@json_option
@click.option("--sarif", "sarif_wanted", is_flag=True, help="Print one SARIF 2.1.0 log.")
def command(
    files: tuple[str, ...],
    parameters: tuple[str, ...],
    *,
    each_value: bool,
    strict: bool,
    max_states: int,
    time_limit: float | None,
    traces: int,
    trace: str | None,
    folder: Path | None,
    itf: bool,
    module: str | None,
    certificate: str | None,
    json_wanted: bool,
    sarif_wanted: bool,
) -> None:
    """Check machines and specs: names, types, rows, exploration, Definition 4, scenarios, properties.

    Explores at all defaults and at all minima of the parameters, at --param, or at --each-value. Exit 0 good, 1 findings, VIOLATED or UNKNOWN, 2
    unreadable. With --trace it only runs that trace again.
    """
    _require_sense(files, certificate, json_wanted=json_wanted, sarif_wanted=sarif_wanted)
    _require_targets(folder, certificate, itf=itf)
    if trace is not None:
        sys.exit(importlib.import_module("dsa.cli.replayed").replayed(files, trace, json_wanted=json_wanted))
    options = _Options(parse_parameters(parameters) or None, each_value, strict, max_states, time_limit, traces, module)
    checked = []
    for file in files:
        checked.append(_checked(file, options))
        _tell(checked[-1], options, is_for_people=not json_wanted and not sarif_wanted)
        _save(checked[-1], folder, certificate, itf=itf)
    if json_wanted or sarif_wanted:
        each = [(c.file, c.reading, c.report, c.fault, c.unbound) for c in checked]
        tell_json(as_sarif(each) if sarif_wanted else as_json(each))
    sys.exit(max(found.code(strict=strict) for found in checked))


def _tell(found: _Checked, options: _Options, *, is_for_people: bool) -> None:
    """Print what was found in a file, or why it cannot be read."""
    if found.fault is not None:
        say(str(found.fault), err=True)
    elif is_for_people:
        tell(found.file, found.reading, found.report, traces=options.traces)
        if options.module is not None and found.report is not None:
            say(found.unbound or f"{found.file}: {options.module} binds all that it needs")


def _require_sense(files: tuple[str, ...], certificate: str | None, *, json_wanted: bool, sarif_wanted: bool) -> None:
    if json_wanted and sarif_wanted:
        raise click.UsageError("--json and --sarif exclude each other")
    if certificate is not None and len(files) != 1:
        raise click.UsageError("--certificate takes one FILE: the machine that it is about")


def _require_targets(folder: Path | None, certificate: str | None, *, itf: bool) -> None:
    """Notice before the work what could not be written after it."""
    if itf and folder is None:
        raise click.UsageError("--itf is for --save-traces: it says how they are written")
    require_folder(folder, "--save-traces")
    require_file(certificate, "--certificate")


def _save(found: _Checked, folder: Path | None, certificate: str | None, *, itf: bool) -> None:
    """Write the traces and the certificate that were asked for."""
    report, machine = found.report, found.reading.machine
    if report is None or machine is None:
        return
    if folder is not None:
        for path in importlib.import_module("dsa.cli.records").save_traces(folder, report, itf=itf):
            say(f"wrote {path}", err=True)
    if certificate is not None:
        importlib.import_module("dsa.cli.certificates").write_verdicts(certificate, machine, report)


def _checked(file: str, options: _Options) -> _Checked:
    try:
        with Working("comparing rows") as progress:
            reading = read_document(file)
            if reading.machine is None:
                return _Checked(file, reading, None)
            report = check(
                reading.machine, parameters=options.values, each_value=options.each_value, strict=options.strict, max_states=options.max_states,
                time_limit_s=options.time_limit_s, clock=time.perf_counter, progress=progress, engine=automatic(_compile),
                traces=options.traces,
            )  # fmt: skip
    except (DocumentError, ParameterError) as fault:
        return _Checked(file, Reading(None, ()), None, fault)
    return _Checked(file, reading, report, None, _unbound(file, reading.machine, options.module))


def _unbound(file: str, machine: Machine, module: str | None) -> str:
    """Say what a module does not bind as it must be; empty when all is well, and when there is no module to look at."""
    if module is None:
        return ""
    try:
        importlib.import_module("dsa.runs.bindings").bind(machine, path=locate(file), module=module)
    except MachineError:
        return ""  # what is wrong with the table is told above
    except DsaError as fault:
        return str(fault)
    return ""


def _compile(source: str) -> Any:  # noqa: ANN401  (a library of ctypes, which few checks need too)
    """Compile C text; without a compiler this fails, and another engine does the search."""
    return importlib.import_module("dsa.edge.compiler").compiled(source)
