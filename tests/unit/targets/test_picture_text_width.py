"""The widths of Helvetica's letters, compared with Adobe's own tables as matplotlib ships them."""

import re
from pathlib import Path

import pytest

from dsa.targets.picture import text_width

LETTERS = [chr(code) for code in range(ord(" "), ord("~") + 1)]


@pytest.mark.parametrize(("bold", "name"), [(False, "phvr8a"), (True, "phvb8a")])
def test_every_letter_is_as_wide_as_adobe_says(bold, name):
    matplotlib = pytest.importorskip("matplotlib")
    metrics = Path(matplotlib.get_data_path()) / "fonts" / "afm" / f"{name}.afm"
    found = re.findall(r"^C (\d+) ; WX (\d+)", metrics.read_text(encoding="latin-1"), re.MULTILINE)
    widths = {chr(int(code)): int(width) for code, width in found}
    assert [round(text_width(letter, 1000, bold=bold)) for letter in LETTERS] == [widths[letter] for letter in LETTERS]


def test_text_is_as_wide_as_its_letters_and_grows_with_the_size():
    assert text_width("mi", 10) == pytest.approx(8.33 + 2.22)
    assert text_width("mi", 20) == 2 * text_width("mi", 10)
    assert text_width("mi", 10, bold=True) == pytest.approx(8.89 + 2.78)
    assert text_width("", 10) == 0


@pytest.mark.parametrize("text", ["café", "→", "a\tb"])
def test_text_with_other_letters_has_no_known_width(text):
    assert text_width(text, 10) is None
