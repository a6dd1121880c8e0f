"""Runs store no secret, and no text that had one passes, whatever their policies and guards do."""

from pathlib import Path

import pytest
from hands import driver_of, finish

from dsa.edge.binding import Bindings
from dsa.edge.document_files import load, locate, read_text
from dsa.edge.driver import Driver
from dsa.errors import BindingError, DsaError
from dsa.lang import dumps, loads
from dsa.runs.bindings import bind
from dsa.runs.runs import open_runs
from dsa.runs.setup import MachineDocument, Options
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.ledger import ArtifactEntry, EventEntry, GuardVerdict, VerdictEntry, dump_line
from dsa.runtime.policy.policies import event_step
from dsa.runtime.run import begin, replay
from dsa.runtime.secrets import Secrets
from dsa.semantics import Occurrence

WORD = "opensesame"
MACHINE = load("dual_state").at({"rmax": 1})
WAITING = loads("""# waiting
## Events
| event | from |
| - | - |
| text | outside |
| artifact | make |
| approved | outside |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| good | workflow | bool | false |
## Guards
| guard | judges |
| - | - |
| g | artifact, text |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | text | g.passed | | make | making |
| idle | text | else | | | gone |
| making | artifact | g.passed | good = true | | done |
| making | artifact | else | | | asking |
| asking | approved | | good = true | | done |
## States
| state | kind |
| - | - |
| idle | initial |
| making | |
| asking | |
| done | final |
| gone | final |
""")


