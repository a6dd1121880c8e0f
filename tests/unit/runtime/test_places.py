"""Places: the place of an event says which question it answers, and moves only when the question is asked again."""

import pytest

from dsa.lang import loads
from dsa.runtime.ledger import RefusalEntry, dump_line, load_lines
from dsa.runtime.run import begin, oldest_key, place_of, replay
from dsa.semantics import Occurrence

MACHINE = loads("""# approvals
## Events
| event | from |
| - | - |
| asked | outside |
| approved | outside |
| noted | outside |
| amended | outside |
| found | look |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | asked | look | waiting |
| waiting | found | | = |
| waiting | after 1h | remind | = |
| waiting | noted | | = |
| waiting | amended | | waiting |
| waiting | approved | | idle |
""")
REMINDER = Occurrence("after 1h", source="waiting")


def asked():
    return begin(MACHINE, "r", at_ms=0)[0].feed(Occurrence("asked"), at_ms=5)[0]


def fed(run, event, at=None):
    return run.feed(Occurrence(event), at=at)[0]


def places(run):
    return place_of(run, "approved"), place_of(run, "noted")


def test_approval_place_is_unchanged_by_a_reminder_an_effect_and_a_refusal():
    run = asked()
    assert places(run) == (1, 1)
    reminded, _ = run.feed(REMINDER, at_ms=3_600_005)
    assert (places(reminded), reminded.timers) == ((1, 1), {("waiting", "after 1h"): 7_200_005})
    found, _ = reminded.feed(Occurrence("found"), oldest_key(reminded.keys, "look"))
    refused = fed(found, "asked")
    assert places(refused) == (1, 1)
    assert fed(refused, "approved", at="1").configuration.state == "idle"


def test_two_questions_of_one_leaf_have_separate_places():
    run = fed(asked(), "noted", at="1")
    assert places(run) == (1, 2)
    again = fed(run, "noted", at="1")
    assert again.ledger[-1].reason == "late"
    assert again.ledger[-2].at == "1"
    assert places(again) == (1, 2)
    assert places(fed(again, "noted", at="2")) == (1, 4)


def test_reentering_the_leaf_moves_the_places():
    run = fed(fed(asked(), "noted"), "amended")
    assert places(run) == (3, 3)
    late = fed(run, "approved", at="1")
    assert late.ledger[-1] == RefusalEntry(
        "late",
        "approved was sent to place 1, but its place is now 3",
        ("after 1h", "amended", "approved", "found", "noted"),
    )
    assert (late.configuration, places(late)) == (run.configuration, (3, 3))


@pytest.mark.parametrize("at", ["1", "one", ""])
def test_event_that_names_its_place_is_replayed(at):
    run = fed(fed(asked(), "noted"), "noted", at=at)
    again = replay(MACHINE, load_lines("\n".join(map(dump_line, run.ledger))))
    assert (again, places(again)) == (run, places(run))
    assert again.ledger[-1].reason == "late"
