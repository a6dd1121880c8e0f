"""A workspace, and its history beside it."""

import pytest
from workspaces import make_workspace

from machines.coding.history import WorkspaceHistory


@pytest.fixture
def root(tmp_path):
    return make_workspace(tmp_path / "work")


@pytest.fixture
def history(tmp_path, root):
    return WorkspaceHistory(tmp_path / "history", root)
