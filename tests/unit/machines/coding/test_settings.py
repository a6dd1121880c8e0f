"""Settings of a coding run: in its ledger, as a class, and overriding one another."""

import pytest

from dsa.errors import BindingError
from machines.coding.coding_resources import CodingSettings, settings_of, workspace_fault
from machines.tool_use.records import as_data

CONFIG = {
    "temperature": 0.5, "seed": 0, "mode": "ask", "model": "m", "json_mode": False, "network": [], "protected": ["a", "b"], "parallel": 2,
    "commands": {"programs": {"make": {"arguments": ["test"]}}}, "mcp": {"words": {"command": ["python", "w.py"]}}, "workspace": "/w",
}  # fmt: skip


def test_settings_round_trip_as_in_the_ledger():
    settings = settings_of({**CONFIG, "runs": "/r", "budget": None})
    assert (settings.network, settings.protected, settings.json_mode) == ((), ("a", "b"), False)
    assert as_data(settings) == CONFIG


def test_explicit_settings_override_the_ones_below():
    above = CodingSettings(seed=0, network=(), json_mode=False)
    below = CodingSettings(seed=3, network=("a",), json_mode=True, mode="ask")
    assert above.over(below) == CodingSettings(seed=0, network=(), json_mode=False, mode="ask")


@pytest.mark.parametrize(
    ("config", "named"), [({"seed": "x"}, r"\$.seed"), ({"mcp": 3}, r"\$.mcp"), ({"network": 5}, "an iterable")]
)
def test_invalid_settings_are_named(config, named):
    with pytest.raises(BindingError, match=f"the settings of the run cannot be read: .*{named}"):
        settings_of(config)


def test_missing_workspace_is_reported_only_where_one_is_set(tmp_path):
    assert workspace_fault(CodingSettings()) == workspace_fault(CodingSettings(workspace=str(tmp_path))) == ""
    assert "the run's workspace is missing" in workspace_fault(CodingSettings(workspace=str(tmp_path / "gone")))
