"""`dsa tests FILE`: tests of an implementation, made from the table."""

import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from dsa.cli.command_line import param_option, parse_parameters, require_file, require_free, require_other, say, write
from dsa.cli.export import warn_of_errors
from dsa.edge.document_files import load, locate, read_text
from dsa.expr import Value, show_value
from dsa.lang import machine_of
from dsa.machine import Machine
from dsa.testing.explored_graph import ExploredGraph, Test, graph_of, tour
from dsa.testing.implementations import Observation
from dsa.testing.suites import MAX_TESTS, as_pytest, as_scenarios, as_spec, complete_suite
from dsa.text import closest

_KINDS = {".md": "scenarios", ".py": "a pytest file"}


@click.command("tests")
@click.argument("file")
@click.option("--complete", is_flag=True, help="A complete suite instead of a tour.")
@click.option(
    "--extra",
    type=click.IntRange(min=0),
    help="With --complete: find faults also in implementations that have up to this many more states than the machine. [default: 0]",
)
@click.option(
    "--refused",
    "tries_refused",
    is_flag=True,
    help="In each configuration, let the tour also try every event that is refused there.",
)
@click.option(
    "--observe",
    default="",
    metavar="WHAT",
    help="With --complete: what a test can see besides effects. A list of `state`, `pending` (effects without an answer yet), `reasons` (of refusals) and names of variables; or `all`.",
)
@param_option("Set a parameter, such as rmax=1; repeatable.")
@click.option(
    "--max-tests",
    type=click.IntRange(min=1),
    default=MAX_TESTS,
    show_default=True,
    help="Make at most this many tests.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to PATH: a name such as test_x.py gives pytest tests, a name such as x.md gives a spec with scenarios. Without -o, scenarios are printed.",
)
@click.option("--force", is_flag=True, help="Overwrite the file PATH of -o if it exists; your changes in it are lost.")
def command(
    file: str,
    *,
    complete: bool,
    extra: int | None,
    tries_refused: bool,
    observe: str,
    parameters: tuple[str, ...],
    max_tests: int,
    output: Path | None,
    force: bool,
) -> None:
    """Generate tests for your own implementation of the machine in FILE.

    By default this makes a tour: tests that take every row in every configuration where it can be taken. With --complete it makes a suite that
    finds every fault, if the implementation has at most N states more than the machine (set N with --extra). Tests are printed as scenarios, or written as a spec or a pytest file.
    """
    _require_consistent(output, complete=complete, extra=extra, tries_refused=tries_refused, observe=observe)
    require_other(output, file)
    require_free(output, force=force)
    require_file(output, "-o")
    parameter_values = parse_parameters(parameters)
    graph = graph_of(load(file).at(parameter_values))
    if complete:
        suite = complete_suite(
            graph, extra or 0, observation=_read_observation(graph.machine, observe), max_tests=max_tests
        )
        tests, about, title = suite.tests, suite.claim, "complete"
    else:
        tests, title = tour(graph, refusals=tries_refused), "tour"
        about = _about_tour(graph, tests)
    say(about, err=True)
    warn_of_errors(file, graph.machine, "the tests require what the table does, including its faults")
    # A prefix such as `rmax` stands for several parameters; the tests have their full names.
    values = {name: value for name, value in graph.machine.constants.items() if value != load(file).constants[name]}
    _write(_TestFile(graph.machine, tests, about, title, values), file, output)


def _require_consistent(
    output: Path | None, *, complete: bool, extra: int | None, tries_refused: bool, observe: str
) -> None:
    if not complete and (extra is not None or observe):
        raise click.UsageError("--extra and --observe are for --complete")
    if complete and tries_refused:
        raise click.UsageError("--refused is for a tour; a complete suite tries refused events anyway")
    if output is not None and output.suffix not in _KINDS:
        raise click.UsageError(f"{output}: write a name that ends in .py (pytest) or .md (scenarios)")


def _read_observation(machine: Machine, text: str) -> Observation:
    variables = tuple(variable.name for variable in machine.variables)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if "all" in words:
        return Observation(state=True, values=variables, pending=True, reasons=True)
    names = ("state", "pending", "reasons", "all", *variables)
    for word in words:
        if word not in names:
            raise click.UsageError(f"--observe cannot take '{word}'; {closest(word, names)}")
    values = tuple(name for name in variables if name in words)
    return Observation("state" in words, values, "pending" in words, "reasons" in words)


def _about_tour(graph: ExploredGraph, tests: tuple[Test, ...]) -> str:
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in graph.machine.constants.items())
    dead = len(graph.machine.transitions) - len(graph.rows)
    count = len(graph.rows)
    rows = f"the {count} rows that can be taken ({dead} cannot)" if dead else f"all {count} rows"
    return (
        f"{len(tests)} tests, {sum(map(len, tests))} steps: they take {rows} and all {len(graph.moves)} transitions "
        f"of {len(graph.configurations)} configurations{f' at {values}' if values else ''}."
    )


@attrs.frozen
class _TestFile:
    machine: Machine
    tests: tuple[Test, ...]
    about: str
    title: str
    parameters: dict[str, Value]


def _write(test_file: _TestFile, file: str, output: Path | None) -> None:
    if output is None:
        write("\n".join(_scenarios(test_file)))
        return
    output.write_text(
        _pytest(test_file, file, output) if output.suffix == ".py" else _spec(test_file, file, output), "utf-8"
    )
    say(f"wrote {output}", err=True)


def _pytest(test_file: _TestFile, file: str, output: Path) -> str:
    return as_pytest(
        test_file.machine, test_file.tests, document=_named_from(output, file), is_shipped=not Path(file).is_file(),
        about=test_file.about, parameters=test_file.parameters,
    )  # fmt: skip


def _spec(test_file: _TestFile, file: str, output: Path) -> str:
    sections = _scenarios(test_file)
    if not sections:
        raise click.UsageError(
            f"{output}: nothing was written: scenarios cannot express these tests, but pytest can; use -o test_x.py"
        )
    path = locate(file)
    if (reference := machine_of(read_text(path))) is not None:  # a spec refers to a machine, not to another spec
        beside = path.parent / reference[0]
        file = str(beside) if beside.is_file() else reference[0]
    return as_spec(
        test_file.machine, sections, document=_named_from(output, file), title=test_file.title, about=test_file.about
    )


def _named_from(output: Path, file: str) -> str:
    """Return the path of a document, relative to the folder of the output; a shipped one keeps its name."""
    return Path(os.path.relpath(file, output.parent)).as_posix() if Path(file).is_file() else file


def _scenarios(test_file: _TestFile) -> Sequence[str]:
    sections, unsaid = as_scenarios(test_file.machine, test_file.tests, test_file.title, test_file.parameters)
    if unsaid:
        say(
            f"{unsaid} of {len(test_file.tests)} tests cannot be scenarios (several states have timers of the same duration); "
            "-o test_x.py writes all of them",
            err=True,
        )
    return sections
