"""Pictures from DOT, by the renderers that are really installed."""

import shutil
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dsa.edge.render import RenderError, png, renderer, svg
from dsa.errors import DsaError
from dsa.lang import loads
from dsa.targets.dot import dot

ROOT = Path(__file__).parents[3]
PURE = shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))
SYSTEM = shutil.which("dot")
DOCUMENTS = [ROOT / "machines/dual_state/machine.md", ROOT / "tests/golden/targets/review.md"]


@pytest.fixture(params=[SYSTEM, PURE], ids=["graphviz", "graphviz-pure"])
def program(request, monkeypatch, tmp_path):
    """Leave one renderer on the path, so that both are tested where both are installed."""
    if request.param is None:
        pytest.skip("not installed")
    (tmp_path / Path(request.param).name).symlink_to(request.param)
    monkeypatch.setenv("PATH", str(tmp_path))
    return Path(request.param).name


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.parent.name)
def machine(request):
    return loads(request.param.read_text(encoding="utf-8"), request.param.name)


def test_an_svg_shows_every_state_and_every_event(program, machine):
    assert renderer().name == program
    root = ET.fromstring(svg(dot(machine)))
    texts = {text.text.strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(machine.leaves) <= texts
    assert {row.event for row in machine.transitions if row.target != "="} <= texts


def test_a_png_is_one(program, machine):
    image = png(dot(machine))
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(image[at : at + 4]) for at in (16, 20))
    assert width > 500
    assert height > 500


def test_text_that_is_not_dot_is_one_clear_error(program):
    with pytest.raises(RenderError, match=r"did not draw.*syntax error"):
        svg("digraph {")


def test_without_a_renderer_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert renderer() is None
    with pytest.raises(DsaError, match="pip install graphviz-pure"):
        png("digraph {}")
