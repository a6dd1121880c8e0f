"""Effects that people answer: each question has its key as place, answering one leaves the others open, and no process holds the run meanwhile."""

import asyncio
import json
import subprocess

import pytest
from forked import DSA

import dsa
from dsa.errors import OccurrenceError
from dsa.semantics import Refusal, Taken

TABLE = """# contract

## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| good | workflow | bool | false |

## Events
| event | from |
| - | - |
| go | outside |
| remind | outside |
| legal_yes | ask_legal |
| legal_no | ask_legal |
| money_yes | ask_money |
| money_no | ask_money |
| signed | sign |

## Guards
| guard | judges | uses |
| - | - | - |
| named | money_yes | go = go; by = money_yes.by |

## States
| state | kind |
| - | - |
| idle | initial |
| both | |
| money | |
| legal | |
| signing | |
| done | final |
| refused | final |

## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | ask_legal, ask_money | both |
| both | remind | | | | = |
| both | legal_yes | | | | money |
| both | money_yes | named.passed | good = true | | legal |
| both, money | money_yes | else | | | refused |
| both | legal_no, money_no | | | | refused |
| both | after 24h | | | | refused |
| money | money_yes | named.passed | good = true | sign | signing |
| money | money_no | | | | refused |
| legal | legal_yes | | | sign | signing |
| legal | legal_no | | | | refused |
| signing | signed | | | | done |
""".replace(
    "| both, money | money_yes | else | | | refused |",
    "| both | money_yes | else | | | refused |\n| money | money_yes | else | | | refused |",
)
BINDINGS = """
import dsa
from machines import GuardInterface, GuardResult

@dsa.answering("legal_yes", "legal_no")
async def ask_legal(action, context):
    return [dsa.question_step("ask_legal", f"Is {context.latest('go.name')} in order?")]

@dsa.answering("money_yes", "money_no")
async def ask_money(action, context):
    return [dsa.question_step("ask_money", "May it be paid?")]

@dsa.answering("signed")
async def sign(action, context):
    return [dsa.event_step("sign", "signed")]

class Named(GuardInterface):
    def validate(self, artifact, go, by):
        return GuardResult(by in go["payers"])

effects = {"ask_legal": ask_legal, "ask_money": ask_money, "sign": sign}
guards = {"named": Named()}
"""
GO = {"name": "A17", "payers": ["ann"]}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "contract.md").write_text(TABLE, encoding="utf-8")
    (tmp_path / "bindings.py").write_text(BINDINGS, encoding="utf-8")
    return tmp_path


def typed(folder, *words):
    return subprocess.run([*DSA, *words], capture_output=True, text=True, cwd=folder, check=False)


def test_question_is_answered_from_the_command_line_by_its_printed_place(folder):
    asked = typed(folder, "run", "contract.md", "--data", json.dumps(GO))
    assert asked.returncode == 3
    assert "@PLACE EVENT [DATA]  (legal_no, legal_yes: 1/1; money_no, money_yes: 1/2; remind: 1)" in asked.stdout
    told = json.loads(typed(folder, "show", "last", "--json").stdout)
    assert told["waits_for"] == {
        "legal_no": "1/1",
        "legal_yes": "1/1",
        "money_no": "1/2",
        "money_yes": "1/2",
        "remind": "1",
    }
    story = typed(folder, "show", "last").stdout
    assert "ask_legal 1/1 asks people: Is A17 in order?" in story
    assert typed(folder, "runs", "--waiting", "money_yes").stdout.count("contract") == 2
    assert typed(folder, "send", "last@1", "remind").returncode == 3
    # The reminder has changed no other question.
    assert typed(folder, "send", "last@1/2", "money_yes", "--data", '{"by": "ann"}').returncode == 3
    late = typed(folder, "send", "last@1/2", "money_no")
    assert late.returncode == 1
    assert "money_no in legal was refused: late (1/2 is not outstanding)" in late.stderr
    assert "the run does not ask for money_no now: dsa show " in late.stderr
    done = typed(folder, "send", "last", "legal_yes")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "done")


