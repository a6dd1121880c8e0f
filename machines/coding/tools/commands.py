"""What a model asks to be run: as a list of arguments, and whether the rules allow it.

Takes what stands in the call, gives the arguments, or the rule that refuses them and what to send instead. There is no shell: a text that
needs one is refused, for what a list of allowed programs would keep out comes in by `;`, `|`, `$()` or a line break. Nothing is run here.
"""

import json
import re
import shlex
from collections.abc import Sequence
from itertools import dropwhile, takewhile
from pathlib import Path

from dsa.runtime.speech import is_unicode
from machines.coding.tools.errors import ToolError
from machines.coding.tools.programs import CHECKS, Place, Rules, is_allowed, other_fault
from machines.tool_use.json_values import list_in

_MOST_ARGUMENTS = 256
_MOST_CHARACTERS = 100_000
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_OPERATORS = re.compile(r"\|\||&&|;|\||&|\n")
#: An argument that is nothing else than what a shell would take out of a command.
_OPERATOR = re.compile(r"(?:\d*|&)(?:>>?|<{1,3}|>\||<>)(?:&(?:\d+|-)?|/dev/null)?|\|[|&]?|&&?|;;?")
#: What a character outside of quotes would be to a shell.
_SPECIAL = {
    "\n": "a line break", ";": "';'", "&": "'&'", "|": "a pipe", "<": "a redirection", ">": "a redirection", "(": "a subshell",
    ")": "a subshell", "$": "'$'", "`": "a backquote", "*": "a glob", "?": "a glob", "[": "a glob", "#": "a comment", "~": "'~'", "{": "braces",
    "!": "'!'",
}  # fmt: skip
_WORD_START = frozenset("#~!")
_INSTEAD = {
    "a redirection": "what it writes to its output and errors comes back by itself, `stdin` gives it an input, write_file writes a file",
    "a pipe": "its whole output comes back, the first and last 8 kB of it if it is long; run the first command alone",
    "'$'": "there are no variables here; write the value itself",
    "a backquote": "run the inner command first, then write what it gave",
    "a glob": "name the files or their folder, or put the text in quotes",
    "a comment": "leave it out",
    "'~'": "paths are relative to the workspace",
    "braces": "write each argument out, or put the text in quotes",
}
_SHELLS = frozenset({
    "sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh", "env", "sudo", "xargs", "nohup", "timeout",
})  # fmt: skip
#: What other tools do.
_OTHER_TOOLS = {
    "cat": "read_file", "head": "read_file", "tail": "read_file", "less": "read_file", "ls": "list_dir", "find": "list_dir",
    "tree": "list_dir", "echo": "write_file", "printf": "write_file", "touch": "write_file", "tee": "write_file",
    "mkdir": "write_file, which makes the folders of a file", "git": "the git tools",
}  # fmt: skip


def asked(cmd: str | Sequence[str]) -> tuple[str, ...]:
    """Give the arguments of a command, its program first. Raises ToolError `shell_syntax`, `bad_command` or `empty_command`."""
    if isinstance(cmd, str):
        found = list_in(cmd)
        argv = _split(cmd.strip()) if found is None else found
        _refuse_operators(found or ())
    else:
        argv = list(cmd)
        _refuse_operators(argv)
    if not all(isinstance(each, str) for each in argv):
        raise ToolError("bad_command", 'a command is a list of texts, as ["python", "main.py"]')
    if not argv or not argv[0].strip():
        raise ToolError("empty_command", 'there is no command; give a list, as ["pytest", "-q"]')
    if len(argv) > _MOST_ARGUMENTS or sum(map(len, argv)) > _MOST_CHARACTERS:
        raise ToolError(
            "bad_command",
            f"a command has at most {_MOST_ARGUMENTS} arguments and {_MOST_CHARACTERS} characters; put more into a file",
        )
    if any("\x00" in each or not is_unicode(each) for each in argv):
        raise ToolError(
            "bad_command", "an argument has a character that no command can be given (NUL, or half of a surrogate pair)"
        )
    return tuple(argv)


def fault(argv: Sequence[str], rules: Rules, workspace_root: Path, cwd: str = ".") -> str:
    """Say which rule refuses a command, and what is allowed instead; empty when none does."""
    name, *arguments = argv
    place = Place(workspace_root, cwd)
    if name in CHECKS and is_allowed(name, rules):
        return CHECKS[name](arguments, rules, place)
    if name in rules.programs:
        return other_fault(name, arguments, rules, place)
    return f"{_unknown(name, arguments, rules)}; allowed programs: {', '.join(rules.names)}"


