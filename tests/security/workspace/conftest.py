"""A workspace with links that lead out of it, opened in both ways: by the kernel in one call, and name by name."""

import signal

import pytest
from attacked_workspaces import SECRET, TOOLS, WRITES, calls_of, everything
from file_tools import FileTools

from dsa.errors import ToolError


@pytest.fixture(autouse=True)
def _no_hanging():
    """Fail what waits for ever: for the other end of a pipe, for an expression."""

    def too_long(*_):
        raise TimeoutError("it hangs")

    earlier = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, earlier)


@pytest.fixture
def places(tmp_path):
    """Return the workspace's folder, with links of every kind that lead out of it."""
    root, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (root / "src", root / ".git", root / "tests", outside):
        folder.mkdir(parents=True)
    for path in (outside / "secret", outside / "a.py", tmp_path / "secret"):
        path.write_text(SECRET)
    (root / "a.py").write_text("x = 1\n")
    (root / ".git" / "config").write_text("[core]\n")
    (root / "tests" / "test_a.py").write_text("assert True\n")
    for name, target in {
        "link": outside,
        "src/link": outside / "secret",
        "to_file": "../outside/secret",
        "chain": "chain_2",
        "chain_2": "src/link",
        "up": "..",
        "src/here": "..",
        "to_root": "/",
        "dangling": outside / "new",
        "dangling_folder": outside / "new_folder",
        "loop": "loop",
        "zero": "/dev/zero",
        "magic": "/proc/self/root",
    }.items():
        (root / name).symlink_to(target)
    return root


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def workspace(request, places):
    with FileTools(places, ["tests/test_*.py", "conftest.py"], by_walk=request.param) as opened:
        yield opened


@pytest.fixture
def attack(workspace, places):
    """Try a path in each tool, and see that all refuse it, that nothing was read, and that nothing has changed anywhere."""

    def tried(path, tools=TOOLS):
        if isinstance(path, str):
            path = path.replace("{root}", str(places)).replace("{outside}", str(places.parent / "outside"))
        earlier = everything(places.parent)
        codes = set()
        for tool in tools:
            arguments = calls_of(path)[tool]
            for call in (workspace.apply, workspace.plan, workspace.diff):
                if call != workspace.apply and tool not in WRITES:
                    continue
                with pytest.raises(ToolError) as refused:
                    call(tool, arguments)
                codes.add(refused.value.code)
                assert SECRET not in str(refused.value)
                assert len(str(refused.value)) < 400
                assert str(refused.value).replace("\n", "").isprintable()
            assert workspace.fault(tool, arguments), tool
        assert everything(places.parent) == earlier
        return codes

    return tried
