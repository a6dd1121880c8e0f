"""Faults planted in the code that runs execute: `dsa verify CERTIFICATE FILE` refuses each, wherever it is.

Every line that is generated for a shipped machine is spoiled, and so are the switch to the reference, what is remembered, and what follows from a row.
"""

import inspect
import json
import random
import re
import textwrap
from functools import cache
from itertools import islice
from pathlib import Path

import attrs
import property.test_agreement as agreement
import pytest
from click.testing import CliRunner
from repository import SMALL, shipped_machines
from sample_sizes import sample_size

from dsa import compiled_step as module
from dsa import machine, semantics
from dsa.checks.certificate_proofs import require_same_steps
from dsa.checks.certificate_writer import behaviour
from dsa.cli.main import program
from dsa.compiled_step import _StepWriter
from dsa.expr import show_value
from dsa.kernel import TABLE, Claim
from dsa.lang import dumps, spell_out
from dsa.semantics import start

#: At 2 of everything the chat has 800,000 lines to compare.
LEAST = {**SMALL, "chat": {"max_rounds": 1, "max_calls": 1, "max_refusals": 1, "side": 1}}
MACHINES = {name: machine.at(LEAST.get(name, {})) for name, machine in shipped_machines().items()}
WRITE = _StepWriter.source

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
    (r"^( *)m = (s\d+)\[(.*)c.outstanding\]$", r"\1m = \2[\3()]"),
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
    """The kernel's table of one group of rows, in another order, in which a wrong line soon shows."""

    def __init__(self, text, claim, group, cases):
        super().__init__(text, claim)
        self.group, self.few = group, [c for c in cases if (c[3][0]["source"], c[3][0]["event"]) == group]
        self.entries = list(super().table())
        random.Random(1).shuffle(self.entries)

    def cases(self):
        return iter(self.few)

    def table(self):
        return iter(self.entries)


def tables_of(machine, groups):
    at = {name: show_value(value) for name, value in machine.constants.items()}
    text, claim = dumps(behaviour(spell_out(machine))), {"form": TABLE, "parts": [], "at": at, "proofs": []}
    cases = [case for case in Claim(text, claim).cases() if case[3]]
    return {group: OneGroup(text, claim, group, cases) for group in groups}


def is_refused(machine, claim):
    try:
        require_same_steps(attrs.evolve(machine), claim)  # another machine: nothing is compiled yet
    except AssertionError:
        return True
    return False


def lines_of(machine):
    """Every generated line: its group, its place there."""
    writer = _StepWriter(machine)
    return [(group, place) for group, rows in machine.rows_from.items() for place, _ in enumerate(WRITE(writer, rows))]


def spoil(patch, group, place, way):
    """Have one line of one group generated in another way."""

    def source(writer, rows):
        lines = list(WRITE(writer, rows))
        if (rows[0].source, rows[0].event) == group:
            lines[place] = spoiled(lines[place])[way]
        return tuple(lines)

    patch.setattr(_StepWriter, "source", source)


def is_noticed(machine, claim, place, patch):
    """Return whether the step is refused with the line spoiled, in one way at least."""
    line = WRITE(_StepWriter(machine), machine.rows_from[claim.group])[place]
    assert spoiled(line), line
    for way, _ in enumerate(spoiled(line)):
        with patch.context() as planted:
            spoil(planted, claim.group, place, way)
            if is_refused(machine, claim):
                return True
    return False


#: The largest are sampled; all of them is for the full suite.
SHARES = {"chat": 96, "coding": 48, "examples/peterson": 40, "katas/katas": 24}
PARTS = [pytest.param(name, SHARES.get(name, 1), id=name) for name in MACHINES]
PARTS += [pytest.param(name, 1, id=f"all of {name}", marks=pytest.mark.full) for name in SHARES]


@pytest.mark.parametrize(("name", "share"), PARTS)
def test_fault_in_any_generated_line_is_refused(name, share, monkeypatch):
    machine = MACHINES[name]
    tried = lines_of(machine)[::share]
    tables = tables_of(machine, {group for group, _ in tried})
    assert not any(is_refused(machine, tables[group]) for group, _ in tried[::20])
    assert [line for line in tried if not is_noticed(machine, tables[line[0]], line[1], monkeypatch)] == []


# -- the switch, what is remembered, and what follows from a row -------------------------------------------------------