def test_person_not_named_by_the_guard_may_not_pay(folder):
    typed(folder, "run", "contract.md", "--data", json.dumps(GO))
    done = typed(folder, "send", "last@1/2", "money_yes", "--data", '{"by": "bob"}')
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "refused")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("last", "signed"), "'signed' does not come from outside; these do: go, remind"),
        (("last@1/7", "signed"), "signed in both was refused: late (1/7 is not outstanding)"),
        (("last@2/1", "legal_yes"), "legal_yes in both was refused: late (2/1 is not outstanding)"),
        (("last@1/2", "legal_yes"), "legal_yes in both was refused: late (1/2 is not outstanding)"),
        (("last@1", "legal_yes"), "legal_yes in both was refused: late (1 is not outstanding)"),
        (("last", "legl_yes"), "contract has no event 'legl_yes'; did you mean 'legal_yes'?"),
    ],
)
def test_event_without_a_matching_question_is_refused_and_changes_nothing(folder, words, said):
    typed(folder, "run", "contract.md", "--data", json.dumps(GO))
    done = typed(folder, "send", *words)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert json.loads(typed(folder, "show", "last", "--json").stdout)["waits_for"].keys() >= {"legal_yes", "money_yes"}


def test_question_survives_reopening_and_is_answered_from_a_program(folder):
    async def play():
        async with dsa.open_runs(str(folder / ".dsa")) as runs:
            run = await runs.start(str(folder / "contract.md"), GO, bindings=str(folder / "bindings.py"))
            rest = await run.rest()
            assert (rest.kind, dict(rest.waits_for)["legal_yes"]) == ("waiting", "1/1")
        async with dsa.open_runs(str(folder / ".dsa")) as runs:
            assert [each.run for each in await runs.list(waiting_for="legal_yes")] == [run.id]
            first, second = await asyncio.gather(*(runs.send(run.id, "legal_yes", at="1/1") for _ in range(2)))
            assert {type(first), type(second)} == {Taken, Refusal}
            with pytest.raises(OccurrenceError, match="'signed' does not come from outside"):
                await runs.send(run.id, "signed")
        async with dsa.open_runs(str(folder / ".dsa")) as runs:
            with pytest.raises(OccurrenceError, match=r"'money_yes\.by' is missing"):
                await runs.send(run.id, "money_yes", {"bye": "ann"})
            assert isinstance(await runs.send(run.id, "money_yes", {"by": "ann"}), Taken)
            while runs.get(run.id).status.kind != "finished":  # noqa: ASYNC110  (another process might do it)
                await asyncio.sleep(0.01)

    asyncio.run(play())
    assert "finished: done" in typed(folder, "show", "last").stdout
    assert typed(folder, "runs", "--verify").returncode == 0


def test_worker_leaves_a_run_with_open_questions_alone(folder):
    typed(folder, "run", "contract.md", "--data", json.dumps(GO))
    assert typed(folder, "work", "--once").returncode == 0
    assert typed(folder, "show", "last").stdout.count("resumed") == 0


def test_effect_that_a_policy_performs_cannot_be_answered_from_outside(folder):
    slow = BINDINGS.replace(
        'return [dsa.question_step("ask_money", "May it be paid?")]', "import asyncio; await asyncio.sleep(3600)"
    )
    (folder / "bindings.py").write_text(slow, encoding="utf-8")

    async def play():
        async with dsa.open_runs(str(folder / ".dsa")) as runs:
            run = await runs.start(str(folder / "contract.md"), GO, bindings=str(folder / "bindings.py"))
            async for moment in run.moments():
                if "question" in str(moment.entry):
                    break
            with pytest.raises(OccurrenceError, match="'money_yes' does not come from outside"):
                await run.send("money_yes", {"by": "ann"}, at="1/2")
            assert isinstance(await run.send("legal_no", at="1/1"), Taken)
            return (await run.rest()).run.outcome

    assert asyncio.run(asyncio.wait_for(play(), 20)) == "refused"


def test_answer_that_breaks_a_guard_is_refused_and_the_question_stays_open(folder):
    typed(folder, "run", "contract.md", "--data", json.dumps(GO))
    done = typed(folder, "send", "last@1/2", "money_yes", "--data", '{"bye": "ann"}')
    assert done.returncode == 2
    assert "a guard that judges 'money_yes' failed: 'money_yes.by' is missing: money_yes has no 'by'" in done.stderr
    assert "waiting for: legal_no, legal_yes, money_no, money_yes, remind, after 24h" in typed(folder, "runs").stdout
    assert typed(folder, "send", "last@1/2", "money_yes", "--data", '{"by": "ann"}').returncode == 3
