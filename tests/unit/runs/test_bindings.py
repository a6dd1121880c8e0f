import os
import sys
from pathlib import Path

import pytest

from dsa.edge.document_files import load, locate
from dsa.errors import BindingError
from dsa.guards.cases import CasesGuard
from dsa.lang import loads
from dsa.runs.bindings import bind, effect_faults, generator_name
from machines.dual_state.bindings import effects

TABLE = """# m
## Events
| event | from |
| - | - |
| go | outside |
| artifact | query_llm |
| launched | launch |
## Guards
| guard | judges | is |
| - | - | - |
| nice | launched | pretty |
| unread | launched | ugly |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | go | | launch, notify, query_llm | busy |
| busy | artifact | | | = |
| busy | launched | nice.passed | notify | over |
| busy | launched | else | | over |
| over | go | | | = |
"""

BINDINGS = """
from dsa.runtime.content import GuardInterface, GuardResult, GeneratorInterface, Artifact
from dsa.runtime.policy.policies import answering

class Nice(GuardInterface):
    def validate(self, artifact, **dependencies):
        return GuardResult(True)

class Mine(GeneratorInterface):
    def generate(self, context, template=None):
        return Artifact("mine")

@answering("launched")
async def launch(action, context):
    return []

async def notify(action, context):
    return []

effects = {"launch": launch, "notify": notify}
guards = {"nice": Nice()}
generators = {"llm": Mine()}
"""


def line_of(text):
    return next(n for n, line in enumerate(TABLE.splitlines(), start=1) if line.startswith(text))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "machine.md").write_text(TABLE)
    return tmp_path


def test_all_unbound_names_are_one_error_with_their_lines(folder):
    with pytest.raises(BindingError) as caught:
        bind(loads(TABLE, "m.md"), path=folder / "machine.md")
    lines = str(caught.value).splitlines()
    launched, guard = line_of("| idle | go"), line_of("| nice")
    assert [line.split(": ")[0].rpartition(":")[0] for line in lines if "hint" not in line] == [
        f"m.md:{launched}",
        f"m.md:{launched}",
        f"m.md:{guard}",
    ]
    for name in ("launch", "notify", "nice"):
        assert name in str(caught.value)
    assert "guard unread" not in str(caught.value), "only what rows read must be bound"


def test_bindings_beside_the_file_are_used_and_the_rest_is_built_in(folder):
    (folder / "bindings.py").write_text(BINDINGS)
    bound = bind(loads(TABLE), path=folder / "machine.md")
    assert set(bound.effects) == {"launch", "notify", "query_llm"}
    assert bound.effects["query_llm"] is effects["query_llm"]
    assert list(bound.guards) == ["nice"]
    assert bound.generators["llm"].generate(None).content == "mine"


def test_module_can_refuse_settings(folder):
    fault = "def fault_of_settings(config):\n    return '' if config['disk'] == 'here' else f\"{config['disk']}: no disk\"\n"
    (folder / "bindings.py").write_text(BINDINGS + fault)
    assert bind(loads(TABLE), path=folder / "machine.md", config={"disk": "here"}).config["disk"] == "here"
    with pytest.raises(BindingError, match=r"^/mnt: no disk$"):
        bind(loads(TABLE), path=folder / "machine.md", config={"disk": "/mnt"})
    (folder / "bindings.py").write_text(f"{BINDINGS}\nfault_of_settings = 'none'\n")
    with pytest.raises(BindingError, match=r"`fault_of_settings` is .*, not a function"):
        bind(loads(TABLE), path=folder / "machine.md")


@pytest.mark.parametrize("by_name", [True, False])
def test_named_module_is_used_instead_of_the_one_beside_the_file(folder, monkeypatch, by_name):
    (folder / "bindings.py").write_text("raise RuntimeError('must not be run')")
    (folder / "other_bindings_of_this_test.py").write_text(BINDINGS)
    monkeypatch.syspath_prepend(str(folder))
    module = "other_bindings_of_this_test" if by_name else str(folder / "other_bindings_of_this_test.py")
    assert "launch" in bind(loads(TABLE), path=folder / "machine.md", module=module).effects


