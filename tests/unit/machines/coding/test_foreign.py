"""Tools of MCP servers: real servers as processes, one made with the package mcp, and many that do it badly (`mcp_server.py`, `mcp_rogue.py`)."""

import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsa.edge.sandbox.commands import stop
from dsa.errors import ParameterError
from machines.coding.servers.foreign import Foreign, Server
from machines.coding.servers.tools import MOST_TOOLS, fitted, tools_of
from machines.coding.tools.errors import ToolError

pytest.importorskip("mcp", reason="the package mcp asks MCP servers")

TESTS = Path(__file__).parents[3]
LONG_S, SHORT_S = 60.0, 1.0


def real(**settings):
    return Server([sys.executable, str(TESTS / "mcp_server.py")], **settings)


def rogue(how, **settings):
    return Server([sys.executable, str(TESTS / "mcp_rogue.py"), how], **settings)


@pytest.fixture(scope="module")
def shared():
    """One server for the tests that leave it as it is."""
    with Foreign({"test": real()}) as opened:
        yield opened


@pytest.fixture
def opened():
    """Open servers that are closed at the end of the test."""
    all_opened = []

    def opening(**servers):
        all_opened.append(Foreign(servers))
        return all_opened[-1]

    yield opening
    for each in all_opened:
        each.close()


def refused(call, *arguments, **options):
    with pytest.raises(ToolError) as error:
        call(*arguments, **options)
    return error.value.code, str(error.value)


def text(foreign, name, **arguments):
    return foreign.call(name, arguments)["text"]


@pytest.fixture
def mark(tmp_path):
    """Give a pipe with a name: who reads it waits until a server has written."""
    os.mkfifo(tmp_path / "mark")
    return tmp_path / "mark"


