"""Durations are read as written; equal durations are one timer, within a document and between two."""

import pytest

from dsa.checks.document_diff import changes
from dsa.errors import MachineError
from dsa.lang import digest, dumps, loads
from dsa.machine import sleeping_effects, spelled_like, spelled_shortest

TEXT = """# reminders
## Transitions
| source  | event                 | effects | target  |
| ------- | --------------------- | ------- | ------- |
| idle    | go                    |         | waiting |
| waiting | after 24h, after 90s  | remind  | waiting |
| idle    | after 1d              |         | idle    |

## Scenario: a day
| percept      | action | state   |
| ------------ | ------ | ------- |
| go           |        | waiting |
| after 86400s | remind | waiting |
"""


def events(machine):
    return [row.event for row in machine.transitions]


def test_equal_durations_have_the_first_spelling_of_the_document():
    machine = loads(TEXT)
    assert events(machine) == ["go", "after 24h", "after 90s", "after 24h"]
    assert machine.scenarios[0].steps[1].event == "after 24h"
    assert loads(dumps(machine)) == machine
    assert "after 24h" in dumps(machine)


def test_digest_depends_on_durations_and_not_their_spelling():
    other = loads(TEXT.replace("24h", "1440m"))
    assert events(other) != events(loads(TEXT))
    assert digest(other) == digest(loads(TEXT)) == digest(spelled_shortest(other))
    assert digest(other) != digest(loads(TEXT.replace("24h", "25h")))


def test_compared_machines_are_spelled_alike():
    machine, other = loads(TEXT), loads(TEXT.replace("24h", "1440m").replace("90s", "91s"))
    alike = spelled_like(other, machine)
    assert events(alike) == ["go", "after 24h", "after 91s", "after 24h"]
    assert alike.scenarios[0] == machine.scenarios[0]
    assert spelled_like(machine, machine) is machine


def test_same_duration_twice_in_a_cell_is_an_error():
    with pytest.raises(MachineError, match="'after 1440m' occurs twice in this cell"):
        loads(TEXT.replace("90s", "1440m"))


SLEEP = """# nap
## Events
| event | from |
| - | - |
| go | outside |
| rise | nap |
## Effects
| effect | is | options |
| - | - | - |
| nap | sleep | for = 24h |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | nap | asleep |
| asleep | rise | | idle |
"""


def test_duration_of_a_sleep_is_compared_by_its_length():
    machine, other = loads(SLEEP), loads(SLEEP.replace("24h", "1440m"))
    assert sleeping_effects(machine) == {"nap": 86_400_000}
    assert (machine, digest(machine)) == (other, digest(other))
    assert loads(dumps(machine)) == machine
    assert digest(machine) != digest(loads(SLEEP.replace("24h", "25h")))
    (change,) = changes(machine, loads(SLEEP.replace("24h", "25h")))
    assert "for = 1d" in str(change)
    assert "for = 25h" in str(change)
