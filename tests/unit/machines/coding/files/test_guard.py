"""The guard's judgement of a call before it happens."""

from each_row import each_row
from file_tools import FileTools


@each_row(
    ("tool", "arguments", "faulty"),
    [
        ("read_file", {"path": "a"}, False),
        ("read_file", {"path": "missing"}, False),
        ("read_file", {"path": ".git/config"}, False),
        ("write_file", {"path": ".git/config", "content": ""}, True),
        ("read_file", {"path": "../a"}, True),
        ("read_file", {}, True),
        ("list_dir", {}, False),
        ("list_dir", {"path": None}, False),
        ("list_dir", {"path": ".dsa"}, True),
        ("search", {"pattern": "x"}, False),
        ("search", {"pattern": "x", "path": ".git"}, True),
        ("edit", {"path": "a", "old": "not there", "new": ""}, False),
        ("edit", {"path": "guarded/test_a.py", "old": "x", "new": ""}, True),
        ("write_files", {"files": [{"path": "a", "content": ""}, {"path": "link", "content": ""}]}, True),
        ("write_files", {"files": [{"path": "a", "content": ""}, {"path": "b", "content": ""}]}, False),
        ("write_files", {"files": 3}, False),
        ("write_file", {"path": "folder", "content": ""}, False),
        ("write_file", {"path": 3}, True),
        ("run_cmd", {"cmd": "../../x"}, False),
    ],
)
def test_guard_refuses_only_invalid_and_protected_paths(tmp_path, tool, arguments, faulty):
    (tmp_path / "a").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a")
    with FileTools(tmp_path, ["guarded/test_*.py"]) as opened:
        assert bool(opened.fault(tool, arguments)) == faulty
