"""Errors of users' code are stored with their tracebacks, without secrets: in the run's folder, in `dsa show --errors`, with `--log debug`."""

import os
import subprocess

import pytest
from forked import DSA

TABLE = """# shop
## Events
| event | from |
| - | - |
| ask | outside |
| found | look |
## Guards
| guard | judges |
| - | - |
| right | found |
## States
| state | kind |
| - | - |
| idle | initial |
| looking | |
| done | final |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | ask | | look | looking |
| looking | found | right.passed | | done |
| looking | found | else | | done |
"""
BINDINGS = """
import os
from dsa import answering, event_step
from machines import GuardInterface, GuardResult

def inner(key):
    return {}[os.environ["SHOP_API_KEY"]]  # raises, with a secret in its words

@answering("found")
async def look(action, context):
    EFFECT
    return [event_step("look", "found")]

class Right(GuardInterface):
    ASYNC def validate(self, artifact):
        GUARD
        return GuardResult(True)

effects = {"look": look}
guards = {"right": Right()}
"""


def dsa(folder, *words):
    environment = {**os.environ, "SHOP_API_KEY": "opensesame17"}
    return subprocess.run([*DSA, *words], capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.mark.parametrize(
    ("effect", "guard", "is_async", "where"),
    [
        ("inner(1)", "pass", "", "effect look 1/1"),
        ("pass", "inner(1)", "", "a guard that judges found"),
        ("pass", "inner(1)", "async", "a guard that judges found"),
    ],
)
def test_error_of_user_code_is_reported_in_three_places(tmp_path, effect, guard, is_async, where):
    (tmp_path / "shop.md").write_text(TABLE, encoding="utf-8")
    made = (
        BINDINGS.replace("EFFECT", effect).replace("GUARD", guard).replace("ASYNC ", f"{is_async} " if is_async else "")
    )
    (tmp_path / "bindings.py").write_text(made, encoding="utf-8")
    done = dsa(tmp_path, "run", "shop.md", "--data", '"x"', "--log", "debug")
    assert done.returncode == 1
    kept = dsa(tmp_path, "show", "last", "--errors").stdout
    for told in (kept, done.stderr):
        assert where in told
        assert 'return {}[os.environ["SHOP_API_KEY"]]' in told
        assert "in inner" in told
        assert "KeyError: '[secret SHOP_API_KEY]'" in told
        assert "opensesame17" not in told
        assert "performing.py" not in told
    assert "errors    .dsa" in done.stdout
    assert "Traceback" not in dsa(tmp_path, "run", "shop.md", "--data", '"x"').stderr


def test_run_without_errors_says_so(tmp_path):
    (tmp_path / "shop.md").write_text(TABLE, encoding="utf-8")
    made = BINDINGS.replace("EFFECT", "pass").replace("GUARD", "pass").replace("ASYNC ", "")
    (tmp_path / "bindings.py").write_text(made, encoding="utf-8")
    assert dsa(tmp_path, "run", "shop.md", "--data", '"x"').returncode == 0
    assert dsa(tmp_path, "show", "last", "--errors").stdout.startswith("your code has raised no exceptions")
