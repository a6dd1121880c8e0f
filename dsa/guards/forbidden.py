"""Judge code by the modules and calls that it names, without running it.

Takes names that code must not use, gives a guard. It reads what a program says, not what it will do: names that are put together at run
time go unseen. What code can do is bounded by the sandbox; this guard says early, and to the model, what is not wanted.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from dsa.guards.code import extract_code, syntax_fault
from dsa.guards.feedback import clip
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

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
    """Turn down code that imports forbidden modules or names forbidden calls; fatal, unless `fatal` is false.

    Names are followed through imports, `as`, plain assignments, `getattr(x, "y")`, `__import__("x")` and `sys.modules["x"]`. A module
    stands for all that lies in it, `*` in a call for any letters. What is no Python has failed. ValueError for nothing to forbid, and
    for what no module or call can be called: it would forbid nothing.
    """

    def __init__(
        self, imports: tuple[str, ...] = IMPORTS, calls: tuple[str, ...] = CALLS, *, fatal: bool = True
    ) -> None:
        if not imports and not calls:
            raise ValueError("a guard that forbids nothing judges nothing: give imports or calls")
        _require_names("imports", imports, "")
        _require_names("calls", calls, "*")
        self._imports, self._fatal = tuple(imports), fatal
        self._calls = tuple(call.removeprefix(_BUILTINS) for call in calls)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code in the artifact."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        found = self._found(ast.parse(code))
        if not found:
            return GuardResult(passed=True)
        named = [f"{clip(name)} is forbidden (line {line})" for name, line in list(found.items())[:_MOST_NAMED]]
        more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        return GuardResult(passed=False, feedback=f"Security: {'; '.join(named)}{more}.", fatal=self._fatal)

    def _found(self, tree: ast.Module) -> dict[str, int]:
        """Give each forbidden name with the first line where it stands, in the order of the lines."""
        names = _Names(tree)
        found: dict[str, int] = {}
        for name, line in sorted(names.used(), key=lambda use: use[1]):
            if self._is_forbidden(name):
                found.setdefault(name, line)
        return found

    def _is_forbidden(self, name: str) -> bool:
        plain = name.removeprefix(_BUILTINS)
        return any(name == module or name.startswith(f"{module}.") for module in self._imports) or any(
            fnmatchcase(plain, call) for call in self._calls
        )


def _require_names(option: str, names: tuple[str, ...], wild: str) -> None:
    """Raise ValueError for the first that is no dotted name; `wild` may stand in for its letters."""
    if isinstance(names, str):
        raise ValueError(f"{option} is one text: give a tuple of names")  # noqa: TRY004  # as for its parts
    for name in names:
        plain = name.replace(wild, "a") if wild else name
        if not all(part.isidentifier() for part in plain.split(".")):
            allowed = "dots and *" if wild else "dots; a module stands for all that lies in it"
            raise ValueError(
                f"'{name}' in {option} is no name, and would forbid nothing: names have letters, digits, _ and {allowed}; commas stand between them"
            )


class _Names:
    """What the names of a program stand for, and where they are used. Flow is not looked at: a name stands for all it ever stood for."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._meanings: dict[str, set[str]] = {}
        known = -1
        while known != (known := sum(map(len, self._meanings.values()))):  # an alias of an alias takes another round
            for name, meaning in self._bindings():
                self._meanings.setdefault(name, set()).add(meaning)

    def used(self) -> Iterator[tuple[str, int]]:
        """Give each thing that is imported or referred to, by its full name, with the line."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module, node.lineno
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
            elif isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                yield from ((name, node.lineno) for name in self._meant(node))

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
                    yield from self._assigned(targets, value)
                case ast.AnnAssign(target, value=ast.expr() as value) | ast.NamedExpr(target, value):
                    yield from self._assigned([target], value)

    def _assigned(self, targets: Iterable[ast.expr], value: ast.expr) -> Iterator[tuple[str, str]]:
        meanings = self._meant(value)
        for target in targets:
            if isinstance(target, ast.Name):
                yield from ((target.id, meaning) for meaning in meanings)

    def _meant(self, node: ast.expr) -> set[str]:
        """Give the full names that an expression may stand for; none when it is nothing that can be named."""
        match node:
            case ast.Name(name):
                found = self._meanings.get(name, set())
                return found | {name} if hasattr(builtins, name) or name == "__builtins__" else found
            case ast.Attribute(value, attribute):
                return {f"{owner}.{attribute}" for owner in self._meant(value)}
            case ast.Call(func, [ast.Constant(str(module)), *_]) if self._meant(func) & _IMPORTERS:
                return {module}
            case ast.Call(func, [owner, ast.Constant(str(attribute)), *_]) if self._meant(func) & _GETATTR:
                return {f"{name}.{attribute}" for name in self._meant(owner)}
            case ast.Subscript(value, ast.Constant(str(key))):
                owners = self._meant(value)
                modules = {key} if "sys.modules" in owners else set()
                return modules | ({f"builtins.{key}"} if owners & _OF_BUILTINS else set())
        return set()
