"""Policies called from outside, as runs of the machine `policy`: started, stopped, cut off, resumed, replayed."""

import asyncio
import json
from shutil import rmtree

import attrs
import pytest
from stored_runs import keep

from dsa.edge.binding import Bindings
from dsa.edge.document_files import locate
from dsa.errors import BindingError, DocumentError, DsaError, OccurrenceError
from dsa.runs.bindings import answer_text, calls_of_policy, perform, policy_steps, replay_policy, request
from dsa.runs.runs import Resumption, open_runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import CallResultEntry, ResultEntry, ResumedEntry
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.policy.policies import Action, action_result_step, error_step, text_step
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run_store import HeldError
from dsa.runtime.secrets import Secrets
from dsa.semantics import Occurrence

PAY = "1/1/1.1.3"


class Trip:
    """A policy that looks at places and pays. `did` lists what was done; `breaking` maps acts to errors raised once."""

    def __init__(self, **in_doubt):
        self.did, self.breaking = [], {}
        self.policies = Registry()
        for name in ("look", "pay", "trip"):
            self.policies.register(name, in_doubt=in_doubt.get(name, "retry"))(getattr(self, name))

    def bound(self, machine, started):
        config = {"model": started["model"]}
        secrets = Secrets({"TOKEN": "s3cr3t-t0ken"})
        return Bindings({"perform": perform}, policies=self.policies, config=config, secrets=secrets)

    def do(self, what):
        self.did.append(what)
        if what in self.breaking:
            raise self.breaking.pop(what)

    async def look(self, action, context):
        self.do(action.payload["at"])
        return [text_step("look", f"{action.payload['at']} is fine")]

    async def pay(self, action, context):
        self.do("pay")
        usage = {"prompt_tokens": 30, "completion_tokens": 4}
        return [action_result_step("pay", {"paid": 5, "usage": usage})]

    async def trip(self, action, context):
        looks = [context.call(Action("look", {"at": at})) for at in action.payload["text"].split()]
        places = [step.payload["text"] for (step,) in await asyncio.gather(*looks)]
        seen = [step.payload["text"] for step in await context.get_ledger() if step.type == "text"]
        (paid,) = await context.call(Action("pay"))
        if paid.payload.get("error"):
            return [error_step("trip", "UNPAID", paid.payload["message"])]
        said = [*seen, *places, f"paid {paid.payload.get('paid')}", str(context.config["model"])]
        return [text_step("trip", "; ".join(said))]

    def begin(self, root, text="Oslo Rome", **how):
        async def whole():
            async with open_runs(root) as runs:
                data = request("trip", {"text": text}, how.pop("actions", self.policies), how.pop("seed", ()))
                on_moment = how.pop("on_moment", None)
                handle = await runs.start("policy", data, options=Options(self.bound, **how), on_moment=on_moment)
                return await handle.rest()

        return asyncio.run(whole())

    def resume(self, root, run, *, model=None, budget=(), **said):
        async def whole():
            async with open_runs(root, must_exist=True) as runs:
                options = Options(self.bound, model, budget=budget)
                handle = await runs.resume(run, options=options, resumption=Resumption(**said))
                return await handle.rest()

        return asyncio.run(whole())

    def replayed(self, run):
        return asyncio.run(replay_policy(run, self.policies, {"model": "local"}))


def record(root, run):
    """Read a run."""

    async def reading():
        async with open_runs(root, must_exist=True) as runs:
            return runs.get(run)

    return asyncio.run(reading())


def entries_in(root, run):
    return record(root, run).stored_run.entries


def answer(rest):
    return answer_text(policy_steps(rest.run))


def stopped(root, **in_doubt):
    """Return a run that a connection error has stopped during the payment."""
    trip = Trip(**in_doubt)
    trip.breaking["pay"] = ConnectionError("no route")
    return trip, trip.begin(root)


def cut_off(root, **in_doubt):
    """Return a run whose process ended during the payment: entries that it could not write are missing."""
    trip, rest = stopped(root, **in_doubt)
    rmtree(root)
    kept = [entry for entry in rest.run.ledger if not isinstance(entry, ResultEntry)]
    keep(root, kept, locate("policy").read_text(), rest.run.run_id)
    trip.did.clear()
    return trip, rest.run.run_id


