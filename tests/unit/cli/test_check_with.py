"""`dsa check FILE --with MODULE`: table and bindings are checked together, and nothing is run."""

import json

import pytest
from click.testing import CliRunner

from dsa.cli.main import program

TABLE = """# shop

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| good     | workflow | bool   | false   |

## Events
| event | from    |
| ----- | ------- |
| ask   | outside |
| found | look    |

## Guards
| guard | judges | uses            |
| ----- | ------ | --------------- |
| right | found  | who = ask.who   |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| looking |         |
| done    | final   |

## Transitions
| source  | event | if           | update      | effects | target  |
| ------- | ----- | ------------ | ----------- | ------- | ------- |
| idle    | ask   |              |             | look    | looking |
| looking | found | right.passed | good = true |         | done    |
| looking | found | else         |             |         | done    |
"""
MODULE = """
raise_when_called = []
from machines import GuardInterface, GuardResult
from dsa import answering, event_step

@answering("found")
async def look(action, context):
    raise SystemExit("it was run")

class Right(GuardInterface):
    def validate(self, artifact, who):
        raise SystemExit("it was run")

effects = {"look": look}
guards = {"right": Right()}
"""


@pytest.fixture
def checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.md").write_text(TABLE, encoding="utf-8")

    def check(module, *more):
        (tmp_path / "mine.py").write_text(module, encoding="utf-8")
        return CliRunner().invoke(program, ["check", "shop.md", "--with", "mine.py", *more])

    return check


def test_complete_bindings_are_confirmed_and_nothing_is_run(checked):
    done = checked(MODULE)
    assert (done.exit_code, done.exception) == (0, None)
    assert "shop.md: mine.py binds every name that it needs" in done.stdout
    assert json.loads(checked(MODULE, "--json").stdout)["files"][0]["unbound"] is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("async def look", "def look", "the effect 'look' is bound to `look` (line 6), which is not an async function"),
        (
            "look(action, context)",
            "look(action)",
            "the effect 'look' is bound to `look` (line 6), which takes (action) but is called with (action, context): too many positional arguments",
        ),
        (
            "artifact, who)",
            "artifact)",
            "shop.md:17:3: the guard 'right' is bound to `Right.validate` (line 11), which takes (artifact) but is called with (artifact, who=..): got an unexpected keyword argument 'who'",
        ),
        ("artifact, who)", "who)", "called with (artifact, who=..): multiple values for argument 'who'"),
        (
            '"found")',
            '"fund")',
            "the code of 'look' can return the event 'fund', but the document does not say so: add a row for 'fund' to the Events table, with look in the column 'from' (so far, the events from look are: found)",
        ),
        ('{"look"', '{"lok"', "mine.py defines the effect 'lok', which is not in any table; did you mean 'look'?"),
        (
            "Right()}",
            "len}",
            "the guard 'right' is bound to builtin_function_or_method, not to a GuardInterface object",
        ),
        ("Right()}", "Right}", "the guard 'right' is bound to the class Right itself, not to a GuardInterface object"),
        ("import answering", "import answring", "this file cannot be imported: ImportError"),
    ],
)
def test_each_binding_fault_is_reported_with_its_place(checked, old, new, said):
    assert MODULE.count(old) == 1
    broken = MODULE.replace(old, new)
    done = checked(broken)
    assert done.exit_code == 1
    assert said in done.stdout
    assert said in json.loads(checked(broken, "--json").stdout)["files"][0]["unbound"]
    assert '"unbound"' in checked(broken, "--sarif").stdout


def test_wrapped_async_function_and_annotated_awaitable_are_accepted(checked):
    said = MODULE.replace("async def look(action, context):", "def look(action, context) -> 'Awaitable[list]':")
    assert checked(said).exit_code == 0
    wrapped = MODULE.replace(
        "effects =",
        "import functools\n\ndef twice(policy):\n    @functools.wraps(policy)\n    def wrapper(*given):\n        return policy(*given)\n    return wrapper\n\nlook = answering('found')(twice(look.policy))\neffects =",
    )
    assert checked(wrapped).exit_code == 0


def test_effect_used_by_another_document_of_the_folder_is_not_reported(checked, tmp_path):
    more = MODULE + "\nasync def ship(action, context):\n    return []\n\neffects['ship'] = ship\n"
    (tmp_path / "bindings.py").write_text(more, encoding="utf-8")

    def told():
        return CliRunner().invoke(program, ["run", "shop.md", "--data", '{"who": "ann"}', "--json"]).stderr

    assert "defines the effect 'ship', which is not in any table; it is not used" in told()
    (tmp_path / "other.md").write_text("| idle | go | ship | = |", encoding="utf-8")
    assert "ship" not in told()
