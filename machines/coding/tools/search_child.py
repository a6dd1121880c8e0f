"""The search process: finds the lines that match an expression, in a process that can be ended.

It reads one JSON object from standard input: `pattern`, `most`, and `texts`, a list. It writes one: `hits`, a list of [text, line, column], all from 0; or
`error`, the fault of the expression. It runs as source text, without any package.
"""

import json
import re
import sys

if sys.platform == "linux":
    import resource

_MEMORY_BYTES = 1 << 30


def main() -> None:
    """Answer one request."""
    _limit_memory()
    request = json.load(sys.stdin.buffer)
    try:
        answer: dict[str, object] = {"hits": _hits(re.compile(request["pattern"]), request["texts"], request["most"])}
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    json.dump(answer, sys.stdout)


def _hits(expression: re.Pattern[str], texts: list[str], most: int) -> list[tuple[int, int, int]]:
    hits: list[tuple[int, int, int]] = []
    for number, text in enumerate(texts):
        for at, line in enumerate(text.split("\n")):
            match = expression.search(line.removesuffix("\r"))
            if match is not None:
                hits.append((number, at, match.start()))
                if len(hits) >= most:
                    return hits
    return hits


def _limit_memory() -> None:
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


if __name__ == "__main__":
    main()
