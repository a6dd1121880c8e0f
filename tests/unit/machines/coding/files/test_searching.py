"""Search: results and messages."""

import pytest
from file_tools import refused


@pytest.fixture
def searched(workspace, tmp_path):
    for path, data in {
        "a.py": b"import os\r\nprint(os.name)\r\n",
        "src/b.py": b"import re\n",
        "src/deep/c.txt": b"an import here\n",
        "bin": b"import \0",
        "large": b"import\n" * 200_000,
        ".git/config": b"import\n",
        ".dsa/run": b"import\n",
        "node_modules/x.js": b"import\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return workspace


@pytest.mark.parametrize(("pattern", "is_regex"), [("import", False), ("^(an )?import\\b", True)])
def test_lines_are_found_by_text_and_by_expression(searched, pattern, is_regex):
    assert searched.search(pattern, is_regex=is_regex) == {
        "result": "3 lines in 3 files; skipped: 1 binary, 3 folders that are not searched, 1 over 1 MB",
        "matches": ["a.py:1: import os", "src/b.py:1: import re", "src/deep/c.txt:1: an import here"],
        "more": False,
        "skipped": {"binary": 1, "folders that are not searched": 3, "over 1 MB": 1},
    }


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({"path": "src"}, ["src/b.py", "src/deep/c.txt"]),
        ({"path": "src/b.py"}, ["src/b.py"]),
        ({"path": "node_modules"}, ["node_modules/x.js"]),
        ({"glob": "*.py"}, ["a.py", "src/b.py"]),
        ({"glob": "src/**/*.txt"}, ["src/deep/c.txt"]),
        ({"glob": "src/*"}, ["src/b.py"]),
        ({"max_results": 2}, ["a.py", "src/b.py"]),
    ],
)
def test_search_can_be_narrowed(searched, options, files):
    for is_regex in (False, True):
        found = searched.search("import", is_regex=is_regex, **options)
        assert [line.split(":")[0] for line in found["matches"]] == files
        assert found["more"] == ("max_results" in options)
        assert ("1 more are not shown: narrow path, glob or pattern" in found["result"]) == found["more"]


def test_files_written_for_people_are_not_searched(searched, tmp_path):
    before = searched.search("import")
    (tmp_path / "agent_ledger.log").write_text("import\n")
    (tmp_path / ".agent_context").mkdir()
    (tmp_path / ".agent_context" / "history.jsonl").write_text("import\n")
    assert searched.search("import") == before
    for path in ("agent_ledger.log", ".agent_context", ".agent_context/history.jsonl"):
        assert refused(searched.search, "import", path)[0] == "protected_path"


def test_search_without_results_suggests_what_may_be_meant(searched):
    assert searched.search("print|re", "src")["result"] == (
        "no line in 2 files contains the pattern as a text (for a regular expression, set is_regex=true)"
    )
    assert searched.search("nothing", "src")["result"] == "no line in 2 files contains the pattern"
    assert refused(searched.search, "x", "nowhere")[0] == "no_such_file"
    assert refused(searched.search, "x", ".git")[0] == "protected_path"
    assert refused(searched.search, "x", ".git/config")[0] == "protected_path"


def test_long_lines_are_cut_around_the_match(workspace, tmp_path):
    (tmp_path / "a").write_text("x" * 5_000 + "needle" + "y" * 5_000)
    for is_regex in (False, True):
        (line,) = workspace.search("needle", is_regex=is_regex)["matches"]
        assert line.startswith("a:1: ..xxx")
        assert line.endswith("yyy..")
        assert "needle" in line
        assert len(line) < 220


@pytest.mark.parametrize("pattern", ["(", "*", "a{2000}", "(?P<x", "(?=x)", r"(x)\1", "\\"])
def test_invalid_expression_is_refused_with_a_hint(workspace, tmp_path, pattern):
    (tmp_path / "a").write_text("x")
    code, text = refused(workspace.search, pattern, is_regex=True)
    assert code == "bad_pattern"
    assert "is_regex=false" in text
