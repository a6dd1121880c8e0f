"""Programs that attack the Python tool of the chat machine, on every rung that this machine has, as root and as an ordinary user.

Each ends as expected; after each a plain call returns the same as before; and nothing is found where it should not be.
"""

import json

import ordinary_user
import pytest
from conftest import NOT_TESTED, require_package
from hostile_programs import SECRETS
from python_attacks import ATTACKS

from dsa.edge.sandbox import Confinement, probe
from dsa.errors import ToolError
from machines.chat.interpreter import REQUIRED_FEATURES, Interpreter

require_package("pandas", f"{NOT_TESTED}: pandas is not installed")
ALL = ("bubblewrap", "namespaces")
#: The batches of `make test`: all attacks on one rung, and every third on the other. The rest belongs to `make test-full`.
QUICK = ("bubblewrap", "user")
SAMPLE = ("namespaces", "root")
BATCHES = [
    pytest.param(rung, user, marks=() if (rung, user) == QUICK else pytest.mark.full)
    for rung in (*ALL, "landlock")
    for user in ("root", "user")
]


def attack_tool(rung, user, figures, names=()):
    """Run the attacks, all or some by name, and return how many were tried."""
    if probe(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")
    report = json.loads(
        ordinary_user.run("attacked_python.py", rung, *names, is_root=user == "root", env={"SECRET": SECRETS[1]})
    )
    assert report["faults"] == []
    figures(
        "attacks on the Python tool",
        f"{rung}, {user}",
        tried=report["tried"],
        left=len(names or ATTACKS) - report["tried"],
    )
    return report["tried"]


@pytest.mark.parametrize(("rung", "user"), BATCHES)
def test_attacks_end_as_expected_and_leave_nothing(rung, user, figures):
    tried = attack_tool(rung, user, figures)
    assert tried >= (len(ATTACKS) if rung in ALL else 60)


def test_every_third_attack_ends_the_same_on_another_rung(figures):
    names = tuple(ATTACKS)[::3]
    assert attack_tool(*SAMPLE, figures, names) == len(names)


def test_ordinary_user_without_a_warm_process_gets_the_same_results():
    """On the lowest rung code could reach a warm process, so there is none: the libraries are loaded for each call."""
    names = ("no attack", "segmentation fault", "a link", "a forged end, and ours")
    said = json.loads(
        ordinary_user.run("attacked_python.py", "limits", *names, is_root=False, env={"SECRET": SECRETS[1]})
    )
    assert said["faults"] == []


def test_code_is_not_run_where_a_required_feature_is_missing(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ToolError, match="no files outside") as refused:
        Interpreter(Confinement(REQUIRED_FEATURES, "limits")).run(f"open({str(tmp_path / 'made')!r}, 'w')")
    assert refused.value.code == "no_sandbox"
    assert list(tmp_path.iterdir()) == []
