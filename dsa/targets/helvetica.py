"""Helvetica: the widths of its letters, so that texts fit the boxes that Graphviz makes for them, whatever font is used.

The widths are those of Adobe's font metrics (AFM) for Helvetica and Helvetica-Bold, in thousandths of the font's size, from
the space to the tilde. Arial and Liberation Sans have the same; DejaVu Sans and Verdana are wider by a sixth.
"""

_FIRST = ord(" ")
_REGULAR = (
    278, 278, 355, 556, 556, 889, 667, 222, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 222, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip
_BOLD = (
    278, 333, 474, 556, 556, 889, 722, 278, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278,
    556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584,
    556, 278, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556,
    333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
)  # fmt: skip


def text_width(text: str, size: float, *, bold: bool = False) -> float | None:
    """Return how wide a text is in the unit of the font's size; None for one with letters beyond ASCII."""
    if not (text.isascii() and text.isprintable()):
        return None
    return sum((_BOLD if bold else _REGULAR)[ord(letter) - _FIRST] for letter in text) * size / 1000
