"""The text of every format, byte for byte. Update with `UPDATE_GOLDEN=1 pytest tests/unit/targets/test_golden.py`."""

import os
from pathlib import Path

import pytest

from dsa.targets import FORMATS, emit

GOLDEN = Path(__file__).parents[2] / "golden" / "targets"
SUFFIX = {
    "mermaid": "mmd", "dot": "dot", "table": "table.md", "promela": "pml", "tla": "tla", "prism": "prism", "scxml": "scxml", "xstate": "mjs",
}  # fmt: skip


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("name", ["dual_state", "review"])
def test_every_format_is_written_as_recorded(name, format_name, request):
    written = emit(request.getfixturevalue(name), format_name)
    path = GOLDEN / f"{name}.{SUFFIX[format_name]}"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(written, encoding="utf-8", newline="\n")
    assert written == path.read_text(encoding="utf-8")