def _unknown(name: str, arguments: Sequence[str], rules: Rules) -> str:
    plain = Path(name).name
    if not arguments and len(words := name.split()) > 1:
        return f"the whole command stands in one argument; send {json.dumps(words)}"
    if plain in _SHELLS:
        return f"'{plain}' is not run: there is no shell here; send the program and its arguments as a list"
    if plain == "cd":
        return "'cd' is no program; say where to run a command with `cwd`"
    if "/" in name and plain in rules.names:
        return f"programs are called by their names: send {json.dumps([plain, *arguments])[:200]}"
    if plain in _OTHER_TOOLS:
        return f"'{plain}' is not run; use {_OTHER_TOOLS[plain]}"
    if plain.startswith("pip"):
        return "pip is switched off: use what is installed"
    return f"'{name[:80]}' is no program that may be run"


# -- texts ------------------------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    """Split a text that needs no shell."""
    if what := _shell_syntax(text):
        raise ToolError(
            "shell_syntax",
            f"there is no shell here, and the command has {what} outside of quotes: {_advice(text, what)}",
        )
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise ToolError(
            "shell_syntax", f"the command cannot be split ({error}); send it as a list of arguments"
        ) from error
    if argv and _ASSIGNMENT.match(text):
        rest = argv[next((n for n, word in enumerate(argv) if not _ASSIGNMENT.match(word)), len(argv)) :]
        raise ToolError("shell_syntax", f"a command cannot set variables of its environment; send {json.dumps(rest)}")
    return argv


def _refuse_operators(argv: Sequence[object]) -> None:
    """Raise ToolError where an item of a list is a shell's operator: the program would get it as a text, and nobody would be told."""
    words = [each for each in argv if isinstance(each, str)]
    meant = next((each for each in words if _OPERATOR.fullmatch(each)), "")
    if meant:
        text = " ".join(each if _OPERATOR.fullmatch(each) else shlex.quote(each) for each in words)
        what = _shell_syntax(text)
        raise ToolError(
            "shell_syntax",
            f"there is no shell here, and the list has {what} as an argument, '{meant}': {_advice(text, what)}; where the program is to be "
            "given that text, write the command as one text with quotes around it",
        )


def _shell_syntax(text: str) -> str:
    """Name the first thing that only a shell would understand; empty when there is none."""
    quote, before, word = "", " ", ""
    signs = iter(text)
    for sign in signs:
        if sign == "\\" and quote != "'":
            escaped = next(signs, "")
            if escaped == "\n":
                return "a line break"
            word += escaped
        elif quote:
            if quote == '"' and sign in "$`":
                return _SPECIAL[sign]
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _SPECIAL and _means_something(sign, before, word):
            return _SPECIAL[sign]
        word = "" if sign.isspace() and not quote else word + sign
        before = sign
    return ""


def _means_something(sign: str, before: str, word: str) -> bool:
    """Tell whether a shell would read more into a character than itself; the brackets of a test's name are left in peace."""
    if sign in _WORD_START:
        return before.isspace() or (sign == "~" and before in "=:")
    return not (sign in "[*?" and "::" in word)


def _advice(text: str, what: str) -> str:
    """Say what to send instead, in the form of arguments."""
    parts = [_words(part) for part in _OPERATORS.split(text)]
    parts = [part for part in parts if part]
    if len(parts) > 1 and parts[0][0] == "cd" and len(parts[0]) == 2:  # noqa: PLR2004  # `cd` and where to
        return f"send {json.dumps(parts[1])} with cwd {json.dumps(parts[0][1])}"
    if what in _INSTEAD:
        return f"{_INSTEAD[what]}; a command is a list, as {json.dumps(parts[0] if parts else ['python', 'main.py'])}"
    if len(parts) > 1:
        return f"make {len(parts)} calls, one after the other: {', then '.join(json.dumps(part) for part in parts)}"
    return f"send a list of arguments, as {json.dumps(parts[0] if parts else ['python', 'main.py'])}"


def _words(text: str) -> list[str]:
    """Give the plain words at the beginning of a part of a command, up to what only a shell understands."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    plain = list(takewhile(lambda word: not set(word) & set("<>$`(){}*?#~"), words))
    return list(dropwhile(_ASSIGNMENT.match, plain))
