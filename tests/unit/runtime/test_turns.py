"""Who waits for a result gets it in its turn, and nobody waits for ever."""

import asyncio

from dsa.runtime.policy.policy_calls import Turns


def handed_out(turns, asking, *, rounds=400):
    """Take what is asked for, each position so many rounds later; return the order in which they were handed out."""
    order = []

    async def take(position, known, later):
        for _ in range(later):
            await asyncio.sleep(0)
        await turns.take(position, known)
        order.append(position)

    async def main():
        tasks = [asyncio.ensure_future(take(p, turns.ask(), later)) for p, later in asking.items()]
        for _ in range(rounds):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())
    return order


def test_results_are_handed_out_in_their_recorded_order_whoever_asks_first():
    assert handed_out(Turns([3, 1, 2], is_replay=True), {1: 0, 2: 0, 3: 0}) == [3, 1, 2]
    assert handed_out(Turns([3, 1, 2], is_replay=True), {1: 0, 2: 0, 3: 15}) == [3, 1, 2]


def test_what_is_not_asked_for_is_not_waited_for_for_ever():
    assert handed_out(Turns([3, 1, 2], is_replay=True), {1: 0, 2: 0}) == [1, 2]


def test_between_two_results_there_is_time_to_stop_the_second():
    turns = Turns([1, 2], is_replay=True)

    async def main():
        first, second = (asyncio.ensure_future(turns.take(p, turns.ask())) for p in (1, 2))
        await first
        for _ in range(5):
            await asyncio.sleep(0)
        return second.cancel()

    assert asyncio.run(main())


def test_who_asks_for_one_after_the_other_waits_for_no_round_of_the_loop():
    turns = Turns(range(1, 4), is_replay=True)
    for position in (1, 2, 3):
        taking = turns.take(position, turns.ask())
        try:
            taking.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waited")


def test_a_new_call_starts_when_the_recorded_results_are_handed_out():
    turns = Turns([2, 1], is_replay=True)
    order = []

    async def start():
        turns.ask()
        await turns.start()
        order.append("new")

    async def take(position):
        await turns.take(position, turns.ask())
        order.append(position)

    async def main():
        await asyncio.gather(start(), take(1), take(2))
        await turns.start()  # now nothing is replayed any more

    asyncio.run(main())
    assert order == [2, 1, "new"]


def test_a_new_call_that_is_cancelled_while_it_waits_never_starts():
    turns = Turns([], is_replay=True)

    async def main():
        starting = asyncio.ensure_future(turns.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await turns.start()
        return starting.cancelled()

    assert asyncio.run(main())


def test_a_result_nobody_waits_for_any_more_holds_up_no_other():
    turns = Turns([1, 2], is_replay=True)

    async def main():
        waiting = asyncio.ensure_future(turns.take(2, turns.ask()))
        given_up = asyncio.ensure_future(turns.take(1, turns.ask() - 1))
        await asyncio.sleep(0)
        given_up.cancel()
        await waiting

    asyncio.run(main())
