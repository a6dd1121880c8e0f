import os
from pathlib import Path

import pytest

from dsa.edge.sandbox import ALWAYS, FEATURES, RUNGS, Confinement, SandboxError, choose_rung, limits, probe


def test_missing_features_are_named():
    wanted = Confinement({"no network", "namespaces", "own user"})
    assert wanted.missing("limits", {"own user"}) == ("no network", "namespaces")
    assert wanted.missing("bubblewrap", {"own user", "no network"}) == ()
    assert Confinement({"landlock"}).missing("namespaces", ()) == ()
    assert Confinement().missing("limits", ()) == ()


@pytest.mark.parametrize("names", [{"no newtork"}, {""}, {"No network"}])
def test_unknown_feature_is_refused(names):
    with pytest.raises(ValueError, match="neither a feature nor a rung of the sandbox; allowed: no files outside, "):
        Confinement(names)


def test_unknown_rung_is_refused():
    with pytest.raises(
        ValueError, match="'docker' is not a rung of the sandbox; allowed: bubblewrap, namespaces, landlock, limits"
    ):
        Confinement(rung="docker")


def test_each_missing_feature_adds_what_code_can_do_without_it():
    assert limits(FEATURES) == ALWAYS
    assert limits() == (*FEATURES.values(), *ALWAYS)
    assert FEATURES["no network"] not in limits({"no network"})


def test_each_rung_stops_at_least_what_the_next_one_stops():
    had = None
    for found in map(probe, RUNGS):
        if not found.fault:
            assert had is None or found.features <= had
            had = found.features


def test_error_names_what_is_missing():
    with pytest.raises(SandboxError, match=r"'limits' lacks required features: no network$"):
        choose_rung(Confinement({"no network"}, "limits"))


def test_documentation_describes_the_rungs_of_this_machine():
    page = (Path(__file__).parents[4] / "docs/how-to/sandbox.md").read_text()
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("|")
    ]
    told = {row[0]: row[1] for row in rows if row[0] in RUNGS}
    assert told == RUNGS
    cells = {row[0]: row[1:] for row in rows if row[0] in FEATURES}
    assert {name: row[-1] for name, row in cells.items()} == FEATURES
    assert all(f"- {sentence}" in page for sentence in ALWAYS)
    for at, rung in enumerate(map(probe, RUNGS)):
        if not rung.fault:
            wanted = {"yes", "root"} if os.geteuid() == 0 else {"yes"}
            assert {name for name, row in cells.items() if row[at] in wanted} == rung.features