@pytest.mark.parametrize("module", ["no_such_module_at_all", "/no/such/file.py", "", "..x", "a b"])
def test_missing_module_is_a_binding_error(module):
    with pytest.raises(BindingError, match=r"no such|no module|is not the name of a module"):
        bind(load("dual_state"), module=module)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nimport something_that_is_not_installed", r"mine.py:2: .*No module named 'something_that_is_not_installed'"),
        ("guards = {", r"mine.py:1: .*SyntaxError: '{' was never closed"),
        ("import sys\nsys.exit(0)", r"mine.py:2: this file cannot be imported: SystemExit: 0"),
        ("guards = []", r"mine.py: `guards` is list, not a dictionary"),
        ("effects = {'tidy': 3}", r"the effect 'tidy' is bound to int, not to an async function"),
    ],
)
def test_error_says_why_a_module_cannot_be_used(folder, text, said):
    (folder / "mine.py").write_text(text)
    with pytest.raises(BindingError, match=said):
        bind(load("dual_state"), module=str(folder / "mine.py"))


def test_class_is_refused_in_place_of_an_object(folder):
    (folder / "mine.py").write_text(
        BINDINGS + "\nguards = {'nice': Nice}\ngenerators = {'llm': Mine}\neffects = {'notify': Nice}\n"
    )
    with pytest.raises(BindingError) as caught:
        bind(loads(TABLE), module=str(folder / "mine.py"))
    for name in ("the effect 'notify'", "the guard 'nice'", "the generator 'llm'"):
        assert f"{name} is bound to the class " in str(caught.value)


def test_falsy_guard_is_accepted(folder):
    (folder / "mine.py").write_text(BINDINGS.replace("class Nice(", "class Nice(dict, "))
    assert bind(loads(TABLE), module=str(folder / "mine.py")).guards["nice"] == {}


def test_policy_must_answer_with_a_declared_event():
    machine = loads(
        TABLE.replace("| artifact | query_llm |", "| text | query_llm |").replace("| busy | artifact", "| busy | text")
    )
    (fault,) = (fault for fault in effect_faults(machine, effects) if "query_llm" in fault)
    assert (
        "can return the event 'artifact', but the document does not say so: add a row for 'artifact' to the Events table, with query_llm in the column 'from' (so far, the events from query_llm are: text)"
        in fault
    )


def test_shipped_machines_bind_without_arguments():
    dual_state = bind(load("dual_state"))
    assert isinstance(dual_state.guards["g"], CasesGuard)
    assert set(dual_state.generators) == {"llm"}
    workflow = bind(load("workflow"), path=locate("workflow"))
    assert set(workflow.guards) == {"g_test", "g_impl"}
    assert set(workflow.effects) == {
        *("query_llm", "execute_guard", "advance_state", "refine_context"),
        *("reply_to_user", "reply_failure", "escalate_to_user"),
    }


def test_step_names_its_generator_and_a_plain_machine_has_one():
    assert generator_name(load("workflow"), "g_impl") == "llm"
    assert generator_name(load("dual_state"), "g") == "llm"
    text = "\n## Generators\n| generator | is |\n| - | - |\n| mine | llm |\n"
    assert generator_name(loads(Path(locate("dual_state")).read_text() + text), "g") == "mine"


POLICIES = """
from dsa.runtime.policy.policy_registry import Registry

policies = Registry()

@policies.register("quoting_policy", "Mine.")
async def mine(action, context):
    return []
"""


def test_policies_of_a_module_extend_and_override_the_shipped_ones(tmp_path):
    (tmp_path / "bindings.py").write_text(POLICIES + BINDINGS)
    (tmp_path / "mine.py").write_text(POLICIES)
    machine = loads(TABLE.replace("| nice | launched | pretty |", "| nice | launched | |"))
    bound = bind(machine, path=tmp_path / "m.md", model="scripted:x", seed=3)
    asked = load("policy")
    for policies in (bound.policies, bind(asked, module=str(tmp_path / "mine.py")).policies):
        assert {"search_agent", "web_search_policy", "llm_policy"} <= set(policies)
        assert policies["quoting_policy"].description == "Mine."
    assert dict(bound.config) == {"model": "scripted:x", "seed": 3}
    assert bind(asked).policies["quoting_policy"].description.startswith("Answer with what the files say")


def test_policies_must_be_a_registry(tmp_path):
    (tmp_path / "mine.py").write_text("policies = {}")
    with pytest.raises(BindingError, match=r"mine\.py: `policies` is dict, not a Registry"):
        bind(load("policy"), module=str(tmp_path / "mine.py"))


def test_file_changed_within_the_same_second_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    module = tmp_path / "mine.py"
    for name in ("one_policy", "two_policy"):
        module.write_text(POLICIES.replace("quoting_policy", name))
        # The same size and the same time: Python's bytecode would count as fresh.
        os.utime(module, (1_700_000_000, 1_700_000_000))
        assert name in bind(load("policy"), module=str(module)).policies
