"""Faults planted in the code that runs execute: `dsa verify CERTIFICATE FILE` refuses each, wherever it is.

Every line that is generated for a shipped machine is spoiled, and so are the switch to the reference, what is remembered, and what follows from a row.
"""

import re

import attrs
import pytest
from repository import SMALL, shipped_machines

from dsa import compiled_step as module
from dsa.checks.certify import behaviour
from dsa.checks.certify_steps import require_same_steps
from dsa.expr import show_value
from dsa.kernel import TABLE, Claim
from dsa.lang import dumps, expanded

MACHINES = {name: machine.at(SMALL.get(name, {})) for name, machine in shipped_machines().items()}
WRITE = module._Writer.source  # noqa: SLF001

# -- each generated line ----------------------------------------------------------------------------------------------

#: Spoils what a line says: a pattern, and what is put in its place. The first that fits and changes something is tried first.
SPOILERS = [
    (r"^def group\(c, o\):$", r"def group(o, c):"),
    (r"^( *)if not (.*) <= (\d+): return None$", r"\1if not \2 < \3: return None"),  # a bound that is lower by one
    (r"^( *)if (.*): return None$", r"\1if not (\2): return None"),
    (r"^( *)if (.*):$", r"\1if not (\2):"),
    (r"^( *)k = (.*)$", r"\1k = \2 + 1"),
    (r"^( *)(u\d+) = (.*)$", r"\1\2 = (\3) + 1"),
    (r"^( *)(u\d+) = (.*)$", r"\1\2 = not (\3)"),
    (r"^( *)(u\d+) = (.*)$", r"\1\2 = None"),
    (r"^( *)m = (s\d+)\[(.*)c.outstanding\]$", r"\1m = \2[\3frozenset()]"),
    (r"^( *)return m, (.*)$", r"\1return m, (\2)[::-1]"),
    (r"^( *)return m, (.*)$", r"\1return None"),
    (r"^( *)a = o.verdicts$", r"\1a = o.verdicts[1:]"),
    (r"^( *)\((n\w+), (w\w+)\),(.*)$", r"\1(\3, \2),\4"),
    (r"^( *v.*) = c.values$", r"\1 = c.values[::-1]"),
    (r"^( *v.*) = c.values$", r"\1 = [None for _ in c.values]"),
]


def spoiled(line):
    found = (re.sub(pattern, other, line) for pattern, other in SPOILERS if re.match(pattern, line))
    return [other for other in found if other != line]


class OneGroup(Claim):
    """The kernel's table of one group of rows."""

    def __init__(self, text, claim, group):
        super().__init__(text, claim)
        self.group = group

    def cases(self):
        for case in super().cases():
            if case[3] and (case[3][0]["source"], case[3][0]["event"]) == self.group:
                yield case


def table_of(machine, *group):
    at = {name: show_value(value) for name, value in machine.constants.items()}
    claim = {"form": TABLE, "parts": [], "at": at, "proofs": []}
    text = dumps(behaviour(expanded(machine)))
    return OneGroup(text, claim, group) if group else Claim(text, claim)


def is_refused(machine, claim):
    try:
        require_same_steps(attrs.evolve(machine), claim)  # another machine: nothing is compiled yet
    except AssertionError:
        return True
    return False


def lines_of(machine):
    """Every generated line: its group, its place there."""
    writer = module._Writer(machine)  # noqa: SLF001
    return [(group, place) for group, rows in machine.rows_from.items() for place, _ in enumerate(WRITE(writer, rows))]


def is_noticed(machine, group, place, patch):
    """Whether the step is refused with the line spoiled, in one way at least."""
    claim = table_of(machine, *group)
    line = WRITE(module._Writer(machine), machine.rows_from[group])[place]  # noqa: SLF001
    assert spoiled(line), line
    for way in range(len(spoiled(line))):

        def source(writer, rows, way=way):
            lines = list(WRITE(writer, rows))
            if (rows[0].source, rows[0].event) == group:
                lines[place] = spoiled(lines[place])[way]
            return tuple(lines)

        patch.setattr(module._Writer, "source", source)  # noqa: SLF001
        refused = is_refused(machine, claim)
        patch.undo()
        if refused:
            return True
    return False


def parts():
    """Machines with the share of their lines that is tried: all of the small ones, all of every one in the full suite."""
    for name, machine in MACHINES.items():
        share = max(1, len(lines_of(machine)) // 60)
        yield pytest.param(name, share, id=name)
        if share > 1:
            yield pytest.param(name, 1, id=f"all of {name}", marks=pytest.mark.full)


@pytest.mark.parametrize(("name", "share"), list(parts()))
def test_a_fault_in_any_generated_line_is_refused(name, share, monkeypatch):
    machine = MACHINES[name]
    tried = lines_of(machine)[::share]
    assert not any(is_refused(machine, table_of(machine, *group)) for group in {group for group, _ in tried})
    assert [line for line in tried if not is_noticed(machine, *line, monkeypatch)] == []
