"""Runs of policies from the command line, with real processes: killed, interrupted, held, and continued."""

import json
import re
import signal
import subprocess
import sys

import pytest
from stored_runs import recorded

from dsa.runs.place import open_artifacts
from dsa.runtime.ledger import CallEntry, CallResultEntry

PROGRAM = [sys.executable, "-c", "from dsa.cli.main import main; main()"]

#: The shipped policies, each of which records its call before it runs; the process is killed before or after the call that KILL names.
#: Before that it yields to the event loop once, like a policy that waits for a service.
COUNTED = """
import asyncio
import os
import signal

from dsa.runtime.policy.policy_registry import Registry
from machines.search.bindings import registry

policies = Registry()
done = {}

def end(where):
    if os.environ.get("KILL") == where:
        os.kill(os.getpid(), getattr(signal, os.environ.get("SIGNAL", "SIGKILL")))

def counted(name):
    shipped = registry[name]

    async def policy(action, context):
        done[name] = done.get(name, 0) + 1
        with open("done.txt", "a") as file:
            file.write(f"{name} {context.key.rpartition('/')[2]}\\n")
            file.flush()
            os.fsync(file.fileno())
        await asyncio.sleep(0)
        end(f"before {name} {context.key.rpartition('/')[2]}")
        steps = await shipped.policy(action, context)
        end(f"after {name} {context.key.rpartition('/')[2]}")
        return steps

    policies.register(name, shipped.description, shipped.schema, actions=shipped.actions)(policy)

for name in ("llm_policy", "web_search_policy"):
    counted(name)
"""
SCRIPT = """
```json
{"content": "Let me search", "tool_calls": [{"name": "web_search_policy", "arguments": {"query": "Python version"}}]}
```

```
Python 3.13 was released (news.md:3).
```
"""
FLOW = ["llm_policy 1.1.1.1", "web_search_policy 1.1.1.2", "llm_policy 1.1.1.3"]
ASK = [
    "run",
    "--policy",
    "search_agent",
    "What is the latest Python version?",
    "--over",
    "news",
    "--model",
    "scripted:script.md",
]


@pytest.fixture
def dsa(dsa, tmp_path):
    """Run the program in a folder with news to search and a script to answer with."""
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "news.md").write_text("# News\n\nPython 3.13 was released in October.\n")
    (tmp_path / "script.md").write_text(SCRIPT)
    (tmp_path / "counted.py").write_text(COUNTED)
    return dsa


def performed(folder):
    return (folder / "done.txt").read_text().splitlines()


def test_seed_004_runs_from_the_command_line(dsa, tmp_path):
    done = dsa(*ASK)
    assert done.returncode == 0, done.stderr
    assert "\nsucceeded\n\nPython 3.13 was released (news.md:3).\n" in done.stdout
    told = dsa("show", "last").stdout
    tree = [
        r"1\.1 +search_agent \{\"text\": \"What is the latest Python version\?\"\}  [0-9a-f]{12}\n",
        r"1\.1\.1 +llm_policy \{[^\n]*  [0-9a-f]{12}\n",
        r"1\.1\.1\.1 +llm_policy, a turn  [0-9a-f]{12}\n +assistant: Let me search\n +assistant asks for web_search_policy",
        r'1\.1\.1\.2 +web_search_policy \{"query": "Python version"\}  [0-9a-f]{12}\n +gave \{"left_out": 0,',
        r"1\.1\.1\.3 +llm_policy, a turn  [0-9a-f]{12}\n +assistant: Python 3\.13 was released",
        "now    finished: succeeded\n",
    ]
    assert re.search(".*".join(tree), told, re.DOTALL), told
    assert dsa("replay", "last").returncode == 0


