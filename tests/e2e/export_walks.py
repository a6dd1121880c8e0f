"""Walks for exports to statechart engines: occurrences drawn at random or read from scenarios, and the answers of `step` to them."""

import random
import re

from dsa.expr import Value
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Taken, start, step


def walk(machine: Machine, seed: int, count: int) -> list[Occurrence]:
    """Draw occurrences for a run from the start, without timers: mostly possible ones, sometimes impossible ones."""
    chance, here, found = random.Random(seed), start(machine), []
    for _ in range(count):
        events = list(machine.event_named)
        likely = [event for event in events if machine.rows_for(here.state, event)]
        event = chance.choice(likely if likely and chance.random() < 0.85 else events)
        rows = machine.rows_for(here.state, event)
        verdicts = {guard: chance.choice(machine.guard_named[guard].outcomes) for guard in read_guards(rows)}
        found.append(Occurrence(event, verdicts))
        answer = step(machine, here, found[-1])
        here = answer.configuration
        if here.state in machine.final_states and chance.random() < 0.5:
            break
    return found


def scenario_walks(machine: Machine) -> list[tuple[Machine, list[Occurrence]]]:
    """Return the scenarios of a machine as occurrences at their parameters; those with timers end before the first timer."""
    found = []
    for scenario in machine.scenarios:
        there, taken = machine.at(dict(scenario.parameters)), list[Occurrence]()
        here = start(there)
        for percept in scenario.steps:
            if percept.event not in there.event_named:
                break
            rows = there.rows_for(here.state, percept.event)
            given = dict.fromkeys(read_guards(rows), "passed") | dict(percept.verdicts)
            taken.append(Occurrence(percept.event, given))
            here = step(there, here, taken[-1]).configuration
        found.append((there, taken))
    return found


def expected_of(machine: Machine, occurrences: list[Occurrence]) -> list[tuple[Configuration, list[str]]]:
    """Return, for each occurrence, the configuration of `step` after it and the emitted effects."""
    here, found = start(machine), []
    for occurrence in occurrences:
        answer = step(machine, here, occurrence)
        here = answer.configuration
        found.append((here, list(answer.effects) if isinstance(answer, Taken) else []))
    return found


def walks_of(machine: Machine, seeds: int, count: int) -> list[tuple[Machine, list[Occurrence]]]:
    return [(machine, walk(machine, seed, count)) for seed in range(seeds)] + scenario_walks(machine)


def spelled(name: str) -> str:
    """Spell a name as an export does, unless the name has a special meaning for the tool."""
    return re.sub(r"\W", "_", name)


def spelled_value(value: Value) -> object:
    return spelled(value) if isinstance(value, str) else int(value)


def has_timers(machine: Machine) -> bool:
    return any(row.is_timer for row in machine.transitions)


#: A row that may leave its domain, two that may be enabled at once, an effect that may be emitted twice, each beside an `else`.
REFUSALS = """# refusals

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..2   | 0       |

## Events
| event | from    |
| ----- | ------- |
| up    | outside |
| both  | outside |
| ask   | outside |
| told  | tell    |

## Transitions
| source | event | if     | update | effects | target |
| ------ | ----- | ------ | ------ | ------- | ------ |
| s      | up    | n >= 0 | n += 1 |         | =      |
| s      | up    | else   | n = 0  |         | s      |
| s      | both  | n >= 1 |        |         | =      |
| s      | both  | n <= 1 | n = 2  |         | =      |
| s      | both  | else   | n = 0  |         | =      |
| s      | ask   | n > 0  |        | tell    | =      |
| s      | ask   | else   | n = 1  |         | =      |
| s      | told  | n == 2 | n = 0  |         | =      |
| s      | told  | else   |        |         | =      |
"""