def test_run_is_stored_as_it_progresses(tmp_path):
    trip, seen = Trip(), []
    rest = trip.begin(tmp_path, model="m", on_moment=lambda moment, _is_new: seen.append(moment.entry))
    assert (rest.kind, rest.outcome, trip.did) == ("finished", "succeeded", ["Oslo", "Rome", "pay"])
    assert [*entries_in(tmp_path, rest.run.run_id)] == [*rest.run.ledger] == seen
    assert answer(rest) == "Oslo is fine; Rome is fine; paid 5; m"
    calls = calls_of_policy(rest.run)
    assert [(call.path, call.policy) for call in calls] == [
        ("1.1", "trip"), ("1.1.1", "look"), ("1.1.2", "look"), ("1.1.3", "pay"),
    ]  # fmt: skip
    assert [*policy_steps(rest.run)] == [*calls[0].steps]


def test_policy_sees_the_seed_and_may_call_only_the_listed_actions(tmp_path):
    rest = Trip().begin(tmp_path, seed=[text_step("user", "hello")])
    assert answer(rest).startswith("hello; Oslo")
    rest = Trip().begin(tmp_path, actions=["look"])
    assert "trip may not call pay" in policy_steps(rest.run)[-1]["payload"]["message"]


def test_error_step_is_the_result_and_is_not_repeated(tmp_path):
    trip, run = cut_off(tmp_path, pay="fail")
    rest = trip.resume(tmp_path, run)
    assert (rest.kind, rest.outcome, trip.did) == ("finished", "failed", [])
    assert policy_steps(rest.run)[-1]["payload"]["code"] == "UNPAID"
    again = trip.resume(tmp_path, run)
    assert (again.run.ledger, trip.did) == (rest.run.ledger, [])


def test_error_of_a_policy_stops_the_run_and_only_that_call_is_repeated(tmp_path):
    trip, rest = stopped(tmp_path)
    assert (rest.kind, rest.failure.call, rest.failure.code) == ("stopped", f"pay {PAY}", "ConnectionError")
    assert str(rest.failure).startswith(
        f"perform (line 24) failed in pay {PAY}: ConnectionError: no route (at test_one_policy.py:"
    )
    last = entries_in(tmp_path, rest.run.run_id)[-1]
    assert last.steps[-1]["payload"]["call"] == {"policy": "pay", "path": "1.1.3"}
    stands = record(tmp_path, rest.run.run_id).status
    assert stands.kind == "stopped"
    assert stands.failure.startswith(f"perform 1/1 (line 24) failed in pay {PAY}: ConnectionError: no route (at test_")
    trip.did.clear()
    trip.breaking["pay"] = ConnectionError("still no route")
    assert trip.resume(tmp_path, rest.run.run_id).kind == "stopped"
    again = trip.resume(tmp_path, rest.run.run_id, model="n")
    assert (again.kind, trip.did) == ("finished", ["pay", "pay"])
    assert answer(again).endswith("; n")
    assert sum(call.is_cached for call in calls_of_policy(again.run)) == 2
    assert [(e.effects, e.calls, e.model) for e in again.run.ledger if isinstance(e, ResumedEntry)] == [
        ((("1/1", "again"),), ((f"{PAY}", "again"),), model) for model in ("local", "n")
    ]


def test_run_cut_off_after_a_resumption_continues_with_the_same_calls(tmp_path):
    trip, rest = stopped(tmp_path)
    run = rest.run.run_id
    rmtree(tmp_path / run)
    keep_on = ResumedEntry(effects={"1/1": "again"}, calls={PAY: "again"})
    rmtree(tmp_path)
    keep(tmp_path, [*rest.run.ledger, keep_on], locate("policy").read_text(), run)
    trip.did.clear()
    assert (trip.resume(tmp_path, run).kind, trip.did) == ("finished", ["pay"])


@pytest.mark.parametrize("error", [SystemExit(0), asyncio.CancelledError("mine")])
def test_policy_cannot_end_the_program_or_the_loop(tmp_path, error):
    trip = Trip()
    trip.breaking["pay"] = error
    rest = trip.begin(tmp_path)
    assert (rest.kind, rest.failure.code) == ("stopped", type(error).__name__)
    assert trip.resume(tmp_path, rest.run.run_id).kind == "finished"


