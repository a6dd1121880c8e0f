"""The pictures in docs/how-to/web.md: taken by this test (`UPDATE_PICTURES=1`), small, named in the page, and of pages that still show the words of their captions."""

import io
import os
import re
from pathlib import Path

import attrs
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "web.md"
FOLDER = PAGE.parent / "pictures"
MOST_BYTES, COLOURS = 60_000, 160
TAKES = bool(os.environ.get("UPDATE_PICTURES"))


@attrs.frozen
class Picture:
    """A picture: the page of the gallery, the size in pixels, the scheme, and words that both its caption and the page contain."""

    page: str
    size: tuple[int, int]
    words: tuple[str, ...]
    is_dark: bool = False
    #: The text to press, and the selector to scroll to.
    opens: str = ""
    top: str = "body"


PICTURES = {
    "web-machine.png": Picture(
        "machine",
        (1100, 700),
        ("the counterexample ends with this row", "Counterexample: 4 steps", "always asks < days"),
        top="#line27",
        opens="Counterexample: 4 steps",
    ),
    "web-explorer.png": Picture("explorer", (1100, 560), ("The way here: 2 steps", "What can happen")),
    "web-odds.png": Picture("odds", (1100, 620), ("probability of success", "What is assumed", "rmax")),
    "web-runs.png": Picture("runs", (1000, 660), ("in doubt", "waiting", "finished")),
    "web-run.png": Picture("run that waits", (1000, 580), ("Send approved", "asking", "Explore from here")),
    "web-conversation.png": Picture("conversation", (1100, 760), ("skipped: done already", "Tromsø"), top="#talk"),
    "web-code.png": Picture(
        "coding run", (1100, 800), ("write_file needs permission", "Send permitted"), is_dark=True, top="#talk"
    ),
}


def captions() -> dict[str, str]:
    """Return the captions of the pictures in the page, by the names of their files."""
    return {
        name: caption for caption, name in re.findall(r"!\[([^\]]*)\]\(pictures/([^)]+)\)", PAGE.read_text("utf-8"))
    }


@pytest.mark.parametrize("name", PICTURES)
def test_picture_shows_the_words_of_its_caption(shown, name):
    picture, caption = PICTURES[name], captions()[name]
    assert [word for word in picture.words if word not in caption] == []
    width, height = picture.size
    shown.tab.show_at(width, is_dark=picture.is_dark)
    shown.visit(picture.page)
    shown.tab.until_it_reads(*picture.words)
    if picture.opens:
        shown.tab.press(picture.opens)
    if TAKES:
        shown.tab.until("!document.querySelector('#diagram') || document.querySelector('#diagram svg')")
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        shown.tab.call("Emulation.setDeviceMetricsOverride", **sizes)
        shown.tab.evaluate(f"document.querySelector({picture.top!r}).scrollIntoView()")
        shown.tab.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        take(shown.tab.picture(), FOLDER / name)


def take(png: bytes, path: Path) -> None:
    """Write a picture with few colours."""
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(exist_ok=True)
    with image.open(io.BytesIO(png)) as whole:
        whole.convert("RGB").quantize(COLOURS, dither=image.Dither.NONE).save(path, optimize=True)


def test_each_picture_is_named_in_the_page_and_small():
    assert set(captions()) == set(PICTURES) == {path.name for path in FOLDER.iterdir()}
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}
