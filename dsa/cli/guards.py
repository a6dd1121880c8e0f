"""`dsa guards`: the kinds of guards, shipped and registered, with their options.

`command_for` makes this command, and `dsa generators`.
"""

import sys
from collections.abc import Iterator, Mapping

import click

from dsa.cli.command_line import EXIT_UNREADABLE, JsonCommand, json_option, print_json, say
from dsa.edge.plugins import Packages, PluginKind
from dsa.guards.guard_kinds import KINDS, OWN, PACKAGES
from dsa.runs.bindings import FROM_FILE, import_kinds
from dsa.runtime.content import ComponentKind, Option
from dsa.text import closest

_OWN = "dsa"
_SUPPLY_TEXTS = {
    "cases": "the section Cases",
    "generator": "the option `by`: the name of a generator or a kind [llm]",
    "parts": "the option `of`: names of guards or kinds, separated by commas",
}


def command_for(
    name: str, what: str, kinds: Mapping[str, ComponentKind], packages: Packages, own: frozenset[str]
) -> click.Command:
    """Return the command that lists these kinds and those of packages. `what` is their name for people; `own` are the names of the shipped ones."""

    @click.command(
        name,
        cls=JsonCommand,
        help=f"List all kinds of {what} with their options, or only the kind KIND. In a document, the kind is written in the column `is` of the table {what.capitalize()}.",
    )
    @click.argument("kind", required=False)
    @click.option(
        "--with",
        "module",
        metavar="MODULE",
        help="Also list the kinds that MODULE defines. MODULE is the name of a module, or its file.",
    )
    @json_option
    def command(kind: str | None, module: str | None, *, json_wanted: bool) -> None:
        import_kinds(module)
        plugin_kinds, faults = packages.import_all(kinds, own)
        kinds_by_name = {
            each.kind.name: each for each in (*(PluginKind(kind, "") for kind in kinds.values()), *plugin_kinds)
        }
        if kind is not None and kind not in kinds_by_name:
            raise click.UsageError(f"'{kind}' is not a kind of {what}; {closest(kind, kinds_by_name)}")
        selection = [kinds_by_name[name] for name in sorted(kinds_by_name) if kind in (None, name)]
        if json_wanted:
            print_json({"kinds": [_as_json(each) for each in selection], "faults": faults})
        for line in () if json_wanted else _kind_lines(selection):
            say(line)
        for fault in faults:
            say(fault, err=True)
        click.get_current_context().exit(EXIT_UNREADABLE if faults else 0)

    return command


def _kind_lines(kinds: list[PluginKind]) -> Iterator[str]:
    for each in kinds:
        kind, origin = each.kind, _origin(each.kind)
        package = f", of the package {each.package}" if each.package else ""
        yield kind.name if origin.partition(".")[0] == _OWN else f"{kind.name}  (from {origin}{package})"
        if kind.description:
            yield f"  {kind.description}"
        yield from (
            f"  takes {_SUPPLY_TEXTS[name]}" for name in sorted(kind.supplied_arguments) if name in _SUPPLY_TEXTS
        )
        width = max((len(option.name) for option in kind.options), default=0)
        yield from (f"    {option.name:<{width}}  {_about(option)}" for option in kind.options)


def _about(option: Option) -> str:
    if option.is_required:
        return f"{option.form}; must be given"
    return f"{option.form}{f' [{_cell(option.default)}]' if option.default not in (None, '') else ''}"


def _cell(value: object) -> str:
    """Return a default as it is written in a cell of options."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _origin(kind: ComponentKind) -> str:
    """Return the module that a kind comes from, or its file."""
    name = str(kind.build.__module__)
    return str(sys.modules[name].__file__) if name.startswith(FROM_FILE) else name


def _as_json(each: PluginKind) -> dict[str, object]:
    kind = each.kind
    options = [
        {
            "name": option.name,
            "value": option.form,
            "required": option.is_required,
            "default": None if option.is_required else option.default,
        }
        for option in kind.options
    ]
    return {
        "kind": kind.name,
        "description": kind.description,
        "from": _origin(kind),
        "package": each.package,
        "takes": sorted(name for name in kind.supplied_arguments if name in _SUPPLY_TEXTS),
        "options": options,
    }


command = command_for("guards", "guards", KINDS, PACKAGES, OWN)
