"""Texts to try the language with: documents that are right, nearly right, and nothing of the kind.

Takes a seed, gives texts: the same seed the same texts. Shipped documents and texts written by a grammar are changed by
character, by line and by cell; cells get values that have broken readers before. Knows the words of the language and
nothing of how it is read.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from dsa.lang.cells import COLUMNS

_DEEP = 5_000
#: Cell texts that some reader of tables, numbers, names or expressions has stumbled over.
NASTY = (
    "(" * _DEEP,
    "(" * _DEEP + "x" + ")" * _DEEP,
    "not " * _DEEP + "x",
    "-" * _DEEP + "1",
    " + ".join(["retries"] * 10_000),
    " and ".join(["satisfied"] * 10_000),
    " < ".join(["retries"] * 5_000),
    "retries in {" + ", ".join(map(str, range(5_000))) + "}",
    "{" + ", ".join(f"v{i}" for i in range(5_000)) + "}",
    "; ".join(["retries += 1"] * 3_000),
    ", ".join(["query_llm"] * 3_000),
    "x" * 50_000,
    "x." * 10_000 + "x",
    "9" * 10_000,
    "0..9999999999999999999",
    "0..999999999999999999",
    "-999999999999999999 * 999999999999999999 * 999999999999999999",
    "1e9",
    "0.1.2",
    "00",
    "-0",
    "1_000",
    "٣",
    "²",
    "１２",
    "𝟙",
    "é",
    "ﬁ",
    "ſ",
    "x\u0301",
    "\u202ex",
    "\u200b",
    "\ufeff",
    "\ud800",
    "\x00",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u00a0",
    "\\",
    "\\\\|",
    r"\|",
    "|",
    "||",
    "`",
    "``",
    "```",
    "` `",
    "`a|b`",
    "<!--",
    "-->",
    "<script>",
    "&amp;",
    "[a](b)",
    "**x**",
    "*",
    r"\*",
    "=",
    "==",
    "-",
    "---",
    ":",
    ".",
    "..",
    "...",
    "0..",
    "..3",
    "3..0",
    "0..rmax..3",
    "0..(rmax + 1) * 2",
    "0..2 * rmax - 7",
    "{}",
    "{,}",
    "{a, a}",
    "{true, false}",
    "{g, rmax}",
    "bool",
    "int",
    "true",
    "True",
    "else",
    "else and",
    "else or retries > 1",
    "else and else",
    "else and (g.passed or retries > 0)",
    "pending",
    "pending query_llm",
    "not in",
    "retries not in {1, 2}",
    "not retries in {1}",
    "true in {true}",
    "1 in {1, true}",
    "g",
    "g.passed",
    "g.passed.failed",
    "g.",
    ".g",
    "query_llm.failed",
    "execute_guard.failed, verdict",
    "after",
    "after 30s",
    "after 0s",
    "after 30",
    "after 999999999999d",
    "after  5m",
    "after\t5m",
    "after ٣s",
    "after 30s, verdict",
    "cancel",
    "cancel cancel",
    "cancel query_llm",
    "cancel, query_llm",
    "revoke satisfied",
    "revoke",
    "retries = 1; retries = 2",
    "retries = = 1",
    "retries += ",
    "retries := 1",
    "satisfied = not satisfied",
    "k = 2; of = a, b, c",
    "k == 2",
    "k = ",
    "= 2",
    "k = 2; k = 3",
    "0.5",
    "1.5",
    "0.0000000000000000000000000000000000000001",
    "0.5, 0.25",
    "lambda: 0",
    "f(",
    "f()",
    "f(" * 500,
    "[" * 500,
    "b'\\xff'",
    "'\\ud800'",
    "{specification}",
    "{",
    "}}",
    "{{}",
    "{a{b}c}",
    "refused",
    "refused:",
    "refused: late",
    "refused: never",
    "-",
    "initial",
    "final",
    "workflow",
    "outside",
    "yes",
    "no",
    "3",
    "",
)
_WORDS = (
    "idle", "generating", "review", "review.draft", "review.open", "done", "failed", "*", "=", "specification", "artifact",
    "verdict", "query_llm", "execute_guard", "query_llm.failed", "after 30s", "g", "h", "g.passed", "g.failed and retries < rmax",
    "else", "retries += 1", "satisfied = true", "retries", "satisfied", "colour", "colour == red", "rmax", "0..rmax", "0..", "bool",
    "{red, green}", "red", "0", "3", "false", "outside", "initial", "final", "workflow", "environment", "cases", "step_1", "step_2",
    "syntax, tests", "test = step_1", "Write {specification}", "add(2, 3)", "5", "verdict g.failed", "verdict, review.open", "",
)  # fmt: skip
_BULLETS = (
    "always retries <= rmax", "never done and not satisfied", "on g.failed: satisfied unchanged", "at most 3 verdict",
    "specification leads to done assuming fair verdict", "possible pending query_llm", "from everywhere possible done",
    "done only after satisfied", "done with probability >= 0.5", "expected query_llm <= 2.5", "at most rmax + 1 query_llm between idle and (done or failed)",
    "always", "always always", "not a property", "at most between between and between",
)  # fmt: skip
_LINES = (
    "", "prose", "Goal: step_1 or step_2", "Result: step_1", "Machine: dual_state", "Parameters: rmax = 1", "```", "~~~", "> quote", "<!--", "-->",
    "    code", "===", "---", "# again", "## ", "##", "### Task", "- always true", "* never false", "1. always true", "| a | b |",
    "\t| a |", "<div>", "[a]: b", "\x0c", "\u2028", "\r", "## Prompt: query_llm", "## Cases: g", "## Constraints", "***",
)  # fmt: skip
_SECTIONS = (
    *COLUMNS,
    "properties",
    "prompt: query_llm",
    "constraints",
    "cases: g",
    "scenario: one",
    "transitions: results",
    "notes",
)
_ENDS = ("\n", "\n", "\n", "\r\n", "\r")


@cache
def shipped_texts() -> tuple[str, ...]:
    """Return the machine documents of this tree, those of DESIGN's examples among them."""
    root = Path(__file__).resolve().parents[1]
    found = sorted((root / "machines").glob("*/*.md")) + sorted((root / "specs" / "conformance").glob("*.md"))
    read = (path.read_bytes().decode("utf-8") for path in found)
    return tuple(text for text in read if "\n## Transitions" in text or "\n## Steps" in text)


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Yield `count` texts; about one in four is a machine."""
    chance = random.Random(seed)
    shipped = shipped_texts()
    for _ in range(count):
        text = chance.choice(shipped) if chance.random() < 0.7 else _document(chance)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 8))):
            text = chance.choice(_MUTATIONS)(chance, text)
        yield text


def slowest(count: int, seed: int, read: Callable[[str], object]) -> tuple[float, str]:
    """Read `count` texts; return the seconds that the slowest took, and the text."""
    worst, found = 0.0, ""
    for text in texts(count, seed):
        begun = time.perf_counter()
        read(text)
        seconds = time.perf_counter() - begun
        if seconds > worst:
            worst, found = seconds, text
    return worst, found


def _document(chance: random.Random) -> str:
    end = chance.choice(_ENDS)
    lines = [f"# {chance.choice(('m', 'two.parts', '', 'bad name', 'm #'))}", ""]
    for _ in range(chance.randint(1, 8)):
        title = chance.choice(_SECTIONS)
        lines += [f"## {title.capitalize()}", *_body(chance, title), chance.choice(("", "", "prose"))]
    return end.join(lines)


def _body(chance: random.Random, title: str) -> list[str]:
    kind = title.partition(":")[0]
    if kind == "properties":
        return [f"- {chance.choice(_BULLETS)}" for _ in range(chance.randint(0, 4))]
    if kind == "prompt":
        return ["### Task", "```", chance.choice(NASTY)[:200], "```"]
    if kind not in COLUMNS or chance.randrange(20) == 0:
        return [chance.choice(_LINES) for _ in range(chance.randint(0, 4))]
    known = COLUMNS[kind]
    columns = [*known.nonempty, *known.mandatory, *(c for c in (*known.optional, "note") if chance.random() < 0.5)]
    rows = [[chance.choice(_WORDS) for _ in columns] for _ in range(chance.randint(0, 5))]
    return [_line(columns), _line(["---"] * len(columns)), *(_line(row) for row in rows)]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _character(chance: random.Random, text: str) -> str:
    place = chance.randint(0, len(text))
    new = chance.choice(
        ("", "", "|", "`", "\\", "#", " ", "\n", "\r", "\t", "-", "(", "{", "é", "\x00", "\u2028", "\ud800", ".", "٣")
    )
    return text[:place] + new + text[place + chance.randint(0, 2) :]


def _lines(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    place, other = (chance.randrange(len(lines)) for _ in range(2))
    change = chance.randrange(5)
    if change == 0:
        del lines[place]
    elif change == 1:
        lines.insert(other, lines[place])
    elif change == 2:
        lines[place], lines[other] = lines[other], lines[place]
    elif change == 3:
        lines.insert(place, chance.choice(_LINES))
    else:
        lines[place] = chance.choice(("  ", "    ", "> ", "- ", "1. ", "\t", "#")) + lines[place]
    return "\n".join(lines)


def _cell(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    tabled = [place for place, line in enumerate(lines) if line.count("|") > 1]
    if not tabled:
        return text
    place = chance.choice(tabled)
    cells = lines[place].split("|")
    value = chance.choice(NASTY) if chance.random() < 0.8 else chance.choice(_WORDS)
    cells[chance.randrange(1, len(cells) - 1)] = f" {value} "
    lines[place] = "|".join(cells)
    return "\n".join(lines)


def _bullet(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    bullets = [place for place, line in enumerate(lines) if line.startswith("- ")]
    if bullets:
        words = lines[chance.choice(bullets)].split(" ")
        words[chance.randrange(len(words))] = chance.choice(NASTY)
        lines[chance.choice(bullets)] = " ".join(words)
    return "\n".join(lines)


def _table(chance: random.Random, text: str) -> str:
    """Make a table wide, or long, or both."""
    lines = text.split("\n")
    tabled = [place for place, line in enumerate(lines) if line.startswith("|")]
    if not tabled:
        return text
    place = chance.choice(tabled)
    if chance.randrange(4) == 0:
        lines[place] += " x |" * chance.choice((1, 3, 3_000))
    else:
        lines[place:place] = [lines[place]] * chance.choice((1, 2, 100))
    return "\n".join(lines)


def _splice(chance: random.Random, text: str) -> str:
    other = chance.choice(shipped_texts())
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


def _line_ends(chance: random.Random, text: str) -> str:
    return (
        text.replace("\n", chance.choice(("\r\n", "\r", "\n\n", "\n\r"))) if chance.randrange(2) else text.rstrip("\n")
    )


_MUTATIONS = (_character, _character, _lines, _lines, _cell, _cell, _cell, _bullet, _table, _splice, _line_ends)
