"""Kinds of guards or generators with their options, for people and programs.

`dsa guards`: the kinds of guards there are, shipped and registered.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from dsa.cli.command_line import UNREADABLE, JsonCommand, json_option, say, tell_json
from dsa.edge.plugins import Packages, PluginKind
from dsa.guards.guard_kinds import KINDS, OWN, PACKAGES
from dsa.runs.bindings import FROM_FILE, import_kinds
from dsa.runtime.content import ComponentKind, Option
from dsa.text import closest

_OWN = "dsa"
_SUPPLIED = {
    "cases": "the section Cases",
    "generator": "the option `by`: the name of a generator or a kind [llm]",
    "parts": "the option `of`: names of guards or kinds, separated by commas",
}


def command_for(
    name: str, what: str, kinds: Mapping[str, ComponentKind], packages: Packages, own: frozenset[str]
) -> click.Command:
    """Make the command that lists these kinds, and those that packages bring; `what` calls them, `own` are the names of ours."""

    @click.command(
        name,
        cls=JsonCommand,
        help=f"List the kinds of {what} that the column `is` may name, or one KIND, with their options.",
    )
    @click.argument("kind", required=False)
    @click.option("--with", "module", metavar="MODULE", help="A module's name or file whose own kinds are listed too.")
    @json_option
    def command(kind: str | None, module: str | None, *, json_wanted: bool) -> None:
        import_kinds(module)
        brought, faults = packages.import_all(kinds, own)
        found = {each.kind.name: each for each in (*(PluginKind(kind, "") for kind in kinds.values()), *brought)}
        if kind is not None and kind not in found:
            raise click.UsageError(f"there is no kind of {what} '{kind}'; {closest(kind, found)}")
        listed = [found[name] for name in sorted(found) if kind in (None, name)]
        if json_wanted:
            tell_json({"kinds": [_as_json(each) for each in listed], "faults": faults})
        for line in () if json_wanted else _shown(listed):
            say(line)
        for fault in faults:
            say(fault, err=True)
        click.get_current_context().exit(UNREADABLE if faults else 0)

    return command


def _shown(kinds: list[PluginKind]) -> Iterator[str]:
    for each in kinds:
        kind, origin = each.kind, _origin(each.kind)
        package = f", of the package {each.package}" if each.package else ""
        yield kind.name if origin.partition(".")[0] == _OWN else f"{kind.name}  (from {origin}{package})"
        if kind.description:
            yield f"  {kind.description}"
        yield from (f"  takes {_SUPPLIED[name]}" for name in sorted(kind.supplied_arguments) if name in _SUPPLIED)
        width = max((len(option.name) for option in kind.options), default=0)
        yield from (f"    {option.name:<{width}}  {_about(option)}" for option in kind.options)


def _about(option: Option) -> str:
    if option.is_required:
        return f"{option.form}; must be given"
    return f"{option.form}{f' [{_cell(option.default)}]' if option.default not in (None, '') else ''}"


def _cell(value: object) -> str:
    """Write a default as an options cell has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _origin(kind: ComponentKind) -> str:
    """Name the module that a kind comes from, or its file."""
    name = str(kind.build.__module__)
    return str(sys.modules[name].__file__) if name.startswith(FROM_FILE) else name


def _as_json(each: PluginKind) -> dict[str, Any]:
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
        "takes": sorted(name for name in kind.supplied_arguments if name in _SUPPLIED),
        "options": options,
    }


command = command_for("guards", "guards", KINDS, PACKAGES, OWN)
