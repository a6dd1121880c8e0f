"""Exports opened in XState, in node: the same answers as `step`, the same counts. Where node is not installed the tests skip in words."""

from pathlib import Path

import pytest
from export_cases import ALL, FULL, HARD, count_of
from export_walks import REFUSALS, expected_of, spelled, walk, walks_of
from outside_tools import node

from dsa.lang import loads
from dsa.machine import Machine
from dsa.semantics import Occurrence
from dsa.targets.xstate import xstate


def test_xstate_refuses_what_step_refuses(tmp_path):
    machine = loads(REFUSALS)
    walks = [walk(machine, seed, 40) for seed in range(5)]
    for occurrences, answers in zip(walks, run_xstate(machine, walks, tmp_path), strict=True):
        for (here, effects), answer in zip(expected_of(machine, occurrences), answers, strict=True):
            assert answer == [here.state, list(here.values), sorted(here.outstanding), effects]


WALKS = """
import { readFileSync } from 'node:fs';
import { initialTransition, transition } from 'xstate';
import { machine } from './machine.mjs';
const leaf = (snapshot) => [...snapshot.tags][0];
const results = JSON.parse(readFileSync('data.json')).map((events) => {
  let [snapshot] = initialTransition(machine);
  return events.map((event) => {
    let actions = [];
    if (snapshot.status === 'active') [snapshot, actions] = transition(machine, snapshot, event);
    const { waiting, ...values } = snapshot.context;
    const flags = Object.keys(waiting).flatMap((name) => Array(Number(waiting[name])).fill(name)).sort();
    const effects = actions.map((a) => a.type).filter((t) => t !== 'cancel' && !t.startsWith('xstate.'));
    return [leaf(snapshot), Object.values(values), flags, effects];
  });
});
console.log(JSON.stringify(results));
"""


def run_xstate(machine: Machine, walks: list[list[Occurrence]], folder: Path) -> list[list[object]]:
    data = [[{"type": o.event, "verdicts": dict(o.verdicts)} for o in occurrences] for occurrences in walks]
    found = node({"machine.mjs": xstate(machine)}, WALKS, data, folder)
    assert isinstance(found, list)
    return found


def test_xstate_agrees_with_step_on_a_hard_case(tmp_path):
    machine = loads(HARD)
    walks = [walk(machine, seed, 60) for seed in range(10)]
    for occurrences, answers in zip(walks, run_xstate(machine, walks, tmp_path), strict=True):
        for (here, effects), (leaf, values, flags, sent) in zip(
            expected_of(machine, occurrences), answers, strict=True
        ):
            assert (leaf, values, len(flags), sent) == (here.state, list(here.values), len(here.outstanding), effects)


def require_xstate_agrees(name: str, folder: Path, seeds: int, count: int) -> None:
    walks: dict[Machine, list[list[Occurrence]]] = {}
    for machine, occurrences in walks_of(ALL[name], seeds, count):
        walks.setdefault(tuple(machine.constants.items()), []).append((machine, occurrences))
    for number, same in enumerate(walks.values()):
        (machine, _), inner = same[0], folder / str(number)
        inner.mkdir()
        got = run_xstate(machine, [occurrences for _, occurrences in same], inner)
        for (_, occurrences), answers in zip(same, got, strict=True):
            for occurrence, (here, effects), answer in zip(
                occurrences, expected_of(machine, occurrences), answers, strict=True
            ):
                flags = sorted(spelled(effect) for effect in here.outstanding)
                assert answer == [here.state, list(here.values), flags, effects], occurrence


@pytest.mark.parametrize(
    "name", ["dual_state", "workflow", "examples/jugs", "columns_states", "s04_refusals", "s05_updates"]
)
def test_xstate_agrees_with_step(name, tmp_path):
    require_xstate_agrees(name, tmp_path, seeds=20, count=30)


@FULL
@pytest.mark.parametrize("name", ALL)
def test_xstate_agrees_with_step_on_every_machine_here(name, tmp_path):
    require_xstate_agrees(name, tmp_path, seeds=50, count=40)


PATHS = """
import { readFileSync } from 'node:fs';
import { getShortestPaths } from 'xstate/graph';
import { machine } from './machine.mjs';
const { events } = JSON.parse(readFileSync('data.json'));
const serializeState = (s) => JSON.stringify([[...s.tags], s.context]);
console.log(JSON.stringify(getShortestPaths(machine, { events, serializeState }).length));
"""


@pytest.mark.parametrize("name", ["dual_state", "workflow", "examples/jugs"])
def test_the_graph_of_xstate_has_as_many_states(name, tmp_path):
    machine = ALL[name]
    events = []
    for event in machine.event_named:
        guards = [guard.name for guard in machine.guards if event in guard.judges] or [None]
        said = [{g: o} if g else {} for g in guards for o in (("passed", "failed", "fatal") if g else ("",))]
        events += [{"type": event, "verdicts": verdicts} for verdicts in said]
    assert node({"machine.mjs": xstate(machine)}, PATHS, {"events": events}, tmp_path) == count_of(machine)
