"""Code in a model's reply, and guards that judge it without running it.

`extract_code` finds the code in the text of an artifact; `SyntaxGuard` passes what Python parses.

`ForbiddenGuard` takes names that code must not use. It reads what a program says, not what it will do: it does not see names that are composed
at run time. The sandbox limits what code can do; this guard tells the model early what is not allowed.
"""

import ast
import builtins
import io
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from dsa.guards.feedback import clip, clip_middle
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

# A model may write anything, so possessive quantifiers keep the time linear in its text.
_FENCE = re.compile(r"^ {0,3}(?P<ticks>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\s`]*+)[^`\n]*+$", re.MULTILINE)
_INDENTED_FENCE = re.compile(r"^ ++(?:`{3}|~{3})", re.MULTILINE)
_ITEM = re.compile(r" {0,20}(?:[-*+]|\d{1,9}[.)]) {1,4}(?=\S)")
_TICKS = re.compile(r"`{3,}+|~{3,}+")
_LOOSE = 3  # blanks that a fence may have before it, besides those of a list
_WORD = r"[\w\[\],.|]++"
_ASSIGNMENT = rf"[A-Za-z_]\w*+(?: *+: *+{_WORD}(?: ++{_WORD})*+)? ++= "
_CODE_LINE = re.compile(rf"^(?:(?:async )?def |import |from |class |@|{_ASSIGNMENT})", re.MULTILINE)
_MOST_CODE = 500_000  # a syntax tree takes some hundred times the memory of its text
_PYTHON = frozenset({"python", "py", "python3"})
#: The most lines of fences that are read; those that open or close one, from either end; the characters that are compiled.
_MOST_LINES, _MOST_ENDS, _MOST_TRIED = 10_000, 20, 1_000_000


def extract_code(reply: str) -> str:
    """Return the code of a reply.

    That is the content of a fence marked as Python, or else of a fence without a language; or else everything from the first line
    that begins like code (`def`, `import`, `from`, `class`, `@`, `name =`); or else the whole reply. A fence that is not closed
    reaches to the end. Of several fences, and of several lines that may close one (a text in the code may hold fences), the longest that compiles counts,
    or else the first; the first and the last 20 of each are tried, up to 1,000,000 characters in all. Line ends become line feeds, and the
    content of a fence in a list loses the blanks of the list.
    """
    text = _plain(reply)
    lines = list(islice(_FENCE.finditer(text), _MOST_LINES))
    for languages in (_PYTHON, frozenset({""})):
        first = next((body for language, body in _fences(text) if language in languages), None)
        if first is not None:
            return _longest(text, lines, languages) or first
    start = _CODE_LINE.search(text)
    return text[start.start() :] if start else text


def _longest(text: str, lines: list[re.Match[str]], languages: frozenset[str]) -> str:
    """Return the longest code that compiles between a fence of these languages and a line that may close it; empty if there is no choice, or none compiles."""
    closers = [line for line in lines if not line["language"] and not line[0].strip(" \t`~")]
    openers = [line for line in lines if line["language"].lower() in languages and line not in closers[-1:]]
    spans: list[tuple[int, int]] = []
    for begin in _ends(openers):
        behind = [end for end in closers if end.start() > begin.end() and end["ticks"].startswith(begin["ticks"])]
        spans += [(begin.end() + 1, end.start()) for end in _ends(behind)]
    left = _MOST_TRIED
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]) if len(spans) > 1 else ():
        left -= end - start
        if left >= 0 and (body := text[start:end]).strip() and not syntax_fault(body):
            return body
    return ""


def _ends(lines: list[re.Match[str]]) -> list[re.Match[str]]:
    return lines if len(lines) <= 2 * _MOST_ENDS else lines[:_MOST_ENDS] + lines[-_MOST_ENDS:]


def extract_fenced(reply: str, language: str) -> str:
    """Return the first fence in a language, else the first without one, else the whole reply. Line ends become line feeds."""
    text = _plain(reply)
    fences = _fences(text)
    bodies = (body for choice in (language, "") for fence_language, body in fences if fence_language == choice)
    return next(bodies, text)


