"""Exports opened in XState, in node: the same answers as `step`, the same counts. Without node the tests are skipped with a reason."""

from pathlib import Path

import pytest
from export_cases import ALL, FULL, HARD, count_of
from export_walks import REFUSALS, expected_of, spelled, walk, walks_of
from outside_tools import node
from random_sample import random_sample

from dsa.lang import dumps, loads
from dsa.machine import Machine
from dsa.semantics import Occurrence
from dsa.targets.xstate import xstate


def test_xstate_refuses_what_step_refuses(tmp_path):
    machine = loads(REFUSALS)
    walks = [walk(machine, seed, 40) for seed in range(5)]
    (every,) = run_xstate([(machine, walks)], tmp_path)
    for occurrences, answers in zip(walks, every, strict=True):
        for (here, effects), answer in zip(expected_of(machine, occurrences), answers, strict=True):
            assert answer == [here.state, list(here.values), sorted(here.outstanding), effects]


WALKS = """
import { readFileSync } from 'node:fs';
import { initialTransition, transition } from 'xstate';
const leaf = (snapshot) => [...snapshot.tags][0];
const results = [];
for (const [number, walks] of JSON.parse(readFileSync('data.json')).entries()) {
  const { machine } = await import(`./machine${number}.mjs`);
  results.push(walks.map((events) => {
    let [snapshot] = initialTransition(machine);
    return events.map((event) => {
      let actions = [];
      if (snapshot.status === 'active') [snapshot, actions] = transition(machine, snapshot, event);
      const { waiting, ...values } = snapshot.context;
      const flags = Object.keys(waiting).flatMap((name) => Array(Number(waiting[name])).fill(name)).sort();
      const effects = actions.map((a) => a.type).filter((t) => t !== 'cancel' && !t.startsWith('xstate.'));
      return [leaf(snapshot), Object.values(values), flags, effects];
    });
  }));
}
console.log(JSON.stringify(results));
"""


def run_xstate(every: list[tuple[Machine, list[list[Occurrence]]]], folder: Path) -> list[list[list[object]]]:
    """Walk through several machines in one process; return, for each walk of each machine, the answers."""
    data = [
        [[{"type": o.event, "verdicts": dict(o.verdicts)} for o in occurrences] for occurrences in walks]
        for _, walks in every
    ]
    files = {f"machine{number}.mjs": xstate(machine) for number, (machine, _) in enumerate(every)}
    found = node(files, WALKS, data, folder)
    assert isinstance(found, list)
    return found


def test_xstate_agrees_with_step_on_a_hard_case(tmp_path):
    machine = loads(HARD)
    walks = [walk(machine, seed, 60) for seed in range(10)]
    (every,) = run_xstate([(machine, walks)], tmp_path)
    for occurrences, answers in zip(walks, every, strict=True):
        for (here, effects), (leaf, values, flags, sent) in zip(
            expected_of(machine, occurrences), answers, strict=True
        ):
            assert (leaf, values, len(flags), sent) == (here.state, list(here.values), len(here.outstanding), effects)


def require_xstate_agrees(several: list[tuple[Machine, list[Occurrence]]], folder: Path) -> None:
    """Walk through machines at their parameters; each answer must be that of `step`."""
    walks: dict[object, tuple[Machine, list[list[Occurrence]]]] = {}
    for machine, occurrences in several:
        key = (machine, *machine.constants.items())
        walks.setdefault(key, (machine, []))[1].append(occurrences)
    for (machine, each), got in zip(walks.values(), run_xstate([*walks.values()], folder), strict=True):
        for occurrences, answers in zip(each, got, strict=True):
            expected = expected_of(machine, occurrences)
            for occurrence, (here, effects), answer in zip(occurrences, expected, answers, strict=True):
                flags = sorted(spelled(effect) for effect in here.outstanding)
                assert answer == [here.state, list(here.values), flags, effects], (occurrence, dumps(machine))


@pytest.mark.parametrize(
    "name", ["dual_state", "workflow", "examples/jugs", "columns_states", "s04_refusals", "s05_updates"]
)
def test_xstate_agrees_with_step(name, tmp_path):
    require_xstate_agrees(walks_of(ALL[name], seeds=20, count=30), tmp_path)


@FULL
@pytest.mark.parametrize("name", ALL)
def test_xstate_agrees_with_step_on_every_document(name, tmp_path):
    require_xstate_agrees(walks_of(ALL[name], seeds=50, count=40), tmp_path)


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=FULL)])
def test_xstate_agrees_with_step_on_random_machines(count, tmp_path):
    several = [(each, walk(each, seed, 40)) for each in random_sample(count) for seed in range(5)]
    require_xstate_agrees(several, tmp_path)


PATHS = """
import { readFileSync } from 'node:fs';
import { getShortestPaths } from 'xstate/graph';
import { machine } from './machine.mjs';
const { events } = JSON.parse(readFileSync('data.json'));
const serializeState = (s) => JSON.stringify([[...s.tags], s.context]);
console.log(JSON.stringify(getShortestPaths(machine, { events, serializeState }).length));
"""


@pytest.mark.parametrize("name", ["dual_state", "workflow", "examples/jugs"])
def test_xstate_graph_has_the_same_number_of_states(name, tmp_path):
    machine = ALL[name]
    events = []
    for event in machine.event_named:
        guards = [guard.name for guard in machine.guards if event in guard.judges] or [None]
        said = [{g: o} if g else {} for g in guards for o in (("passed", "failed", "fatal") if g else ("",))]
        events += [{"type": event, "verdicts": verdicts} for verdicts in said]
    assert node({"machine.mjs": xstate(machine)}, PATHS, {"events": events}, tmp_path) == count_of(machine)
