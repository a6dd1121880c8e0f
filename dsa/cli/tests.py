"""`dsa tests FILE`: tests of an implementation, made from the table."""

import os
from pathlib import Path

import attrs
import click

from dsa.cli.parameters import parse_parameters
from dsa.edge.files import load, locate
from dsa.expr import Value, show_value
from dsa.machine import Machine
from dsa.testing.graph import Graph, graph_of
from dsa.testing.implementations import Observed
from dsa.testing.suites import MAX_TESTS, complete_suite
from dsa.testing.tours import Test, tour
from dsa.testing.written import as_pytest, as_scenarios

_KINDS = {".md": "scenarios", ".py": "a pytest file"}


@click.command("tests")
@click.argument("file")
@click.option("--complete", is_flag=True, help="A complete suite instead of a tour.")
@click.option(
    "--extra", type=click.IntRange(min=0), help="States an implementation may have more; with --complete. [0]"
)
@click.option(
    "--refused", is_flag=True, help="Let the tour also try everything that is refused, in each configuration."
)
@click.option(
    "--observe",
    default="",
    metavar="WHAT",
    help="What an implementation shows beside its effects: state, pending, reasons, names of variables, or all; with --complete.",
)
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="At this value; repeatable.")
@click.option(
    "--max-tests", type=click.IntRange(min=1), default=MAX_TESTS, show_default=True, help="Make no more tests."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write test_x.py (pytest) or x.md; else scenarios are printed.",
)
def command(
    file: str,
    *,
    complete: bool,
    extra: int | None,
    refused: bool,
    observe: str,
    parameters: tuple[str, ...],
    max_tests: int,
    output: Path | None,
) -> None:
    """Print tests as scenarios, or write them as a pytest file: a tour of every row and transition, or a complete suite."""
    _require_consistent(output, complete=complete, extra=extra, refused=refused, observe=observe)
    given = parse_parameters(parameters)
    graph = graph_of(load(file).at(given))
    if complete:
        suite = complete_suite(graph, extra or 0, observed=_observed(graph.machine, observe), max_tests=max_tests)
        tests, about, title = suite.tests, suite.claim, "complete"
    else:
        tests, title = tour(graph, refused=refused), "tour"
        about = _about_tour(graph, tests)
    click.echo(about, err=True)
    # A prefix such as `rmax` stands for several parameters; the tests name what was meant.
    values = {name: value for name, value in graph.machine.constants.items() if value != load(file).constants[name]}
    _write(_Made(graph.machine, tests, about, title, values), file, output)


def _require_consistent(output: Path | None, *, complete: bool, extra: int | None, refused: bool, observe: str) -> None:
    if not complete and (extra is not None or observe):
        raise click.UsageError("--extra and --observe are for --complete")
    if complete and refused:
        raise click.UsageError("--refused is for a tour; a complete suite tries what is refused anyway")
    if output is not None and output.suffix not in _KINDS:
        raise click.UsageError(f"{output}: write a name that ends in .py (pytest) or .md (scenarios)")
    if output is not None and output.exists():
        raise click.UsageError(f"{output} is there already; nothing was written")


def _observed(machine: Machine, text: str) -> Observed:
    variables = tuple(variable.name for variable in machine.variables)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if "all" in words:
        return Observed(state=True, values=variables, pending=True, reasons=True)
    known = ("state", "pending", "reasons", "all", *variables)
    for word in words:
        if word not in known:
            raise click.UsageError(f"--observe {word}: there is {', '.join(known)}")
    values = tuple(name for name in variables if name in words)
    return Observed("state" in words, values, "pending" in words, "reasons" in words)


def _about_tour(graph: Graph, tests: tuple[Test, ...]) -> str:
    values = ", ".join(f"{name} = {show_value(value)}" for name, value in graph.machine.constants.items())
    dead = len(graph.machine.transitions) - len(graph.rows)
    rows = (
        f"all {len(graph.rows)} rows" if not dead else f"the {len(graph.rows)} rows that can be taken ({dead} cannot)"
    )
    return (
        f"{len(tests)} tests, {sum(map(len, tests))} steps: they take {rows} and all {len(graph.moves)} transitions "
        f"of {len(graph.configurations)} configurations{f' at {values}' if values else ''}."
    )


@attrs.frozen
class _Made:
    machine: Machine
    tests: tuple[Test, ...]
    about: str
    title: str
    parameters: dict[str, Value]


def _write(made: _Made, file: str, output: Path | None) -> None:
    if output is not None and output.suffix == ".py":
        path, here = locate(file), Path(file).is_file()
        document = Path(os.path.relpath(path, output.parent)).as_posix() if here else file
        text = as_pytest(
            made.machine,
            made.tests,
            document=document,
            shipped=not here,
            about=made.about,
            parameters=made.parameters,
        )
    else:
        sections, unsaid = as_scenarios(made.machine, made.tests, made.title, made.parameters)
        text = "\n".join(sections)
        if unsaid:
            click.echo(
                f"{unsaid} of them no scenario can say (timers of one duration in several states); use -o", err=True
            )
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}", err=True)