@pytest.fixture(autouse=True)
def word(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", WORD)


class Says(GuardInterface):
    def __init__(self, result):
        self.result = result

    def validate(self, artifact, **dependencies):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


PASSES = Says(GuardResult(passed=True, feedback=f"fine, {WORD}"))


async def nothing(_action, _context):
    return []


def forging(content):
    """Return custom policies that call no guard and report that everything passed."""

    async def query_llm(action, context):
        made = context.artifacts.store(Artifact(content, context.run.step("g").attempts + 1, step="g"))
        key = action.payload["key"]
        context.record(ArtifactEntry(key, "g", made.version, made.artifact_id, made.content_digest))
        return [event_step(action.policy, "artifact", data={"artifact_id": made.artifact_id})]

    async def execute_guard(action, context):
        latest, key = context.run.step("g").latest, action.payload["key"]
        context.record(VerdictEntry(key, "g", 1, latest, [GuardVerdict("g", "passed", f"fine, {WORD}")]))
        return [event_step(action.policy, "verdict", verdicts={"g": "passed"})]

    others = ("advance_state", "refine_context", "reply_to_user", "reply_failure", "escalate_to_user")
    return {"query_llm": query_llm, "execute_guard": execute_guard, **dict.fromkeys(others, nothing)}


def test_policy_that_passes_a_text_with_a_secret_is_overruled():
    driver = driver_of(MACHINE, forging(f"key = '{WORD}'"))
    rest = finish(driver.drive(Occurrence("specification", data=f"say {WORD}")))
    assert (rest.run.outcome, rest.run.sigma) == ("failed", {"satisfied": False})
    entries = list(rest.run.ledger)
    artifacts = [entry for entry in entries if isinstance(entry, ArtifactEntry)]
    assert [entry.redacted for entry in artifacts] == [("THE_TOKEN",), ("THE_TOKEN",)]
    verdicts = [entry for entry in entries if isinstance(entry, VerdictEntry)]
    assert [entry.outcome for entry in verdicts] == ["failed", "failed"]
    assert "The text contains a secret (THE_TOKEN)" in verdicts[0].feedback
    judged = [entry.verdicts for entry in entries if isinstance(entry, EventEntry) and entry.event == "verdict"]
    assert judged == [(("g", "failed"),)] * 2
    assert rest.run.specification == "say [secret THE_TOKEN]"
    assert not any(WORD in dump_line(entry) for entry in entries)
    assert replay(MACHINE, entries) == rest.run


def test_text_without_a_secret_passes():
    rest = finish(driver_of(MACHINE, forging("key = 1")).drive(Occurrence("specification")))
    assert rest.run.outcome == "succeeded"


async def make(action, context):
    made = context.artifacts.store(Artifact(f"key = '{WORD}'", 1, step="g"))
    context.record(ArtifactEntry(action.payload["key"], "g", 1, made.artifact_id, made.content_digest))
    return [event_step(action.policy, "artifact", data={"artifact_id": made.artifact_id})]


def test_guard_of_an_incoming_event_cannot_pass_a_secret_but_a_person_can():
    driver = driver_of(WAITING, {"make": make}, {"g": PASSES})
    rest = finish(driver.drive(Occurrence("text", data="fine")))
    assert (rest.kind, rest.run.configuration.state, rest.run.sigma) == ("waiting", "asking", {"good": False})
    assert rest.run.step("g").redacted == ("THE_TOKEN",)
    rest = finish(driver.drive(Occurrence("approved")))
    assert (rest.run.outcome, rest.run.sigma) == ("done", {"good": True})
    assert rest.run.step("g").redacted == ("THE_TOKEN",), "and it still says so"


def test_event_with_a_secret_does_not_pass():
    rest = finish(driver_of(WAITING, {"make": make}, {"g": PASSES}).drive(Occurrence("text", data=f"say {WORD}")))
    assert rest.run.outcome == "gone"


def test_error_of_a_guard_of_an_incoming_event_is_reported_without_secrets():
    guard = Says(RuntimeError(f"401 for {WORD!r}"))
    rest = finish(driver_of(WAITING, {"make": make}, {"g": guard}).drive(Occurrence("text", data="x")))
    assert (rest.kind, rest.failure.message) == ("stopped", "401 for '[secret THE_TOKEN]'")


def drive(root, document, effects, *sent, run_id=None):
    """Drive a new run of a document, or the one of this id, until it rests."""

    async def driven():
        options = Options(lambda _machine, _started: Bindings(effects))
        async with open_runs(root) as runs:
            if run_id is None:
                handle = runs.begin(runs.setup(document, options))
                return await handle.drive(*sent)
            return await (await runs.resume(run_id, *sent, options=options)).rest()

    return finish(driven())


def test_start_of_a_run_is_recorded_without_secrets(tmp_path):
    document = MachineDocument(WAITING, dumps(WAITING), Path(f"/home/{WORD}/machine.md"))
    rest = drive(tmp_path, document, {"make": make})
    assert dict(rest.run.ledger[0].started)["file"] == "/home/[secret THE_TOKEN]/machine.md"


def test_document_with_a_secret_is_refused_before_anything_is_stored(tmp_path):
    text = dumps(WAITING) + f"\nThe key is\n{WORD}.\n"
    lines = len(text.splitlines())
    with pytest.raises(
        DsaError, match=rf"line {lines} of the document contains the secret THE_TOKEN, .*--not-secret THE_TOKEN"
    ):
        drive(tmp_path / "runs", MachineDocument(WAITING, text), {"make": make})
    assert not (tmp_path / "runs").exists()


def test_run_resumed_without_the_secret_still_fails_texts_that_had_it(tmp_path, monkeypatch):
    """Its variable is gone when the run is resumed: the texts still say that they had it, and do not pass."""

    async def cut_off(_action, _context):
        raise ConnectionError("no power")

    effects = {**forging(f"key = '{WORD}'"), "execute_guard": cut_off}
    document = MachineDocument(MACHINE, read_text(locate("dual_state")))
    rest = drive(tmp_path, document, effects, Occurrence("specification", data="x"))
    assert rest.kind == "stopped"
    monkeypatch.delenv("THE_TOKEN")
    again = {**forging("fine"), "query_llm": forging("key = '[secret THE_TOKEN]'")["query_llm"]}
    rest = drive(tmp_path, document, again, run_id=rest.run.run_id)
    assert (rest.run.outcome, rest.run.sigma) == ("failed", {"satisfied": False})


def test_import_error_of_a_module_is_reported_without_secrets(tmp_path):
    (tmp_path / "mine.py").write_text(f"raise RuntimeError('no login with {WORD}')\n")
    with pytest.raises(BindingError, match=r"no login with \[secret THE_TOKEN\]"):
        bind(MACHINE, module=str(tmp_path / "mine.py"))


@pytest.mark.parametrize("said", ["WORD", [1], {"WORD": 1}])
def test_secret_names_of_a_module_must_be_names_of_variables(tmp_path, monkeypatch, said):
    monkeypatch.setenv("WORD", "sesame")
    (tmp_path / "mine.py").write_text("secret_names = ['WORD']\n")
    assert bind(MACHINE, module=str(tmp_path / "mine.py"), model="openai/m").secrets.text("sesame") == "[secret WORD]"
    (tmp_path / "mine.py").write_text(f"secret_names = {said!r}\n")
    with pytest.raises(
        BindingError, match=r"mine.py: `secret_names` is not a list of the names of environment variables"
    ):
        bind(MACHINE, module=str(tmp_path / "mine.py"), model="openai/m")


def test_secrets_come_from_the_environment_unless_others_are_passed():
    assert "THE_TOKEN" in Bindings({}).secrets.names
    machine, told = WAITING, []
    binding = Bindings({"make": make}, {"g": PASSES}, secrets=Secrets({"OTHER": "elsewhere"}))
    run, commands = begin(machine, "r")
    driver = Driver(run, binding, MemoryArtifacts(), commands=commands, observe=told.extend)
    finish(driver.drive(Occurrence("text", data=f"{WORD} elsewhere")))
    (sent,) = (entry for entry in told if isinstance(entry, EventEntry) and entry.event == "text")
    assert sent.data == f"{WORD} [secret OTHER]"
