"""Turns: each result is handed out in its turn, and nothing waits for ever."""

import asyncio

from dsa.runtime.policy.policy_calls import Turns


def handed_out(turns, asking, *, rounds=400):
    """Take each position after its number of rounds; return the order in which the results were handed out."""
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


def test_results_are_handed_out_in_recorded_order_whichever_is_asked_first():
    assert handed_out(Turns([3, 1, 2], is_replay=True), {1: 0, 2: 0, 3: 0}) == [3, 1, 2]
    assert handed_out(Turns([3, 1, 2], is_replay=True), {1: 0, 2: 0, 3: 15}) == [3, 1, 2]


def test_result_that_nothing_asks_for_does_not_block_the_others():
    assert handed_out(Turns([3, 1, 2], is_replay=True), {1: 0, 2: 0}) == [1, 2]


def test_second_result_can_be_cancelled_after_the_first():
    turns = Turns([1, 2], is_replay=True)

    async def main():
        first, second = (asyncio.ensure_future(turns.take(p, turns.ask())) for p in (1, 2))
        await first
        for _ in range(5):
            await asyncio.sleep(0)
        return second.cancel()

    assert asyncio.run(main())


def test_sequential_requests_do_not_wait_for_the_event_loop():
    turns = Turns(range(1, 4), is_replay=True)
    for position in (1, 2, 3):
        taking = turns.take(position, turns.ask())
        try:
            taking.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waited")


def test_new_call_starts_after_the_recorded_results_are_handed_out():
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
        await turns.start()  # by now nothing is left to replay

    asyncio.run(main())
    assert order == [2, 1, "new"]


def test_new_call_cancelled_while_it_waits_never_starts():
    turns = Turns([], is_replay=True)

    async def main():
        starting = asyncio.ensure_future(turns.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await turns.start()
        return starting.cancelled()

    assert asyncio.run(main())


def test_abandoned_result_does_not_block_the_others():
    turns = Turns([1, 2], is_replay=True)

    async def main():
        waiting = asyncio.ensure_future(turns.take(2, turns.ask()))
        given_up = asyncio.ensure_future(turns.take(1, turns.ask() - 1))
        await asyncio.sleep(0)
        given_up.cancel()
        await waiting

    asyncio.run(main())
