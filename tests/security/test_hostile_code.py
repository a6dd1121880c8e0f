"""Programs that attack the cases guard, on every rung that this machine has, as root and as an ordinary user.

Each gets the right verdict; and no file, connection, process, open file or piece of environment is found where it should not be.
"""

import json

import ordinary_user
import pytest
from conftest import NOT_TESTED
from hostile_programs import CASES, FORGE, KERNEL, PROGRAMS, SECRETS

from dsa.edge.sandbox import RUNGS, SandboxError, probe
from dsa.guards.cases import CasesGuard
from dsa.runtime.content import Artifact

ADD = "def add(a, b): return a + b\n"
ALL = ("bubblewrap", "namespaces")
QUICK = {("bubblewrap", "user"), ("namespaces", "root")}
BATCHES = [
    pytest.param(rung, user, marks=() if (rung, user) in QUICK else pytest.mark.full)
    for rung in RUNGS
    for user in ("root", "user")
]


def judge(code, *cases, timeout_s=10.0, **options):
    return CasesGuard(cases or CASES, timeout_s, **options).validate(Artifact(content=f"```python\n{code}\n```"))


@pytest.fixture
def have():
    """Skip, with the reason, what this machine cannot provide."""

    def check(rung):
        if probe(rung).fault:
            pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")

    return check


@pytest.mark.parametrize(("rung", "user"), BATCHES)
def test_hostile_programs_get_the_right_verdicts_and_leave_nothing(rung, user, have, figures):
    have(rung)
    said = json.loads(ordinary_user.run("attacked.py", rung, is_root=user == "root", env={"SECRET": SECRETS[1]}))
    assert said["faults"] == []
    figures("hostile programs", f"{rung}, {user}", tried=said["tried"], left=len(PROGRAMS) - said["tried"])
    assert said["tried"] >= (len(PROGRAMS) if rung in ALL else 60)


@pytest.mark.parametrize(("rung", "user"), [("landlock", "user"), ("limits", "root"), ("limits", "user")])
def test_lower_rungs_leave_nothing_in_the_kernel_and_slow_nothing_down(rung, user, have):
    have(rung)
    said = json.loads(
        ordinary_user.run("attacked.py", rung, *KERNEL, is_root=user == "root", env={"SECRET": SECRETS[1]})
    )
    assert said["faults"] == []
    lacking = {"landlock": 0, "limits": 3}[rung]  # files where all may write, letters by sockets
    assert said["tried"] == len(KERNEL) - lacking


@pytest.mark.parametrize("feature", ["no files outside", "own file tree", "no network", "own processes"])
def test_lowest_rung_refuses_features_it_cannot_provide(feature):
    with pytest.raises(SandboxError, match=feature) as refused:
        judge("open('/proc/self/x')", rung="limits", require=(feature,))
    assert refused.value.missing == (feature,)


def test_refused_code_is_not_run(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(SandboxError):
        judge(f"open({str(tmp_path / 'made')!r}, 'w')", rung="limits", require=("own file tree",))
    assert list(tmp_path.iterdir()) == []


# -- the channel of the results -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1", "-1", "true", "false", "0.0", '"0"', "null"])
def test_record_with_a_wrong_number_does_not_pass(number):
    code = FORGE + f'write(b\'["loaded"]\\n[{number}, "value", "3"]\\n["end"]\\n\')\nos._exit(0)'
    assert not judge(code, ("add(1, 2)", 3)).passed


def test_correct_answer_with_an_extra_record_does_not_pass():
    code = FORGE + ADD + 'import atexit\ndef last(x):\n write(b\'[1, "value", "3"]\\n\')\n return 3'
    assert not judge(code, ("add(1, 2)", 3), ("last(1)", 3)).passed


def test_records_from_a_second_process_do_not_pass():
    result = judge("import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n" + ADD, ("add(1, 2)", 3))
    assert not result.passed
    assert "wrote to the channel" in result.feedback


def test_search_for_expected_values_finds_planted_ones():
    """The program "values in the frames" finds nothing; this shows that it would."""
    planted = PROGRAMS["values in the frames"].source + "\nkept = [41729003]"
    assert "answer(20) gave ['30092714']" in judge(planted).feedback
