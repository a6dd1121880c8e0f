"""Misbehaving guards and generators of users, the machine that handles their failures, and the same machine without rows for them.

`WAYS` has the misbehaviour of a call by name: the module is written to a folder and bound by `dsa run --with`.
"""

HANDLED = """# trial

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| approved | workflow | bool   | false   |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Guards
| guard | judges  | is | options |
| ----- | ------- | -- | ------- |
| g     | verdict | {guard} |

## Generators
| generator | is | options |
| --------- | -- | ------- |
| writer    | {generator} |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| drafting  |         |
| judging   |         |
| succeeded | final   |
| rejected  | final   |
| unwritten | final   |
| unjudged  | final   |

## Transitions
| source   | event                | if       | update          | effects       | target    |
| -------- | -------------------- | -------- | --------------- | ------------- | --------- |
| idle     | specification        |          |                 | query_llm     | drafting  |
| drafting | artifact             |          |                 | execute_guard | judging   |
| judging  | verdict              | g.passed | approved = true | reply_to_user | succeeded |
| judging  | verdict              | else     |                 | reply_failure | rejected  |
| drafting | query_llm.failed     |          |                 | reply_failure | unwritten |
| judging  | execute_guard.failed |          |                 | reply_failure | unjudged  |

## Effects
| effect        | time limit |
| ------------- | ---------- |
| query_llm     | {limit}    |
| execute_guard | {limit}    |
| reply_to_user |            |
| reply_failure |            |
"""
UNHANDLED = "\n".join(line for line in HANDLED.splitlines() if ".failed" not in line)

MODULE = """
import asyncio, os, sys, threading
from dsa.generators import Artifact, GeneratorInterface
from dsa.guards import GuardInterface, GuardResult
from dsa.runtime.content import Usage

WAY = {way!r}

class OddError(BaseException): ...

class MuteError(Exception):
    def __str__(self): raise OSError
    __repr__ = __str__

def throw(error): raise error
def deep(): return deep()
def spin():
    while True: pass
def put(result, name, value):
    object.__setattr__(result, name, value)
    return result
def flood(*files):
    for _ in range(1024):
        for file in files: os.write(file, b"x" * (1 << 20))

WAYS = {{
    "ValueError": lambda: throw(ValueError("not today")),
    "SystemExit": lambda: sys.exit("not today"),
    "KeyboardInterrupt": lambda: throw(KeyboardInterrupt("not today")),
    "GeneratorExit": lambda: throw(GeneratorExit("not today")),
    "CancelledError": lambda: throw(asyncio.CancelledError("not today")),
    "StopIteration": lambda: throw(StopIteration("not today")),
    "OddError": lambda: throw(OddError("not today")),
    "MuteError": lambda: throw(MuteError()),
    "RecursionError": deep,
    "MemoryError": lambda: bytearray(1 << 60),
    "group": lambda: throw(ExceptionGroup("not today", [ValueError("a"), TypeError("b")])),
    "unprintable": lambda: throw(ValueError("not \\x1b[2J today \\ud800")),
    "hangs": lambda: threading.Event().wait(),
    "spins": spin,
    "floods": lambda: flood(1, 2) or DONE,
    "None": lambda: None,
    "True": lambda: True,
    "text": lambda: "passed",
    "class": lambda: GuardResult,
    "coroutine": lambda: asyncio.Event(),
    "passed as int": lambda: GuardResult(1),
    "passed and fatal": lambda: GuardResult(True, "", True),
    "no feedback": lambda: GuardResult(False, None),
    "bytes as feedback": lambda: put(GuardResult(False), "feedback", b"no"),
    "odd feedback": lambda: GuardResult(False, "no \\ud800 \\0 \\x1b[2J"),
    "content None": lambda: Artifact(None),
    "content bytes": lambda: Artifact(b"x"),
    "odd content": lambda: Artifact("x \\ud800 \\0 \\x1b[2J"),
    "empty content": lambda: Artifact(""),
    "seconds NaN": lambda: Artifact("x", usage=Usage("m", float("nan"))),
    "seconds infinite": lambda: Artifact("x", usage=Usage("m", float("inf"))),
    "cost NaN": lambda: Artifact("x", usage=Usage("m", 1.0, cost_usd=float("nan"))),
    "tokens as text": lambda: Artifact("x", usage=Usage("m", 1.0, "many")),
    "usage as text": lambda: Artifact("x", usage="much"),
    "ids of its own": lambda: Artifact("x", version="a", artifact_id=7, parent_id="nobody", step="elsewhere"),
    "fine": lambda: DONE,
}}

class Guard(GuardInterface):
    blocks = {blocks}
    def validate(self, artifact, **dependencies): return WAYS[WAY]()

class Generator(GeneratorInterface):
    blocks = {blocks}
    def generate(self, context, template=None): return WAYS[WAY]()

class FineGuard(GuardInterface):
    def validate(self, artifact, **dependencies): return GuardResult(True)

class FineGenerator(GeneratorInterface):
    asked = 0
    def generate(self, context, template=None):
        FineGenerator.asked += 1
        return Artifact("fine")

if {role!r} == "guard":
    DONE = GuardResult(True)
    guards, generators = {{"mine": Guard()}}, {{"mine": FineGenerator()}}
else:
    DONE = Artifact("fine")
    guards, generators = {{"mine": FineGuard()}}, {{"mine": Generator()}}
"""


def document(text, *, guard="mine | ", generator="mine | ", limit=""):
    """Return a document with the kinds and options of its guard and its generator, and a time limit."""
    return text.format(guard=guard, generator=generator, limit=limit)


def module(role, way, *, blocks=True):
    """Return the text of a module whose guard or generator misbehaves in the way of this name."""
    return MODULE.format(role=role, way=way, blocks=blocks)
