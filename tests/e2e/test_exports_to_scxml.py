"""Exports opened in python-statemachine's SCXML loader: the same answers as `step`."""

from collections.abc import Callable

import pytest
from export_cases import ALL
from export_walks import REFUSALS, expected_of, has_timers, spelled, spelled_value, walk, walks_of
from sample_sizes import sample_size

from dsa.expr import Value
from dsa.lang import loads
from dsa.machine import Machine
from dsa.semantics import Occurrence
from dsa.targets.scxml import scxml


class Parent:
    """A stand-in for a parent session, which receives the events of the machine."""

    def __init__(self):
        self.sent = []

    def send_to_parent(self, event, **_data):
        self.sent.append(event)


def run_scxml(
    machine: Machine, occurrences: list[Occurrence], spelled: Callable[[str], str] = spelled
) -> list[tuple[str, list[Value], list[str], list[str]]]:
    """Run an export in the loader; return, after each event, the leaf, the data, the outstanding effects, and the sent effects."""
    from statemachine.io import load

    chart = load(
        scxml(machine), format="scxml"
    )()  # the loader initializes the data of only the first instance of a class
    chart._invoke_session = parent = Parent()  # noqa: SLF001  (where the loader looks for the parent)
    found = []
    for occurrence in occurrences:
        parent.sent.clear()
        data = {spelled(guard): outcome for guard, outcome in occurrence.verdicts}
        if not chart.is_terminated:
            chart.send(spelled(occurrence.event), **data)
        leaf = next(state.id for state in chart.configuration if not state.states)
        values = [value for name, value in vars(chart.model).items() if name.startswith("v_")]
        flags = [name for name, n in vars(chart.model).items() if name.startswith("waits_") for _ in range(n)]
        found.append((leaf, values, sorted(flags), [name for name in parent.sent if not name.startswith("cancel")]))
    return found


@pytest.mark.parametrize("name", [name for name in ALL if not has_timers(ALL[name])])
def test_scxml_loader_agrees_with_step(name):
    for machine, occurrences in walks_of(ALL[name], seeds=sample_size(2, full=5), count=25):
        got = run_scxml(machine, occurrences)
        for occurrence, (here, effects), answer in zip(
            occurrences, expected_of(machine, occurrences), got, strict=True
        ):
            flags = sorted(f"waits_{spelled(effect)}" for effect in here.outstanding)
            sent = [spelled(effect) if "[" in effect else effect for effect in effects]
            expected = (spelled(here.state), [spelled_value(value) for value in here.values], flags, sent)
            assert answer == expected, occurrence


#: Names with a special meaning for the loader, each in the place where it once caused an error.
OTHERS_NAMES = """# names

## Variables
| variable | domain              | initial |
| -------- | ------------------- | ------- |
| state    | {null, True, class} | null    |

## Events
| event     | from    |
| --------- | ------- |
| __class__ | outside |
| add_event | outside |

## Guards
| guard     | judges    |
| --------- | --------- |
| key       | __class__ |
| cache_key | __class__ |
| on_error  | __class__ |

## Transitions
| source         | event     | if                                               | update        | target         |
| -------------- | --------- | ------------------------------------------------ | ------------- | -------------- |
| initial_state  | __class__ | key.passed and cache_key.passed                  | state = True  | history_values |
| initial_state  | __class__ | not (key.passed and cache_key.passed)            |               | _engine        |
| history_values | add_event |                                                  | state = class | listeners      |
| listeners      | __class__ | on_error.passed                                  | state = null  | initial_state  |
| listeners      | __class__ | else                                             |               | _engine        |
| _engine        | add_event | state == null                                    |               | initial_state  |
| _engine        | add_event | else                                             |               | listeners      |
"""


OTHERS_IDS = {
    "__class__": "e__class__",
    "_engine": "s_engine",
    **{name: f"{name}_" for name in ("add_event", "key", "cache_key", "on_error", "initial_state", "history_values")},
    **{name: f"{name}_" for name in ("listeners", "null")},
}


def test_names_used_by_the_loader_itself_cause_no_conflict():
    machine, reached = loads(OTHERS_NAMES), set[str]()
    for seed in range(10):
        occurrences = walk(machine, seed, 40)
        answers = run_scxml(machine, occurrences, lambda name: OTHERS_IDS.get(name, name))
        for (here, _), (leaf, values, *_rest) in zip(expected_of(machine, occurrences), answers, strict=True):
            value = here.values[0]
            assert (leaf, values) == (OTHERS_IDS[here.state], [OTHERS_IDS.get(value, value)])
            reached.add(here.state)
    assert reached == set(machine.leaves)


def test_scxml_loader_refuses_what_step_refuses():
    machine = loads(REFUSALS)
    for seed in range(5):
        occurrences = walk(machine, seed, 40)
        answers = run_scxml(machine, occurrences)
        for (here, effects), (leaf, values, flags, sent) in zip(
            expected_of(machine, occurrences), answers, strict=True
        ):
            expected = (
                here.state,
                list(here.values),
                [f"waits_{effect}" for effect in here.outstanding],
                list(effects),
            )
            assert (leaf, values, flags, sent) == expected
