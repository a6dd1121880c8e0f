"""Runs of policies in a folder, in process: begun, stopped, cut off, taken up, derived again."""

import asyncio
import json
import sys
from shutil import rmtree

import pytest
from kept_runs import keep

from dsa.edge.binding import Binding
from dsa.errors import BindingError, DocumentError
from dsa.runs.place import open_store
from dsa.runs.policy_runs import answer_text, begin, derived_again, take_up
from dsa.runtime.called import CallDoubtError
from dsa.runtime.journal import HeldError
from dsa.runtime.ledger import CallResultEntry, DoubtEntry, PolicyEntry, ResultEntry, load_lines
from dsa.runtime.policies import Action, action_result_step, error_step, text_step
from dsa.runtime.recorded import ReplayMismatchError
from dsa.runtime.registry import Registry
from dsa.runtime.secrets import Secrets


class Trip:
    """A policy that looks at places and pays, and a list of what was done. `break_at` is raised once, where it says."""

    def __init__(self, **in_doubt):
        self.did, self.breaking = [], {}
        self.policies = Registry()
        for name in ("look", "pay", "trip"):
            self.policies.register(name, in_doubt=in_doubt.get(name, "retry"))(getattr(self, name))

    @property
    def binding(self):
        return Binding({}, policies=self.policies, secrets=Secrets({"TOKEN": "s3cr3t-t0ken"}))

    def do(self, what):
        self.did.append(what)
        if what in self.breaking:
            raise self.breaking.pop(what)

    async def look(self, action, context):
        self.do(action.payload["at"])
        return [text_step("look", f"{action.payload['at']} is fine")]

    async def pay(self, action, context):
        self.do("pay")
        return [action_result_step("pay", {"paid": 5})]

    async def trip(self, action, context):
        looks = [context.call(Action("look", {"at": at})) for at in action.payload["text"].split()]
        places = [step.payload["text"] for (step,) in await asyncio.gather(*looks)]
        (paid,) = await context.call(Action("pay"))
        return [text_step("trip", "; ".join([*places, str(paid.payload), str(context.config.get("model"))]))]

    def begin(self, root, text="Oslo Rome", **options):
        return begin("trip", {"text": text}, self.binding, root=root, **options)

    def take_up(self, root, run, **options):
        return take_up(root, run, lambda _first: self.binding, **options)


def entries_in(root, run):
    with open_store(root) as store:
        return store.read(run).entries


def stopped(root, **in_doubt):
    """Give a run that no route has stopped while it paid."""
    trip = Trip(**in_doubt)
    trip.breaking["pay"] = ConnectionError("no route")
    return trip, trip.begin(root)


def cut_off(root, **in_doubt):
    """Give a run whose process ended while it paid: what it could not write is missing."""
    trip, end = stopped(root, **in_doubt)
    rmtree(root)
    keep(root, [entry for entry in end.entries if not isinstance(entry, ResultEntry)], "", end.run)
    trip.did.clear()
    return trip, end.run


def test_a_run_is_kept_as_it_goes_with_a_copy_for_people(tmp_path):
    trip, seen = Trip(), []
    end = trip.begin(tmp_path, config={"model": "m"}, observe=seen.append)
    assert (end.standing.kind, trip.did) == ("finished", ["Oslo", "Rome", "pay"])
    assert [*entries_in(tmp_path, end.run)] == [*end.entries] == seen
    assert end.entries[0].config == {"model": "m"}
    assert end.entries[0].at_ms > 0
    assert (end.directory / "answer.txt").read_text() == "Oslo is fine; Rome is fine; {'paid': 5}; m\n"
    assert [*load_lines((end.directory / "ledger.jsonl").read_text())] == seen


def test_what_a_policy_raises_stops_the_run_and_is_kept(tmp_path):
    trip, end = stopped(tmp_path)
    assert (end.standing.kind, end.standing.failure.path) == ("stopped", "1.3")
    assert end.where.startswith(__file__)
    last = entries_in(tmp_path, end.run)[-1]
    assert (last.key, last.effect, last.steps[0]["payload"]["code"]) == (f"{end.run}/1.3", "pay", "ConnectionError")
    trip.did.clear()
    again = trip.take_up(tmp_path, end.run, config={"model": "n"})
    assert (again.standing.kind, trip.did) == ("finished", ["pay"])
    assert answer_text(again.standing.answer).endswith("; n")
    assert again.standing.cached == 2
    handled = [e.handling for e in again.entries if isinstance(e, DoubtEntry)]
    assert handled == ["again"]
    assert (again.directory / "answer.txt").exists()


@pytest.mark.parametrize("error", [SystemExit(0), asyncio.CancelledError("mine")])
def test_a_policy_ends_neither_the_program_nor_the_loop(tmp_path, error):
    trip = Trip()
    trip.breaking["pay"] = error
    end = trip.begin(tmp_path)
    assert (end.standing.kind, end.standing.failure.policy) == ("stopped", "pay")
    assert end.standing.failure.failure["code"] == type(error).__name__
    assert trip.take_up(tmp_path, end.run).standing.kind == "finished"