def _plain(reply: str) -> str:
    """Return a reply with line feeds and without indented fences: in a list, a fence and its content are indented like the text of the item (CommonMark)."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    if not _INDENTED_FENCE.search(text):
        return text
    item, indent, ticks = 0, 0, ""  # where the text of the list's item begins; the open fence
    lines = text.split("\n")
    for number, line in enumerate(lines):
        bare = line.lstrip(" ")
        blanks = len(line) - len(bare)
        if ticks:
            lines[number] = line[min(blanks, indent) :]
            ticks = "" if bare.startswith(ticks) and not bare.strip(f" \t{ticks[0]}") else ticks
        elif _CODE_LINE.match(line):  # from here on it is code without a fence
            break
        elif item_match := _ITEM.match(line):
            item = item_match.end()
        elif bare:
            opening = _TICKS.match(bare) if blanks <= item + _LOOSE else None
            if opening:
                indent, ticks, lines[number] = blanks, opening[0], bare
            item = item if blanks >= min(item, 2) else 0
    return "\n".join(lines)


def _fences(text: str) -> list[tuple[str, str]]:
    """Return language and body of every fence, in order; a fence is closed by one at least as long (CommonMark)."""
    fences = []
    at = 0
    while opener := _FENCE.search(text, at):
        ticks = opener["ticks"]
        closer = re.compile(rf"^ {{0,3}}{ticks[0]}{{{len(ticks)},}}[ \t]*$", re.MULTILINE).search(text, opener.end())
        end = closer.start() if closer else len(text)
        fences.append((opener["language"].lower(), text[opener.end() + 1 : end]))
        at = closer.end() if closer else len(text)
    return fences


class SyntaxGuard(GuardInterface):
    """Pass what `ast.parse` accepts; the feedback names line and message. No code at all fails."""

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code in the artifact."""
        fault = syntax_fault(extract_code(artifact.content))
        return GuardResult(passed=not fault, feedback=fault)


def syntax_fault(code: str, what: str = "The code") -> str:
    """Return why the code is not Python; empty if it is. `what` begins the sentence."""
    if not code.strip():
        return "There is no code in the answer."
    if len(code) > _MOST_CODE:
        return f"{what} is too long: {len(code)} characters; at most {_MOST_CODE} are read."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is not a syntax error
            ast.parse(code)
    except SyntaxError as error:
        place = f" in line {error.lineno}" if error.lineno else ""
        return f"{what} has a syntax error{place}: {clip_middle(error.msg)}."
    except ValueError:  # a NUL in newer Pythons, a lone surrogate
        return f"{what} has characters that are not allowed in a source file."
    except (RecursionError, MemoryError):
        return f"{what} is nested too deeply to be read."
    return ""