def wait_until_gone(pid):
    """Wait for the end of a process. A test that waits in vain is ended by nobody: it would be seen as hanging here."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(file):
        assert select.select([file], [], [], 30)[0], f"process {pid} lives on"


# What tools are


def test_tools_have_names_descriptions_schemas_and_hints(shared):
    tools = {tool.name: tool for tool in shared.tools()}
    count = tools["test__word_count"]
    assert (count.server, count.tool, count.description) == ("test", "word_count", "Count the words of a text.")
    assert count.schema["required"] == ["text"]
    assert (count.reads_only, count.is_idempotent, count.approve) == (True, True, "ask")
    assert (tools["test__lookup"].reads_only, tools["test__lookup"].is_idempotent) == (False, True)
    assert (tools["test__slow"].reads_only, tools["test__slow"].is_idempotent) == (False, False)


def test_tools_are_those_that_are_allowed(opened):
    foreign = opened(test=real(tools=["lookup", "big"], approve="always"))
    assert [(tool.name, tool.approve) for tool in foreign.tools()] == [
        ("test__lookup", "always"),
        ("test__big", "always"),
    ]
    assert refused(foreign.call, "test__fail", {}) == (
        "unknown_tool",
        "there is no tool 'test__fail'; there are: test__big, test__lookup",
    )


def test_an_allowed_tool_that_is_not_there_is_told(opened):
    code, said = refused(opened(test=real(tools=["look_up"])).tools)
    assert code == "bad_tools"
    assert "'test' has no tool 'look_up', which its `tools` name; it has: ask, big" in said


def test_tools_of_several_servers_and_pages(opened):
    foreign = opened(b=rogue("pages"), a=rogue("fine"))
    assert [tool.name for tool in foreign.tools()] == ["b__t0", "b__t1", "b__t2", "b__t3", "a__good"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("thousand", rf"lists 1,000 tools, and {MOST_TOOLS} may be used; name those to be used in its settings"),
        ("twins", "lists two tools of the name 'twin'; name those to be used"),
        (
            "no_object",
            r"lists its tools in a form that is not MCP's: tools\.1\.inputSchema\.type: Input should be 'object'",
        ),
        ("huge_schema", r"a tool 'odd' whose `inputSchema` has 50,0\d\d characters, and 20,000 are allowed"),
        ("no_schema", r"not MCP's: tools\.1\.inputSchema: Input should be"),
        ("no_list", "not MCP's: tools: Input should be a valid list"),
        ("endless_list", "has a list of tools that does not end"),
        ("no_tools", "cannot be talked to: I have no tools"),
    ],
)
def test_a_list_of_tools_that_cannot_be_used_is_refused(opened, how, says):
    code, said = refused(opened(bad=rogue(how)).tools)
    assert code in {"bad_tools", "server_not_started"}
    assert said.startswith("the MCP server 'bad' ")
    assert re.search(says, said), said


@pytest.mark.parametrize("schema", [None, "text", {}, {"type": "array"}, {"type": ["object"]}])
def test_a_schema_of_no_object_is_refused(schema):
    code, said = refused(tools_of, "bad", real(), [{"name": "odd", "inputSchema": schema}])
    assert (code, "'bad' has a tool 'odd' whose `inputSchema` is no schema of an object" in said) == ("bad_tools", True)


@pytest.mark.parametrize("how", ["twins", "huge_schema"])
def test_a_bad_tool_that_is_not_allowed_is_no_fault(opened, how):
    assert [tool.name for tool in opened(bad=rogue(how, tools=["good"])).tools()] == ["bad__good"]


def test_descriptions_have_an_end_and_no_control_characters(opened):
    (tool,) = opened(loud=rogue("loud")).tools()
    assert tool.description == "red " + "x" * 1_996 + " [..]"


def test_names_are_made_to_fit(opened):
    foreign = opened(**{"my server": rogue("odd_names"), "odd": rogue("odd_names"), "same": rogue("look_alikes")})
    names = [tool.name for tool in foreign.tools()]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names), names
    assert len(set(names)) == len(names) == 16
    assert "odd__plain_name-1" in names
    assert text(foreign, fitted("odd", "with a space"))


def test_names_are_the_same_every_time_and_apart():
    assert fitted("a", "b") == "a__b"
    assert fitted("my server", "b") == "my_server__b_b3149e18"
    apart = [
        ("a", "_b"),
        ("a_", "b"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("x y", "b"),
        ("x_y", "b"),
        ("x", "y" * 80),
        ("x", "y" * 81),
    ]
    assert len({fitted(*each) for each in apart}) == len(apart)


def test_two_servers_whose_names_look_alike_are_refused_where_tools_would_be_one(opened):
    (twin,) = [tool.name for tool in opened(**{"a b": rogue("fine")}).tools()]
    tool = twin.removeprefix("a_b__")
    code, said = refused(opened(**{"a b": rogue("fine"), "a_b": rogue(f"tool:{tool}")}).tools)
    assert (code, "are both a_b__good" in said) == ("bad_tools", True)


# What calls give


def test_a_call_gives_text_and_structured_values(shared):
    assert shared.call("test__word_count", {"text": "a b c"}) == {"text": "3", "structured": {"result": 3}}
    assert shared.call("test__lookup", {"key": "dsa"}) == {"text": "a framework of state machines"}


def test_a_text_that_is_long_is_given_with_its_beginning_and_its_end(shared):
    said = shared.call("test__big", {"chars": 100_000})
    assert said["text"].startswith("<xxx")
    assert said["text"].endswith("xxx>")
    assert said["omitted"] == 84_000
    assert len(said["text"]) < 16_100


def test_an_image_is_told_by_its_kind_and_size(shared):
    said = shared.call("test__image", {})
    assert said == {"text": "", "attachments": [{"kind": "image", "type": "image/png", "size_bytes": 70}]}


def test_a_result_of_all_kinds_is_json_without_bytes_and_codes(opened):
    said = opened(odd=rogue("blocks")).call("odd__good", {})
    assert said == {
        "text": "first\nof a file\nlast",
        "attachments": [
            {"kind": "image", "type": "image/ng", "size_bytes": 3},
            {"kind": "audio", "type": "audio/wav", "size_bytes": 2},
            {"kind": "blob", "type": "x/y", "uri": "file:///a.bin", "size_bytes": 1},
            {"kind": "link", "type": "", "uri": "https://example.org/a"},
        ],
    }


def test_many_attachments_are_counted(opened):
    said = opened(odd=rogue("many_images")).call("odd__good", {})
    assert (len(said["attachments"]), said["attachments_omitted"]) == (20, 30)


def test_a_structured_value_that_is_long_is_counted(opened):
    assert opened(odd=rogue("structured_big")).call("odd__good", {}) == {"text": "", "structured_omitted": 100_009}


def test_secrets_are_left_out_of_all_that_a_server_says():
    def redact(said):
        return said.replace("key-1234", "[secret]").replace("not today", "[secret]")

    servers = {"odd": rogue("structured"), "bad": rogue("refuses"), "test": real(env={"TOKEN": "key-1234"})}
    with Foreign(servers, redact) as foreign:
        assert foreign.call("odd__good", {})["structured"] == {"a": ["[secret]", {"[secret]": None}], "b": 1.5}
        assert "TOKEN=[secret]" in text(foreign, "test__environment")
        assert refused(foreign.call, "bad__good", {})[1].endswith("refuses the call: [secret]")
    assert "key-1234" not in repr(servers["test"])


@pytest.mark.parametrize("how", ["half_a_character", "deep", "not_a_number"])
def test_odd_values_are_json_or_refused(opened, how):
    foreign = opened(odd=rogue(how))
    try:
        json.dumps(foreign.call("odd__good", {}), allow_nan=False).encode("ascii")
    except ToolError as error:
        if error.code not in {"bad_result", "server_garbled"} or how == "half_a_character":
            raise


@pytest.mark.parametrize(
    ("server", "name", "arguments", "code", "says"),
    [
        ("test", "fail", {}, "tool_error", "Error executing tool fail"),
        ("test", "word_count", {"txt": 1}, "tool_error", "Field required"),
        ("empty_error", "good", {}, "tool_error", "the tool failed, and does not say why"),
        ("refuses", "good", {}, "tool_error", "the MCP server 'refuses' refuses the call: not today"),
        ("no_content", "good", {}, "server_garbled", "'no_content' answers in a form that is not MCP's: content"),
        ("no_result", "good", {}, "server_garbled", "'no_result' answers in a form that is not MCP's: content.0"),
        ("test", "fail", {"a": {1, 2}}, "bad_arguments", "the arguments of test__fail are no JSON"),
        ("test", "fail", {"a": float("inf")}, "bad_arguments", "the arguments of test__fail are no JSON"),
        ("test", "none", {}, "unknown_tool", "there is no tool 'test__none'; there are: test__ask, test__big"),
    ],
)  # fmt: skip
def test_calls_that_fail_say_why(shared, opened, server, name, arguments, code, says):
    foreign = shared if server == "test" else opened(**{server: rogue(server)})
    found, said = refused(foreign.call, f"{server}__{name}", arguments)
    assert (found, says in said) == (code, True), said


@pytest.mark.parametrize("how", ["modern", "modern_asks"])
def test_a_server_without_a_handshake_is_understood(opened, how):
    foreign = opened(new=rogue(how))
    assert [tool.name for tool in foreign.tools()] == ["new__good"]
    if how == "modern":
        assert text(foreign, "new__good") == "2026-07-28"
    else:  # a question comes as a result, there
        assert refused(foreign.call, "new__good", {})[0] == "tool_asks"


@pytest.mark.parametrize("what", ["elicitation", "roots", "sampling"])
def test_what_a_server_asks_of_us_is_refused(shared, what):
    code, said = refused(shared.call, "test__ask", {"what": what})
    assert (code, "not supported" in said) == ("tool_error", True)


def test_a_server_that_is_never_to_be_called_is_not(opened):
    foreign = opened(odd=rogue("fine", approve="never"))
    assert foreign.tools()[0].approve == "never"
    assert refused(foreign.call, "odd__good", {})[0] == "not_allowed"


def test_the_environment_has_little(opened, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    said = text(opened(test=real(env={"TOKEN": "x", "LANG": "C"})), "test__environment")
    found = dict(line.split("=", 1) for line in said.splitlines())
    found.pop("LC_CTYPE", None)  # Python sets it
    assert found == {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], "TOKEN": "x", "LANG": "C"}


# Servers that fail


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("ends", "server_not_started", r"has ended \(exit code 3; its last words: no key is set\)"),
        ("killed", "server_not_started", r"has ended \(ended by SIGKILL\)"),
        ("deaf", "server_not_started", "is not ready within 1 s"),
        ("garbage", "server_garbled", "does not speak MCP; .* such as 'Hello, I am no server'"),
        ("binary", "server_garbled", "does not speak MCP"),
        ("one_line", "too_large", "writes a message of more than 16 MiB"),
        ("odd_answer", "server_not_started", "cannot be talked to: capabilities: Field required"),
        ("old", "server_not_started", "cannot be talked to: Unsupported protocol version .* 1999-01-01"),
    ],
)
def test_a_server_that_does_not_start_is_told_by_name(opened, how, code, says):
    seconds = SHORT_S if how == "deaf" else LONG_S
    found, said = refused(opened(bad=rogue(how, timeout_s=seconds)).tools)
    assert found == code
    assert said.startswith("the MCP server 'bad' ")
    assert re.search(says, said), said


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (Server(["/nowhere/server"]), "cannot be started: No such file or directory: /nowhere/server"),
        (Server(["no-such-program-at-all"]), "No such file or directory: no-such-program-at-all"),
        (Server([sys.executable], cwd="/nowhere"), "No such file or directory: /nowhere"),
        (Server(["/etc/passwd"]), "Permission denied: /etc/passwd"),
    ],
)
def test_a_program_that_is_not_there_is_told(opened, server, says):
    found, said = refused(opened(bad=server).tools)
    assert (found, says in said) == ("server_not_started", True), said


def test_one_bad_server_is_told_and_the_others_can_be_called(opened):
    foreign = opened(bad=rogue("ends"), worse=rogue("twins"), good=rogue("fine"))
    said = refused(foreign.tools)[1]
    assert "'bad' has ended" in said
    assert "'worse' lists two tools" in said
    assert "'good'" not in said
    assert text(foreign, "good__good")


@pytest.mark.parametrize("how", ["banner", "chatters", "noisy", "fine"])
def test_a_server_that_says_more_than_it_should_is_understood(opened, how):
    assert text(opened(odd=rogue(how)), "odd__good")


def test_a_server_that_dies_in_a_call_is_told_and_started_again(opened):
    foreign = opened(test=real())
    code, said = refused(foreign.call, "test__crash", {"code": 7})
    assert code == "server_ended"
    assert "'test' has ended (exit code 7; its last words: Traceback: out of luck)" in said
    assert "may have done what was asked" in said
    assert text(foreign, "test__lookup", key="mcp") == "a protocol for tools"


def test_a_call_that_is_late_ends_the_server_which_is_started_again(opened, mark):
    foreign = opened(test=real())
    foreign.tools()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(mark.read_text)
        code, said = refused(foreign.call, "test__slow", {"seconds": 600, "mark": str(mark)}, timeout_s=SHORT_S)
        pid = int(reading.result())
    assert (code, said.startswith("test__slow gave nothing within 1 s, and its server was ended")) == (
        "tool_timeout",
        True,
    )
    assert text(foreign, "test__lookup", key="mcp") == "a protocol for tools"
    wait_until_gone(pid)


def test_a_server_that_does_not_read_is_late(opened):
    foreign = opened(odd=rogue("stops_reading"))
    foreign.tools()
    code, _ = refused(foreign.call, "odd__good", {"text": "x" * 1_000_000}, timeout_s=SHORT_S)
    assert code == "tool_timeout"
    assert refused(foreign.call, "odd__good", {}, timeout_s=SHORT_S)[0] == "tool_timeout"


def test_a_message_without_end_ends_the_server(opened):
    code, said = refused(opened(odd=rogue("one_message")).call, "odd__good", {})
    assert (code, "writes a message of more than 16 MiB" in said) == ("too_large", True)


def test_a_tool_that_is_gone_or_has_changed_is_not_called(opened):
    foreign = opened(test=real())
    before = foreign.tools()
    foreign.call("test__change", {"name": "fail"})
    assert refused(foreign.call, "test__fail", {})[0] == "tool_gone"
    foreign.call("test__change", {"name": "word_count"})
    code, said = refused(foreign.call, "test__word_count", {"text": "a"})
    assert (code, "has changed 'word_count' since its tools were listed" in said) == ("tool_changed", True)
    assert foreign.tools() == before
    assert text(foreign, "test__lookup", key="mcp")


# Ends


def test_a_call_is_stopped_from_another_thread(opened, mark):
    foreign = opened(test=real())
    with stop() as stopping, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(foreign.call, "test__slow", {"seconds": 600, "mark": str(mark)}, stop=stopping)
        pid = int(mark.read_text())
        stopping.set()
        assert refused(calling.result)[0] == "stopped"
        assert refused(foreign.call, "test__lookup", {"key": "mcp"}, stop=stopping)[0] == "stopped"
    wait_until_gone(pid)
    assert text(foreign, "test__lookup", key="mcp")


def test_closing_ends_a_call_and_the_next_use_starts_again(opened, mark):
    foreign = opened(test=real())
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(foreign.call, "test__slow", {"seconds": 600, "mark": str(mark)})
        pid = int(mark.read_text())
        assert text(foreign, "test__lookup", key="mcp")  # calls do not wait for each other
        foreign.close()
        wait_until_gone(pid)
        assert refused(calling.result)[0] == "closed"
    foreign.close()
    assert text(foreign, "test__lookup", key="mcp")


def test_a_call_that_another_call_has_ended_says_so(opened, mark):
    foreign = opened(test=real())
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(foreign.call, "test__slow", {"seconds": 600, "mark": str(mark)})
        mark.read_text()
        assert refused(foreign.call, "test__slow", {"seconds": 600}, timeout_s=SHORT_S)[0] == "tool_timeout"
        code, said = refused(calling.result)
    assert (code, "'test' was ended because of another call" in said) == ("server_ended", True)


def test_many_threads_call_at_once(shared):
    with ThreadPoolExecutor(8) as pool:
        texts = [" ".join("x" * number) for number in range(1, 41)]
        said = pool.map(lambda each: shared.call("test__word_count", {"text": each})["text"], texts)
        assert list(said) == [str(number) for number in range(1, 41)]


def test_processes_that_a_server_leaves_are_killed(opened):
    foreign = opened(odd=rogue("children"))
    server, child = map(int, text(foreign, "odd__good").split())
    foreign.close()
    wait_until_gone(server)
    wait_until_gone(child)


def test_a_server_that_will_not_end_is_killed(opened):
    foreign = opened(odd=rogue("stubborn"))
    pid = int(text(foreign, "odd__good"))
    foreign.close()
    wait_until_gone(pid)


def test_what_is_dropped_is_closed():
    foreign = Foreign({"odd": rogue("fine")})
    pid = int(text(foreign, "odd__good"))
    del foreign
    gc.collect()
    wait_until_gone(pid)


def test_no_thread_and_no_file_is_left():
    def used():
        with Foreign({"odd": rogue("fine"), "bad": rogue("ends")}) as foreign:
            refused(foreign.tools)
            with stop() as stopping:
                foreign.call("odd__good", {}, stop=stopping)

    used()
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    used()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == files


PROGRAM = """
import sys
from machines.coding.servers.foreign import Foreign, Server
foreign = Foreign({"test": Server([sys.executable, sys.argv[1]])})
foreign.tools()
foreign.call("test__slow", {"seconds": 600 * (sys.argv[3] == "waits"), "mark": sys.argv[2]})
raise SystemExit(9)
"""


@pytest.mark.parametrize(("how", "code"), [("waits", -signal.SIGINT), ("ends", 9)])
def test_neither_ctrl_c_nor_an_end_leaves_a_server(mark, how, code):
    """The program does not close its servers: nobody has told it to."""
    command = [sys.executable, "-c", PROGRAM, str(TESTS / "mcp_server.py"), str(mark), how]
    with subprocess.Popen(command, cwd=TESTS.parent, stderr=subprocess.DEVNULL) as process:
        pid = int(mark.read_text())
        if how == "waits":
            process.send_signal(signal.SIGINT)
        assert process.wait() == code
    wait_until_gone(pid)


INTERRUPTED = """
import sys
from machines.coding.servers.foreign import Foreign, Server
with Foreign({"test": Server([sys.executable, sys.argv[1]])}) as foreign:
    try:
        foreign.call("test__slow", {"seconds": 600, "mark": sys.argv[2]})
    except KeyboardInterrupt:
        foreign.call("test__slow", {"seconds": 0, "mark": sys.argv[2]})
