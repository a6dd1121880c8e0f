"""Stories of the shipped machines: how the real driver plays them, and which mutants they have to notice."""

import asyncio
import threading
from functools import partial
from itertools import pairwise

import attrs
from machine_transcripts import story

import dsa
from dsa.runs.setup import RunSetup
from dsa.runtime.ledger import EventEntry, RowEntry
from dsa.runtime.policy.policies import AnsweringPolicy, event_step
from dsa.semantics import Occurrence, Taken, start, step
from dsa.testing.doubles import StillClock

HANGS = "hangs"


class AlarmClock(StillClock):
    """Stands still, but ends long waits once `rings` is set."""

    def __init__(self):
        super().__init__()
        self.rings = asyncio.Event()

    async def sleep(self, seconds):
        if seconds < 600:
            await super().sleep(seconds)
        else:
            await self.rings.wait()


class Hanging:
    """A player of given answers, some of which never come (HANGS). `hung` has their numbers, `let_go` ends the wait."""

    def __init__(self, said, then):
        self._said, self._then = said, then
        self.hung, self.over = [], threading.Event()

    def __call__(self, _body, number):
        said = self._said[number] if number < len(self._said) else self._then
        if said is HANGS:
            self.hung.append(number)
            return partial(self._hang)
        return said

    def _hang(self, handler, _over):
        self.over.wait(20)
        handler.close_connection = True


async def _raise(_action, _context):
    raise RuntimeError("it failed by itself")


def _always(event):
    async def answer(action, _context):
        return [event_step(action.policy, event)]

    return AnsweringPolicy(answer, frozenset({event}))


def with_faults(binding, broken, wrong=()):
    """Let effects fail, or answer with what they never would."""
    wrong = {name: _always(event) for name, event in dict(wrong).items()}
    failing = wrong | {
        name: AnsweringPolicy(_raise, policy.answers) for name, policy in binding.effects.items() if name in broken
    }
    return attrs.evolve(binding, effects={**binding.effects, **failing})


class InOrder:
    """Lets effects that run side by side be performed one by one, in order, once no next one is looked for: a story is the same each time."""

    def __init__(self, effects, dispenser):
        self._effects, self._dispenser = effects, dispenser
        self._waiting = []
        self.handle = None

    def bound(self, binding):
        """Return the bindings with effects that wait for their turn."""
        waiting = {
            name: attrs.evolve(binding.effects[name], policy=self._in_turn(name, binding)) for name in self._effects
        }
        return attrs.evolve(binding, effects={**binding.effects, **waiting})

    def _in_turn(self, name, binding):
        async def perform(action, context):
            turn = object()
            self._waiting.append(turn)
            try:
                while not self._may_go_on(turn):  # noqa: ASYNC110  (the run that it waits for tells nobody)
                    await asyncio.sleep(0.001)
                return await binding.effects[name](action, context)
            finally:
                self._waiting.remove(turn)

        return perform

    def _may_go_on(self, turn):
        outstanding = self.handle.run.configuration.outstanding
        are_heard = sum(effect in self._effects for effect in outstanding) <= len(self._waiting)
        return self._waiting[0] is turn and are_heard and self._dispenser not in outstanding


async def lived(machine, binding, does, player, stopped="", order=None):
    """Drive a run through events from outside; when the model hangs, it is `stopped` by an event, or by `late`, its time limit."""
    clock = AlarmClock()
    async with dsa.open_runs("memory:", clock=clock) as runs:
        handle = runs.begin(RunSetup(machine, binding), run_id="r")
        if order is not None:
            order.handle = handle

        async def stop():
            while not player.hung:  # noqa: ASYNC110  (what it waits for tells nobody)
                await asyncio.sleep(0.002)
            if stopped == "late":
                clock.rings.set()
            else:
                handle.offer(Occurrence(stopped))
            await asyncio.sleep(0.2)
            player.over.set()  # a mutant may wait on: it is not answered either

        stopping = asyncio.ensure_future(stop()) if stopped else None
        for occurrence in does:
            rest = await _driven(handle, occurrence)
        if stopping:
            stopping.cancel()
        return rest


async def _driven(handle, occurrence):
    """Drive until the run rests; where a mutant waits for nothing but its time limit, say so."""
    driving, idle = asyncio.ensure_future(handle.drive(occurrence)), 0
    while not driving.done() and idle < 10:
        await asyncio.wait({driving}, timeout=0.01)
        idle = 0 if handle.run.configuration.outstanding else idle + 1
    if not driving.done():
        driving.cancel()
        raise TimeoutError(f"it rests in {handle.run.configuration.state} and waits")
    return await driving


def as_text(play):
    """Return what `play` gives, how a run ended and who has played; a mutant may break anything, and that is noticed too."""
    try:
        rest, played = play()
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return f"{type(error).__name__}: {error}"
    return "\n".join([story(rest), *played.faults])


def rows_taken(machine, rest):
    """Return the positions of the rows that a run has taken."""
    configuration, found = start(machine), set()
    for entry, following in pairwise(rest.run.ledger):
        if isinstance(entry, EventEntry) and isinstance(following, RowEntry):
            taken = step(machine, configuration, Occurrence(entry.event, entry.verdicts, entry.source))
            assert isinstance(taken, Taken)
            found.add(next(n for n, row in enumerate(machine.transitions) if row is taken.transition))
            configuration = taken.configuration
    return frozenset(found)


def mutants(machine, number):
    """Return what a machine is without a row, and with it leading anywhere else: pairs of words and machine."""
    row, rows = machine.transitions[number], machine.transitions
    stays = row.source if row.source in machine.leaves else None  # where `=` is, it makes no difference
    now = machine.entry_leaf(row.target) if row.target != "=" else stays
    yield "deleted", attrs.evolve(machine, transitions=(*rows[:number], *rows[number + 1 :]))
    for target in machine.leaves:
        if target != now:
            moved = attrs.evolve(row, target=target)
            changed = (*rows[:number], moved, *rows[number + 1 :])
            yield f"retargeted to {target}", attrs.evolve(machine, transitions=changed)
