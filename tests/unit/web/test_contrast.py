"""Contrast: every text can be read on what is behind it, light and dark (WCAG 2.2, AA: 4.5 to 1)."""

import re
from pathlib import Path

import pytest

import dsa.web

CSS = (Path(dsa.web.__file__).parent / "static" / "page.css").read_text()
SCHEMES = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)]


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
def test_every_text_has_enough_contrast(scheme):
    pairs = [
        (text, ground) for text in ("ink", "faint", "link", "good", "bad", "doubt") for ground in ("ground", "raised")
    ]
    pairs += [("ink", "now"), ("link", "now"), ("ground", "link")]
    for text, ground in pairs:
        dark, light = sorted((luminance(scheme[text]), luminance(scheme[ground])))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
