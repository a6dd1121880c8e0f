import re
from pathlib import Path

import pytest

from dsa.generators.streams import CALL_ERRORS, RESCUES, STREAM_ERRORS

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "streams.md"


@pytest.mark.parametrize("kinds", [RESCUES, CALL_ERRORS, STREAM_ERRORS], ids=["rescues", "calls", "streams"])
def test_page_has_every_kind_with_its_sentence(kinds):
    rows = dict(re.findall(r"^\| `(\w+)` +\| (.*?) +\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {kind: rows.get(kind) for kind in kinds} == kinds
