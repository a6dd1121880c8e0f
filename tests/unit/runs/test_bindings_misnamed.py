"""Names in a module of bindings that the machine cannot use."""

import re

import pytest

from dsa.edge.document_files import load, locate
from dsa.errors import BindingError
from dsa.lang import loads
from dsa.runs.bindings import bind

TABLE = """# m

## Generators
| generator | is      | options          |
| --------- | ------- | ---------------- |
| mine      |         |                  |
| fixed     | command | command = printf |

## Guards
| guard | is    | options                |
| ----- | ----- | ---------------------- |
| short | regex | pattern = x            |
| both  | all   | of = short, syntax, ok |
| wise  | judge | by = critic; question = Is it? |
| ok    |       |                        |

## Steps
| step  | generator | guard      | task |
| ----- | --------- | ---------- | ---- |
| draft | mine      | both       | x    |
| final | fixed     | wise       | x    |
"""
MODULE = """
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult

class Guard(GuardInterface):
    def validate(self, artifact, **dependencies):
        return GuardResult(True)

class Generator(GeneratorInterface):
    def generate(self, context, template=None):
        return Artifact("mine")

async def effect(action, context):
    return []

guards = {"ok": Guard()}
generators = {"critic": Generator()}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def bound(tmp_path, more, module=None):
    (tmp_path / (module or "bindings.py")).write_text(MODULE + more)
    given = str(tmp_path / module) if module else None
    return bind(loads(TABLE, "m.md"), path=tmp_path / "m.md", module=given)


@pytest.mark.parametrize("module", [None, "other.py"])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("generators['mien'] = Generator()", "generator 'mien', which is not in any table; did you mean 'mine'?"),
        (
            "generators['critc'] = generators.pop('critic')",
            "generator 'critc', which is not in any table; did you mean 'critic'?",
        ),
        ("guards['syntx'] = Guard()", "guard 'syntx', which is not in any table; did you mean 'syntax'?"),
        ("effects = {'query_lm': effect}", "effect 'query_lm', which is not in any table; did you mean 'query_llm'?"),
    ],
)
def test_name_similar_to_a_used_name_is_a_fault(tmp_path, module, more, said):
    with pytest.raises(BindingError, match=re.escape(f"{module or 'bindings.py'} defines the {said}")):
        bound(tmp_path, more, module)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("generators['pen'] = Generator()", "generator 'pen'"),
        ("generators['mine'] = generators['mien'] = Generator()", "generator 'mien'"),
        ("generators['mine2'] = Generator()", "generator 'mine2'"),
        ("generators['fixd'] = Generator()", "generator 'fixd'"),
        ("guards['shorts'] = Guard()", "guard 'shorts'"),
        ("guards['finals'] = Guard()", "guard 'finals'"),
        ("effects = {'mail': effect}", "effect 'mail'"),
    ],
    ids=["unlike any", "already bound", "sibling", "of a kind", "guard of a kind", "step", "effect"],
)
def test_other_unused_name_is_only_noted(tmp_path, more, name):
    assert bound(tmp_path, more).notes == (
        f"bindings.py defines the {name}, which is not in any table; it is not used",
    )


@pytest.mark.parametrize(
    "more",
    [
        "",
        "generators |= {'mine': Generator(), 'llm': Generator()}",
        "guards |= {'draft': Guard(), 'syntax': Guard()}",
        "effects = {'query_llm': effect, 'execute_guard': effect}",
    ],
)
def test_name_that_the_machine_could_use_is_not_noted(tmp_path, more):
    assert bound(tmp_path, more).notes == ()


def test_kind_named_in_a_row_counts_as_used(tmp_path):
    text = "# m\n\n## Generators\n| generator | is |\n| - | - |\n| g | pen |\n\n## Guards\n| guard | is |\n| - | - |\n| h | nice |\n"
    steps = "\n## Steps\n| step | generator | guard |\n| - | - | - |\n| a | g | h |\n"
    (tmp_path / "bindings.py").write_text(f"{MODULE}\ngenerators, guards = {{'pen': Generator()}}, {{'nice': Guard()}}")
    assert bind(loads(text + steps), path=tmp_path / "m.md").notes == ()


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ("gaurds = {}\ndel guards\nok = guard = 3", None),
        ("generator = {}", None),
        ("effect_s = {}", "effects"),
        ("effect = {}", "effects"),
        ("from dsa.runtime.policy.policy_registry import Registry\npolicy = policie = Registry()", "policies"),
        ("secret_name = ['A']", "secret_names"),
        ("_effects = {}", None),
        ("effects = {}\neffect = effects", None),
    ],
)
def test_variable_that_resembles_a_table_of_bindings_is_noted(tmp_path, more, meant):
    if "gaurds" in more:
        with pytest.raises(BindingError, match="guard ok is not bound"):
            bound(tmp_path, more)
        return
    notes = bound(tmp_path, more).notes
    assert [note.rpartition("did you mean ")[2] for note in notes] == ([f"`{meant}`?"] if meant else [])


def test_names_of_packages_and_of_nested_machines_are_not_noted(tmp_path):
    assert bind(load("dual_state"), path=locate("dual_state")).notes == ()
    assert bind(load("workflow"), module="machines.dual_state.bindings").notes == ()
    (tmp_path / "in.md").write_text("# in\n\n## Steps\n| step | guard |\n| - | - |\n| a | syntax |\n")
    (tmp_path / "bindings.py").write_text(MODULE)
    outer = "# m\n\n## Generators\n| generator | is | options |\n| - | - | - |\n| g | machine | file = in.md |\n"
    outer += "\n## Steps\n| step | generator | guard |\n| - | - | - |\n| a | g | syntax |\n"

    def nested(_file, _step, _folder):
        from dsa.generators import ScriptedGenerator

        return ScriptedGenerator()

    assert bind(loads(outer), path=tmp_path / "m.md", machines=nested).notes == ()