@pytest.mark.parametrize("where", [f"{when} {call}" for call in FLOW for when in ("before", "after")])
def test_killed_run_continues_without_repeating_recorded_calls(dsa, tmp_path, where):
    done = dsa(*ASK, "--with", "counted.py", KILL=where)
    assert done.returncode == -signal.SIGKILL
    call = where.partition(" ")[2]
    at = FLOW.index(call)
    assert performed(tmp_path) == FLOW[: at + 1]
    policy, path = call.split()
    assert re.search("  policy +performing +cut off +search_agent: What is", dsa("runs").stdout, re.MULTILINE)
    told = dsa("show", "last").stdout
    assert f"to do  {policy} 1/1/{path}, which was under way: it is performed again\n" in told
    (tmp_path / "news" / "news.md").write_text("Python 4 was released.\n")  # recorded results are not searched again

    done = dsa("resume", "last")
    assert done.returncode == 0, done.stderr
    assert "Python 3.13 was released (news.md:3)." in done.stdout
    assert performed(tmp_path) == [*FLOW[: at + 1], *FLOW[at:]], "the one call that was under way alone is made again"
    assert f"totals    4 calls{f' ({at} cached)' if at else ''}, " in done.stdout
    run = recorded(tmp_path / ".dsa", re.search(r"^run +\S+/(\S+)$", done.stdout, re.MULTILINE)[1])
    paths = [entry.path for entry in run.entries if isinstance(entry, CallEntry)]
    assert paths == sorted(set(paths))
    searched = next(e for e in run.entries if isinstance(e, CallResultEntry) and e.path == "1.1.1.2")
    assert ("3.13" in str(searched.steps)) == (at == 2)
    told = dsa("show", "last").stdout
    assert len(re.findall("  cached$", told, re.MULTILINE)) == at
    assert "resumed: the call was under way when the run was cut off; it is performed again" in told
    assert dsa("replay", "last").returncode == 0
    assert performed(tmp_path) == [*FLOW[: at + 1], *FLOW[at:]], "nothing is performed by a replay"


def test_interrupted_run_says_how_to_continue(dsa, tmp_path):
    done = dsa(*ASK, "--with", "counted.py", KILL="before web_search_policy 1.1.1.2", SIGNAL="SIGINT")
    assert done.returncode == 130
    (run,) = (path.name for path in (tmp_path / ".dsa").glob("*-policy-*"))
    assert (
        f"interrupted; what was done so far is saved in .dsa/{run}; `dsa resume {run}` continues the run" in done.stderr
    )
    assert dsa("resume", run).returncode == 0


def test_changed_policy_is_reported_in_a_sentence_without_an_answer(dsa, tmp_path):
    assert dsa(*ASK, "--with", "counted.py", KILL="before llm_policy 1.1.1.3").returncode == -signal.SIGKILL
    text = (tmp_path / "counted.py").read_text()
    changed = (
        text
        + """
from dsa.runtime.policy.policies import Action

@policies.register("search_agent", actions=["llm_policy"])
async def search_agent(action, context):
    return await context.call(Action("llm_policy", {"text": "Which version?"}))
"""
    )
    (tmp_path / "counted.py").write_text(changed)
    before = performed(tmp_path)
    for command in (["resume", "last"], ["replay", "last"]):
        done = dsa(*command)
        assert done.returncode == 1
        assert done.stderr.startswith("call 1.1.1: the ledger has llm_policy with {'system': ")
        assert "; the policies now give llm_policy with {'text': 'Which version?'} (" in done.stderr
        assert "Python 3.13" not in done.stdout
    assert performed(tmp_path) == before
    (tmp_path / "counted.py").write_text(text)
    assert dsa("resume", "last").returncode == 0


HELD = """
import asyncio

from dsa.runtime.policy.policies import text_step
from dsa.runtime.policy.policy_registry import Registry

policies = Registry()

@policies.register("hold")
async def hold(action, context):
    print("holding", flush=True)
    return [text_step("hold", await asyncio.get_running_loop().run_in_executor(None, input))]
"""


