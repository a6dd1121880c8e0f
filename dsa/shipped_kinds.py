"""The kinds of guards and generators that come with dsa, and their options, for who checks a table and builds nothing.

`dsa.guards.library` and `dsa.generators.library` build them; `tests/unit/test_shipped_kinds.py` holds this list to them.
"""

from collections.abc import Mapping

#: What an option may be: `text`, `number`, `whole` (a whole number), `flag` (true or false), `names`. With `!` the table must give it.
Options = Mapping[str, str]

_SANDBOXED = {"require": "names", "rung": "text"}
_TESTED = {"module": "text", "timeout_s": "number", "hardened": "flag", "show_expected": "flag", **_SANDBOXED}
_TOGETHER = {"of": "names!"}
_AT_ONCE = {**_TOGETHER, "parallel": "flag", "timeout_s": "number"}

GUARDS: Mapping[str, Options] = {
    "syntax": {},
    "cases": {"timeout_s": "number", "show_expected": "flag", **_SANDBOXED},
    "forbidden": {"imports": "names", "calls": "names", "fatal": "flag"},
    "regex": {"pattern": "text!", "whole": "flag", "absent": "flag", "hint": "text", "timeout_s": "number"},
    "review": {"question": "text"},
    "in_order": _TOGETHER,
    "tests": _TESTED,
    "are_tests": {"module": "text", "timeout_s": "number", **_SANDBOXED},
    "pytest": {"file": "text!", **_TESTED},
    "judge": {"question": "text!", "by": "text"},
    "command": {
        "command": "text!", "file": "text", "fence": "text", "timeout_s": "number", "memory_mb": "whole", "read": "names", **_SANDBOXED,
    },
    "ruff": {"select": "names", "ignore": "names", "line_length": "whole", "timeout_s": "number", **_SANDBOXED},
    "mypy": {"strict": "flag", "allow_ignores": "flag", "timeout_s": "number", **_SANDBOXED},
    "pydantic": {"model": "text!", "show_expected": "flag"},
    "json": {"schema": "text!", "show_expected": "flag"},
    "all": _AT_ONCE,
    "any": _AT_ONCE,
    "at_least": {**_AT_ONCE, "k": "whole!"},
}  # fmt: skip

_MODEL = {"temperature": "number", "max_tokens": "whole", "max_prompt_tokens": "whole"}
_SERVER = {**_MODEL, "model": "text!", "timeout_s": "number", "retries": "whole"}

GENERATORS: Mapping[str, Options] = {
    "local": {**_MODEL, "signature": "text"},
    "litellm": {**_SERVER, "model": "text", "api_base": "text"},
    "openai_compatible": {**_SERVER, "key_variable": "text", "silence_s": "number"},
    "command": {"command": "text!", "timeout_s": "number", "most_bytes": "whole"},
    "scripted": {"file": "text!"},
    "llm": {**_SERVER, "model": "text", "signature": "text", "api_base": "text"},
    "machine": {"file": "text!", "step": "text"},
}
