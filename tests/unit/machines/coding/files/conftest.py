"""A workspace whose paths are opened in both ways: by the kernel in one call, and name by name."""

import pytest
from file_tools import FileTools


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def workspace(request, tmp_path):
    with FileTools(tmp_path, by_walk=request.param) as opened:
        yield opened