def comments(code: str) -> list[tuple[int, str]]:
    """Return the comments of a program, each with its line; if it cannot be split into tokens, everything that may be one."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):
        return [(n, line[line.index("#") :]) for n, line in enumerate(code.split("\n"), start=1) if "#" in line]


IMPORTS = ("ctypes", "multiprocessing", "socket", "subprocess")
CALLS = (
    "__import__", "compile", "eval", "exec", "importlib.import_module",
    "os._exit", "os.exec*", "os.fork*", "os.kill*", "os.popen", "os.posix_spawn*", "os.spawn*", "os.startfile", "os.system",
    "shutil.rmtree",
)  # fmt: skip
_IMPORTERS = frozenset({"__import__", "importlib.import_module", "importlib.__import__"})
_GETATTR = frozenset({"getattr", "builtins.getattr"})
_OF_BUILTINS = frozenset({"__builtins__", "builtins.__dict__", "__builtins__.__dict__"})
_BUILTINS = "builtins."
_MOST_NAMED = 5


class ForbiddenGuard(GuardInterface):
    """Reject code that imports forbidden modules or names forbidden calls; fatal, unless `fatal` is false.

    Names are followed through imports, `as`, plain assignments, `getattr(x, "y")`, `__import__("x")` and `sys.modules["x"]`. A module
    stands for everything in it, `*` in a call for any letters. Text that is not Python fails. Raises ValueError if nothing is forbidden, and
    for a name that no module or call can have, because it would forbid nothing.
    """

    def __init__(
        self, imports: tuple[str, ...] = IMPORTS, calls: tuple[str, ...] = CALLS, *, fatal: bool = True
    ) -> None:
        if not imports and not calls:
            raise ValueError("this guard forbids nothing: set its option 'imports' or its option 'calls'")
        _require_names("imports", imports, "")
        _require_names("calls", calls, "*")
        self._imports, self._fatal = tuple(imports), fatal
        self._calls = tuple(call.removeprefix(_BUILTINS) for call in calls)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code in the artifact."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        lines = self._forbidden_names(ast.parse(code))
        if not lines:
            return GuardResult(passed=True)
        faults = [f"{clip(name)} is forbidden (line {line})" for name, line in list(lines.items())[:_MOST_NAMED]]
        more = f", and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
        return GuardResult(passed=False, feedback=f"Security: {'; '.join(faults)}{more}.", fatal=self._fatal)

    def _forbidden_names(self, tree: ast.Module) -> dict[str, int]:
        """Return each forbidden name with the first line where it appears, in the order of the lines."""
        names = _Names(tree)
        lines: dict[str, int] = {}
        for name, line in sorted(names.uses(), key=lambda use: use[1]):
            if self._is_forbidden(name):
                lines.setdefault(name, line)
        return lines

    def _is_forbidden(self, name: str) -> bool:
        plain = name.removeprefix(_BUILTINS)
        return any(name == module or name.startswith(f"{module}.") for module in self._imports) or any(
            fnmatchcase(plain, call) for call in self._calls
        )


def _require_names(option: str, names: tuple[str, ...], wild: str) -> None:
    """Raise ValueError for the first that is not a dotted name; `wild` may replace letters in it."""
    if isinstance(names, str):
        raise ValueError(f"{option} is a single string: use a tuple of names")  # noqa: TRY004  # as for its parts
    for name in names:
        plain = name.replace(wild, "a") if wild else name
        if not all(part.isidentifier() for part in plain.split(".")):
            characters = "dots and *" if wild else "dots (a module covers everything in it)"
            raise ValueError(
                f"{option} lists forbidden names, but '{name}' is not a name, so it would never match; a name has letters, digits, _ and {characters}; separate names by commas"
            )


class _Names:
    """The meanings of a program's names, and where they are used. Flow is ignored: a name has all the meanings it ever has."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._meanings: dict[str, set[str]] = {}
        count = -1
        while count != (count := sum(map(len, self._meanings.values()))):  # an alias of an alias takes another round
            for name, meaning in self._bindings():
                self._meanings.setdefault(name, set()).add(meaning)

    def uses(self) -> Iterator[tuple[str, int]]:
        """Yield each thing that is imported or referred to, by its full name, with the line."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module, node.lineno
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
            elif isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                yield from ((name, node.lineno) for name in self._meanings_of(node))

    def _bindings(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self._tree):
            match node:
                case ast.Import(names):
                    for alias in names:
                        yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    for alias in names:
                        yield alias.asname or alias.name, f"{module}.{alias.name}"
                case ast.Assign(targets, value):
                    yield from self._assignments(targets, value)
                case ast.AnnAssign(target, value=ast.expr() as value) | ast.NamedExpr(target, value):
                    yield from self._assignments([target], value)

    def _assignments(self, targets: Iterable[ast.expr], value: ast.expr) -> Iterator[tuple[str, str]]:
        meanings = self._meanings_of(value)
        for target in targets:
            if isinstance(target, ast.Name):
                yield from ((target.id, meaning) for meaning in meanings)

    def _meanings_of(self, node: ast.expr) -> set[str]:
        """Return the full names that an expression may stand for; none when it has no name."""
        match node:
            case ast.Name(name):
                meanings = self._meanings.get(name, set())
                return meanings | {name} if hasattr(builtins, name) or name == "__builtins__" else meanings
            case ast.Attribute(value, attribute):
                return {f"{owner}.{attribute}" for owner in self._meanings_of(value)}
            case ast.Call(func, [ast.Constant(str(module)), *_]) if self._meanings_of(func) & _IMPORTERS:
                return {module}
            case ast.Call(func, [owner, ast.Constant(str(attribute)), *_]) if self._meanings_of(func) & _GETATTR:
                return {f"{name}.{attribute}" for name in self._meanings_of(owner)}
            case ast.Subscript(value, ast.Constant(str(key))):
                owners = self._meanings_of(value)
                modules = {key} if "sys.modules" in owners else set()
                return modules | ({f"builtins.{key}"} if owners & _OF_BUILTINS else set())
        return set()