def test_run_does_nothing_until_a_call_in_doubt_is_decided(tmp_path):
    trip, run = cut_off(tmp_path, pay="ask")
    before = entries_in(tmp_path, run)
    rest = trip.resume(tmp_path, run)
    assert (rest.kind, [intent.key for intent in rest.in_doubt], trip.did) == ("in doubt", ["1/1"], [])
    assert record(tmp_path, run).status.kind == "in doubt"
    for key in ("1/1/1.1.1", "1.1.3"):
        with pytest.raises(DsaError, match=rf"in doubt are: 1/1, {PAY}"):
            trip.resume(tmp_path, run, decisions={f"{run}/{key}": "retry"})
    with pytest.raises(DsaError, match="decided twice"):
        trip.resume(tmp_path, run, decisions={f"{PAY}": "fail"}, answers={f"{PAY}": text_step("pay", "x")})
    with pytest.raises(OccurrenceError, match="a call must be answered with a step"):
        trip.resume(tmp_path, run, answers={f"{PAY}": Occurrence("gave")})
    with pytest.raises(DsaError, match="is an effect"):
        trip.resume(tmp_path, run, answers={"1/1": text_step("pay", "x")})
    assert entries_in(tmp_path, run) == before


SAID = {
    "it has not happened": ({"decisions": {PAY: "retry"}}, ["pay"], "paid 5"),
    "it has happened": ({"decisions": {PAY: "done"}}, [], "paid None"),
    "it has failed": ({"decisions": {PAY: "fail"}}, [], "counts as failed"),
    "it gave this": ({"answers": {PAY: action_result_step("pay", {"paid": 7})}}, [], "paid 7"),
    "the whole has not happened": ({"decisions": {"1/1": "retry"}}, ["pay"], "paid 5"),
}


@pytest.mark.parametrize(("said", "did", "told"), SAID.values(), ids=SAID)
def test_decision_about_a_call_is_carried_out(tmp_path, said, did, told):
    trip, run = cut_off(tmp_path, pay="ask")
    rest = trip.resume(tmp_path, run, **said)
    assert (rest.kind, trip.did) == ("finished", did)
    assert told in answer(rest)


def test_answer_for_one_call_holds_while_another_is_in_doubt(tmp_path):
    trip, run = cut_off(tmp_path, look="ask", pay="ask")
    kept = [
        e
        for e in entries_in(tmp_path, run)
        if not (isinstance(e, CallResultEntry) or getattr(e, "policy", "") == "pay")
    ]
    rmtree(tmp_path)
    keep(tmp_path, kept, locate("policy").read_text(), run)
    gave = {"1/1/1.1.1": text_step("look", "Oslo has snow")}
    assert trip.resume(tmp_path, run, answers=gave).kind == "in doubt"
    rest = trip.resume(tmp_path, run, decisions={"1/1/1.1.2": "retry"})
    assert (answer(rest), trip.did) == ("Oslo has snow; Rome is fine; paid 5; local", ["Rome", "pay"])


@pytest.mark.parametrize(("in_doubt", "did"), [("retry", ["pay"]), ("fail", [])])
def test_declared_handling_is_applied_without_asking(tmp_path, in_doubt, did):
    trip, run = cut_off(tmp_path, pay=in_doubt)
    assert trip.resume(tmp_path, run).kind == "finished"
    assert trip.did == did


def test_call_may_be_in_doubt_beside_another_that_raised(tmp_path):
    trip, rest = stopped(tmp_path, look="ask")
    run, kept = rest.run.run_id, [*rest.run.ledger]
    rmtree(tmp_path)
    looked = next(e for e in kept if isinstance(e, CallResultEntry))
    keep(tmp_path, [entry for entry in kept if entry != looked], locate("policy").read_text(), run)
    assert record(tmp_path, run).status.kind == "in doubt"
    assert trip.resume(tmp_path, run).kind == "in doubt"
    trip.did.clear()
    key = f"1/1/{looked.path}"
    assert trip.resume(tmp_path, run, decisions={key: "retry"}).kind == "finished"
    assert sorted(trip.did) == ["Oslo", "pay"]


