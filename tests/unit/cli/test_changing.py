"""`dsa resume --machine`: a run continues under another document that it fits, and its ledger records that document."""

import json
from pathlib import Path

import pytest
from stored_runs import RUN, SHOP, begun, crashed_while, dsa, keep, recorded, write_shop

from dsa.errors import DocumentError
from dsa.lang import digest, loads
from dsa.runs.archive import OtherMachineError, replay_stored
from dsa.runtime.ledger import ChangeEntry, DecidedEntry, Ledger, ResumedEntry, RowEntry
from dsa.runtime.run import ReplayError, oldest_key, replay
from dsa.semantics import Occurrence

ROOT = Path(".dsa")
MORE = "| resting | more       |           | succeeded |"
EDITED = SHOP.replace("# shop\n", "# shop\n\nLine by line.\n").replace(
    MORE, "| resting | more       | log       | failed    |"
)
BAD = SHOP.replace("| paying  | paid       | mail, log |", "| paying  | paid       | log, mail |")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("edited.md").write_text(EDITED)
    Path("bad.md").write_text(BAD)
    return write_shop(tmp_path)


def done():
    return Path("done.txt").read_text().split()


def test_compatible_run_continues_under_another_document(shop):
    before = crashed_while(ROOT, doing="mail", file=shop)
    assert dsa("resume", "last", "--done", "2/1", "--machine", "edited.md").exit_code == 3
    entries = recorded(ROOT).entries
    change, decided, resumed = entries[len(before) : len(before) + 3]
    assert isinstance(change, ChangeEntry)
    assert isinstance(decided, DecidedEntry)
    assert isinstance(resumed, ResumedEntry)
    assert (change.digest, change.text, change.file) == (
        digest(loads(EDITED)),
        EDITED,
        str(Path("edited.md").absolute()),
    )
    assert entries[: len(before)] == before[:]
    assert dsa("send", "last", "more").exit_code == 1
    (last,) = [entry for entry in recorded(ROOT).entries[-4:] if isinstance(entry, RowEntry)]
    assert (last.line, last.target) == (36, "failed"), "lines are those of the new document"
    assert done() == ["log", "log"]


