"""What is known of small runs, entry by entry, for oracles to judge: ledgers as they should be, and facts that were folded from them."""

import attrs
from simulations import LETTER, written

from dsa.edge.performer import result_of
from dsa.runtime.ledger import EventEntry, Intents, ResultEntry
from dsa.runtime.policy.policies import error_step, event_step
from dsa.runtime.run import begin
from dsa.semantics import Occurrence
from dsa.testing.simulation.facts import EffectBegin, RunFacts
from dsa.testing.simulation.virtual_loop import Time

ABOUT = written(LETTER)
#: Effects of both kinds in one row, a guard that judges, a timer.
BUSY = written("""# busy
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| good | workflow | bool | false |
## Guards
| guard | judges |
| - | - |
| g | made |
## Events
| event | from |
| - | - |
| go | outside |
| made | make |
| sent | send |
## Effects
| effect | kind | time limit |
| - | - | - |
| note | | |
| make | | 2s |
| send | | |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | note, make, send | making |
| making | made | g.fatal | | | = |
| making | made | else | good = true | | = |
| making | sent | | | | idle |
| making | after 5s | | | cancel | idle |
""")

#: Three emissions of one effect, which are performed one after the other.
LINE = written("""# line
## Events
| event | from |
| - | - |
| go | outside |
| said | ask |
## Effects
| effect | at once | together |
| - | - | - |
| ask | 3 | 1 |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | ask, ask, ask | asking |
| asking | said | | = |
""")
#: Two effects sleep, one a second, the other a minute.
NAPS = written("""# naps
## Events
| event | from |
| - | - |
| go | outside |
| stop | outside |
| rise | nap |
| morning | night |
## Effects
| effect | is | options |
| - | - | - |
| nap | sleep | for = 1s |
| night | sleep | for = 1m |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | nap, night | asleep |
| asleep | stop | cancel nap | = |
| asleep | rise | | = |
| asleep | morning | | idle |
""")


def result(intent, answer=None, failure=None, data=None):
    """Return the record of an effect that was answered, was done, or has failed."""
    if failure is not None:
        return result_of(intent, [error_step(intent.effect, failure, "it failed")])
    return result_of(intent, [event_step(intent.effect, answer, data=data)] if answer else [])


def lived(about, *moves):
    """Return the ledger of a run: each move is an occurrence, or an effect with its answer, which is recorded and fed."""
    run, _ = begin(about.machine, "sim", digest=about.digest, at_ms=Time().wall_ms())
    for move in moves:
        if isinstance(move, Occurrence):
            run, _ = run.feed(move)
            continue
        effect, answer = move
        intent = next(each for each in [*Intents(run.ledger).values()][::-1] if each.effect == effect)
        run = run.record(result(intent, answer))
        if answer:
            run, _ = run.feed(Occurrence(answer), intent.key)
    return tuple(run.ledger)


#: A letter is drafted and posted; beside each entry is its place.
LEDGER = lived(ABOUT, Occurrence("write"), ("draft", "written"), ("post", None))
DRAFTED, POSTED = 4, 8  # the places of their results
DRAFT, POST = Intents(LEDGER).values()
#: Three effects are asked for, none is performed.
ASKED = lived(BUSY, Occurrence("go"))
NOTE, MAKE, SEND = Intents(ASKED).values()
THREE = lived(LINE, Occurrence("go"))
FIRST, SECOND, _ = Intents(THREE).values()
ASLEEP = lived(NAPS, Occurrence("go", data="tired"))
NAP, NIGHT = Intents(ASLEEP).values()
CALLED_OFF = lived(NAPS, Occurrence("go", data="tired"), Occurrence("stop"))


def facts(entries, about=ABOUT, limits=(), **known):
    """Fold entries, each as an append of its own; `known` are what happened in the world, and what else the facts have."""
    found = RunFacts(about, Time(), limits)
    for entry in entries:
        found.writes((entry,))
        found.fold(entry)
    found.writes(())
    deeds = {field.name for field in attrs.fields(type(found.deeds))}
    for name, value in known.items():
        here = found.deeds if name in deeds else found
        old = getattr(here, name)
        if isinstance(value, dict):
            old.update(value)
        else:
            setattr(here, name, value)
    return found


def begun(intent, *, may_write=True, is_stale=False, beside=()):
    """A policy is called for an intent."""
    return EffectBegin(intent.key, intent.effect, may_write, is_stale, beside)


def fed(event, key=None, *, verdicts=(), source=None, seq=1, data=None):
    """Return the record of an event."""
    return EventEntry(seq, event, verdicts, source, data, key)


def failed(intent, code):
    """Return the record of an effect that has failed."""
    found = result(intent, failure=code)
    assert isinstance(found, ResultEntry)
    return found