def test_budget_stops_the_calls_of_a_policy_and_a_larger_one_continues(tmp_path):
    trip = Trip()

    async def twice(action, context):
        await context.call(Action("pay"))
        (paid,) = await context.call(Action("look", {"at": "Oslo"}))
        return [paid]

    trip.policies = Registry({"trip": twice}).union(trip.policies)
    rest = trip.begin(tmp_path, budget=["tokens=30"])
    assert (rest.kind, rest.failure.code, trip.did) == ("stopped", "BUDGET", ["pay"])
    rest = trip.resume(tmp_path, rest.run.run_id, budget=["tokens=100"])
    assert (rest.outcome, trip.did) == ("succeeded", ["pay", "Oslo"])


def test_changed_policy_does_nothing_and_records_no_call(tmp_path):
    trip, run = cut_off(tmp_path)
    other = Trip()

    async def changed(action, context):
        return await context.call(Action("look", {"at": "Bern"}))

    other.policies = Registry({"trip": changed}).union(other.policies)
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1\.1: .*'Oslo'.* now give look with .*'Bern'"):
        other.resume(tmp_path, run)
    assert other.did == []
    assert not any(isinstance(e, CallResultEntry) for e in entries_in(tmp_path, run)[-2:])
    assert trip.resume(tmp_path, run).kind == "finished"


def test_missing_policies_change_nothing(tmp_path):
    _, run = cut_off(tmp_path)
    before = entries_in(tmp_path, run)
    gone = Trip()
    gone.policies = Registry({"look": gone.look})
    with pytest.raises(BindingError, match="no policy 'trip'"):
        gone.resume(tmp_path, run)
    assert entries_in(tmp_path, run) == before
    with pytest.raises(BindingError, match="no policy 'trip'"):
        gone.begin(tmp_path / "new")
    assert not [*(tmp_path / "new").glob("*-policy-*")]


@pytest.mark.parametrize("data", ["trip", {"payload": {}}, {"policy": 3}])
def test_data_that_names_no_policy_starts_no_run(tmp_path, data):
    async def starting():
        async with open_runs("memory:") as runs:
            with pytest.raises(TypeError, match=r"the data of a policy.s run must be"):
                await runs.start("policy", data)
            assert runs.ids() == ()

    asyncio.run(starting())


def test_held_run_is_taken_over_only_on_request(tmp_path):
    trip, run = cut_off(tmp_path)

    async def holding():
        async with open_runs(tmp_path) as runs:
            runs.hold(run, options=Options(trip.bound))
            with pytest.raises(HeldError):
                await asyncio.to_thread(trip.resume, tmp_path, run)
            rest = await asyncio.to_thread(trip.resume, tmp_path, run, take=True)
            assert rest.kind == "finished"

    asyncio.run(holding())


def test_secrets_are_never_stored(tmp_path):
    secret = "s3cr3t-t0ken"
    trip = Trip()
    trip.breaking["pay"] = ConnectionError(f"refused {secret}")
    rest = trip.begin(tmp_path, text=f"Oslo {secret}")
    assert trip.did == ["Oslo", "[secret", "TOKEN]", "pay"]
    assert trip.resume(tmp_path, rest.run.run_id).kind == "finished"
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"[secret TOKEN]" in kept
    assert secret.encode() not in kept
    trip, run = cut_off(tmp_path / "other", pay="ask")
    given = {f"{PAY}": action_result_step("pay", {"paid": secret})}
    rest = trip.resume(tmp_path / "other", run, answers=given)
    assert answer(rest) == "Oslo is fine; Rome is fine; paid [secret TOKEN]; local"
    assert secret not in json.dumps([str(entry) for entry in rest.run.ledger])


def test_answer_is_the_last_text_or_the_payload_of_the_last_step():
    text, result = text_step("a", "hello").to_json(), action_result_step("a", {"n": 1}).to_json()
    assert answer_text([text, result]) == "hello"
    assert json.loads(answer_text([result])) == {"n": 1}
    assert "GONE" in answer_text([text, error_step("a", "GONE", "x").to_json()])
    assert answer_text([]) == ""


def test_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DocumentError, match=r"runs cannot be stored here"):
        Trip().begin(tmp_path / "file")


def test_replay_of_a_run_performs_nothing(tmp_path):
    trip = Trip()
    run = trip.begin(tmp_path).run
    trip.did.clear()
    assert (trip.replayed(run).performed_paths, trip.replayed(run).ends_at) == (("1.1",), None)
    for length in range(4, len(run.ledger)):
        trip.replayed(attrs.evolve(run, ledger=type(run.ledger)(run.ledger[:length])))
    assert trip.did == []