#: For each fault a function, a text in it, and its replacement.
FAULTS = {
    "rows are looked for under another name": (
        "CompiledStep.move", "(place.state, occurrence.event) if source", "(occurrence.event, place.state) if source"),
    "timers are taken for events": ("CompiledStep.move", "if source is None", "if source is not None"),
    "an occurrence that no row takes is late": (
        "CompiledStep.move", "or self._refusal(place, occurrence)", 'or Refusal("late", place, "", (), ())'),
    "the reference is asked with nothing outstanding": (
        "CompiledStep._refusal", "place.values, place.outstanding", "place.values, ()"),
    "the reference is asked about the first values": (
        "CompiledStep._refusal", "place.state, place.values", "place.state, start(self.machine).values"),
    "the memory ignores verdicts": (
        "CompiledStep.step", "source, occurrence.verdicts, ", "source, "),
    "the memory ignores values": (
        "CompiledStep.step", "configuration.values, configuration.outstanding", "configuration.outstanding"),
    "the memory ignores outstanding effects": (
        "CompiledStep.step", "configuration.values, configuration.outstanding", "configuration.values"),
    "the memory ignores the order of timers": (
        "CompiledStep.step", "if configuration.precedence:", "if False:"),
    "the memory ignores the state": (
        "CompiledStep.step", "state, event, source, occurrence", "event, source, occurrence"),
    "the source stays": ("CompiledStep.step", "Configuration(move.target", "Configuration(move.source"),
    "nothing is cancelled": ("CompiledStep.step", "move.cancelled)", "())"),
    "outer rows are not found": (
        "_Groups._rows", "self._machine.rows_for(leaf, event)", "self._machine.rows_from.get((leaf, event), ())"),
    "all timers are armed everywhere": (
        "_Groups._rows", "if (event, timer) in self._machine.armed_timers(leaf) else ()", ""),
    "groups are stored by their event": (
        "_Groups.__missing__", "name = rows[0].source, rows[0].event", "name = rows[0].event"),
    "an effect may be emitted twice": ("_move", "if twice is not None:", "if False:"),
    "another target": ("_move", "target=target", "target=before"),
    "the children are not entered": ("_move", "else machine.entry_leaf(row.target)", "else row.target"),
    "the answer is still outstanding": (
        "_move", "pool.setdefault(after, after)", "(*after, origin) if origin in machine.answers else after"),
    "outstanding effects stay": ("_move", "pool.setdefault(after, after)", "(*outstanding, *after)"),
    "no effect is asked for": ("_move", "effects=effects", "effects=()"),
    "effects in another order": ("_move", "effects=effects", "effects=effects[::-1]"),
    "no effect begins": ("_move", "starts=starts,", "starts=(),"),
    "timers stay": ("_move", "timers=timers,", "timers=(),"),
    "the order of timers stays": (
        "_move", "precedence_after(machine, here.precedence, timers, target)", "here.precedence"),
    "orders of timers are mixed up": (
        "_StepWriter._take", "{moves.key}", "{moves.key.replace('c.precedence', 'frozenset()')}"),
    "a timer may fire early": (
        "_StepWriter._body", "if any(then == {timer} for _, then in c.precedence): return None", "pass"),
    "timers start again": ("timers_after", "if source not in remaining]", "]"),
    "rmax has no effect": ("_StepWriter._rename", "self._value(self._machine.constants[name])", "'1000'"),
}  # fmt: skip


def plant(patch, fault):
    """Put the changed text in the place of the one that runs."""
    name, old, new = FAULTS[fault]
    *owner, last = name.split(".")
    there = getattr(module, owner[0]) if owner else module
    text = textwrap.dedent(inspect.getsource(getattr(there, last)))
    assert old in text
    found = vars(module) | vars(machine) | {"start": start}
    exec(text.replace(old, new), found)
    patch.setattr(there, last, found[last])


#: What the shipped machines do not have: an initial child, rows and timers of a parent, an effect that would be emitted twice.
NESTED = """# nested

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| again | outside |
| stay  | outside |
| found | search  |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| busy      |         |
| busy.one  | initial |
| busy.two  |         |
| done      | final   |

## Transitions
| source   | event    | effects | target   |
| -------- | -------- | ------- | -------- |
| idle     | go       |         | busy     |
| busy     | again    | search  | busy.two |
| busy     | found    |         | done     |
| busy     | stay     |         | =        |
| busy     | after 1m |         | done     |
| busy.one | after 1s |         | busy.two |
"""
DOCUMENTS = ("nested.md", "examples/polling", "dual_state", "workflow")  # the small ones first


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nested.md").write_text(NESTED, encoding="utf-8")


