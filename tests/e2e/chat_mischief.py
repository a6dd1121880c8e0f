"""A random model, by a seed: calls of every kind, streams of every shape, refusals, garbage, answers that break off.

`mischief(seed)` is a player for `chat_server`: its answer to a request depends only on the seed and the number of the request.
"""

import json
from random import Random

from chat_server import Said, chunks_of
from chats import CSV, CSV_AGAIN, PLOT, SQL, SQL_AGAIN
from stream_shapes import SHAPES, call_chunk, chunk, entry

SQLS = (
    SQL, SQL_AGAIN, "SELECT count(*) AS n FROM cars", "SELECT * FROM cars LIMIT 5", "SELECT Name, Horsepower FROM cars", "SELECT nothing FROM cars",
    "SELEC", "", "-- nothing", "DROP TABLE cars", "SELECT 1; SELECT 2", "COPY cars TO 'x.csv'", "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM range(20000)", "SELECT '\ud800' AS half", "SELECT repeat('x', 200000) AS long", "FROM cars WHERE Name = '\x00'", "PRAGMA version",
)  # fmt: skip
CODES = (
    "print(1)", "1 + 1", "1 / 0", "", "# nothing", "def f(:", CSV, CSV_AGAIN, "open('a.txt', 'w').write('x')", "open('b.txt', 'w').write('x')",
    "print('x' * 100_000)", "raise SystemExit(3)", "df.describe()", "print('\\ud800')", "open('../../a.txt', 'w')", "import os; os.kill(os.getpid(), 9)",
)  # fmt: skip
BROKEN = (
    '{"sql": "SELECT 1', '{"sql": SELECT 1}', "[1, 2]", "null", "", '"SELECT 1"', '{"arguments": "{\\"code\\": \\"1\\"}"}',
    '{"code": "print(1)", "timeout": 30s}', '{"code": {"a": 1}}', '{"code": "print(1)", "timeout": -5}', '{"code": "2", "timeout": 1e999}',
    '{"sql": "SELECT 1", "limit": true}', '{"sql": "SELECT 1 AS a", "limit": ' + "9" * 400 + "}", '{"sql": "SELECT 1", "limit": ' + "9" * 5000 + "}",
    '{"sql": ' + "[" * 20_000, '{"sql": "SELECT 1", "x": ' + "[" * 900 + "]" * 900 + "}", '{"sql": "SELECT 1", "limit": -1e999}', '{"sql": "SELECT 2", "limit": "ten"}', "SELECT count(*) FROM cars", '{"query": "SELECT 3"}', '{"code": ["x = 1", "x"]}',
)  # fmt: skip
TOOLS = ("run_sql", "run_python", "sql", "python", "functions.run_sql", "bash", "", "run_" + "x" * 200)
TEXTS = (
    "There are 406 cars.", "See hp.png.", "See nothing.png and a.txt.", "\N{PARROT} \u202e done", "half \ud83d", "[note] all is well", "```sql\nSELECT 1\n```",
    "a\n\nArtifacts that exist\n{}", "\x00\x1b[31m",
)  # fmt: skip
FINISHES = ("stop", "length", "content_filter", "tool_calls", "function_call", "eos", "error", "null")
STATUSES = (400, 401, 403, 404, 408, 429, 500, 503)


def mischief(seed, counts):
    """Play a random model. `counts` counts its answers by kind."""

    def player(_body, number):
        rng = Random(f"{seed}/{number}")
        (name,) = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])
        counts[name] += 1
        return KINDS[name][0](rng, number)

    return player


def a_call(rng):
    """Return a call: name and arguments."""
    (kind,) = rng.choices(("sql", "python", "broken", "plot", "other"), (40, 25, 20, 2, 8))
    if kind == "sql":
        return "run_sql", {"sql": rng.choice(SQLS), **({"limit": rng.choice((3, 100))} if rng.random() < 0.2 else {})}
    if kind == "python":
        return "run_python", {"code": rng.choice(CODES)}
    if kind == "plot":
        return "run_python", {"code": PLOT}
    if kind == "broken":
        return rng.choice(TOOLS[:2]), rng.choice(BROKEN)
    return rng.choice(TOOLS), rng.choice(({"sql": SQL}, {"code": "1"}, {}))


def calls(rng, _number):
    """Request some calls, with ids that may repeat, within this answer or across answers, or be missing."""
    asked = tuple(a_call(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 5))))
    ids = rng.choice(
        ((), (), ("again",) * 5, ("again", "other", "again"), ("",) * 5, (None,) * 5, ("x" * 300, "a b\u00fc"))
    )
    return Said(rng.choice(("", "", "Let me look.")), asked, ids=ids, pieces=rng.choice((1, 7, 40, 5000)))


def text(rng, _number):
    return Said(rng.choice(TEXTS))


def empty(rng, _number):
    return Said(rng.choice(("", " \n\t")))