def test_an_interruption_comes_through_and_the_run_goes_on(tmp_path):
    trip, seen = Trip(), []
    trip.breaking["pay"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        trip.begin(tmp_path, observe=seen.append)
    run = seen[0].run
    assert not any(isinstance(entry, ResultEntry) for entry in entries_in(tmp_path, run))
    trip.did.clear()
    assert trip.take_up(tmp_path, run).standing.kind == "finished"
    assert trip.did == ["pay"]


def test_nothing_is_done_before_somebody_has_said_what_became_of_a_call(tmp_path):
    trip, run = cut_off(tmp_path, pay="ask")
    before = entries_in(tmp_path, run)
    end = trip.take_up(tmp_path, run)
    assert (end.standing.kind, [call.path for call in end.standing.asked], trip.did) == ("in doubt", ["1.3"], [])
    assert entries_in(tmp_path, run) == before
    with pytest.raises(CallDoubtError, match=r"in doubt: 1\.3"):
        trip.take_up(tmp_path, run, decided={"1.1": "retry"})
    assert entries_in(tmp_path, run) == before


SAID = {
    "it has not happened": ({"decided": {"1.3": "retry"}}, ["pay"], "{'paid': 5}"),
    "it has happened": ({"decided": {"1.3": "done"}}, [], "'done': True"),
    "it has failed": ({"decided": {"1.3": "fail"}}, [], "'code': 'IN_DOUBT'"),
    "it gave this": ({"answers": {"1.3": action_result_step("pay", {"paid": 7})}}, [], "{'paid': 7}"),
}


@pytest.mark.parametrize(("said", "did", "told"), SAID.values(), ids=SAID)
def test_what_somebody_says_of_a_call_is_done(tmp_path, said, did, told):
    trip, run = cut_off(tmp_path, pay="ask")
    end = trip.take_up(tmp_path, run, **said)
    assert (end.standing.kind, trip.did) == ("finished", did)
    assert told in answer_text(end.standing.answer)


@pytest.mark.parametrize(("in_doubt", "did"), [("retry", ["pay"]), ("fail", [])])
def test_what_is_declared_is_done_unasked(tmp_path, in_doubt, did):
    trip, run = cut_off(tmp_path, pay=in_doubt)
    assert trip.take_up(tmp_path, run).standing.kind == "finished"
    assert trip.did == did


def test_a_run_that_is_over_is_left_alone(tmp_path):
    trip = Trip()
    end = trip.begin(tmp_path)
    before = (end.directory / "ledger.jsonl").stat().st_mtime_ns
    again = trip.take_up(tmp_path, end.run)
    assert (again.entries, again.standing) == (end.entries, end.standing)
    assert (end.directory / "ledger.jsonl").stat().st_mtime_ns == before


def test_another_program_does_nothing_and_writes_no_call(tmp_path):
    trip, run = cut_off(tmp_path)
    other = Trip()

    async def changed(action, context):
        return await context.call(Action("look", {"at": "Bern"}))

    other.policies = Registry({"trip": changed}).including(other.policies)
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1: .*'Oslo'.* asked for is look with .*'Bern'"):
        other.take_up(tmp_path, run)
    assert other.did == []
    assert not any(isinstance(e, CallResultEntry) for e in entries_in(tmp_path, run)[-2:])
    assert trip.take_up(tmp_path, run).standing.kind == "finished"


def test_policies_that_are_gone_change_nothing(tmp_path):
    trip, run = cut_off(tmp_path)
    before = entries_in(tmp_path, run)
    with pytest.raises(BindingError, match="no policy 'trip'"):
        take_up(tmp_path, run, lambda _first: Binding({}))
    assert entries_in(tmp_path, run) == before
    with pytest.raises(BindingError, match="no policy 'gone'"):
        begin("gone", {}, trip.binding, root=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_run_that_somebody_holds_is_not_taken_unasked(tmp_path):
    trip, run = cut_off(tmp_path)
    with open_store(tmp_path) as store:
        store.hold(run)
        with pytest.raises(HeldError):
            trip.take_up(tmp_path, run)
        assert trip.take_up(tmp_path, run, take=True).standing.kind == "finished"


def test_no_secret_is_kept_wherever_it_was(tmp_path):
    secret = "s3cr3t-t0ken"
    trip = Trip()
    trip.breaking["pay"] = ConnectionError(f"refused {secret}")
    end = trip.begin(tmp_path, text=f"Oslo {secret}")
    assert trip.did == ["Oslo", "[secret", "TOKEN]", "pay"]
    assert trip.take_up(tmp_path, end.run).standing.kind == "finished"
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"[secret TOKEN]" in kept
    assert secret.encode() not in kept
    asked = cut_off(tmp_path / "other", pay="ask")
    given = {"1.3": action_result_step("pay", {"paid": secret})}
    end = asked[0].take_up(tmp_path / "other", asked[1], answers=given)
    assert secret not in json.dumps([str(entry) for entry in end.entries])


def test_the_answer_is_the_last_text_or_what_the_last_step_carries():
    text, result = text_step("a", "hello").to_json(), action_result_step("a", {"n": 1}).to_json()
    assert answer_text([text, result]) == "hello"
    assert json.loads(answer_text([result])) == {"n": 1}
    assert "GONE" in answer_text([text, error_step("a", "GONE", "x").to_json()])
    assert answer_text([]) == ""


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DocumentError, match=r"no runs? can be kept here"):
        Trip().begin(tmp_path / "file")


def test_a_run_is_derived_again_without_anything_being_done(tmp_path, capsys):
    trip = Trip()
    end = trip.begin(tmp_path)
    trip.did.clear()
    assert derived_again(end.entries, trip.policies).performed == ("1",)
    assert isinstance(end.entries[0], PolicyEntry)
    for length in range(1, len(end.entries)):
        derived_again(end.entries[:length], trip.policies)
    assert trip.did == []
    assert (capsys.readouterr().err, sys.exc_info()[0]) == ("", None)
