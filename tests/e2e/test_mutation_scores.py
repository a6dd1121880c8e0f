"""Specs of shipped machines notice at least 95 % of the small faults that make a difference."""

from pathlib import Path

import pytest

from dsa.checks.mutation import mutate
from dsa.edge.document_files import load

ROOT = Path(__file__).parents[2]
QUICK = (
    "specs/dual_state.md",
    "specs/exhausted.md",
    "machines/policy/machine.md",
    "machines/examples/jugs.md",
    "machines/examples/polling.md",
)
LONG = (
    "specs/workflow.md",
    "specs/katas.md",
    "specs/peterson.md",
    "machines/examples/two_phase_commit.md",
    "specs/chat.md",
    "specs/coding.md",
)
#: Specs of shipped agents, which also notice faults in declarations and in the settings of effects.
AGENTS = ("specs/chat.md", "specs/coding.md")
#: Smaller parameters for machines with 184,165 and 229,661 configurations at their defaults, too many to explore for each of some 1,200 mutants.
BOUNDS = {
    "specs/chat.md": {"max_rounds": 3, "max_calls": 3, "max_refusals": 2, "side": 2},
    "specs/coding.md": {"max_rounds": 3, "max_turns": 2, "max_calls": 2},
}


def test_no_machine_is_left_out() -> None:
    machines = {path.stem for path in (ROOT / "machines").rglob("*.md")} - {"machine", "README"}
    machines |= {path.parent.name for path in (ROOT / "machines").rglob("machine.md")}
    pinned = (Path(name) for name in (*QUICK, *LONG))
    assert machines == {path.parent.name if path.stem == "machine" else path.stem for path in pinned}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in LONG)])
def test_spec_notices_small_faults(name: str) -> None:
    found = mutate(load(str(ROOT / name)), parameters=BOUNDS.get(name))
    assert found.score is not None
    assert found.score >= 0.95
    if name in AGENTS:
        shares = {group: found.share(group) for group in ("rows", "declarations", "Effects")}
        assert {group: share for group, share in shares.items() if share is None or share < 0.99} == {}
