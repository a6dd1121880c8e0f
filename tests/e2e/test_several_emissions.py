"""Several emissions of one effect in real runs: cut off in the middle, answered in any order, answered by people, and shown by their keys."""

import asyncio
import json
import os
import signal
import subprocess
from itertools import permutations

import pytest
from forked import DSA

import dsa
from dsa.errors import OccurrenceError
from dsa.runtime.ledger import EventEntry, RefusalEntry, ResultEntry
from dsa.semantics import Refusal, Taken

MAP = """# map_reduce

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| broken   | 0..3   | 0       |

## Events
| event     | from     |
| --------- | -------- |
| begin     | outside  |
| document  | next_one |
| none_left | next_one |
| mapped    | map_one  |
| reduced   | reduce   |

## Guards
| guard | judges | uses                |
| ----- | ------ | ------------------- |
| same  | mapped | document = document |

## Effects
| effect   | kind    | in doubt | time limit | on failure | at once | together   |
| -------- | ------- | -------- | ---------- | ---------- | ------- | ---------- |
| next_one | sensing | retry    | 1m         | stop       |         |            |
| map_one  | {kind}  | {doubt}  | 1m         |            | 3       | {together} |
| reduce   | sensing | retry    | 1m         | stop       |         |            |

## States
| state    | kind    |
| -------- | ------- |
| idle     | initial |
| working  |         |
| waiting  |         |
| reducing |         |
| done     | final   |

## Transitions
| source   | event          | if                              | update      | effects           | target   |
| -------- | -------------- | ------------------------------- | ----------- | ----------------- | -------- |
| idle     | begin          |                                 |             | next_one          | working  |
| working  | document       |                                 |             | map_one, next_one | =        |
| working  | none_left      | pending                         |             |                   | waiting  |
| working  | none_left      | not pending                     |             | reduce            | reducing |
| working  | mapped         |                                 |             |                   | =        |
| working  | map_one.failed |                                 | broken += 1 |                   | =        |
| waiting  | mapped         | same.passed and pending         |             |                   | =        |
| waiting  | mapped         | same.passed and not pending     |             | reduce            | reducing |
| waiting  | mapped         | not same.passed and pending     | broken += 1 |                   | =        |
| waiting  | mapped         | not same.passed and not pending | broken += 1 | reduce            | reducing |
| waiting  | map_one.failed | pending                         | broken += 1 |                   | =        |
| waiting  | map_one.failed | not pending                     | broken += 1 | reduce            | reducing |
| reducing | reduced        |                                 |             |                   | done     |
"""
#: The documents are mapped once all are requested, in the order of ORDER; the document KILL kills the process, once.
BINDINGS = """
import asyncio, json, os, signal
from pathlib import Path
import dsa
from machines import GuardInterface, GuardResult

COUNT, ORDER = int(os.environ.get("COUNT", "3")), os.environ.get("ORDER", "")
all_asked, over = asyncio.Event(), {n: asyncio.Event() for n in range(4)}

def note(name, text):
    with open(name, "a") as file:
        file.write(text + "\\n")
        file.flush()
        os.fsync(file.fileno())

@dsa.answering("document", "none_left")
async def next_one(action, context):
    n = 0 if action.payload["event"] == "begin" else action.payload["data"]["n"]
    if n == COUNT:
        all_asked.set()
        return [dsa.event_step("next_one", "none_left")]
    return [dsa.event_step("next_one", "document", data={"n": n + 1})]

@dsa.answering("mapped")
async def map_one(action, context):
    n = context.latest("document.n")
    note("calls.txt", f"map {n} {action.payload['key'].partition('/')[2]}")
    if ORDER:
        await all_asked.wait()
        order = [int(each) for each in ORDER]
        await over[([0] + order)[order.index(n)]].wait() if order.index(n) else None
    if os.environ.get("KILL") == str(n):
        for _ in range(100):
            await asyncio.sleep(0)  # the results of the others become durable
        os.kill(os.getpid(), signal.SIGKILL)
    over[n].set()
    return [dsa.event_step("map_one", "mapped", data={"n": n, "text": f"text of {n}"})]

@dsa.answering("reduced")
async def reduce(action, context):
    note("calls.txt", "reduce")
    note("prompts.txt", json.dumps(context.latest("all mapped? since begin")))
    return [dsa.event_step("reduce", "reduced")]

class Same(GuardInterface):
    def validate(self, artifact, document):
        n = json.loads(artifact.content)["n"]
        note("verdicts.txt", f"{n} {document['n']}")
        return GuardResult(n == document["n"] and n != 2, "")

effects = {"next_one": next_one, "map_one": map_one, "reduce": reduce}
guards = {"same": Same()}
"""


