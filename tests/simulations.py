"""Simulations for tests: the documents in which planted faults are met, the shipped ones, random ones; and how many seeds find a fault.

Run as a program it tells seeds of several documents whole: the same in every process.
"""

import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import parcels
from property.test_driver import BUSY_MACHINES
from repository import ROOT, SMALL

from dsa.cli.run import machine_document
from dsa.cli.sim import SimArguments, seed_story_lines
from dsa.edge.document_files import load, shipped_documents
from dsa.lang import dumps, loads
from dsa.runs.bindings import handlers_of
from dsa.runtime.ledger import dump_line
from dsa.testing.simulation.seed_plan import Subject, monitored_properties
from dsa.testing.simulation.story import Story

#: A run that asks again and again, and never comes to an end by itself.
ENDLESS = """# endless
## Events
| event | from |
| - | - |
| go | outside |
| answered | ask |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | ask | asking |
| asking | answered | ask | = |
| asking | ask.failed | ask | = |
"""
#: Small enough to count what can go wrong in it by hand.
LETTER = """# letter
## Events
| event | from |
| - | - |
| write | outside |
| stop | outside |
| written | draft |
## Effects
| effect | kind |
| - | - |
| draft | internal |
| post | actuator |
## States
| state | kind |
| - | - |
| idle | initial |
| drafting | |
| done | final |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | write | draft | drafting |
| drafting | written | post | done |
| drafting | stop | cancel | idle |
"""
#: Two effects are begun at once, each below a time limit: the second one a moment later than it was asked for.
PAIR = """# pair
## Events
| event | from |
| - | - |
| go | outside |
| left_done | left |
| right_done | right |
## Effects
| effect | time limit |
| - | - |
| left | 5s |
| right | 5s |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | left, right | working |
| working | left_done | | half |
| working | right_done | | half |
| half | left_done | | idle |
| half | right_done | | idle |
"""
#: It rests after every event, and is taken up again and again.
COUNTING = """# counting
## Variables
| variable | domain | initial |
| - | - | - |
| n | 0..140 | 0 |
## Transitions
| source | event | if | update | target |
| - | - | - | - | - |
| here | more | n < 140 | n += 1 | = |
| here | more | else | | there |
"""
#: Up to three emissions of one effect are outstanding, two of them performed side by side; the last answer joins them.
SEVERAL = """# several
## Events
| event | from |
| - | - |
| begin | outside |
| stop | outside |
| document | next_one |
| none_left | next_one |
| mapped | map_one |
| reduced | reduce |
## Effects
| effect | kind | in doubt | time limit | retries | at once | together |
| - | - | - | - | - | - | - |
| next_one | sensing | retry | 1m |  |  |  |
| map_one | actuator | ask | 1m | 1 | 3 | 2 |
| reduce | sensing | retry | 1m |  |  |  |
## Variables
| variable | domain | initial |
| - | - | - |
| count | 0..3 | 0 |
## States
| state | kind |
| - | - |
| idle | initial |
| working |  |
| waiting |  |
| reducing |  |
| done | final |
| stopped | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | begin |  |  | next_one | working |
| working | document | count < 3 | count += 1 | map_one, next_one | = |
| working | document | count == 3 and pending |  |  | waiting |
| working | document | count == 3 and not pending |  | reduce | reducing |
| working | none_left | pending |  |  | waiting |
| working | none_left | not pending |  | reduce | reducing |
| working | mapped |  |  |  | = |
| working | map_one.failed |  |  |  | = |
| waiting | mapped | pending |  |  | = |
| waiting | mapped | not pending |  | reduce | reducing |
| waiting | map_one.failed | pending |  |  | = |
| waiting | map_one.failed | not pending |  | reduce | reducing |
| waiting | stop |  |  | cancel, map_one, map_one, map_one | = |
| working, waiting | after 2h |  |  | cancel | stopped |
| working | next_one.failed |  |  | cancel | stopped |
| reducing | reduced |  |  |  | done |
| reducing | reduce.failed |  |  |  | stopped |
## Properties
- at most 1 reduce
- always not (reducing and pending map_one)
"""
#: Up to two sleeps of one effect run at once, beside one that is due soon after, a timer and an effect that is performed; they are cancelled and begun again.
REMINDED = """# reminded
## Events
| event | from |
| - | - |
| asked | outside |
| approved | outside |
| paused | outside |
| hour_over | hour |
| day_over | day |
| told | tell |
## Effects
| effect | is | options | kind | time limit | at once |
| - | - | - | - | - | - |
| hour | sleep | for = 1h | | | 2 |
| day | sleep | for = 61m | | | |
| tell | | | actuator | 1m | |
| note | | | sensing | | |
## Variables
| variable | domain | initial |
| - | - | - |
| count | 0..2 | 0 |
## States
| state | kind |
| - | - |
| idle | initial |
| open | |
| telling | |
| accepted | final |
| refused | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | asked | | | hour, day | open |
| open | asked | count == 0 | count = 1 | note, cancel hour, hour, hour | = |
| open | hour_over | | count = 0 | tell | telling |
| open, telling | day_over | | | cancel | refused |
| open | approved | | | | accepted |
| open | paused | | count = 0 | cancel | idle |
| telling | told | | | hour | open |
| telling | hour_over | | count = 0 | | = |
| telling | tell.failed | | | cancel hour, hour | open |
| telling | after 30s | | | cancel hour | = |
"""
WRITTEN = {
    "reminded": REMINDED,
    "counting": COUNTING,
    "pair": PAIR,
    "letter": LETTER,
    "parcels": parcels.TEXT,
    "busy": dumps(BUSY_MACHINES[0]),
    "busy without failures": dumps(BUSY_MACHINES[1]),
    "endless": ENDLESS,
    "several": SEVERAL,
    "several in line": SEVERAL.replace("| 3 | 2 |", "| 3 | 1 |"),
}


