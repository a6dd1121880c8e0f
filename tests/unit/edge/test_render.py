"""Pictures from DOT, by the renderers that are really installed."""

import shutil
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs
import pytest
from drawing import Line, faults, overflows, read
from hypothesis import HealthCheck, given, settings
from repository import all_machines

from dsa.edge.images import png, renderer, svg
from dsa.errors import DsaError
from dsa.lang import loads, spell_out
from dsa.targets.dot import dot
from dsa.testing.strategies import machines

ROOT = Path(__file__).parents[3]
PURE = shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))
WHITE = ("#ffffff", "white", "none", "transparent")
SYSTEM = shutil.which("dot")
NESTED = """
# nested

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| approved | workflow | bool   | false   |
| rounds   |          | 0..2   | 0       |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |
| abandoned     | outside       |
| resumed       | outside       |

## Guards
| guard  | judges  |
| ------ | ------- |
| polite | verdict |

## States
| state               | kind    |
| ------------------- | ------- |
| idle                | initial |
| work.draft.writing  | initial |
| work.draft.checking |         |
| work.resting        |         |
| done                | final   |
| dropped             | final   |

## Transitions
| source     | event         | if                            | update          | effects                      | target     |
| ---------- | ------------- | ----------------------------- | --------------- | ---------------------------- | ---------- |
| idle       | specification |                               |                 | query_llm                    | work.draft |
| work       | abandoned     |                               | revoke approved | cancel, archive              | dropped    |
| work       | after 2h      |                               |                 | cancel, remind_owner         | resting    |
| work.draft | after 1h      |                               |                 | cancel query_llm             | resting    |
| writing    | artifact      |                               |                 | execute_guard                | checking   |
| checking   | verdict       | polite.passed                 | approved = true | advance_state, reply_to_user | done       |
| checking   | verdict       | polite.failed and rounds < 2  | rounds += 1     | refine_context, query_llm    | writing    |
| checking   | verdict       | polite.failed and rounds == 2 | rounds = 0      | refine_context, query_llm    | writing    |
| checking   | verdict       | polite.fatal                  |                 | refine_context, query_llm    | writing    |
| checking   | after 30s     |                               |                 | cancel execute_guard, remind | checking   |
| checking   | after 40s     |                               | rounds = 1      | remind                       | checking   |
| resting    | resumed       |                               | revoke approved | query_llm                    | work.draft |
| resting    | after 2d      |                               |                 | archive                      | dropped    |
"""
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


def test_svg_shows_every_state_and_every_event(program, machine):
    assert renderer().name == program
    root = ET.fromstring(svg(dot(machine)))
    texts = {text.text.strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(machine.leaves) <= texts
    assert {row.event for row in machine.transitions if row.target != "="} <= texts


REPOSITORY = all_machines() | {
    "nested": loads(NESTED, "nested.md"),
    "review": loads(DOCUMENTS[1].read_text(), "review.md"),
}


@pytest.mark.parametrize("name", REPOSITORY)
def test_texts_are_not_covered_and_every_row_has_an_arrow_head(program, name):
    """Parents, two-way and parallel rows, rows to their own source, double lines: all are among these machines."""
    machine = spell_out(REPOSITORY[name])
    drawing = read(svg(dot(machine, full=True)))
    assert faults(drawing) == []
    assert overflows(drawing) == []
    arrows = sum(row.target != "=" for row in machine.transitions)
    assert sum(label.startswith("arrow ") for label in drawing.outlines) == arrows
    _one_visible_head_each(drawing, arrows)


PAGE = 900


@pytest.mark.parametrize("rows", [False, True], ids=["as-drawn", "rows"])
@pytest.mark.parametrize("name", REPOSITORY)
def test_picture_fits_on_a_page_and_texts_are_not_covered(program, name, rows):
    """Texts are 10 units high or more, and a page of 900 pixels shows a picture of 900 units as it is."""
    machine = spell_out(REPOSITORY[name]) if rows else REPOSITORY[name]
    drawing = read(svg(dot(machine)))
    assert faults(drawing) == []
    assert overflows(drawing) == []
    assert drawing.width <= PAGE
    assert min(text.size for text in drawing.texts) >= 10


def test_text_longer_than_its_box_is_noticed(program):
    drawing = read(svg(dot(REPOSITORY["dual_state"])))
    wide = [attrs.evolve(t, where=(t.where[0], t.where[1], t.where[0] + 200, t.where[3])) for t in drawing.texts]
    assert "'generating' leaves generating" in overflows(attrs.evolve(drawing, texts=tuple(wide)))


def _one_visible_head_each(drawing, arrows):
    heads = dict.fromkeys(range(1, arrows + 1), ())
    for line in drawing.lines:
        label = next((end for end in line.ends if end.startswith("arrow ")), None)
        if label:
            heads[int(label.removeprefix("arrow "))] += line.heads
    assert {number for number, colours in heads.items() if len(colours) != 1 or colours[0] in WHITE} == set()


def test_covered_text_is_noticed(program):
    """The test spoils a drawing, because the tests above see only good ones."""
    drawing = read(svg(dot(REPOSITORY["dual_state"])))
    texts = {text.content: text for text in drawing.texts}
    passed, retried = texts["[g.passed]"], texts["/ retries += 1"]
    moved = attrs.evolve(drawing, texts=(passed, attrs.evolve(retried, where=passed.where)))
    assert faults(moved) == ["'[g.passed]' and '/ retries += 1' overlap", "'/ retries += 1' is in ['arrow 3']"]
    left, top, right, bottom = passed.where
    line = Line(("idle", "arrow 1"), (((left + right) / 2, (top + bottom) / 2),), ())
    assert faults(attrs.evolve(drawing, lines=(line,))) == ["('idle', 'arrow 1') runs through '[g.passed]'"]
    boxes = drawing.outlines | {"idle": drawing.outlines["failed"]}
    assert "boxes idle and failed overlap" in faults(attrs.evolve(drawing, outlines=boxes))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(machines(claims=False))
def test_labels_of_any_machine_are_not_covered(program, machine):
    """Names of parents are left out: a line may cross one."""
    drawing = read(svg(dot(machine)))
    assert [fault for fault in faults(drawing) if not any(f"{parent!r}" in fault for parent in machine.parents)] == []


def test_every_text_declares_its_length(program, machine):
    """The boxes are made for Helvetica; a reader may have a wider font."""
    texts = list(ET.fromstring(svg(dot(machine))).iter("{http://www.w3.org/2000/svg}text"))
    assert len(texts) > 20
    assert all(float(text.get("textLength")) > 0 and text.get("lengthAdjust") == "spacingAndGlyphs" for text in texts)


def test_png_is_a_valid_image(program, machine):
    image = png(dot(machine))
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(image[at : at + 4]) for at in (16, 20))
    assert width > 500
    assert height > 500


def test_invalid_dot_is_one_clear_error(program):
    with pytest.raises(DsaError, match=r"did not draw.*syntax error"):
        svg("digraph {")


def test_error_without_a_renderer_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert renderer() is None
    with pytest.raises(DsaError, match="pip install graphviz-pure"):
        png("digraph {}")