def written(folder, doubt="retry", kind="sensing", together=""):
    text = MAP.format(doubt=doubt, kind=kind, together=together)
    (folder / "map.md").write_text(text, encoding="utf-8")
    (folder / "bindings.py").write_text(BINDINGS, encoding="utf-8")


def typed(folder, *words, **environment):
    done = subprocess.run(
        [*DSA, *words], capture_output=True, text=True, cwd=folder, check=False, env={**os.environ, **environment}
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def lines(folder, name):
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def entries_of(folder):
    async def read():
        async with dsa.open_runs(str(folder / ".dsa")) as runs:
            (summary,) = await runs.list()
            return list(runs.get(summary.run).run.ledger)

    return asyncio.run(read())


KEYS = {1: "2/1", 2: "3/1", 3: "4/1"}


#: The number of emissions, and how many of them are performed at a time.
COUNTED = [(2, ""), (3, "2"), pytest.param(2, "2", marks=pytest.mark.full), pytest.param(3, "", marks=pytest.mark.full)]


@pytest.mark.parametrize(("count", "together"), COUNTED)
@pytest.mark.parametrize(
    ("doubt", "decision", "calls"),
    [
        ("retry", None, 2),
        ("ask", ("resume", "last", "--retry"), 2),
        ("ask", ("send", "last", "mapped", "--data", '{"n": 9}', "--answers"), 1),
        ("fail", None, 1),
    ],
    ids=["retry", "ask retry", "ask answer", "fail"],
)
def test_run_killed_during_the_last_of_several_emissions_can_be_finished(
    tmp_path, together, count, doubt, decision, calls
):
    written(tmp_path, doubt, "actuator" if doubt == "ask" else "sensing", together)
    order = "123"[:count]
    killed = typed(tmp_path, "run", "map.md", "--data", "{}", COUNT=str(count), ORDER=order, KILL=str(count))
    assert killed.returncode == -signal.SIGKILL
    key = KEYS[count]
    results = [entry.key for entry in entries_of(tmp_path) if isinstance(entry, ResultEntry)]
    assert {KEYS[n] for n in range(1, count)} < set(results)
    assert key not in results
    shown = typed(tmp_path, "show", "last").stdout
    assert f"map_one {key}" in shown
    replayed = json.loads(typed(tmp_path, "replay", "last", "--json").stdout)
    assert replayed["outstanding"][key] == "map_one"

    done = typed(tmp_path, "resume", "last", COUNT=str(count))
    if decision is not None:
        assert done.returncode == 3
        assert f"map_one {key}" in done.stderr + done.stdout
        done = typed(tmp_path, *decision, key, COUNT=str(count))
    assert done.returncode == 0, done.stderr
    counts = {
        n: sum(line == f"map {n} {KEYS[n]}" for line in lines(tmp_path, "calls.txt")) for n in range(1, count + 1)
    }
    assert counts == {**dict.fromkeys(range(1, count), 1), count: calls}
    assert lines(tmp_path, "calls.txt").count("reduce") == 1
    entries = entries_of(tmp_path)
    answers = [entry.key for entry in entries if isinstance(entry, EventEntry) and entry.key in KEYS.values()]
    assert sorted(answers) == [KEYS[n] for n in range(1, count + 1)]
    assert not [entry for entry in entries if isinstance(entry, RefusalEntry)]
    report = json.loads(typed(tmp_path, "show", "last", "--json").stdout)
    assert report["kind"] == "finished"
    assert typed(tmp_path, "replay", "last").returncode == 0


def test_answers_in_any_order_lead_to_the_same_prompts_and_verdicts(tmp_path):
    seen = {}
    for order in map("".join, permutations("123")):
        folder = tmp_path / order
        folder.mkdir()
        written(folder)
        done = typed(folder, "run", "map.md", "--data", "{}", ORDER=order)
        assert done.returncode == 0, done.stderr
        entries = entries_of(folder)
        answers = [entry for entry in entries if isinstance(entry, EventEntry) and entry.event == "mapped"]
        assert [entry.key for entry in answers] == [KEYS[int(n)] for n in order]
        verdicts = sorted((entry.key, entry.verdicts) for entry in answers)
        seen[order] = (lines(folder, "prompts.txt"), verdicts, sorted(lines(folder, "verdicts.txt")))
    (first, *others) = seen.values()
    assert all(other == first for other in others)
    prompts, verdicts, judged = first
    assert [[each["n"] for each in json.loads(prompt)] for prompt in prompts] == [[1, 2, 3]]
    assert [dict(each)["same"] for _, each in verdicts] == ["passed", "failed", "passed"]
    assert judged == ["1 1", "2 2", "3 3"]


ASK = """# asked

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| again | outside |
| yes   | ask     |
| no    | ask     |

## Effects
| effect | at once |
| ------ | ------- |
| ask    | 3       |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| working |         |
| done    | final   |

## Transitions
| source  | event   | if          | effects              | target  |
| ------- | ------- | ----------- | -------------------- | ------- |
| idle    | go      |             | ask, ask             | working |
| working | again   |             | cancel ask, ask, ask | =       |
| working | yes, no | pending     |                      | =       |
| working | yes, no | not pending |                      | done    |
"""
PEOPLE = """
import dsa

@dsa.answering("yes", "no")
async def ask(action, context):
    return [dsa.question_step("ask", f"May {action.payload['key'].partition('/')[2]} be done?")]

effects = {"ask": ask}
"""


@pytest.fixture
def asked(tmp_path):
    (tmp_path / "ask.md").write_text(ASK, encoding="utf-8")
    (tmp_path / "bindings.py").write_text(PEOPLE, encoding="utf-8")
    done = typed(tmp_path, "run", "ask.md", "--data", "{}")
    assert done.returncode == 3, done.stderr
    return tmp_path, done.stdout


def test_person_must_name_the_question_if_one_effect_has_several(asked):
    folder, printed = asked
    assert "@PLACE EVENT [DATA]  (again: 1; no, yes: 1/1; no, yes: 1/2)" in printed
    shown = typed(folder, "show", "last").stdout
    assert "1/1 May 1/1 be done?" in shown
    assert "1/2 May 1/2 be done?" in shown
    unnamed = typed(folder, "send", "last", "yes")
    assert unnamed.returncode == 2
    assert "'yes' could answer any of 2 open questions; use one of these commands:" in unnamed.stderr
    for key in ("1/1", "1/2"):
        assert f"@{key} yes: May {key} be done?" in unnamed.stderr
    assert typed(folder, "send", "last@1/2", "yes").returncode == 3
    assert json.loads(typed(folder, "replay", "last", "--json").stdout)["outstanding"] == {"1/1": "ask"}
    assert typed(folder, "send", "last", "no").returncode == 0, "one is left, and need not be named"


def test_late_answer_to_a_cancelled_question_is_refused_while_another_is_open(asked):
    folder, _ = asked
    assert typed(folder, "send", "last", "again").returncode == 3
    late = typed(folder, "send", "last@1/2", "yes")
    assert late.returncode == 1
    assert "yes in working was refused: late (1/2 is not outstanding)" in late.stderr
    assert json.loads(typed(folder, "replay", "last", "--json").stdout)["outstanding"] == {"2/1": "ask", "2/2": "ask"}
    assert typed(folder, "send", "last@2/2", "no").returncode == 3
    twice = typed(folder, "send", "last@2/2", "no")
    assert "late (2/2 is not outstanding)" in twice.stderr


def test_program_must_name_the_question_too(asked):
    folder, _ = asked

    async def play():
        async with dsa.open_runs(str(folder / ".dsa")) as runs:
            (summary,) = await runs.list(waiting_for="yes")
            with pytest.raises(OccurrenceError, match="give the place of one of them: 1/1, 1/2"):
                await runs.send(summary.run, "yes")
            first, second = await asyncio.gather(*(runs.send(summary.run, "yes", at="1/2") for _ in range(2)))
            assert {type(first), type(second)} == {Taken, Refusal}

    asyncio.run(play())
