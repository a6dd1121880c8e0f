"""kill -9 at every call by which the git store changes the disk: nothing that was acknowledged is lost, and it goes on.

What a power cut leaves is test_git_power.py's; here the system keeps what was written.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_runs import RUN, attempt, memory_folder, require_clean, said_of

from dsa.edge.git import GitArtifacts

VICTIM = Path(__file__).with_name("git_victim.py")


def results(folder, cases):
    """Have the cases happen; give what each told."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [sys.executable, str(VICTIM), str(folder)], input=lines, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def calls():
    """How many calls a run makes that nobody kills."""
    with memory_folder() as folder:
        [result] = results(folder, [[0]])
    assert result["killed"] == [False]
    return result["told"][-1]["calls"]


def examine(result):
    """Look at what is left as the next process would, and go on."""
    repository = Path(result["repository"])
    if repository.exists():
        require_clean(repository)
    store = GitArtifacts(repository, RUN, lock_patience_s=0)
    kept = {attempt.artifact_id: attempt for attempt in store.attempts()}
    for what in result["told"]:
        if "stored" in what:
            found = store.get_artifact(what["stored"])
            assert found.content == attempt(found.version).content
        if "judged" in what:
            assert kept[what["judged"]].verdicts == (said_of(kept[what["judged"]].artifact("")),)
    last = None
    for number in range(1, 5):
        last = store.store(attempt(number, last), "llm")
        store.record_verdict(said_of(last))
    assert [a.version for a in GitArtifacts(repository, RUN).lineage(last.artifact_id)] == [1, 2, 3, 4]
    require_clean(repository)
    shutil.rmtree(repository)


def examine_all(cases):
    fired = 0
    with memory_folder() as folder:
        for result in results(folder, cases):
            examine(result)
            fired += sum(result["killed"])
    return fired


def test_a_kill_at_some_calls_loses_nothing(calls):
    cases = [[at] for at in range(1, calls + 1, 9)]
    assert examine_all(cases) == len(cases)


def test_a_kill_while_it_goes_on_after_a_kill_loses_nothing(calls):
    chosen = random.Random(4)
    cases = [
        [chosen.randint(1, calls), chosen.randint(1, 60), chosen.choice([-1, 1]) * chosen.randint(1, 60)]
        for _ in range(12)
    ]
    assert examine_all(cases) >= len(cases)


@pytest.mark.full
def test_a_kill_at_every_call_loses_nothing(calls):
    assert calls > 200
    assert examine_all([[at] for at in range(1, calls + 1)]) == calls


@pytest.mark.full
def test_a_kill_in_the_middle_of_every_call_loses_nothing(calls):
    assert examine_all([[-at] for at in range(1, calls + 1)]) == calls


@pytest.mark.full
def test_many_kills_one_after_the_other_lose_nothing(calls):
    chosen = random.Random(5)
    cases = [
        [chosen.randint(1, calls)] + [chosen.choice([-1, 1]) * chosen.randint(1, 80) for _ in range(3)]
        for _ in range(150)
    ]
    assert examine_all(cases) > 300


ENDLESS = """
import sys
sys.path.insert(0, sys.argv[1])
from artifact_runs import RUN, attempt
from dsa.edge.git import GitArtifacts
store, made = GitArtifacts(sys.argv[2], RUN), None
for number in range(1, 100_000):
    made = store.store(attempt(number, made))
    print(made.artifact_id, flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_a_kill_from_outside_at_any_moment_loses_nothing(seed):
    chosen = random.Random(seed)
    with memory_folder() as folder:
        repository = folder / "a.git"
        command = [sys.executable, "-c", ENDLESS, str(VICTIM.parent.parent), str(repository)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        told = [process.stdout.readline().strip() for _ in range(chosen.randint(1, 200))]
        for _ in range(chosen.randint(0, 20_000)):
            pass
        process.kill()
        told += [line.strip() for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        process.wait()
        process.stdout.close()
        require_clean(repository)
        store = GitArtifacts(repository, RUN, lock_patience_s=0)
        assert [a.artifact_id for a in store.lineage(told[-1])] == told
        assert store.store(attempt(7)).version == 7
