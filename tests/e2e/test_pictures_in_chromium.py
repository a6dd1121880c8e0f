"""Pictures as a browser shows them: each text stays in its box with any font."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from repository import shipped_machines

from dsa.edge.images import svg
from dsa.lang import spell_out
from dsa.targets import dot

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FONTS = ["DejaVu Sans", "Liberation Sans"]
MACHINES = shipped_machines()
_TIME_LIMIT_S = 120
#: Collects the texts that leave their box: those wider than the outline of their node, by more than a rounding.
_MEASURE = """
const found = [];
let texts = 0;
for (const node of document.querySelectorAll('g.node')) {
  let left = Infinity, right = -Infinity;
  for (const shape of node.querySelectorAll('path, polygon, ellipse')) {
    const box = shape.getBBox();
    left = Math.min(left, box.x);
    right = Math.max(right, box.x + box.width);
  }
  for (const text of node.querySelectorAll('text')) {
    const box = text.getBBox();
    texts += 1;
    if (box.x < left - 0.5 || box.x + box.width > right + 0.5) {
      found.push(text.textContent);
    }
  }
}
document.body.innerHTML = JSON.stringify({ texts: texts, found: found });
"""

pytestmark = [pytest.mark.full, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]


def leaving(picture: str, font: str, tmp_path) -> tuple[int, list[str]]:
    """Return how many texts Chromium shows in boxes, and those that leave theirs."""
    page = tmp_path / "page.html"
    shown = picture[picture.index("<svg") :]
    style = f"text {{ font-family: '{font}' }}"
    page.write_text(
        f"<!DOCTYPE html><meta charset='utf-8'><style>{style}</style><body>{shown}<script>{_MEASURE}</script>"
    )
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *flags, page.as_uri()], capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=True
    )
    told = json.loads(unescape(re.search(r"<body>(.*?)</body>", done.stdout, re.DOTALL)[1]))
    return told["texts"], told["found"]


@pytest.fixture(params=FONTS)
def font(request):
    """Return a font that is installed."""
    listed = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=True).stdout
    if request.param not in listed:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize("rows", [False, True], ids=["as-drawn", "rows"])
@pytest.mark.parametrize("name", MACHINES)
def test_every_text_of_a_shipped_machine_stays_in_its_box(name, rows, font, tmp_path):
    machine = spell_out(MACHINES[name]) if rows else MACHINES[name]
    texts, found = leaving(svg(dot(machine)), font, tmp_path)
    assert texts >= len(MACHINES[name].steps or machine.leaves)
    assert found == []


def test_text_without_a_length_leaves_its_box_in_a_wide_font(tmp_path):
    """This shows why lengths are set, and that the test above would notice a missing one."""
    picture = re.sub(r' textLength="[^"]*"', "", svg(dot(MACHINES["chat"])))
    assert "working.data_fetching" in leaving(picture, "DejaVu Sans", tmp_path)[1]