def test_run_held_by_another_process_is_refused_until_taken_over(dsa, tmp_path):
    (tmp_path / "held.py").write_text(HELD)
    with subprocess.Popen(
        [*PROGRAM, "run", "--policy", "hold", "x", "--with", "held.py", "--quiet"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "holding\n"
        held = rf"held by process {holder.pid} on "
        assert re.search(f"  policy +performing +under way, {held}", dsa("runs").stdout)
        assert re.search(
            f"now      under way, {held}.*\nstate    performing\npending  perform 1/1\n", dsa("show", "last").stdout
        )
        done = dsa("resume", "last")
        assert done.returncode == 1
        assert re.search(f"{held}.*: that process is alive and goes on with the run; --take takes", done.stderr)
        done = dsa("send", "last", "text", "tea", "--answers", "1/1/1.1", "--take")
        assert (done.returncode, "\ntea\n" in done.stdout) == (0, True), done.stderr
        _, said = holder.communicate("coffee\n", timeout=60)
        assert holder.returncode == 1
        assert "was taken over by another process; nothing was written" in said
    assert json.loads(dsa("resume", "last", "--json").stdout)["answer"] == "tea"


# -- policies in the effect of a machine --------------------------------------------------------------------------------------

MACHINE = """# clerk

## Events
| event    | from    |
| -------- | ------- |
| question | outside |
| answered | answer  |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| searching |         |
| succeeded | final   |

## Transitions
| source    | event    | effects | target    |
| --------- | -------- | ------- | --------- |
| idle      | question | answer  | searching |
| searching | answered |         | succeeded |
"""
BINDINGS = (
    COUNTED
    + """
from dsa.runtime.policy.invocation import invoke_action, loop_wrapper
from dsa.runtime.policy.policies import Action, answering, event_step, text_step

@answering("answered")
async def answer(action, context):
    asked = Action("llm_policy", actions=frozenset({"web_search_policy"}))
    question = [text_step("user", action.payload["data"])]
    steps = await context.call(asked, [loop_wrapper(5), invoke_action()], seed=question)
    return [event_step("answer", "answered", data=steps[-1].payload["text"])]

effects = {"answer": answer}
"""
)


WITHIN = [call.replace(" 1.1", " 1") for call in FLOW]


@pytest.mark.parametrize("where", ["before web_search_policy 1.1.2", "after llm_policy 1.1.3"])
def test_killed_effect_repeats_no_call_that_has_a_result(dsa, tmp_path, where):
    (tmp_path / "clerk.md").write_text(MACHINE)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    assert dsa("run", "clerk.md", "--model", "scripted:script.md").returncode == 3
    assert dsa("send", "last", "question", "Which Python?", KILL=where).returncode == -signal.SIGKILL
    at = WITHIN.index(where.partition(" ")[2])
    assert performed(tmp_path) == WITHIN[: at + 1]
    assert "to do  answer 1/1, which was under way: it is performed again\n" in dsa("show", "last").stdout
    done = dsa("resume", "last")
    assert done.returncode == 0, done.stderr
    assert performed(tmp_path) == [*WITHIN[: at + 1], *WITHIN[at:]]
    told = dsa("show", "last").stdout
    story = [
        "     asks for answer 1/1\n",
        r"       1/1 calls 1\.1 llm_policy \{\}  [0-9a-f]{12}\n",
        r"       1/1 calls 1\.1\.1 llm_policy, a turn  [0-9a-f]{12}\n",
        r"       1/1 call 1\.1\.1: assistant: Let me search; assistant asks for web_search_policy",
        r"       1/1 call 1\.1: returned the results of the calls that it made\n",
        "     answer 1/1 answered answered",
    ]
    assert re.search(".*".join(story), told, re.DOTALL), told
    assert dsa("replay", "last").returncode == 0


# -- the same text again ------------------------------------------------------------------------------------------------


def test_same_text_three_times_makes_three_attempts_without_ancestor_loops(dsa, tmp_path):
    reply = "```python\ndef add(a, b):\n    return a - b\n```\n"
    (tmp_path / "same.md").write_text("\n".join([reply] * 3))
    done = dsa("run", "dual_state", "add", "--param", "rmax=2", "--model", "scripted:same.md", "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    ids = [attempt["artifact_id"] for attempt in told["attempts"]]
    assert (len(ids), len(set(ids))) == (3, 3)
    artifacts = open_artifacts(tmp_path / ".dsa", told["run"])
    made = [artifacts.get_artifact(each) for each in ids]
    assert len({artifact.content_digest for artifact in made}) == 1
    assert [artifact.parent_id for artifact in made] == [None, *ids[:2]]
    for number, each in enumerate(ids, start=1):
        ancestors = [artifact.artifact_id for artifact in artifacts.get_provenance(each)]
        assert ancestors == ids[:number], "itself comes last, and once"
    tree = dsa("show", "last", "--provenance").stdout
    assert re.fullmatch(r"g 1 .* rejected: .*\n`- g 2 .* rejected: .*\n   `- g 3 .* rejected: .*\n", tree), tree
