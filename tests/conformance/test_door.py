"""The conformance suite of `Runs`: the promises of every implementation, tested through public names alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

import dsa
from dsa.errors import BindingError, MachineError, OccurrenceError, ParameterError
from dsa.runtime.run_store import HeldError, StoreError, UnknownRunError

ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| looking | |
| drafted | |
| end.sent | final |
| end.dropped | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| found | look |
| approved | outside |
| dropped | outside |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | question | looking | look |
| looking | found | drafted | |
| drafted | approved | end.sent | |
| drafted | dropped | end.dropped | |
| drafted | after 24h | end.dropped | |
"""
#: A sleep that answers by itself after a time, and another one that is cancelled before.
NAP = """# nap

## States
| state | kind |
| --- | --- |
| idle | initial |
| asleep | |
| up | final |

## Events
| event | from |
| --- | --- |
| tired | outside |
| woken | outside |
| rise | short |
| morning | long |

## Effects
| effect | is | options |
| --- | --- | --- |
| short | sleep | for = 100ms |
| long | sleep | for = 24h |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | tired | asleep | short, long |
| asleep | rise | up | |
| asleep | morning | up | |
| asleep | woken | = | cancel |
| asleep | tired | = | |
"""
Test = Callable[["Desk"], Awaitable[None]]


@attrs.define
class Desk:
    """A place for runs of the machine `order`, whose effect waits until it may go on."""

    runs: dsa.Runs
    folder: Path
    may_go_on: asyncio.Event = attrs.field(factory=asyncio.Event)
    looked: list[Any] = attrs.field(factory=list)
    began: asyncio.Queue[None] = attrs.field(factory=asyncio.Queue)

    @property
    def file(self) -> Path:
        path = self.folder / "order.md"
        path.write_text(ORDER)
        return path

    @property
    def bindings(self) -> dsa.Bindings:
        @dsa.answering("found")
        async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
            self.looked.append(action.payload["data"])
            self.began.put_nowait(None)
            await self.may_go_on.wait()
            return [dsa.event_step("look", "found", data={"order": "A17"})]

        return dsa.Bindings({"look": look})

    async def start(self, **more: Any) -> dsa.RunHandle:
        return await self.runs.start(self.file, {"text": "where is it?"}, bindings=self.bindings, **more)

    async def drafted(self) -> dsa.RunHandle:
        """Start a run and wait until it asks a person."""
        self.may_go_on.set()
        run = await self.start()
        assert (await run.rest()).kind == "waiting"
        return run


@pytest.fixture(params=["folder", "memory:", "temporal"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Test], None]:
    """Run a test in an event loop, with a desk of each implementation."""
    where = next(request.getfixturevalue("namespaces")) if request.param == "temporal" else request.param

    def run(test: Test) -> None:
        async def whole() -> None:
            where_now = tmp_path / "runs" if where == "folder" else where
            async with dsa.open_runs(where_now) as runs:
                await test(Desk(runs, tmp_path))

        asyncio.run(asyncio.wait_for(whole(), 30))

    return run