def dsa(*arguments):
    return CliRunner().invoke(program, list(arguments))


@cache
def claims_about_the_step(document):
    """A certificate as text; only claims about the step are kept, which is what is planted in."""
    dsa("check", document, "--certificate", "written.json")
    written = json.loads(Path("written.json").read_text(encoding="utf-8"))
    written["claims"] = [claim for claim in written["claims"] if claim["form"] == TABLE]
    assert written["claims"]
    return json.dumps(written)


def said_by_verify(document, text):
    Path("certificate.json").write_text(text, encoding="utf-8")
    said = dsa("verify", "certificate.json", document, "--allow-missing")
    refused = [line for line in said.stdout.splitlines() if line.startswith("refused ")]
    assert said.exit_code == int(bool(refused)), said.stderr
    return "\n".join(refused)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_step_without_a_planted_fault_is_accepted(document):
    assert said_by_verify(document, claims_about_the_step(document)) == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_around_the_generated_lines_is_refused_with_any_certificate(fault, monkeypatch):
    certificates = {document: claims_about_the_step(document) for document in DOCUMENTS}
    plant(monkeypatch, fault)
    said = ((document, said_by_verify(document, text)) for document, text in certificates.items())
    refused = ((document, text) for document, text in said if "the generated step differs from the table in" in text)
    first = [*islice(refused, sample_size(1, full=len(DOCUMENTS)))]
    assert first
    for document, text in first:
        assert said_by_verify(document, claims_about_the_step.__wrapped__(document)) == text


def test_fault_that_the_reference_shares_is_refused(monkeypatch):
    """The fault is in a function that step and reference both use; the kernel has its own table."""
    real = semantics.after_effects

    def not_discharged(machine, outstanding, row, state):
        after, cancelled, twice = real(machine, outstanding, row, state)
        return tuple(sorted({*after, *outstanding})), cancelled, twice

    for each in module, semantics:
        monkeypatch.setattr(each, "after_effects", not_discharged)
    monkeypatch.setattr(agreement, "SHIPPED", {"dual_state": attrs.evolve(MACHINES["dual_state"])})
    agreement.test_shipped_machines_agree_on_random_walks("dual_state", 20)
    assert "the generated step differs from the table in" in said_by_verify(
        "dual_state", claims_about_the_step("dual_state")
    )


LINES = lines_of(MACHINES["dual_state"])
#: By the program a sample; each line is spoiled above.
LINES_BY_PROGRAM = [
    pytest.param(line, marks=[] if at % 4 == 0 else [pytest.mark.full]) for at, line in enumerate(LINES)
]


@pytest.mark.parametrize("line", LINES_BY_PROGRAM, ids=str)
def test_fault_in_a_generated_line_is_refused_by_the_program(line, monkeypatch):
    (group, place), machine = line, MACHINES["dual_state"]
    honest, table = claims_about_the_step("dual_state"), tables_of(machine, [group])[group]
    for way, _ in enumerate(spoiled(WRITE(_StepWriter(machine), machine.rows_from[group])[place])):
        with monkeypatch.context() as patch:
            spoil(patch, group, place, way)
            said = said_by_verify("dual_state", honest)
            assert "the generated step differs from the table in" in said or not is_refused(machine, table)
            assert said == said_by_verify("dual_state", claims_about_the_step.__wrapped__("dual_state"))


@pytest.mark.parametrize("name", ["dual_state", "workflow"])
def test_rmax_without_effect_is_found_by_the_agreement_tests(name, monkeypatch):
    monkeypatch.setattr(agreement, "SHIPPED", {name: attrs.evolve(MACHINES[name])})
    agreement.test_shipped_machines_agree_on_random_walks(name, 2_000)
    monkeypatch.setattr(agreement, "SHIPPED", {name: attrs.evolve(MACHINES[name])})
    plant(monkeypatch, "rmax has no effect")
    with pytest.raises(AssertionError):
        agreement.test_shipped_machines_agree_on_random_walks(name, 2_000)