def test_other_commands_use_the_new_document_afterwards(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    assert dsa("resume", "last", "--done", "2/1", "--machine", "edited.md").exit_code == 3
    assert f"     goes on under {Path('edited.md').absolute()}: shop, " in dsa("show", "last").stdout
    assert (ROOT / RUN / "machine.md").read_text() == EDITED
    assert dsa("replay", "last").stdout.splitlines()[1].startswith("every entry is the same when it is derived again")
    assert dsa("replay", "last", "--against", "edited.md").exit_code == 0
    assert " waiting for: more  tea\n" in dsa("runs").stdout
    assert "runs in flight of edited.md: 1" in dsa("diff", "edited.md", "shop.md").stdout
    assert "runs in flight of other machines: 1" in dsa("diff", "shop.md", "edited.md").stdout
    shop.write_text("gone")
    assert "has changed" not in dsa("resume", "last").stderr, "the document that the run started with no longer matters"
    assert dsa("send", "last", "more").exit_code == 1
    Path("edited.md").write_text(f"{EDITED}\n{dsa('show', 'last', '--as-scenario').stdout}")
    assert "1 of 1 scenarios pass" in dsa("check", "edited.md").stdout


def test_document_may_change_again_and_back(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    assert dsa("resume", "last", "--done", "2/1").exit_code == 3
    for name in ("edited.md", "edited.md", "shop.md", "edited.md", "shop.md"):
        assert dsa("resume", "last", "--machine", name).exit_code == 3
    names = [Path(entry.file).name for entry in recorded(ROOT).entries if isinstance(entry, ChangeEntry)]
    assert names == ["edited.md", "shop.md", "edited.md", "shop.md"], "the same document again is no change"
    assert dsa("send", "last", "more").exit_code == 0
    assert dsa("replay", "last").exit_code == 0


def test_run_that_does_not_fit_is_refused_and_nothing_changes(shop):
    before = crashed_while(ROOT, doing="mail", file=shop)
    result = dsa("resume", "last", "--done", "2/1", "--machine", "bad.md")
    assert result.exit_code == 1
    assert result.stderr == (
        f"run {RUN} cannot continue with bad.md: its history would be different\n"
        "event 2, paid in paying:\n"
        "  recorded  line 31: paying -> resting; mail, log\n"
        "  bad.md    line 31 (paying | paid | resting): paying -> resting; log, mail\n"
        "(`dsa diff` shows all differences; without --machine the run goes on under its own document)\n"
    )
    assert recorded(ROOT).entries == before
    assert not Path("done.txt").exists()
    assert dsa("resume", "last", "--done", "2/1").exit_code == 3


def test_refusal_is_an_object_with_json(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    result = dsa("resume", "last", "--machine", "bad.md", "--json")
    assert result.exit_code == 1
    assert "cannot continue with bad.md" in json.loads(result.stdout)["failure"]["message"]


def test_missing_document_is_reported(shop):
    crashed_while(ROOT, doing="mail", file=shop)
    assert isinstance(dsa("resume", "last", "--machine", "nowhere.md").exception, DocumentError)


NEW_PARTS = """## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 0..9   | 4       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| n        | 0..most | most    |

## Transitions: counted
| source  | event | update | target |
| ------- | ----- | ------ | ------ |
| resting | more  | n -= 1 | failed |
"""


def test_new_variable_has_its_initial_value_and_new_parameter_its_default(shop):
    Path("more.md").write_text(SHOP.replace(f"{MORE}\n", "") + "\n" + NEW_PARTS)
    crashed_while(ROOT, doing="mail", file=shop)
    assert dsa("resume", "last", "--done", "2/1", "--machine", "more.md").exit_code == 3
    assert "values  n = 4\n" in dsa("show", "last").stdout
    assert dsa("send", "last", "more").exit_code == 1
    assert "values  n = 3\n" in dsa("show", "last").stdout
    assert dsa("replay", "last").exit_code == 0


def changed(text=EDITED, **more):
    """Return a run that has changed to another document, and the entry of this change."""
    run, _ = begun().feed(Occurrence("order"))
    machine = loads(text)
    entry = ChangeEntry(machine.name, digest(machine), text, **more)
    return run.under(machine, entry), entry


def test_changed_run_is_rebuilt_from_its_ledger_alone():
    run, _ = changed()
    run, _ = run.feed(Occurrence("paid"), oldest_key(run.keys, "pay"))
    assert replay(loads(SHOP), run.ledger, lambda change: loads(change.text)) == run
    with pytest.raises(ReplayError, match="entry 5: no earlier entry leads to ChangeEntry"):
        replay(loads(SHOP), run.ledger)
    wrong = [*list(run.ledger)[:-2], *reversed(list(run.ledger)[-2:])]
    with pytest.raises(ReplayError, match="entry 8"):
        replay(loads(SHOP), Ledger(wrong), lambda change: loads(change.text))


VALUES = """# values

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| a        | 0..9   | 1       |
| b        | 0..9   | 2       |

## Transitions
| source | event | update | target |
| ------ | ----- | ------ | ------ |
| x      | go    | a += 4 | x      |
"""


def test_values_are_carried_over_by_name():
    run, _ = begun(VALUES).feed(Occurrence("go"))
    first, second = "| a        | 0..9   | 1       |\n", "| b        | 0..9   | 2       |\n"
    other = loads(VALUES.replace(first + second, second + "| c        | 0..9   | 7       |\n" + first))
    assert run.under(other, ChangeEntry("values", "", "")).values == {"b": 2, "c": 7, "a": 5}
    assert run.under(loads(VALUES.replace(second, "")), ChangeEntry("values", "", "")).values == {"a": 5}


def test_document_with_another_digest_than_recorded_is_refused(tmp_path):
    run, entry = changed()
    ledger = [*list(run.ledger)[:-1], ChangeEntry(entry.name, "0" * 64, entry.text)]
    keep(tmp_path, ledger)
    with pytest.raises(OtherMachineError, match=r"the recorded digest is 000000000000"):
        replay_stored(recorded(tmp_path))
