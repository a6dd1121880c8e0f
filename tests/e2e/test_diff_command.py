"""A table that is edited while a run of it is in flight: breaking and compatible changes, and a run that continues with the edited table. With real processes."""

import json
import signal
from functools import partial

import pytest
from stored_runs import recorded

from dsa.edge.document_files import locate, read_text
from dsa.runtime.ledger import ChangeEntry, EffectEntry, RowEntry

AGENT = read_text(locate("dual_state"))
RETRY = "| validating | verdict       | g.failed and retries < rmax | retries += 1                  | refine_context, query_llm     | generating |"
PASSED = "| advance_state, reply_to_user  | succeeded  |"

#: The first answer is wrong; the process is killed in the middle of the second call; later answers are right.
MODEL = """
import os, signal
from pathlib import Path
from dsa.runtime.content import Artifact, GeneratorInterface
from dsa.runtime.policy.policies import Action, PolicyContext, Step

class Model(GeneratorInterface):
    def generate(self, context, template=None):
        calls = Path("calls.txt")
        count = len(calls.read_text()) if calls.exists() else 0
        calls.write_text("x" * (count + 1))
        if count == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Artifact("def add(a, b): return a - b" if count == 0 else "def add(a, b): return a + b")

async def celebrate(action: Action, context: PolicyContext) -> list[Step]:
    Path("celebrated.txt").write_text("hooray")
    return []

generators = {"llm": Model()}
effects = {"celebrate": celebrate}
"""


@pytest.fixture
def dsa(dsa):
    """Run the program; it has to succeed unless `code` says otherwise."""
    return partial(dsa, code=0)


def test_run_in_flight_continues_only_under_a_compatible_edited_table(dsa, tmp_path):
    (tmp_path / "agent.md").write_text(AGENT)
    (tmp_path / "bindings.py").write_text(MODEL)
    dsa("run", "agent.md", code=-signal.SIGKILL)
    (run,) = (path.name for path in (tmp_path / ".dsa").glob("*-dual_state-*"))
    before = recorded(tmp_path / ".dsa", run).entries

    # The effects of the taken row, in another order: this differs from what happened.
    (tmp_path / "swapped.md").write_text(
        AGENT.replace(RETRY, RETRY.replace("refine_context, query_llm", "query_llm, refine_context"))
    )
    told = dsa("diff", "agent.md", "swapped.md", "--runs", ".dsa", code=1).stdout
    assert (
        f"incompatible  {run}  generating, 3 events\n              event 3, verdict g.failed in validating:\n" in told
    )
    refused = dsa("resume", "last", "--machine", "swapped.md", code=1).stderr
    assert "cannot continue with swapped.md" in refused
    # A row that would leave its domain at the last retry: this would happen later.
    (tmp_path / "eager.md").write_text(AGENT.replace(RETRY, RETRY.replace("retries < rmax", "retries <= rmax")))
    told = dsa("diff", "agent.md", "eager.md", "--runs", ".dsa", code=1).stdout
    assert "incompatible" in told
    assert "refused: out_of_domain (retries = 4 lies outside 0..3); line 49\n" in told
    assert recorded(tmp_path / ".dsa", run).entries == before, "to ask changes nothing"

    # An additional effect at the end: a compatible change.
    merry = AGENT.replace(PASSED, PASSED.replace("reply_to_user ", "reply_to_user, celebrate"))
    (tmp_path / "merry.md").write_text(f"\n\n{merry.rstrip()}\n| celebrate |  |  |  |\n")
    found = json.loads(dsa("diff", "agent.md", "merry.md", "--runs", ".dsa", "--json").stdout)
    (flight,) = found["runs"]["in_flight"]
    assert (flight["run"], flight["verdict"], flight["future"]["verdict"]) == (run, "compatible", "DIFFERENT")
    assert flight["future"]["parting"]["new"]["effects"] == ["advance_state", "reply_to_user", "celebrate"]
    dsa("diff", "agent.md", "merry.md", code=1)

    assert dsa("resume", "last", "--machine", "merry.md").stdout.splitlines()[1].split()[:4] == [
        "g",
        "attempt",
        "2",
        "passed",
    ]
    assert (tmp_path / "celebrated.txt").exists()
    assert (tmp_path / "calls.txt").read_text() == "xxx", "the call in doubt alone is made again"
    after = recorded(tmp_path / ".dsa", run).entries
    assert after[: len(before)] == before[:]
    assert isinstance(after[len(before)], ChangeEntry)
    steps = [entry for entry in after if isinstance(entry, RowEntry)]
    assert [entry.line for entry in steps] == [46, 47, 49, 49, 50], "from there on, lines of the new document"
    keys = [entry.key for entry in after if isinstance(entry, EffectEntry)]
    assert len(keys) == len(set(keys))
    assert dsa("replay", "last").stdout.splitlines()[1].startswith("every entry is the same when it is derived again")
    assert "goes on under " in dsa("show", "last").stdout
