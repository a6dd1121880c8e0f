"""What the world does while a process waits for it: effects come back, time passes, somebody sends an event.

Is asked whenever nothing can run; does the one thing that is intended where it can be done, else something that can be.
"""

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from dsa.declarations import OUTSIDE
from dsa.meaning import Occurrence
from dsa.testing.simulation.process import Process
from dsa.testing.simulation.world import Call

if TYPE_CHECKING:
    from dsa.testing.simulation.story import Story

#: How often time may pass after nothing is sent to a run any more: some circle by timers for ever.
_MOST_WAKES = 12
#: How many rows may be taken after that, and how many moves a story has in all: so many, and some for each row that is planned.
_MOST_ROWS, _MOST_MOVES, _MOVES_A_ROW = 8, 400, 4


class Acts:
    """Plays the world of one story."""

    def __init__(self, story: "Story") -> None:
        self._story = story
        self._facts, self._plan, self._world = story.facts, story.plan, story.world
        self._chance = story.plan.chance
        self._wakes = self._moves = 0

    def let(self, process: Process, moves: int | None) -> None:
        """Let a process run until it ends, or so many moves were made."""
        left = [moves]
        process.play(partial(self._idle, process, left))

    def is_outside(self, occurrence: Occurrence) -> bool:
        """Tell whether an occurrence comes from outside."""
        event = self._facts.machine.event_named.get(occurrence.event)
        return occurrence.source is None and event is not None and event.origin == OUTSIDE

    def _idle(self, process: Process, left: list[int | None]) -> bool:
        """Make the next move; tell whether there was one."""
        story = self._story
        if not process.is_alive or story.is_broken:
            return False
        self._moves += 1
        if (
            self._moves > _MOST_MOVES + _MOVES_A_ROW * self._plan.longest
            or self._facts.position >= self._plan.longest + _MOST_ROWS
        ):
            return self._enough(process)
        if left[0] is not None:
            if not left[0]:
                return False
            left[0] -= 1
        calls = self._world.waiting(process)
        if not process.is_stale:
            story.court.idle([call.key for call in calls])
            if story.mishaps.idle(process, calls):
                return not story.is_broken
        return self._act(process, self._world.waiting(process))

    def _act(self, process: Process, calls: list[Call]) -> bool:
        facts = self._facts
        blocking = next((call for call in calls if call.effect not in facts.machine.answers), None)
        if blocking is not None:
            return self.let_go(blocking)
        if not process.is_stale:
            intended = self._plan.intended(facts.position, facts.configuration)
            if intended is not None and self._realised(process, intended, calls):
                return True
        if calls:
            facts.deeds.unplanned = True
            return self.let_go(self._chance.one_of(calls, "any", self._moves))
        if process.loop.next_s < inf:
            return self._wake(process)
        if process.is_stale:
            return self._killed(process)
        return self._stuck(process)

    def _realised(self, process: Process, intended: Occurrence, calls: list[Call]) -> bool:
        """Do what is intended, if it can be done now."""
        facts = self._facts
        if intended.source is not None:
            return process.loop.next_s < inf and self._wake(process)
        if self.is_outside(intended):
            if facts.position >= self._plan.longest or process.sent_at == facts.position:
                return False
            process.sent_at = facts.position
            process.send(self._story.sending(intended))
            return True
        effect = facts.machine.event_named[intended.event].origin
        call = next((call for call in calls if call.key == facts.keys.get(effect)), None)
        if call is None:
            return process.loop.next_s < inf and self._wake(process)
        if len(calls) > 1 and self._chance.happens(10, "burst", facts.position):
            facts.deeds.unplanned = True
            self.let_go(next(other for other in calls if other is not call))
        return self.let_go(call, intended.event)

    def let_go(self, call: Call, event: str | None = None) -> bool:
        """Let an effect happen and come back; with an event by chance when none is given. Give true."""
        answers = self._facts.machine.answers.get(call.effect, ())
        if event is None and answers:
            event = self._chance.one_of(answers, "event", call.key, self._facts.deeds.begun[call.key])
        call.comes_back(event)
        call.let_go()
        return True

    def _wake(self, process: Process) -> bool:
        if self._facts.position >= self._plan.longest:
            self._wakes += 1
            if self._wakes > _MOST_WAKES:
                return self._enough(process)
        if not process.is_stale:
            self._story.court.wakes(process.loop.next_s)
        process.loop.wake_next()
        return True

    def _enough(self, process: Process) -> bool:
        """End the story: what goes on for ever has gone on for long enough."""
        self._story.is_over = True
        return self._killed(process)

    def _killed(self, process: Process) -> bool:
        process.die()
        return True

    def _stuck(self, process: Process) -> bool:
        """Nothing can happen. After an answer was lost somebody ends the process in the end, and the run is taken up."""
        if "lost answer" in self._story.strikes.struck:
            self._story.tell(f"somebody ends {process.name}, which waits for a lost answer")
            return self._killed(process)
        self._story.court.failed("nothing is under way, no timer runs, and the driver neither rests nor ends")
        return False
