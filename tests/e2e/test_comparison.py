"""README's table of faults: LangGraph and Burr behave as their columns say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.prefix) / "peers" / "durable" / "bin" / "python"


def column(name: str) -> dict[str, str]:
    """Return the cells of a column of the table by fault."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    head, _, *rows = re.findall(r"^\|.*\|$", text[text.index("| fault |") :].partition("\n\n")[0], re.MULTILINE)
    place = [cell.strip() for cell in head.split("|")].index(name)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return {row[1]: row[place] for row in cells}


@pytest.mark.parametrize("peer", ["LangGraph", "Burr"])
def test_peer_does_what_its_column_says(peer: str):
    if not PYTHON.exists():
        pytest.skip("NOT TESTED: README's columns of LangGraph and Burr; they are not here: run tests/set_up_peers.py")
    command = [str(PYTHON), str(ROOT / "tests" / "graph_faults.py"), peer]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    said = column(peer)
    assert {fault: said[fault] for fault in found} == found