def test_start_returns_before_the_first_effect_ends(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.start()
        assert run.is_driven
        assert desk.runs.handle(run.id) is run
        desk.may_go_on.set()
        rest = await run.rest()
        assert rest.kind == "waiting"
        assert rest.run.configuration.state == "drafted"
        assert desk.looked == [{"text": "where is it?"}]
        assert desk.runs.ids() == (run.id,)

    door(test)


def test_run_whose_start_fails_leaves_nothing_behind(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        with pytest.raises(BindingError, match="the effect 'look' has no policy"):
            await desk.runs.start(desk.file, {})
        broken = desk.folder / "broken.md"
        broken.write_text("# broken\n")
        with pytest.raises(MachineError):
            await desk.runs.start(broken)
        assert desk.runs.ids() == ()

    door(test)


def test_invalid_run_id_is_refused(door: Callable[[Test], None]) -> None:
    """Such an id would name a folder elsewhere, or could not be typed."""

    async def test(desk: Desk) -> None:
        for run_id in ("../up", "last", "a@1", "two\nlines", "a/b", ".hidden", "-r", "n" * 201):
            with pytest.raises(ParameterError, match="cannot be the id of a run: use at most 200 letters, digits"):
                await desk.start(run_id=run_id)
        assert desk.runs.ids() == ()

    door(test)


def test_moments_are_numbered_end_at_rest_and_can_be_read_again(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        watched = list[tuple[int, bool]]()
        run = await desk.start(on_moment=lambda moment, is_new: watched.append((moment.number, is_new)))
        desk.may_go_on.set()
        seen = [moment async for moment in run.moments()]
        assert [moment.number for moment in seen] == list(range(1, len(seen) + 1))
        assert seen[0].kind == "machine"
        assert {moment.run for moment in seen} == {run.id}
        assert watched == [(moment.number, True) for moment in seen]
        assert [moment async for moment in run.moments(after=2)] == seen[2:]
        assert [moment.entry for moment in seen] == list(desk.runs.get(run.id).stored_run.entries)

    door(test)


def test_reader_that_goes_away_does_not_stop_the_run(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.start()
        waiting = asyncio.create_task(run.rest())
        reading = asyncio.create_task(_all(run.moments()))
        staying = asyncio.create_task(_all(run.moments()))
        await asyncio.sleep(0)
        waiting.cancel()
        reading.cancel()
        await asyncio.wait({waiting, reading})
        desk.may_go_on.set()
        assert (await run.rest()).kind == "waiting"
        assert (await staying)[-1].number == len(run.run.ledger)

    door(test)


async def _all(moments: AsyncIterator[dsa.Moment]) -> list[dsa.Moment]:
    return [moment async for moment in moments]


def test_rest_returns_while_a_timer_runs_and_lists_the_awaited_events(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        rest = await run.rest()
        assert set(rest.waits_for) == {"approved", "dropped"}
        assert rest.due_ms is not None
        assert rest.outcome is None

    door(test)


def test_sleep_answers_when_its_time_is_over_but_not_when_cancelled(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        file = desk.folder / "nap.md"
        file.write_text(NAP)
        run = await desk.runs.start(file, {"who": "ann"}, bindings=dsa.Bindings({}))
        rest = await run.rest()
        assert (rest.kind, set(rest.waits_for)) == ("waiting", {"tired", "woken"})
        assert rest.due_ms is not None
        rest = await run.rest(through_timers=True)
        last = [moment.entry async for moment in run.moments()][-2]
        assert (rest.outcome, last.event, last.key, last.data) == ("up", "rise", "1/1", {"who": "ann"})
        run = await desk.runs.start(file, {"who": "bob"}, bindings=dsa.Bindings({}))
        assert (await run.rest()).due_ms is not None
        assert isinstance(await desk.runs.send(run.id, "woken"), dsa.Taken)
        rest = await run.rest()
        assert (rest.kind, rest.due_ms) == ("waiting", None)

    door(test)


def test_sent_event_is_taken_or_refused(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        refused = await desk.runs.send(run.id, "question", {})
        assert isinstance(refused, dsa.Refusal)
        assert refused.reason == "invalid_state"
        assert refused.accepted == ("after 24h", "approved", "dropped")
        taken = await desk.runs.send(run.id, "approved", {"by": "ann"})
        assert isinstance(taken, dsa.Taken)
        assert taken.configuration.state == "end.sent"
        rest = await run.rest()
        assert (rest.kind, rest.outcome) == ("finished", "sent")
        over = await desk.runs.send(run.id, "approved")
        assert isinstance(over, dsa.Refusal)
        assert over.reason == "finished"

    door(test)


def test_answer_to_a_past_question_is_refused_as_late(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        rest = await run.rest()
        late = await desk.runs.send(run.id, "approved", at="1")
        assert isinstance(late, dsa.Refusal)
        assert late.reason == "late"
        assert isinstance(await desk.runs.send(run.id, "approved", at=rest.waits_for["approved"]), dsa.Taken)
        assert desk.runs.get(run.id).run.outcome == "sent"

    door(test)


def test_only_one_of_several_simultaneous_answers_is_taken(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        place = (await run.rest()).waits_for["approved"]
        answers = (desk.runs.send(run.id, "approved", {"by": name}, at=place) for name in ("ann", "bob", "cid"))
        outcomes = await asyncio.gather(*answers)
        assert sum(isinstance(each, dsa.Taken) for each in outcomes) == 1
        assert {each.reason for each in outcomes if isinstance(each, dsa.Refusal)} <= {"late", "finished"}
        assert (await run.rest()).outcome == "sent"

    door(test)


def test_event_that_cannot_be_sent_is_an_error_and_changes_nothing(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        before = len(run.run.ledger)
        with pytest.raises(OccurrenceError, match="does not come from outside"):
            await desk.runs.send(run.id, "found")
        with pytest.raises(OccurrenceError, match="approved"):
            await desk.runs.send(run.id, "aproved")
        with pytest.raises(UnknownRunError):
            await desk.runs.send("nobody", "approved")
        assert len(desk.runs.get(run.id).stored_run.entries) == before

    door(test)


def test_interrupted_run_can_be_resumed_while_other_runs_go_on(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run, other = await desk.start(), await desk.start()
        await desk.began.get()
        await desk.began.get()
        await desk.runs.interrupt(run.id)
        assert (await run.rest()).kind == "interrupted"
        assert not run.is_driven
        assert other.is_driven
        desk.may_go_on.set()
        assert (await other.rest()).kind == "waiting"
        again = await desk.runs.resume(run.id, options=dsa.Options(bindings=desk.bindings))
        assert (await again.rest()).run.configuration.state == "drafted"
        assert len(desk.looked) == 3

    door(test)


def test_driven_run_cannot_be_resumed_a_second_time(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.start()
        with pytest.raises(HeldError):
            await desk.runs.resume(run.id)
        desk.may_go_on.set()
        await run.rest()

    door(test)


@pytest.mark.parametrize("door", ["folder", "temporal"], indirect=True)
def test_closed_runs_raise_an_error_and_can_be_closed_again(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        await desk.start()
        await desk.runs.close()
        with pytest.raises(StoreError, match="this handle is closed; open"):
            desk.runs.ids()
        with pytest.raises(StoreError, match="this handle is closed; open"):
            await desk.start()
        with pytest.raises(StoreError, match="this handle is closed; open"):
            await desk.runs.send("order1", "approved")

    door(test)


def test_old_handle_continues_from_entries_recorded_meanwhile(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        await run.interrupt()
        await desk.runs.send(run.id, "question", {})  # refused, and recorded
        taken = await run.send("approved")
        assert isinstance(taken, dsa.Taken)
        assert [moment.number async for moment in run.moments()][-1] == len(desk.runs.get(run.id).stored_run.entries)

    door(test)


def test_followers_see_everything_until_the_end(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.start()
        following = asyncio.create_task(_all(desk.runs.follow(run.id)))
        late = asyncio.create_task(_all(desk.runs.follow(run.id, after=3)))
        desk.may_go_on.set()
        await run.rest()
        await desk.runs.send(run.id, "dropped")
        entries = desk.runs.get(run.id).stored_run.entries
        assert [moment.entry for moment in await following] == list(entries)
        assert [moment.number for moment in await late] == list(range(4, len(entries) + 1))

    door(test)


@pytest.mark.parametrize("stopped", [None, asyncio.CancelledError, KeyboardInterrupt, ValueError])
def test_leaving_releases_driven_runs_and_ctrl_c_or_cancellation_interrupts_them(
    tmp_path: Path, stopped: type[BaseException] | None
) -> None:
    async def whole() -> None:
        with suppress(*([stopped] if stopped else [])):
            async with dsa.open_runs(tmp_path / "runs") as runs:
                desk = Desk(runs, tmp_path)
                run = await desk.start()
                if stopped:
                    raise stopped
        assert (await run.rest()).kind == "interrupted"
        with dsa.open_runs(tmp_path / "runs") as runs:
            is_left = stopped in {None, ValueError}
            assert runs.summary(run.id).status == ("cut off" if is_left else "interrupted")
        async with dsa.open_runs(tmp_path / "runs", bindings=desk.bindings) as runs:
            desk.may_go_on.set()
            again = await runs.resume(run.id)
            assert (await again.rest()).kind == "waiting"

    asyncio.run(asyncio.wait_for(whole(), 30))


def test_stopped_run_reports_its_failure_and_refuses_unexpected_events(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        @dsa.answering("found")
        async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
            await desk.may_go_on.wait()
            raise OSError("no route")

        run = await desk.runs.start(desk.file, {}, bindings=dsa.Bindings({"look": look}))
        desk.may_go_on.set()
        rest = await run.rest()
        assert rest.kind == "stopped"
        assert rest.failure is not None
        assert "no route" in str(rest.failure)
        refused = await desk.runs.send(run.id, "approved")
        assert isinstance(refused, dsa.Refusal)
        assert refused.reason == "invalid_state"
        assert (await run.rest()).kind == "stopped"

    door(test)


def test_list_shows_the_status_of_runs_and_filters_them(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        waiting = await desk.drafted()
        over = await desk.drafted()
        await desk.runs.send(over.id, "approved")
        await over.rest()
        first, second = await desk.runs.list()
        assert (first.run, second.run) == (waiting.id, over.id)
        assert first.summary.machine == "order"
        assert first.summary.about == "where is it?"
        assert set(first.summary.waits_for) == {"approved", "dropped"}
        assert first.summary.due_ms is not None
        assert (second.status, second.summary.outcome, second.summary.state) == ("finished", "sent", "end.sent")
        assert [each.run for each in await desk.runs.list(waiting_for="approved")] == [waiting.id]
        assert [each.run for each in await desk.runs.list(status="finished")] == [over.id]
        assert await desk.runs.list(machine="other") == ()
        assert [each.run for each in await desk.runs.list(newest=1)] == [over.id]
        assert [each.run for each in await desk.runs.list(waiting_for="approved", newest=1)] == [waiting.id]
        assert [each.run for each in await desk.runs.list(newest=9)] == [waiting.id, over.id]
        assert await desk.runs.count() == 2

    door(test)


def test_look_returns_what_is_new_in_a_run(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        first = await desk.runs.look(run.id)
        assert (first.text, first.entries) == (ORDER, tuple(desk.runs.entries(run.id)))
        assert first.summary == desk.runs.summary(run.id)
        assert (await desk.runs.look(run.id, after=len(first.entries))).entries == ()
        await desk.runs.send(run.id, "approved")
        await run.rest()
        last = await desk.runs.look(run.id, after=len(first.entries))
        assert last.entries == tuple(desk.runs.entries(run.id))[len(first.entries) :]
        assert (last.summary.status, last.is_driven) == ("finished", False)
        with pytest.raises(UnknownRunError):
            await desk.runs.look("nothing")

    door(test)


def test_removed_run_is_gone_and_its_id_cannot_be_reused(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run, other = await desk.drafted(), await desk.drafted()
        with pytest.raises(HeldError):
            await desk.runs.remove(run.id)
        await run.interrupt()
        await desk.runs.remove(run.id)
        assert desk.runs.ids() == (other.id,)
        with pytest.raises(UnknownRunError):
            desk.runs.get(run.id)
        with pytest.raises(StoreError, match="there was already a run with this id"):
            await desk.start(run_id=run.id)
        with pytest.raises(UnknownRunError):
            await desk.runs.remove(run.id)

    door(test)


def test_branch_starts_like_its_original_and_continues_separately(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        run = await desk.drafted()
        length = len(run.run.ledger)
        await desk.runs.send(run.id, "approved")
        await run.rest()
        name = desk.runs.branch(run.id, length)
        assert desk.runs.get(name).run.configuration.state == "drafted"
        again = await desk.runs.resume(name, options=dsa.Options(bindings=desk.bindings))
        await desk.runs.send(name, "dropped")
        assert (await again.rest()).outcome == "dropped"
        assert desk.runs.get(run.id).run.outcome == "sent"

    door(test)


def test_event_for_a_run_held_elsewhere_goes_through_its_inbox(tmp_path: Path) -> None:
    async def whole() -> None:
        async with dsa.open_runs(tmp_path / "runs") as runs, dsa.open_runs(tmp_path / "runs") as others:
            desk = Desk(runs, tmp_path)
            run = await desk.start()
            late = await others.send(run.id, "approved", {"by": "ann"}, patience_s=0)
            assert isinstance(late, dsa.Posted)
            assert late.delivery is None
            desk.may_go_on.set()
            sent = await others.send(run.id, "dropped", {"by": "bob"})
            assert isinstance(sent, dsa.Posted)
            assert sent.delivery is not None
            rest = await run.rest()
            events = [entry for entry in rest.run.ledger if getattr(entry, "event", "") in {"approved", "dropped"}]
            assert len(events) == 2
            with pytest.raises(OccurrenceError, match="does not come from outside"):
                await others.send(run.id, "found")

    asyncio.run(asyncio.wait_for(whole(), 30))


def test_message_for_a_released_run_is_delivered_by_its_sender(tmp_path: Path) -> None:
    async def whole() -> None:
        bindings = Desk(dsa.open_runs("memory:"), tmp_path).bindings
        async with dsa.open_runs(tmp_path / "runs", bindings=bindings) as others:
            async with dsa.open_runs(tmp_path / "runs") as runs:
                desk = Desk(runs, tmp_path)
                run = await desk.start()
                sending = asyncio.create_task(others.send(run.id, "approved", {}))
                await desk.began.get()
            sent = await sending
            assert isinstance(sent, dsa.Posted)
            assert sent.delivery is not None
            assert sent.delivery.reason == "invalid_state"

    asyncio.run(asyncio.wait_for(whole(), 30))


def test_run_works_in_scripts_without_an_event_loop(tmp_path: Path) -> None:
    desk = Desk(dsa.open_runs("memory:"), tmp_path)

    @dsa.answering("found")
    async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
        raise OSError("no route")

    rest = dsa.run(desk.file, {"text": "?"}, where=tmp_path / "runs", bindings=dsa.Bindings({"look": look}))
    assert rest.kind == "stopped"

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            dsa.run(desk.file, {}, where=tmp_path / "runs", bindings=dsa.Bindings({"look": look}))

    asyncio.run(inside())


def test_text_pieces_arrive_alongside_the_moments(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        @dsa.answering("found")
        async def look(action: dsa.Action, context: dsa.PolicyContext) -> list[dsa.Step]:
            await desk.may_go_on.wait()
            context.show("on its ")
            context.show("way")
            return [dsa.event_step("look", "found")]

        run = await desk.runs.start(desk.file, {}, bindings=dsa.Bindings({"look": look}))
        reading = asyncio.create_task(_all_and_text(run))
        await asyncio.sleep(0)
        desk.may_go_on.set()
        seen = await reading
        assert "".join(each.text for each in seen if isinstance(each, dsa.Piece)) == "on its way"
        moments = [each for each in seen if isinstance(each, dsa.Moment)]
        assert [moment.entry for moment in moments] == list(run.run.ledger)

    door(test)


async def _all_and_text(run: dsa.RunHandle) -> list[dsa.Moment | dsa.Piece]:
    return [each async for each in run.moments_and_text()]


@pytest.mark.parametrize("at", [1, 1.0, b"1"])
def test_place_of_another_type_is_refused_before_anything_happens(door: Callable[[Test], None], at: object) -> None:
    async def test(desk: Desk) -> None:
        desk.may_go_on.set()
        run = await desk.start()
        place = (await run.rest()).waits_for
        (event, *_) = place
        with pytest.raises(TypeError, match='the place of a question must be a string, such as "3"'):
            await desk.runs.send(run.id, event, at=at)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match='the place of a question must be a string, such as "3"'):
            desk.runs.post(run.id, dsa.Occurrence(event), at)  # type: ignore[arg-type]
        assert (await run.rest()).waits_for == place

    door(test)


def test_bindings_may_be_a_module_object(door: Callable[[Test], None]) -> None:
    async def test(desk: Desk) -> None:
        module = ModuleType("desk_of_this_test")
        vars(module)["effects"] = desk.bindings.effects
        desk.may_go_on.set()
        run = await desk.runs.start(desk.file, {"text": "?"}, bindings=module)
        assert (await run.rest()).run.configuration.state == "drafted"

    door(test)


@pytest.mark.parametrize("wrong", [5, {"look": None}, ["look"]])
def test_bindings_of_another_type_are_refused_by_name(door: Callable[[Test], None], wrong: Any) -> None:
    async def test(desk: Desk) -> None:
        with pytest.raises(BindingError, match=f"bindings cannot be of type {type(wrong).__name__}; pass a module"):
            await desk.runs.start(desk.file, {}, bindings=wrong)

    door(test)
