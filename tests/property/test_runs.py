"""A run of any machine is the fold of `step`, knows its outstanding effects and timers, and replays from its ledger."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.errors import OccurrenceError
from dsa.runtime.ledger import Intent, dump_line, load_lines
from dsa.runtime.run import ArmTimer, DropTimer, StopEffect, begin, oldest_key, replay
from dsa.semantics import Taken, start, step
from dsa.testing.strategies import machines, occurrences

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


class World:
    """What a driver would have under way after the commands so far."""

    def __init__(self, machine, commands):
        self.machine, self.timers, self.effects = machine, set(), {}
        self.obey(commands)

    def obey(self, commands):
        for command in commands:
            match command:
                case StopEffect(key):
                    self.effects.pop(key)
                case DropTimer(source, event):
                    self.timers.discard((source, event))
                case ArmTimer(source, event):
                    self.timers.add((source, event))
                case Intent(key=key, effect=effect) if effect in self.machine.answers:
                    self.effects[key] = effect

    def answered(self, key):
        self.effects.pop(key, None)


@settings(max_examples=sample_size(36, full=200), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_run_is_the_fold_of_step_and_its_commands_update_the_world(data):
    machine = data.draw(machines(claims=False))
    run, commands = begin(machine, "r")
    world, configuration = World(machine, commands), start(machine)
    for _ in range(data.draw(st.integers(1, 15))):
        occurrence = data.draw(occurrences(machine, configuration))
        try:
            expected = step(machine, configuration, occurrence)
        except OccurrenceError:
            continue
        origin = "" if occurrence.source else machine.event_named[occurrence.event].origin
        key = oldest_key(run.keys, origin) or None
        run, commands = run.feed(occurrence, key)
        if isinstance(expected, Taken):
            configuration = expected.configuration
            world.answered(key)
        else:
            assert commands == ()
        world.obey(commands)
        assert run.configuration == configuration
        assert tuple(sorted(run.keys.values())) == configuration.outstanding
        assert world.effects == run.keys
        assert world.timers == (set() if run.is_finished else set(machine.armed_timers(configuration.state)))
    text = "\n".join(dump_line(entry) for entry in run.ledger)
    assert replay(machine, load_lines(text)) == run
