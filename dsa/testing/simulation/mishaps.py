"""Mishaps and acts: the faults of a story, when they strike, and what the world does while a process waits for it.

`Strikes` decides when something goes wrong: at the triple that a seed aims at, and at a few more boundaries that it draws. It is asked at
every boundary that a run passes, returns a fault or None, and keeps the faults that came.

`Mishaps` watches the processes and makes the faults: processes killed, power cut, disks that fail, runs taken over, clocks set, answers lost,
doubled and late.

`Acts` plays the world: effects come back, time passes, events are sent. Whenever nothing can run, it does what is intended where that is
possible, else something that is.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from dsa.declarations import OUTSIDE
from dsa.runtime.costs import BUDGET
from dsa.runtime.ledger import DecidedEntry, Entry, EventEntry, ResultEntry, ResumedEntry
from dsa.runtime.run_store import StoredRun, StoreError
from dsa.runtime.status import Rest
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.testing.simulation.disk_store import Stage, frames
from dsa.testing.simulation.facts import RunFacts
from dsa.testing.simulation.process import Boundaries, KilledError, PersonInput, Process
from dsa.testing.simulation.seed_plan import (
    FAULTS_AT,
    RUN_ID,
    Boundary,
    Chance,
    Fault,
    SeedPlan,
    Triple,
    outside_events,
)
from dsa.testing.simulation.world import Fate, WorldCall

if TYPE_CHECKING:
    from dsa.testing.simulation.story import Story

#: The boundaries of an append that records a row, and of one that records the result of an effect.
_OF_ROWS: Boundaries = {"before": "before", "unsynced": "unsynced", "durable": "durable"}
_OF_RESULTS: Boundaries = {"before": "performed", "unsynced": "result unsynced", "durable": "recorded"}
_OF_DECISIONS: Boundaries = dict.fromkeys(_OF_ROWS, "recovering")
_OF_RESUMPTIONS: Boundaries = {**_OF_DECISIONS, "durable": "after resumed"}
_SET_BY_MS = (1_000, 3_600_000, 86_400_000)
#: How many moves of the world the process that took a run over is ahead of the one that lost it.
_AHEAD = (0, 3, 1_000)
#: How many rows a run may take beyond those that are planned once its budget is spent.
_MOST_ROUNDS = 20
_FATES: dict[Fault, Fate] = {"lost answer": "lost", "failure": "fails", "garbled answer": "garbled"}
#: The last frame cannot be told from one that was torn, so it is not damaged here.
_TWO = 2


class Mishaps:
    """Makes the faults of one story, and watches its processes."""

    def __init__(self, story: "Story") -> None:
        self._story = story
        self._facts, self._strikes, self._chance = story.facts, story.strikes, story.plan.chance
        self._is_full = False

    # -- reports of processes -----------------------------------------------------------------------------------------

    def on_append(self, process: Process, stage: Stage, entries: Sequence[Entry], epoch: int) -> None:
        """Judge what was written, and let something go wrong where it is due."""
        facts, court = self._facts, self._story.court
        if court.violation is not None or (BUDGET in facts.deeds.excused_codes and self._goes_round(process)):
            raise KilledError
        if stage == "before":
            self._require_space(process)
            boundaries = () if process.is_stale else self._boundaries_of(entries)
            process.boundaries = () if self._strikes.passes(boundaries) else boundaries
        elif stage == "unsynced":
            facts.writes(entries)
        else:
            facts.epoch = facts.epoch or epoch
            court.judge_write(process, entries, epoch)
            if court.violation is not None:
                raise KilledError
        if process.boundaries and not process.is_stale:
            for of, row in process.boundaries:
                self._strike(process, of[stage], row, stage, entries)

    def _goes_round(self, process: Process) -> bool:
        """End a story whose table asks again and again for an effect whose budget is spent, faster than any time passes."""
        if self._facts.position < self._story.plan.longest + _MOST_ROUNDS:
            return False
        self._story.is_over = True
        process.die()
        return True

    def on_hold(self, process: Process, stage: Stage, epoch: int) -> None:
        """Let something go wrong as a run is taken up."""
        if stage == "durable":
            self._facts.epoch = epoch
        if not process.is_quiet:
            if stage == "before":
                self._require_space(process)
            self._strike(process, "recovering", self._facts.row, stage, ())

    def on_run_read(self, process: Process, stored_run: StoredRun) -> None:
        """Judge what was read of a run that is held, and let something go wrong before anything is done with it."""
        self._story.court.judge_read(tuple(stored_run.entries), stored_run.epoch)
        if not process.is_quiet:
            self._strike(process, "after hold", self._facts.row, "durable", ())

    def on_release(self, process: Process, stage: Stage) -> None:
        """Let something go wrong as a run is released."""
        if not (process.is_quiet or process.is_stale):
            if stage == "before":
                self._require_space(process)
            self._strike(process, "releasing", self._facts.row, stage, ())

    def on_begin(self, process: Process, key: str, effect: str, beside: tuple[str, ...]) -> None:
        """Judge that a policy is called."""
        self._story.court.judge_begin(process, key, effect, beside)

    def on_show(self, process: Process, entry: Entry) -> None:
        """Judge that an entry is shown."""
        court = self._story.court
        court.judge_show(process, entry)
        if court.violation is not None:
            raise KilledError

    def on_reply(self, occurrence: Occurrence, answer: Taken | Refusal) -> None:
        """Judge the reply to a sender."""
        self._story.court.judge_reply(occurrence, answer)

    def on_fault(self, fault: BaseException) -> None:
        """Judge a fault that a sender met."""
        self._story.court.judge_fault(fault)

    def _boundaries_of(self, entries: Sequence[Entry]) -> Sequence[tuple[Boundaries, int | None]]:
        """Return the boundaries of an append, with the rows that they belong to: a result is mostly written with the row that follows."""
        boundaries: list[tuple[Boundaries, int | None]] = []
        for entry in entries:
            if type(entry) is ResultEntry:
                boundaries.append((_OF_RESULTS, self._facts.row_of_key.get(entry.key)))
            elif type(entry) is EventEntry:
                outcome = self._facts.outcome_of(entry)
                boundaries.append((_OF_ROWS, self._facts.row_of(outcome) if isinstance(outcome, Taken) else None))
            elif type(entry) is DecidedEntry:
                return [(_OF_DECISIONS, self._facts.row)]
            elif type(entry) is ResumedEntry:
                return [(_OF_RESUMPTIONS, self._facts.row)]
        return boundaries or [(_OF_ROWS, None)]

    def _require_space(self, process: Process) -> None:
        """Raise StoreError on a disk that is still full; then somebody makes room."""
        if self._is_full:
            self._is_full = process.may_write = False
            raise StoreError("no space is left on the disk")

    # -- what goes wrong at an append -----------------------------------------------------------------------------------

    def _strike(
        self, process: Process, boundary: Boundary, row: int | None, stage: Stage, entries: Sequence[Entry]
    ) -> None:
        fault = self._strikes.due(boundary, row, stage)
        if fault is None or fault == "damage" or (fault == "takeover" and not self._facts.entries):
            return  # nobody can take a run that is not there yet
        if fault == "doubled answer":
            if self._repeat_answer(process, entries):
                self._record_fault(boundary, row, fault)
            return
        self._record_fault(boundary, row, fault)
        match fault:
            case "takeover":
                self._take_over(process)
            case "second holder":
                self._ask_for_it(process)
            case "write fails":
                self._is_full = self._chance.happens(30, "full")
                process.may_write = False
                raise StoreError("no space is left on the disk")
            case "sync fails":
                self._unsync(process, entries)
                raise StoreError("the disk failed to sync")
            case _:
                self._end(process, fault)
                raise KilledError

    def _record_fault(self, boundary: Boundary, row: int | None, fault: Fault) -> None:
        self._strikes.record(boundary, row, fault)
        self._story.tell(f"!! {fault}, {boundary}")

    def _unsync(self, process: Process, entries: Sequence[Entry]) -> None:
        """Keep what was not synced, or lose it, by chance."""
        process.may_write = False
        file = self._story.files[RUN_ID]
        if self._chance.happens(50, "unsynced"):
            file.cut(file.synced_length)
            if entries:
                self._facts.being_written = ()

    def _end(self, process: Process, fault: Fault) -> None:
        """End a process, or the machine with all of them."""
        process.die()
        if fault == "power cut":
            for other in self._story.processes.values():
                if other.is_alive:
                    other.die()
            if RUN_ID in self._story.files:
                self._story.files[RUN_ID].lose_power(self._chance)

    def _take_over(self, process: Process) -> None:
        """Have another process take the run; the one that had it does not know."""
        rival = self._story.new_process()
        rival.is_quiet = True
        process.rival, process.is_stale = rival, True
        self._facts.deeds.was_taken = True
        rival.take_up(PersonInput(), take=True)
        rival.is_quiet = False
        rival.drive()

    def _ask_for_it(self, process: Process) -> None:
        """Have another process ask for the run: one process at a time may hold it, and any process while nobody does."""
        other, has_run = self._story.new_process(), process.has_run
        other.is_quiet = True
        if other.may_hold() is has_run:
            self._story.court.judge_fault(
                "two processes hold one run" if has_run else "no process holds the run, yet a process cannot take it"
            )

    def _repeat_answer(self, process: Process, entries: Sequence[Entry]) -> bool:
        """Have an answer arrive once more; return whether the entries have one."""
        event = next((entry for entry in entries if isinstance(entry, EventEntry)), None)
        if event is None or event.key is None:
            return False
        self._facts.deeds.is_unplanned = True
        process.hear(self._facts.intents[event.key], Occurrence(event.event, event.verdicts, data=event.data))
        return True

    # -- what goes wrong while a process waits ------------------------------------------------------------------------------

    def idle(self, process: Process, calls: list[WorldCall]) -> bool:
        """Let something go wrong while the process waits for the world; return whether it did."""
        row = self._facts.row
        own = [call for call in calls if self._facts.row_of_key.get(call.key) == row]
        boundary: Boundary = "performing" if own else "resting"
        fault = self._strikes.due(boundary, row)
        return fault is not None and self._make_fault(process, boundary, fault, own)

    def at_rest(self, process: Process, rest: Rest) -> None:
        """Let something go wrong after the run has come to rest."""
        fault = self._strikes.due("resting", self._facts.row)
        if fault is None or (rest.in_doubt and fault == "late answer"):
            return
        if fault == "stray event" and outside_events(self._facts.machine):
            self._story.stray = _stray(self._facts, self._chance)
            self._record_fault("resting", self._facts.row, fault)
        elif self._make_fault(process, "resting", fault, []) and fault == "late answer":
            process.drive()

    def _make_fault(self, process: Process, boundary: Boundary, fault: Fault, own: list[WorldCall]) -> bool:
        """Make a fault, if it can be made now; return whether it was."""
        facts = self._facts
        late = None if facts.is_finished or not facts.cancelled_intents else facts.cancelled_intents[-1]
        if (fault == "late answer" and late is None) or (fault == "stray event" and not outside_events(facts.machine)):
            return False
        self._record_fault(boundary, facts.row, fault)
        match fault:
            case "takeover":
                self._take_over(process)
                if process.ending is None and process.rival is not None:
                    self._story.live(process.rival, self._chance.one_of(_AHEAD, "ahead"))
            case "second holder":
                self._ask_for_it(process)
            case "clock forward" | "clock back":
                sign = 1 if fault == "clock forward" else -1
                self._story.time.set_by_ms += sign * self._chance.one_of(_SET_BY_MS, "clock")
            case "stray event":
                process.send(self._story.outside_event(_stray(facts, self._chance)))
            case "late answer":
                assert late is not None, "something was cancelled"
                facts.deeds.is_unplanned = True
                event = self._chance.one_of(facts.machine.answers[late.effect], "late")
                process.hear(late, Occurrence(event, data={"late": late.key}))
            case "lost answer" | "failure" | "garbled answer":
                self._fail(own[0], fault)
            case _:
                self._end(process, fault)
        return True

    def _fail(self, call: WorldCall, fault: Fault) -> None:
        """Let an effect fail, or go amiss after it has happened."""
        call.fate = _FATES[fault]
        self._facts.deeds.is_unplanned = True
        call.let_go()

    # -- what goes wrong while nobody holds the run -------------------------------------------------------------------------

    def damage(self) -> Callable[[], None] | None:
        """Change a byte of the ledger, where that is due; return what changes it back."""
        file = self._story.files.get(RUN_ID)
        due = self._strikes.due("recovering", self._facts.row, "before")
        ends = [end for end, _ in frames(file.content)] if due == "damage" and file is not None else []
        if file is None or len(ends) < _TWO:
            return None
        at = self._chance.below(ends[-2], "byte")
        file.flip(at)
        self._record_fault("recovering", self._facts.row, "damage")
        return lambda: file.flip(at)


def _stray(facts: RunFacts, chance: Chance) -> Occurrence:
    """Return an event from outside that nobody has planned."""
    facts.deeds.is_unplanned = True
    return Occurrence(chance.one_of(outside_events(facts.machine), "stray"))


#: How often time may pass after the last event is sent to a run: some loop by timers for ever.
_MOST_WAKES = 12
#: How many rows may be taken after that, and how many moves a story has in all: these, and some for each row that is planned.
_MOST_ROWS, _MOST_MOVES, _MOVES_A_ROW = 8, 400, 4


class Acts:
    """Plays the world of one story."""

    def __init__(self, story: "Story") -> None:
        self._story = story
        self._facts, self._plan, self._world = story.facts, story.plan, story.world
        self._chance = story.plan.chance
        self._wakes = self._moves = 0

    def let(self, process: Process, moves: int | None) -> None:
        """Let a process run until it ends, or has made a number of moves."""
        left = [moves]
        process.play(partial(self._idle, process, left))

    def is_outside(self, occurrence: Occurrence) -> bool:
        """Return whether an occurrence comes from outside."""
        event = self._facts.machine.event_named.get(occurrence.event)
        return occurrence.source is None and event is not None and event.origin == OUTSIDE

    def _idle(self, process: Process, left: list[int | None]) -> bool:
        """Make the next move; return whether there was one."""
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
        calls = self._world.waiting_calls(process)
        if not process.is_stale:
            story.court.judge_idle([call.key for call in calls])
            if story.mishaps.idle(process, calls):
                return not story.is_broken
        return self._act(process, self._world.waiting_calls(process))

    def _act(self, process: Process, calls: list[WorldCall]) -> bool:
        facts = self._facts
        blocking_call = next((call for call in calls if call.effect not in facts.machine.answers), None)
        if blocking_call is not None:
            return self.let_go(blocking_call)
        if not process.is_stale:
            intention = self._plan.next_occurrence(facts.position, facts.configuration)
            if intention is not None and self._realise(process, intention, calls):
                return True
        if calls:
            facts.deeds.is_unplanned = True
            return self.let_go(self._chance.one_of(calls, "any", self._moves))
        if process.loop.next_s < inf:
            return self._wake(process)
        if process.is_stale:
            return self._kill(process)
        return self._give_up(process)

    def _realise(self, process: Process, intention: Occurrence, calls: list[WorldCall]) -> bool:
        """Do what is intended, if it can be done now."""
        facts = self._facts
        if intention.source is not None:
            return process.loop.next_s < inf and self._wake(process)
        if self.is_outside(intention):
            if facts.position >= self._plan.longest or process.sent_at == facts.position:
                return False
            process.sent_at = facts.position
            process.send(self._story.outside_event(intention))
            return True
        effect = facts.machine.event_named[intention.event].origin
        own_calls = [call for call in calls if facts.keys.get(call.key) == effect]
        if not own_calls:
            return process.loop.next_s < inf and self._wake(process)
        call = own_calls[0] if len(own_calls) == 1 else self._chance.one_of(own_calls, "emission", facts.position)
        if len(calls) > 1 and self._chance.happens(10, "burst", facts.position):
            facts.deeds.is_unplanned = True
            self.let_go(next(other for other in calls if other is not call))
        return self.let_go(call, intention.event)

    def let_go(self, call: WorldCall, event: str | None = None) -> bool:
        """Let an effect happen and come back, with an event by chance when none is given; return True."""
        answers = self._facts.machine.answers.get(call.effect, ())
        if event is None and answers:
            event = self._chance.one_of(answers, "event", call.key, self._facts.deeds.begin_count[call.key])
        self._world.let_go(call, event)
        return True

    def _wake(self, process: Process) -> bool:
        if self._facts.position >= self._plan.longest:
            self._wakes += 1
            if self._wakes > _MOST_WAKES:
                return self._enough(process)
        if not process.is_stale:
            self._story.court.judge_wake(process.loop.next_s)
        process.loop.wake_next()
        return True

    def _enough(self, process: Process) -> bool:
        """End a story that has gone on for long enough."""
        self._story.is_over = True
        return self._kill(process)

    def _kill(self, process: Process) -> bool:
        process.die()
        return True

    def _give_up(self, process: Process) -> bool:
        """End a process for which nothing can happen, after a lost answer, so that the run is taken up; else report a fault."""
        if "lost answer" in self._story.strikes.faults:
            self._story.tell(f"somebody ends {process.name}, which waits for a lost answer")
            return self._kill(process)
        self._story.court.judge_fault("nothing is under way, no timer runs, and the driver neither rests nor ends")
        return False


#: The boundaries that have several stages, and where in them a fault may strike; others may at every stage.
_STAGED_BOUNDARIES: tuple[Boundary, ...] = ("recovering", "releasing")
#: The boundaries that only a run passes that is taken up.
_RECOVERY_BOUNDARIES: tuple[Boundary, ...] = ("recovering", "after hold", "after resumed")
_STAGE_OF: dict[Fault, Stage] = {"damage": "before", "write fails": "before", "sync fails": "unsynced"}
_STAGES: tuple[Stage, ...] = ("before", "unsynced", "durable")


class Strikes:
    """The faults of one story. `faults` are those that came, in order; `hits` the triples among them."""

    def __init__(self, plan: SeedPlan) -> None:
        self._aim, self._chance, self._further = plan.aim, plan.chance, plan.further
        self._stage = _STAGE_OF.get(plan.aim.fault) or plan.chance.one_of(_STAGES, "stage")
        self._has_struck = self._was_cut = False
        self._visits = 0
        self.faults: list[Fault] = []
        self.hits: Counter[Triple] = Counter()

    @property
    def chance(self) -> Chance:
        """The draws of this seed."""
        return self._chance

    def is_calm(self, row: int | None) -> bool:
        """Return whether nothing will go wrong while an effect of a row is under way."""
        aim = self._aim
        return not self._further and (self._has_struck or aim.boundary != "performing" or aim.row != row)

    def due(self, boundary: Boundary, row: int | None, stage: Stage = "before") -> Fault | None:
        """Return the fault that is due at a boundary of a row. Its maker calls `record`."""
        self._visits += 1
        aim = self._aim
        if not self._has_struck and row == aim.row:
            if boundary == aim.boundary and (boundary not in _STAGED_BOUNDARIES or stage == self._stage):
                return aim.fault
            if boundary == "durable" and aim.boundary in _RECOVERY_BOUNDARIES and not self._was_cut:
                self._was_cut = True
                return "kill"  # so that there is something to recover from
        if self._visits not in self._further:
            return None
        faults = [fault for fault in FAULTS_AT[boundary] if boundary not in _STAGED_BOUNDARIES or _fits(fault, stage)]
        return self._chance.one_of(faults, "further", self._visits)

    def passes(self, boundaries: Sequence[tuple[object, int | None]]) -> bool:
        """Pass the boundaries of an append, with their rows, at all stages, unless a fault is due at one; return whether they were passed."""
        first, last = self._visits, self._visits + len(_STAGES) * len(boundaries)
        if not self._has_struck:
            for _, row in boundaries:
                if row == self._aim.row:
                    return False
        for visit in self._further:
            if first < visit <= last:
                return False
        self._visits = last
        return True

    def record(self, boundary: Boundary, row: int | None, fault: Fault) -> None:
        """Record a fault that was made."""
        self.faults.append(fault)
        if row is not None:
            hit = Triple(row, boundary, fault)
            self.hits[hit] += 1
            self._has_struck = self._has_struck or hit == self._aim


def _fits(fault: Fault, stage: Stage) -> bool:
    return _STAGE_OF.get(fault, stage) == stage
