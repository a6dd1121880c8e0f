import pickle

import pytest
from each_row import each_row

from dsa.declarations import Effect, Emit, Guard, RunParameter, State, Transition, parse_duration, show_duration
from dsa.errors import ParameterError
from dsa.expr import BooleanDomain, EnumDomain, Integer, RangeDomain, Verdict
from dsa.lang import loads
from dsa.machine import Machine, environment, minima, read_guards

COUNT = RangeDomain(Integer(0), None)


def with_parameters(*parameters):
    return Machine("m", (Transition("a", "go", "a"),), (State("a", "initial"),), "a", parameters=parameters)


def test_copy_of_a_machine_has_no_cached_results():
    machine = with_parameters(RunParameter("rmax", COUNT, 3))
    machine.worked_out["something"] = lambda: "cannot be pickled"
    again = pickle.loads(pickle.dumps(machine))
    assert again == machine
    assert again.constants == {"rmax": 3}
    assert again.worked_out == {}
    assert machine.at(rmax=1).worked_out == {}


def test_every_emitted_effect_can_be_looked_up_even_if_undeclared():
    row = Transition("a", "go", "a", effects=(Emit("log"), Emit("pay")))
    machine = Machine("m", (row,), (State("a", "initial"),), "a", effects=(Effect("pay", retries=2),))
    assert machine.effect_named == {"log": Effect("log"), "pay": Effect("pay", retries=2)}


def test_parameters_are_set_by_name_or_together_by_their_first_part():
    machine = with_parameters(
        RunParameter("rmax.a", COUNT, 3), RunParameter("rmax.b", COUNT, 3), RunParameter("rmaximum", COUNT, 1)
    )
    assert machine.at(rmax=1).constants == {"rmax.a": 1, "rmax.b": 1, "rmaximum": 1}
    assert machine.at({"rmax": 1, "rmax.b": 2}).constants == {"rmax.a": 1, "rmax.b": 2, "rmaximum": 1}
    assert machine.at() is machine
    assert machine.constants["rmax.a"] == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", 1, "no parameter 'x'"),
        ("rmax", -1, "outside its domain 0.."),
        ("rmax", True, "= true is not a whole number"),
        ("rmax", "1", "= '1' is not a whole number"),
    ],
)
def test_unknown_parameter_or_invalid_value_is_refused(name, value, message):
    with pytest.raises(ParameterError, match=message):
        with_parameters(RunParameter("rmax", COUNT, 3)).at({name: value})


def test_minima_are_the_smallest_of_each_domain():
    machine = with_parameters(
        RunParameter("n", RangeDomain(Integer(2), None), 3),
        RunParameter("b", BooleanDomain(), default=True),
        RunParameter("c", EnumDomain(("x", "y")), "y"),
    )
    assert minima(machine) == {"n": 2, "b": False, "c": "x"}


def test_bounds_and_initial_values_follow_the_parameters():
    text = "# m\n## Parameters\n|parameter|domain|default|\n|-|-|-|\n|n|0..|3|\n## Variables\n|variable|domain|initial|\n|-|-|-|\n|x|0..2 * n|n|\n## Transitions\n|source|event|target|\n|-|-|-|\n|a|go|a|\n"
    machine = loads(text)
    assert str(machine.at(n=5).values_of["x"]) == "0..10"
    assert machine.at(n=5).initial_values == (5,)
    assert environment(machine, (7,)) == {"n": 3, "x": 7}


def test_states_nest_by_their_dots():
    states = (State("a", "initial"), State("a.b", "initial"), State("a.b.c", "initial"), State("d", "final"))
    machine = Machine("m", (), states, "a")
    assert machine.entry_leaf("a") == "a.b.c"
    assert machine.leaves == ("a.b.c", "d")
    assert machine.parents == {"a", "a.b"}
    assert list(machine.ancestry("a.b.c")) == ["a.b.c", "a.b", "a", "*"]
    assert list(machine.ancestry("d")) == ["d"]
    assert states[2].parent == "a.b"
    assert states[0].parent is None


def test_state_is_found_by_its_last_part_if_that_is_unique():
    machine = Machine("m", (), (State("x"), State("a.x"), State("a.y"), State("b.z"), State("c.z")), "x")
    assert [machine.resolve_state(name) for name in ("x", "a.x", "y", "z", "nothing")] == [
        "x",
        "a.x",
        "a.y",
        None,
        None,
    ]


def test_guards_read_are_listed_once_and_sorted():
    rows = (
        Transition("a", "e", "a", Verdict("h", "passed")),
        Transition("a", "e", "a", Verdict("g", "failed")),
        Transition("a", "e", "b", Verdict("h", "fatal")),
    )
    assert read_guards(rows) == ("g", "h")
    assert Machine("m", rows, (), "a", guards=(Guard("g", ("e",)), Guard("h", ("f",)))).judged_events == {"e", "f"}


@pytest.mark.parametrize(
    ("text", "duration_ms", "shown"),
    [
        ("30s", 30_000, "30s"),
        ("60s", 60_000, "1m"),
        ("1500ms", 1_500, "1500ms"),
        ("48h", 172_800_000, "2d"),
        ("90m", 5_400_000, "90m"),
    ],
)
def test_durations_are_read_and_written_in_the_largest_unit(text, duration_ms, shown):
    assert parse_duration(text) == duration_ms
    assert show_duration(duration_ms) == shown
    assert parse_duration(shown) == duration_ms


@each_row("text", ["", "30", "s", "1.5s", "-1s", "1 s", "٣s", "1w", "9999999999999s"])
def test_invalid_duration_parses_to_none(text):
    assert parse_duration(text) is None


def test_machines_are_compared_by_value():
    assert with_parameters() == with_parameters()
    assert hash(with_parameters()) == hash(with_parameters())