def huge(rng, number):
    if rng.random() < 0.5:
        return Said("word " * 40_000, pieces=4_000)
    return Said(calls=(("run_python", {"code": f"'{'y' * 100_000}'[:{number}]"}),), pieces=4_000)


def finish(rng, number):
    said = calls(rng, number) if rng.random() < 0.5 else text(rng, number)
    return Said(said.text, said.calls, finish=rng.choice(FINISHES), ids=said.ids)


def in_text(rng, _number):
    """Write calls into the text, as models do whose server does not know their format."""
    name, arguments = a_call(rng)
    call = json.dumps({"name": name, "arguments": arguments})
    form = rng.choice(("<tool_call>\n{}\n</tool_call>", "[TOOL_CALLS] [{}]", "```json\n{}\n```", "<tool_call>{}"))
    return Said(f"I will look.\n{form.format(call)}", pieces=9)


def mixed(rng, _number):
    """Request calls whose pieces come mixed: with or without ids, with their index or all at 0."""
    asked = [a_call(rng) for _ in range(rng.choice((2, 3)))]
    with_ids, with_index = rng.random() < 0.6, rng.random() < 0.7
    rows = []
    for at, (name, arguments) in enumerate(asked):
        said = arguments if isinstance(arguments, str) else json.dumps(arguments)
        size = rng.choice((5, 11, 400))
        pieces = [said[start : start + size] for start in range(0, len(said), size)] or [""]
        index = at if with_index else 0
        first = entry(index, pieces[0], given_id=f"m{at}" if with_ids else None, name=name)
        rows.append([call_chunk(first), *(call_chunk(entry(index, piece)) for piece in pieces[1:])])
    sent = []
    while any(rows):
        row = rng.choice([each for each in rows if each]) if with_index else next(each for each in rows if each)
        sent.append(row.pop(0))
    return streamed([*sent, chunk({}, rng.choice(("tool_calls", "stop")))])


def shape(rng, _number):
    """Play a stream shape seen from some provider, with the tools of this machine."""
    told = json.dumps(rng.choice([each for each in SHAPES if each.file != "ollama" and each.chunks]).chunks)
    name, argument = rng.choice((("run_sql", "sql"), ("run_python", "code")))
    return streamed(json.loads(told.replace("get_weather", name).replace("city", argument)))


def breaks_off(rng, number):
    """Break off anywhere: between chunks or inside one, with or without closing the connection."""
    said = calls(rng, number)
    whole = b"".join(lines(list(chunks_of(said, number))))
    cut = rng.randrange(1, len(whole))
    return streamed_bytes([whole[:cut]], closes=rng.random() < 0.5)


def garbage(rng, number):
    """Send something that is not an answer, or an answer with garbage in it."""
    if rng.random() < 0.5:
        return streamed_bytes(
            [
                rng.choice(
                    (b"<html>no</html>", b"data: {", rng.randbytes(300), b"data: [DONE]\n\n", b"\n", b"data: 1\n\n")
                )
            ]
        )
    sent = lines(list(chunks_of(calls(rng, number), number)))
    sent.insert(
        rng.randrange(len(sent)),
        rng.choice((b"data: {]\n\n", b"data: \xff\xfe\n\n", b"event: x\n", b": note\n\n", b"data: null\n\n")),
    )
    return streamed_bytes(sent)


def status(rng, _number):
    """Refuse, and let the client retry at once, if it does."""
    code, body = rng.choice(STATUSES), rng.choice((b'{"error": {"message": "no"}}', b"", b"<html>", b"\xff"))

    def sent(handler, _over):
        handler.send_response(code)
        for name, value in (
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("retry-after", "0"),
        ):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return sent


def hangs(rng, _number):
    """Start an answer, pause for a while, and break off."""
    seconds = rng.choice((0.05, 0.2))

    def sent(handler, over):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(b"".join(lines([chunk({"content": "I"})])))
        handler.wfile.flush()
        over.wait(seconds)
        handler.close_connection = True

    return sent


def lines(chunks):
    """Write chunks as server-sent events, one piece each."""
    return [f"data: {json.dumps(each)}\n\n".encode() for each in chunks]


def streamed(chunks):
    """Send chunks."""
    return streamed_bytes([*lines(chunks), b"data: [DONE]\n\n"])


def streamed_bytes(pieces, *, closes=False):
    """Send pieces; with `closes`, without the end that HTTP requires."""

    def sent(handler, _over):
        if not closes:
            handler.send_pieces(200, "text/event-stream", pieces)
            return
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        handler.close_connection = True

    return sent


KINDS = {
    "calls": (calls, 45), "text": (text, 20), "empty": (empty, 2), "huge": (huge, 1), "finish": (finish, 5), "in text": (in_text, 5), "mixed": (mixed, 6),
    "shape": (shape, 7), "breaks off": (breaks_off, 4), "garbage": (garbage, 4), "status": (status, 7), "hangs": (hangs, 3),
}  # fmt: skip
