"""Evidence that a subtask is completed: results that fit it, where that can be decided."""

import pytest
from each_row import each_row

from machines.coding.coding_work import evidence_of, files_in, missing_evidence
from machines.coding.task_plan import CodingCall, CodingResult
from machines.coding.tools.workspace import FileEdit

NOTHING = "there is no tool result in this subtask"
NO_COMMAND = "this subtask says to run or test something, but it has no result of a command"


def gave(tool, arguments=None, *, argv=(), changes=(), result=None):
    call = CodingCall(tool=tool, arguments=arguments or {}, argv=argv)
    return evidence_of(
        call, CodingResult("c1", result or {}, changes=tuple(FileEdit(path, None, None) for path in changes))
    )


LISTED = gave("list_dir", {"path": "."})
WROTE = gave("write_file", {"path": "src/a.py", "content": "x"})
READ = gave("read_file", {"path": "a.py"})
RAN = gave("run_cmd", {"cmd": "x"}, argv=("python", "a.py"))
TESTED = gave("run_cmd", {"cmd": "x"}, argv=("pytest", "tests/test_a.py::test_x"))
SERVED = gave("words__count", {"text": "a"})


def of_files(*names):
    return f"no tool has read, written or run {' or '.join(names)} in this subtask"


@each_row(
    ("subtask", "results", "lacks"),
    [
        ("anything", [], NOTHING),
        ("say what there is", [LISTED], ""),
        ("write_file a.py with a greeting", [LISTED], of_files("a.py")),
        ("write_file a.py with a greeting", [WROTE], ""),
        ("write_file a.py with a greeting", [READ], ""),
        ("write_file a.py, then b.py", [LISTED], of_files("a.py", "b.py")),
        ("write_file a.py, then b.py", [WROTE], ""),
        ("edit lib/a.py.", [gave("write_files", {"files": [{"path": "lib/a.py", "content": ""}]})], ""),
        ("edit lib/a.py.", [gave("run_cmd", {"cmd": "x"}, argv=("python", "make.py"), changes=["lib/a.py"])], ""),
        ("edit lib/a.py.", [gave("search", {"pattern": "x"}, result={"matches": ["lib/a.py:3: x"]})], ""),
        ("edit lib/a.py.", [gave("search", {"pattern": "x"}, result={"matches": []})], of_files("lib/a.py")),
        ("make a.py work", [RAN], ""),
        ("run_cmd python a.py", [WROTE, READ], NO_COMMAND),
        ("run_cmd python a.py", [RAN], ""),
        ("Run the tests", [gave("git_commit", {"message": "x"})], NO_COMMAND),
        ("Run the tests", [TESTED], ""),
        ("Run the tests", [gave("write_tested", {"path": "a.py"})], ""),
        ("test: everything", [LISTED], NO_COMMAND),
        ("run the counting tool", [SERVED], ""),
        ("run git_status", [gave("git_status")], ""),
        ("fix tests/test_a.py", [TESTED], ""),
        ("use Node.js, e.g. from https://example.org/a.js, for *.py and os.path", [LISTED], ""),
    ],
)
def test_evidence_must_fit_the_subtask(subtask, results, lacks):
    assert missing_evidence(subtask, results) == lacks


@pytest.mark.parametrize("arguments", [{"files": 1}, {"files": {"a": 1}}, {"files": [{"path": ["a.py"]}]}, {"path": 7}])
def test_arguments_of_server_tools_may_be_anything(arguments):
    assert missing_evidence("write_file a.py", [gave("words__lookup", arguments)]) == of_files("a.py")


def test_file_names_are_recognised_by_their_endings():
    assert files_in("write `src/app.tsx`, (README.md) and a.b.json: version 3.12, i.e. now") == [
        "src/app.tsx", "README.md", "a.b.json",
    ]  # fmt: skip
