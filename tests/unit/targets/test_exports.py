"""The texts of exports: names that cannot clash, properties exported or named as left out, lines of the table. tests/e2e runs the tools on them."""

import keyword
import re
import warnings

import attrs
import pytest

from dsa.errors import DsaError
from dsa.lang import dumps, loads
from dsa.targets import emit
from dsa.targets.prism import prism, prism_unsaid
from dsa.targets.promela import promela, promela_unsaid
from dsa.targets.scxml import TAKEN, scxml
from dsa.targets.spelling import Identifiers
from dsa.targets.statechart import statechart_module
from dsa.targets.tla import module_name, tla, tla_config, tla_unsaid
from dsa.targets.xstate import xstate

TOOLS = ("promela", "tla", "prism", "scxml", "xstate")


@pytest.mark.parametrize("tool", TOOLS)
def test_every_row_is_named_by_its_line(tool, dual_state):
    text = emit(dual_state, tool)
    for row in dual_state.transitions:
        assert f"line {row.span.line}: {row}" in text


@pytest.mark.parametrize("tool", TOOLS)
def test_export_names_the_values_of_parameters(tool, dual_state):
    assert "for rmax = 5" in emit(dual_state.at(rmax=5), tool)


def test_different_names_get_different_identifiers():
    spelling = Identifiers({"v_x"})
    names = [spelling.give("v_", name) for name in ("x", "a.b", "a_b", "a.b")]
    assert names == ["v_x_", "v_a_b", "v_a_b_", "v_a_b"]
    assert spelling.give("v_", "y" * 300) != spelling.give("v_", "y" * 301)


def with_claims(machine, *claims):
    text = dumps(attrs.evolve(machine, properties=()))
    return loads(text + "\n## Properties\n" + "".join(f"- {claim}\n" for claim in claims))


EVERY_FORM = (
    "always retries <= rmax",
    "never succeeded and not satisfied",
    "never verdict and idle",
    "on g.failed: satisfied unchanged",
    "specification leads to succeeded",
    "generating leads to validating",
    "verdict only after artifact",
    "at most 2 query_llm",
    "at most 1 artifact between artifact and verdict",
    "possible failed",
    "from everywhere possible failed",
    "succeeded with probability >= 0.9",
    "expected query_llm <= 2.5",
)


@pytest.mark.parametrize(
    ("unsaid", "forms"),
    [
        (promela_unsaid, {"from everywhere possible", "probability", "expected"}),
        (tla_unsaid, {"specification leads", "only after", "at most", "from everywhere", "probability", "expected"}),
        (prism_unsaid, {"verdict and idle", "unchanged", "leads to", "only after", "at most", "from everywhere"}),
    ],
)
def test_properties_that_cannot_be_exported_are_named(unsaid, forms, dual_state):
    lines = unsaid(with_claims(dual_state, *EVERY_FORM))
    assert all(any(form in line for form in forms) for line in lines), lines
    assert len(lines) == sum(any(form in claim for form in forms) for claim in EVERY_FORM)


@pytest.mark.parametrize(("write", "unsaid"), [(promela, promela_unsaid), (tla, tla_unsaid), (prism, prism_unsaid)])
def test_export_notes_each_property_that_it_leaves_out(write, unsaid, dual_state):
    machine = with_claims(dual_state, *EVERY_FORM)
    assert write(machine).count("is not expressed here") == len(unsaid(machine))


def test_configuration_of_tlc_has_the_properties_that_must_hold(dual_state):
    lines = tla_config(with_claims(dual_state, *EVERY_FORM)).splitlines()
    assert lines[:2] == ["SPECIFICATION Spec", "INVARIANT InDomains"]
    assert [line.split()[1][9:] for line in lines[2:]] == ["1", "2", "3", "4", "6"]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("a.b", "a_b"),
        ("m", "m"),
        ("WF_x", "m_WF_x"),
        ("_", "m__"),
        ("_1", "m__1"),
        ("Integers", "m_Integers"),
        ("AXIOM", "m_AXIOM"),
    ],
)
def test_module_has_a_name_that_tla_allows(name, module, dual_state):
    machine = attrs.evolve(dual_state, name=name)
    assert module_name(machine) == module
    assert f"MODULE {module} " in tla(machine)


def test_names_reserved_by_the_scxml_loader_are_all_known():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statemachine.io import load
    text = '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0"><state id="s"/></scxml>'
    chart = load(text, format="scxml")()
    theirs = {*dir(chart), *dir(type(chart)), *dir(type(type(chart)))} - {"s", *dir(type)}
    assert {name for name in theirs if not name.startswith("_")} <= TAKEN


EXACT = """# exact
## Variables
| variable | domain             | initial  |
| -------- | ------------------ | -------- |
| n        | 94906260..94906267 | 94906267 |
## Transitions
| source | event | if     | target |
| ------ | ----- | ------ | ------ |
| s      | e     | n * n == 9007199515875288 | t |
| s      | e     | else                      | s |
"""


@pytest.mark.parametrize("write", [scxml, xstate])
def test_numbers_too_large_for_a_double_are_refused_with_their_line(write):
    """In ECMAScript 94906267 squared is 9007199515875288, which is too low by one."""
    with pytest.raises(DsaError, match=r"line 9: .*Script computes with -9007199254740991 to 9007199254740991"):
        write(loads(EXACT))
    assert "n == 3" in write(loads(EXACT.replace("n * n == 9007199515875288", "n == 3"))).replace("===", "==")


@pytest.mark.parametrize("name", ["dual_state", "two.parts", "_", "class", "none", "True_"])
def test_python_module_defines_the_class(name, dual_state):
    machine = attrs.evolve(dual_state, name=name)
    found: dict[str, object] = {}
    exec(statechart_module(machine, dumps(machine)), found)
    assert found["machine"] == machine
    run = found["StatechartRun"](found["machine"])
    assert run.configuration.state == "idle"
    classes = [word for word in found["__all__"] if word not in {"DOCUMENT", "StatechartRun", "machine"}]
    assert len(classes) == 1
    assert not keyword.iskeyword(classes[0])


def test_conditions_of_statecharts_have_only_the_necessary_terms(dual_state):
    guards = re.findall(r"guard: .*? => (.*?), target", emit(dual_state, "xstate"))
    assert guards == [
        "c.waiting.query_llm",
        "c.waiting.execute_guard && (e.verdicts?.['g'] === 'passed')",
        "c.waiting.execute_guard && (e.verdicts?.['g'] === 'failed') && c.retries < 3",
        "c.waiting.execute_guard && (e.verdicts?.['g'] === 'fatal')",
        "c.waiting.execute_guard",
    ]
