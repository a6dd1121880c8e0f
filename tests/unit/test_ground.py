import pytest

from dsa.expr import FALSE
from dsa.ground_system import ground, python_source
from dsa.lang import loads
from dsa.semantics import Configuration, start
from dsa.system import closed_system

LAMPS = """# lamps
## Parameters
| parameter | domain       | default |
| --------- | ------------ | ------- |
| low       | 1..9         | 2       |
| wanted    | {off, green} | green   |
## Variables
| variable | domain             | initial |
| -------- | ------------------ | ------- |
| front    | {red, green}       | red     |
| back     | {amber, red, blue} | amber   |
| level    | low..low + 3       | low     |
| lit      | bool               | false   |
## Transitions
| source | event | if              | update                     | target |
| ------ | ----- | --------------- | -------------------------- | ------ |
| a      | next  | front == red    | front = wanted; lit = true | =      |
| a      | next  | else            | front = red                | =      |
| a      | swap  | back == amber   | back = red                 | =      |
| a      | up    | level < low + 3 | level += 1                 | =      |
| a      | never | level > low + 3 |                            | b      |
"""


def test_configuration_is_encoded_as_one_number_and_decoded() -> None:
    machine = loads(LAMPS)
    grounded = ground(closed_system(machine))
    seen = set()
    for front in ("red", "green"):
        for back in ("amber", "red", "blue"):
            for level in range(2, 6):
                for lit in (False, True):
                    here = Configuration("a", (front, back, level, lit), frozenset())
                    number = grounded.encode(here)
                    assert grounded.decode(number) == here
                    assert 0 <= number < grounded.domain_size
                    seen.add(number)
    assert len(seen) == 2 * 3 * 4 * 2
    assert grounded.decode(grounded.start) == start(machine)


def test_impossible_rules_are_dropped_and_decided_conditions_are_folded() -> None:
    grounded = ground(closed_system(loads(LAMPS)))
    events = [grounded.system.commands[rule.command].occurrence.event for rule in grounded.rules]
    assert "never" not in events
    assert sorted(events) == ["next", "next", "swap", "up"]
    faults = [
        grounded.ground_condition(fault.condition)
        for fault in grounded.system.faults
        if fault.reason == "out_of_domain"
    ]
    assert set(faults) <= {FALSE}


def test_value_of_another_enumeration_can_leave_the_domain() -> None:
    machine = loads(LAMPS).at(wanted="off")
    grounded = ground(closed_system(machine))
    faults = [f for f in grounded.system.faults if grounded.ground_condition(f.condition) != FALSE]
    assert {fault.reason for fault in faults} >= {"out_of_domain"}


def test_number_has_values_and_successors() -> None:
    grounded = ground(closed_system(loads(LAMPS)))
    assert grounded.values(grounded.start) == {"front": 0, "back": 2, "level": 2, "lit": False}
    after = {grounded.decode(number).values for _, number in grounded.successors(grounded.start)}
    assert after == {("green", "amber", 2, True), ("red", "red", 2, False), ("red", "amber", 3, False)}


@pytest.mark.parametrize(
    ("source", "python"),
    [("front == green and not lit", "x == 1 and not y"), ("level in {low, 4}", "z == 2 or z == 4"), ("true", "True")],
)
def test_conditions_are_written_as_python(source: str, python: str) -> None:
    text = LAMPS.replace("| a      | never | level > low + 3 |", f"| a      | never | {source} |")
    machine = loads(text)
    grounded = ground(closed_system(machine))
    condition = grounded.ground_condition(machine.transitions[-1].condition)
    assert python_source(condition, {"front": "x", "lit": "y", "level": "z", "back": "w"}) == python
