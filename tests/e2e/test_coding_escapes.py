"""Ways out of the workspace, through the real dispatch: each is refused with its reason, or contained; nothing outside is read or changed."""

import json
import os
import socket
import threading

import pytest
from coders import acting, agent_at, call, complete, tasks, worked

PLAN = tasks(("Get out", "run_cmd and read_file"))
SECRET = "a-secret-that-nobody-may-see"
READER = "import sys\nprint(open(sys.argv[1]).read())\n"
#: By name: the call, and the error code of its result.
REFUSED = {
    "traversal": (call("read_file", path="../secret.txt"), "path_outside_workspace"),
    "traversal inside": (call("write_file", path="a/../../secret.txt", content="x"), "path_outside_workspace"),
    "an absolute path": (call("read_file", path="/etc/passwd"), "path_outside_workspace"),
    "a link to a file": (call("read_file", path="link.txt"), "path_outside_workspace"),
    "a link to a folder": (call("write_file", path="linked/secret.txt", content="x"), "path_outside_workspace"),
    "NUL": (call("read_file", path="a\0.txt"), "path_outside_workspace"),
    "a FIFO": (call("read_file", path="pipe"), "not_a_file"),
    "a device": (call("read_file", path="/dev/zero"), "path_outside_workspace"),
    "git's hooks": (call("write_file", path=".git/hooks/pre-commit", content="#!/bin/sh\n"), "path_outside_workspace"),
    "the ledger of the run": (call("write_file", path="agent_ledger.log", content="x"), "path_outside_workspace"),
    "a file of the guards": (call("edit", path="tests/test_guard.py", old="assert", new="#"), "path_outside_workspace"),
    "a pipe": (call("run_cmd", cmd="cat a.txt | tee /tmp/x"), "command_not_allowed"),
    "a second command": (call("run_cmd", cmd="python reader.py a.txt; rm -rf /"), "command_not_allowed"),
    "a substitution": (call("run_cmd", cmd="python $(which ls)"), "command_not_allowed"),
    "a shell": (call("run_cmd", cmd=["sh", "-c", "ls"]), "command_not_allowed"),
    "code on the line": (call("run_cmd", cmd=["python", "-c", "print(1)"]), "command_not_allowed"),
    "pip": (call("run_cmd", cmd=["pip", "install", "requests"]), "command_not_allowed"),
    "pip as a module": (call("run_cmd", cmd=["python", "-m", "pip", "install", "requests"]), "command_not_allowed"),
    "a plugin of pytest": (call("run_cmd", cmd=["pytest", "-p", "evil"]), "command_not_allowed"),
    "another folder": (call("run_cmd", cmd=["python", "reader.py"], cwd=".."), "command_not_allowed"),
    "a path out of a command": (call("run_cmd", cmd=["python", "reader.py", "../secret.txt"]), "command_not_allowed"),
}
#: Programs that may run but find nothing, by name: the path and text that the model writes first, and the command.
CONTAINED = {
    "a file outside": ("evil.py", "print(open('{secret}').read())", ["python", "evil.py"]),
    "a file outside, by conftest.py": ("conftest.py", "print(open('{secret}').read())", ["pytest", "-q"]),
    "the environment": ("evil.py", "import os\nprint(dict(os.environ))", ["python", "evil.py"]),
    "the environment of the agent process": ("evil.py", "print(open('/proc/{pid}/environ').read())", ["python", "evil.py"]),
    "a server on this machine": ("evil.py", "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2).sendall(b'x')", ["python", "evil.py"]),
    "a write outside": ("evil.py", "open('{secret}', 'w').write('x')", ["python", "evil.py"]),
    "git's hooks, by a program": ("evil.py", "open('.git/hooks/post-commit', 'w').write('x')", ["python", "evil.py"]),
    "the agent process": ("evil.py", "import os\nos.kill({pid}, 9)", ["python", "evil.py"]),
    "a python of the workspace": ("python", "#!/bin/sh\ncat {secret}", ["python", "reader.py", "a.txt"]),
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "secret.txt").write_text(SECRET)
    folder = tmp_path / "workspace"
    for name in (".git/hooks", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "a.txt").write_text("fine\n")
    (folder / "reader.py").write_text(READER)
    (folder / "tests" / "test_guard.py").write_text("def test():\n    assert True\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


def result_of(tmp_path, *said, **config):
    """Have a model make these calls, and return the results that it was sent."""
    turns = iter(said)
    with agent_at(tmp_path, "get out", acting(PLAN, lambda _view: next(turns, complete(success=False))), **config) as (agent, played):  # fmt: skip
        work = worked(agent)
    assert SECRET not in json.dumps(played.requests)
    assert (tmp_path / "secret.txt").read_text() == SECRET
    return [each.result for each in work.calls]


@pytest.mark.parametrize("name", REFUSED)
def test_escape_attempt_is_refused_with_its_reason(tmp_path, workspace, name):
    said, code = REFUSED[name]
    result, _ = result_of(tmp_path, said, protected=["tests/test_guard.py"])
    assert result["error"]["code"] == code
    assert len(result["error"]["message"]) > 20
    assert not list((workspace / ".git" / "hooks").iterdir())


@pytest.mark.parametrize("name", CONTAINED)
def test_contained_program_runs_and_finds_nothing(tmp_path, workspace, name, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    path, text, command = CONTAINED[name]
    reached = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over = threading.Event()
        thread = threading.Thread(target=_accepting, args=(listener, reached, over))
        thread.start()
        content = text.format(secret=tmp_path / "secret.txt", pid=os.getpid(), port=listener.getsockname()[1])
        wrote, ran, _ = result_of(
            tmp_path, call("write_file", path=path, content=content), call("run_cmd", cmd=command, timeout_sec=20)
        )
        over.set()
        thread.join()
    assert "error" not in wrote
    if name == "a python of the workspace":
        assert (ran["rc"], ran["output"].strip()) == (0, "fine")
    elif name not in {"the environment", "a write outside"}:  # these may use their own environment and files
        assert ran["rc"] != 0
    assert reached == []
    assert not list((workspace / ".git" / "hooks").iterdir())


def _accepting(listener, reached, over):
    while not over.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        reached.append(True)
        connection.close()


def test_protected_files_are_protected_from_commands_too(tmp_path, workspace):
    """This covers files protected by a pattern, and the settings of `dsa`, which limit what an agent may do."""
    script = "import os, sys\nos.makedirs(os.path.dirname(sys.argv[1]) or '.', exist_ok=True)\nopen(sys.argv[1], 'w').write('hacked')\n"
    before = (workspace / "tests" / "test_guard.py").read_text()
    results = result_of(
        tmp_path,
        call("write_file", path="write.py", content=script),
        call("run_cmd", cmd=["python", "write.py", "tests/test_guard.py"]),
        call("run_cmd", cmd=["python", "write.py", "dsa.toml"]),
        call("run_cmd", cmd=["python", "write.py", "src/dsa.toml"]),
        call("run_cmd", cmd=["python", "write.py", "tests/test_gone.py"]),
        call("run_cmd", cmd=["python", "write.py", ".venv/tool"]),
        call("write_file", path="dsa.toml", content="[code]\n"),
        call("write_file", path="sub/dsa.toml", content="[code]\n"),
        protected=["tests/test_g*.py"],
    )
    assert results[1]["rc"] != 0
    assert results[2]["put_back"] == ["dsa.toml"]
    assert results[3]["put_back"] == ["src/dsa.toml"]
    assert results[4]["put_back"] == ["tests/test_gone.py"]
    assert (results[5]["not_kept"], "put_back" in results[5]) == ([".venv"], False)
    assert [each["error"]["code"] for each in results[6:8]] == ["path_outside_workspace"] * 2
    assert (workspace / "tests" / "test_guard.py").read_text() == before
    assert list(workspace.rglob("dsa.toml")) == []
