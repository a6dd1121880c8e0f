"""What there is to tell a run: occurrences with the effects that they answer, and what had come before somebody took the run up.

Takes what a run has left to do, gives it in the order in which the run is to hear of it. Feeds nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import attrs

from dsa.edge.effects import answer_in, occurrence_of, steps_of
from dsa.errors import OccurrenceError
from dsa.machine import Machine
from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runtime.intents import Intent
from dsa.runtime.recovery import Unfinished
from dsa.runtime.run import Run

#: A timer: the state that armed it, and `after DURATION`.
Timer = tuple[str, str]


@attrs.frozen
class News:
    """Something for the run: an occurrence, the intent of the effect it answers, or the timer that fired.

    `at` is the place of the question that an outside event answers; `answer` is for its sender, who waits for what becomes of it; `message` is its id, if it was in the inbox.
    `since_ms` is when it was posted, or when the timer was due, by the store's clock (milliseconds since 1970); None: it comes now.
    """

    occurrence: Occurrence
    intent: Intent | None = None
    at: str | None = None
    message: str | None = None
    answer: "asyncio.Future[Taken | Refusal] | None" = None
    since_ms: int | None = None

    def reply(self, became: Taken | Refusal | OccurrenceError) -> None:
        """Tell the sender what became of the event, if one waits: its event loop may be gone, when the event is taken in another one."""
        if self.answer is None or self.answer.done() or self.answer.get_loop().is_closed():
            return
        if isinstance(became, OccurrenceError):
            self.answer.set_exception(became)
        else:
            self.answer.set_result(became)


def came_before(left: Unfinished, machine: Machine, now_ms: int) -> tuple[tuple[News, ...], Mapping[Timer, int]]:
    """Give what the run is to hear before anything that is sent now, and the other timers with the milliseconds that are left of them.

    Recorded results that were not taken come first, then the timers whose time is over: by their deadlines, those of one moment as they were started.
    """
    answered = [
        News(occurrence_of(intent, answer_in(machine, intent.effect, steps_of(result))), intent)
        for intent, result in left.answered
    ]
    overdue = sorted((timer for timer, at_ms in left.timers.items() if at_ms < now_ms), key=left.timers.__getitem__)
    rung = [News(Occurrence(event, source=source), since_ms=left.timers[source, event]) for source, event in overdue]
    return (*answered, *rung), {timer: at_ms - now_ms for timer, at_ms in left.timers.items() if at_ms >= now_ms}


def in_order(earlier: Sequence[News], sent: Iterable[News]) -> list[News]:
    """Return what came before and what was sent, in the order in which the run hears of it.

    Answers come first; then overdue timers and messages by when they were due and posted, a timer before a message of the same moment; then what is sent now.
    """
    answers = [each for each in earlier if each.intent is not None]
    others = [*(each for each in earlier if each.intent is None), *sent]
    return [*answers, *sorted(others, key=lambda each: inf if each.since_ms is None else each.since_ms)]


def cancelled_by(news: News, run: Run) -> frozenset[str]:
    """Return the keys of the effects that a timer cancels which is the next thing to happen; none for an answer, or what was sent."""
    if news.intent is not None or news.occurrence.source is None:
        return frozenset()
    after, _ = run.feed(news.occurrence)
    return frozenset(run.keys.values()) - frozenset(after.keys.values())