def written(text, handlers=None, **values):
    """Return a machine that is written in a test, to be simulated."""
    machine = loads(text).at(values)
    return Subject(machine, text, handlers or {}, monitored_properties(machine))


def kept(file, **values):
    """Return a document that is kept in a file, as `dsa sim` simulates it."""
    document = machine_document(file)
    machine = load(str(document)).at(values)
    return Subject(
        machine, document.read_text(encoding="utf-8"), handlers_of(machine), monitored_properties(load(file))
    )


@cache
def subject(name):
    """Return a document by its name: of `WRITTEN`, else a shipped one, else a conformance case."""
    if name in WRITTEN:
        return written(WRITTEN[name])
    cases = {path.stem: str(path) for path in (ROOT / "specs" / "conformance").glob("*.md")}
    return kept(cases.get(name, name), **SMALL.get(name, {}))


def every_name():
    """Name every document that tests simulate: shipped ones, specs among them, conformance cases, those that are written here."""
    cases = [path.stem for path in (ROOT / "specs" / "conformance").glob("*.md")]
    # Its data names a policy, which the door wants to be there: nothing that could be made up.
    asked = set(shipped_documents()) - {"policy"}
    return [*WRITTEN, *sorted(asked), *sorted(name for name in cases if loads_as_machine(name))]


def loads_as_machine(case):
    text = (ROOT / "specs" / "conformance" / f"{case}.md").read_text(encoding="utf-8")
    return any(heading in text for heading in ("\n## Transitions", "\n## Steps"))


def violations(about, seeds):
    """Return what seeds have found, each with its seed."""
    for seed in seeds:
        found = Story(about, seed).play().violation
        if found is not None:
            yield seed, found


def seeds_needed(about, first, most):
    """Return how many seeds, from the first one on, it takes until an oracle is violated, and which; None when `most` seeds are not enough."""
    seed, found = next(violations(about, range(first, first + most)), (None, None))
    return None if found is None else (seed - first + 1, found)


if __name__ == "__main__":
    for name in ("dual_state", "workflow", "parcels", "busy", "examples/two_phase_commit"):
        for seed in (3, 40, 1_234, 99_999):
            story = Story(subject(name), seed, keep_log=True).play()
            print(*seed_story_lines(SimArguments(name), subject(name), story), sep="\n")
            print(*(each if isinstance(each, str) else dump_line(each) for each in story.log), sep="\n")
            print(f"{story.fingerprint:016x}", sorted(map(repr, story.hits)))
