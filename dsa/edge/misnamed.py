"""Names that a module of bindings gives and that a machine cannot use: most often another name was meant.

Takes the module and the machine, gives faults and notes. A name that is close to one which the machine uses, and for which the module has
nothing, is a fault: something else would do its work. Any other may be for another document, so it is only noted.
"""

import os
from collections.abc import Mapping
from types import ModuleType

from dsa.expr import guards_read
from dsa.machine import Machine
from dsa.runtime.registry import Registry
from dsa.words import nearest

#: What a module of bindings may define, and of which types.
_ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "effects": (Mapping,),
    "guards": (Mapping,),
    "generators": (Mapping,),
    "policies": (Mapping, Registry),
    "secret_names": (list, tuple),
    "spenders": (list, tuple),
}
_NEAR = 0.75
_DEFAULT = "llm"
_RUNS_MACHINE = "machine"


def misnamed(module: ModuleType, machine: Machine) -> tuple[list[str], list[str]]:
    """Give what is wrong with the names of a module, and what is only odd. What other machines within this one can use is not known here."""
    file = module.__file__
    where = min(file, os.path.relpath(file), key=len) if file else module.__name__
    faults, notes = [], _attributes(module, where)
    for attribute, (usable, wanted) in _names(machine).items():
        given = getattr(module, attribute, None) or {}
        for name in sorted(str(each) for each in given if each not in usable):
            said = f"{where} gives the {attribute.removesuffix('s')} '{name}', which no table names"
            meant = _nearest(name, wanted - set(given))
            if meant is not None:
                faults.append(f"{said}; did you mean '{meant}'?{_otherwise(attribute, meant)}")
            elif not _has_parts(machine):
                notes.append(f"{said}; it is not used")
    return faults, notes


def _names(machine: Machine) -> dict[str, tuple[set[str], set[str]]]:
    """Give, for each table of a module, the names that the machine could use, and those that it uses and says nothing more about."""
    emitted = set(machine.effect_named)
    options = {guard.name: dict(guard.options) for guard in machine.guards}
    parts = {part.strip() for each in options.values() for part in each.get("of", "").split(",")} - {""}
    read = {guard for row in machine.transitions for guard in guards_read(row.condition)}
    guards = {name for step in machine.steps for name in step.guards} | parts | read
    asked = {each["by"].strip() for each in options.values() if "by" in each}
    generators = {step.generator for step in machine.steps} | asked | {row.name for row in machine.generators}
    return {
        "effects": (emitted, emitted),
        "guards": (
            guards | {name for row in machine.guards for name in (row.name, row.kind)},
            guards - {row.name for row in machine.guards if row.kind},
        ),
        "generators": (
            generators | {row.kind for row in machine.generators} | {_DEFAULT},
            generators - {row.name for row in machine.generators if row.kind},
        ),
    }


def _has_parts(machine: Machine) -> bool:
    """Tell whether some generator is a machine itself: the module may be for that one too."""
    return any(_RUNS_MACHINE in (row.kind, row.name) for row in machine.generators)


def _nearest(name: str, known: set[str]) -> str | None:
    """Give the name that was probably meant; names that differ by a number only are siblings."""
    others = (each for each in known if _without_digits(each) != _without_digits(name))
    return nearest(name, others, _NEAR)


def _without_digits(name: str) -> str:
    return "".join(character for character in name if not character.isdigit())


def _otherwise(attribute: str, meant: str) -> str:
    if attribute == "effects":
        return ""
    return f"\n        hint: if not, say in the column `is` of a table {attribute.capitalize()} what '{meant}' is"


def _attributes(module: ModuleType, where: str) -> list[str]:
    """Name what looks like one of the tables of a module and is none."""
    notes = []
    for name, value in vars(module).items():
        missing = [
            known for known, types in _ATTRIBUTES.items() if not hasattr(module, known) and isinstance(value, types)
        ]
        meant = None if name.startswith("_") else nearest(name, missing, _NEAR)
        if meant is not None and name not in _ATTRIBUTES:
            notes.append(f"{where} has `{name}`, which nothing reads; did you mean `{meant}`?")
    return notes
