"""Rules of `.gitignore`, compared with what git itself says of the same lines and paths."""

import random
import subprocess

import pytest
from each_row import each_row

from machines.coding.history.workspace_scan import is_named, parts_of, rules_of

LINES = (
    """
*.py|!a.py|/a|a/|a/b|/a/b/|a/**|**/a|**/a/b|a/**/b|a*b|*a*|a?c|[ab]|[!a]|[^a]*|[a-b]c|[]a]|[a-]|[[:alpha:]]|[[:digit:]x]|[[:no:]]
\\#a|#a|\\!a|!|/|**|**/|/**|***|a/***/b|a**b|a/**b|**a|a\\ |a  |a\\|\\a|[|[a|[\\a]|[z-a]|[a/b]|é|?|??|-|a.*|.*|!*.py|/*|/*/|*/a|a//b|\\*|[*]
""".strip()
    .replace("\n", "|")
    .split("|")
)
NAMES = [
    "a",
    "b",
    "c",
    "ab",
    "abc",
    "ac",
    "bc",
    "a.py",
    ".a",
    "é",
    "-",
    "]",
    "a ",
    "[",
    "[a",
    "!a",
    "#a",
    "\\",
    "a\\",
    "*",
    "x1",
    "1",
]


def ignored_by_git(folder, paths):
    """Return which paths git ignores; all parts of a path are folders, except for the last, which is a file."""
    asked = ["git", "-C", folder, "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin"]
    printed = subprocess.run(asked, input="\0".join(paths).encode(), capture_output=True, check=False).stdout
    fields = printed.decode().split("\0")[:-1]
    return {fields[at + 3]: fields[at] != "" and not fields[at + 2].startswith("!") for at in range(0, len(fields), 4)}


def ignored_by_us(chain, path):
    parts = parts_of(path)
    return any(is_named(chain, parts[:depth], is_folder=depth < len(parts)) for depth in range(1, len(parts) + 1))


@pytest.fixture
def repository(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


@pytest.fixture(scope="module")
def paths():
    chosen = random.Random(1)
    return sorted({"/".join(chosen.choices(NAMES, k=chosen.randint(1, 4))) for _ in range(300)})


@each_row("line", LINES)
def test_line_means_the_same_as_in_git(repository, paths, line):
    (repository / ".gitignore").write_text(f"{line}\n", "utf-8")
    chain = [(0, rules_of(f"{line}\n".encode()))]
    assert {path: ignored_by_us(chain, path) for path in paths} == ignored_by_git(repository, paths)


def test_later_lines_and_nearer_files_win(repository, paths):
    texts = {
        ".gitignore": "*\n!a\n!a/**\n!*.py\r\n",
        "a/.gitignore": "\ufeffab\n!b\n\n# x\n*.py",
        "a/b/.gitignore": "!ab\nc/\n",
    }
    for name, text in texts.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text, "utf-8", newline="")
    rules = [rules_of(text.encode()) for text in texts.values()]
    ours = {}
    for path in paths:
        chain = [(0, rules[0])]
        chain += [(1, rules[1])] if path.startswith("a/") else []
        chain += [(2, rules[2])] if path.startswith("a/b/") else []
        parts = parts_of(path)
        ours[path] = any(
            is_named([each for each in chain if each[0] < depth], parts[:depth], is_folder=depth < len(parts))
            for depth in range(1, len(parts) + 1)
        )
    said = ignored_by_git(repository, paths)
    assert ours == said
    assert set(said.values()) == {True, False}


def test_pattern_with_many_stars_is_fast():
    name = "a" * 200
    for line in ("*a" * 50 + "b", "**/a/" * 50 + "b", "a*" * 100 + "b"):
        rules = rules_of(line.encode())
        assert not is_named([(0, rules)], (b"a",) * 100 + (name.encode(),), is_folder=False)
