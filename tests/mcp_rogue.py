"""A program: servers that speak MCP by hand, most of them badly. `python mcp_rogue.py HOW`; started by tests as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

OBJECT = {"type": "object", "properties": {}}
FOREVER_S = 600
CALLED = []


def tool(name, schema=OBJECT, **more):
    return {"name": name, "inputSchema": schema, **more}


def deep(levels):
    return json.loads("[" * levels + "]" * levels)


LISTS = {
    "thousand": [tool(f"t{number}") for number in range(1_000)],
    "twins": [tool("good"), tool("twin"), tool("twin", description="the other")],
    "no_object": [tool("good"), tool("odd", {"type": "array"})],
    "no_schema": [tool("good"), tool("odd", "a text")],
    "no_list": "tools",
    "huge_schema": [tool("good"), tool("odd", {"type": "object", "description": "x" * 50_000})],
    "odd_names": [
        tool("plain_name-1"),
        tool("with a space"),
        tool("with/a/slash"),
        tool("x" * 100),
        tool("x" * 99 + "y"),
        tool("späße"),
        tool("", description="of no name"),
    ],
    "look_alikes": [tool("a b"), tool("a b".replace(" ", "_") + "_")],
    "loud": [tool("good", description="\x1b[31mred\x1b[0m\x00\x07 " + "x" * 5_000)],
    "empty": [],
}
RESULTS = {
    "blocks": {
        "content": [
            {"type": "text", "text": "first"},
            {"type": "image", "data": "AAAA", "mimeType": "image/\x1bpng"},
            {"type": "audio", "data": "AAA=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "of a file"}},
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AA==", "mimeType": "x/y"}},
            {"type": "resource_link", "uri": "https://example.org/a", "name": "a"},
            {"type": "text", "text": "\x1b]0;title\x07last\x00"},
        ],
    },
    "many_images": {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}] * 50},
    "structured": {"content": [], "structuredContent": {"a": ["key-1234", {"key-1234": None}], "b": 1.5}},
    "structured_big": {"content": [], "structuredContent": {"a": "x" * 100_000}},
    "not_a_number": {"content": [], "structuredContent": {"a": float("nan")}},
    "deep": {"content": [], "structuredContent": {"a": deep(900)}},
    "half_a_character": {"content": [{"type": "text", "text": "a\ud800b"}], "structuredContent": {"a": "\ud800"}},
    "no_content": {"content": "text"},
    "no_result": {"content": [{"type": "video", "data": "AAAA"}]},
    "empty_error": {"content": [], "isError": True},
}


def write(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(request, result):
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def refuse(request, message, code=-32601):
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}))


def introduced(request, how):
    version = "1999-01-01" if how == "old" else request["params"]["protocolVersion"]
    info = {"name": how, "version": "1"}
    answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})


def before(how):
    """Do what is done before anything is asked."""
    if how == "garbage":
        for _ in range(1_000):
            write("Hello, I am no server")
    if how == "binary":
        while True:
            sys.stdout.buffer.write(os.urandom(1 << 16))
    if how == "one_line":
        while True:
            sys.stdout.write("x" * (1 << 16))
    if how == "banner":
        write("Welcome!\n\n[1, 2]\n{}\nnull")
    if how == "deaf":
        print("waiting for a licence", file=sys.stderr, flush=True)
        time.sleep(FOREVER_S)
    if how == "ends":
        print("no key is set", file=sys.stderr)
        sys.exit(3)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "noisy":
        print("x" * 10_000_000, file=sys.stderr)


def listed(request, how):
    if how == "endless_list":
        answer(request, {"tools": [], "nextCursor": str(os.urandom(4).hex())})
    elif how == "pages":
        cursor = int((request.get("params") or {}).get("cursor") or 0)
        answer(request, {"tools": [tool(f"t{cursor}")], **({"nextCursor": str(cursor + 1)} if cursor < 3 else {})})
    elif how.startswith("deep:"):
        depth = int(how.partition(":")[2])
        schema = '{"type": "object", "properties": ' + '{"a": ' * depth + "{}" + "}" * depth + "}"
        write(
            f'{{"jsonrpc": "2.0", "id": {request["id"]}, "result": {{"tools": [{{"name": "t", "inputSchema": {schema}}}]}}}}'
        )
    elif how == "no_tools" or (how == "unlists" and CALLED):
        refuse(request, "I have \x1b[31mno\x1b[0m tools")
    else:
        answer(request, {"tools": LISTS.get(how, [tool(how.partition(":")[2] or "good")])})


def carried_out(request, how):
    if how in RESULTS:
        answer(request, RESULTS[how])
    elif how == "obedient":
        obey(request, request["params"]["arguments"])
    elif how == "refuses":
        refuse(request, "not today")
    elif how == "one_message":
        sys.stdout.write("x" * (20 << 20))
        sys.stdout.flush()
    elif how == "children":
        child = subprocess.Popen(["sleep", str(FOREVER_S)])
        answer(request, {"content": [{"type": "text", "text": f"{os.getpid()} {child.pid}"}]})
    elif how == "chatters":
        for number in range(2_000):
            write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "sampling/createMessage", "params": {}}))
            write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "x"}}))
            write(json.dumps({"jsonrpc": "2.0", "id": f"of-nobody-{number}", "result": {}}))
        answer(request, {"content": [{"type": "text", "text": "said"}]})
    elif how == "unlists":
        CALLED.append(how)
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        answer(request, {"content": [{"type": "text", "text": "once"}]})
    elif how == "stops_reading":
        time.sleep(FOREVER_S)
    else:
        answer(request, {"content": [{"type": "text", "text": str(os.getpid())}]})


def obey(request, arguments):
    """Do what a call asks for: write a mark, end with a code, answer or not. Other calls are answered meanwhile."""
    if "mark" in arguments:
        Path(arguments["mark"]).write_text(str(os.getpid()))
    if "code" in arguments:
        print("Traceback: out of luck\n\n", file=sys.stderr, flush=True)
        os._exit(arguments["code"])
    if arguments.get("answers", True):
        answer(request, {"content": [{"type": "text", "text": str(os.getpid())}]})


def main(how):
    before(how)
    if how == "stubborn":
        for number in count():
            line = sys.stdin.readline()
            if not line:
                time.sleep(FOREVER_S)
            serve(json.loads(line), how, number)
    for number, line in enumerate(sys.stdin):
        serve(json.loads(line), how, number)


def serve_as_newer(request, how):
    """Serve as servers do that have no handshake: each request says of itself what it is."""
    method, fresh = request.get("method"), {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "initialize":
        refuse(request, "unsupported protocol version", -32022)
    elif method == "server/discover":
        answer(request, {**fresh, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    elif method == "tools/list":
        answer(request, {**fresh, "tools": [tool("good")]})
    elif how == "modern_asks":
        question = {"mode": "form", "message": "May I?", "requestedSchema": {"type": "object", "properties": {}}}
        asked = {"q": {"method": "elicitation/create", "params": question}}
        answer(request, {"resultType": "input_required", "inputRequests": asked})
    else:
        said = request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
        answer(request, {"resultType": "complete", "content": [{"type": "text", "text": said}]})


def serve(request, how, number):
    method = request.get("method")
    if how.startswith("modern"):
        serve_as_newer(request, how)
    elif how == "odd_answer" and number == 0:
        answer(request, {"protocolVersion": 7})
    elif method == "initialize":
        introduced(request, how)
    elif method == "tools/list":
        listed(request, how)
    elif method == "tools/call":
        carried_out(request, how)
    elif "id" in request and "method" in request:
        refuse(request, "there is no such method")


if __name__ == "__main__":
    main(sys.argv[1])