"""


def test_a_call_that_is_interrupted_does_not_go_on(mark):
    command = [sys.executable, "-c", INTERRUPTED, str(TESTS / "mcp_server.py"), str(mark)]
    with subprocess.Popen(command, cwd=TESTS.parent) as process:
        first = int(mark.read_text())
        process.send_signal(signal.SIGINT)
        assert int(mark.read_text()) != first  # another server
        wait_until_gone(first)
        assert process.wait() == 0


WITHOUT = """
import sys
sys.modules["mcp"] = None
from machines.coding.tools.errors import ToolError
from machines.coding.servers.foreign import Foreign, Server
try:
    Foreign({"test": Server(["x"])}).tools()
except ToolError as error:
    print(error.code, error)
"""


def test_without_the_package_it_says_how_to_install_it():
    ran = subprocess.run([sys.executable, "-c", WITHOUT], cwd=TESTS.parent, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("not_installed no MCP server can be used")
    assert "pip install '.[mcp]'" in ran.stdout


# Settings

TOML = """
[mcp.files]
command = ["uvx", "server", "--all"]
env = { TOKEN = "x" }
cwd = "/tmp"
timeout_s = 5
tools = ["read"]
approve = "always"
[mcp.plain]
command = ["server"]
"""


def test_settings_are_read():
    said = tomllib.loads(TOML)["mcp"]
    assert Server.from_mapping("files", said["files"]) == Server(
        ("uvx", "server", "--all"), {"TOKEN": "x"}, "/tmp", 5, ("read",), "always"
    )
    assert Server.from_mapping("plain", said["plain"]) == Server(("server",))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("command", "is a table with"),
        ({}, "`command` is needed: a list of texts"),
        ({"command": "uvx server"}, "`command` is needed: a list of texts"),
        ({"command": []}, "`command` is needed"),
        ({"command": [""]}, "`command` is needed"),
        ({"command": ["a\0b"]}, "`command` is needed"),
        ({"comand": ["x"]}, "has no setting `comand`; there are: command, env, cwd, timeout_s, tools, approve"),
        ({"command": ["x"], "env": {"A": 1}}, "`env` is a table of texts"),
        ({"command": ["x"], "env": ["A=1"]}, "`env` is a table of texts"),
        ({"command": ["x"], "env": {"A=B": "1"}}, "`env` has a name that no variable can have"),
        ({"command": ["x"], "cwd": 1}, "`cwd` is a folder"),
        ({"command": ["x"], "timeout_s": 0}, "`timeout_s` is a number of seconds, above 0 and up to 3600"),
        ({"command": ["x"], "timeout_s": True}, "`timeout_s` is a number"),
        ({"command": ["x"], "timeout_s": float("nan")}, "`timeout_s` is a number"),
        ({"command": ["x"], "tools": "read"}, "`tools` is a list of names"),
        ({"command": ["x"], "approve": "yes"}, "`approve` is one of: ask, always, never"),
    ],
)
def test_settings_that_are_wrong_are_refused(said, says):
    with pytest.raises(ParameterError) as error:
        Server.from_mapping("x", said)
    assert str(error.value).startswith("[mcp.x]")
    assert says in str(error.value)
