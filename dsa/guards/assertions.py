"""Assertions: whether a text tests anything, and what it takes for granted, read off its syntax.

Takes Python that parses. It runs nothing.
"""

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator
from typing import Literal

#: Functions or classes that pytest collects · asserts that run when the text is loaded · neither
Kind = Literal["tests", "asserts", "none"]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
#: What asserts something when it is called, beside all that begins with `assert`.
_ASSERTING = frozenset({"raises", "warns", "deprecated_call", "fail"})
#: Modules that are often used and not imported. A module of any other name may be an object of the code.
_OFTEN_FORGOTTEN = frozenset({"asyncio", "itertools", "json", "math", "os", "pytest", "random", "re", "sys", "time", "unittest"})  # fmt: skip


def kind_of_tests(text: str) -> Kind:
    """Say which kind of tests a text is. Asserts count where no tests are defined: beside tests they only guard the loading."""
    body = ast.parse(text).body
    if _tests(body):
        return "tests"
    loaded = [node for node in _statements(body) if not isinstance(node, _DEFINITIONS)]
    return "asserts" if _assert_something(loaded, text) else "none"


def asserts_anything(text: str) -> bool:
    """Return whether the tests that a text defines assert something, themselves or in what they use of it: helpers, fixtures."""
    return _assert_something(_tests(ast.parse(text).body), text)


def own_names(text: str) -> tuple[str, ...]:
    """Return the functions and classes at the top of a text that are neither tests nor decorated, as fixtures are."""
    body = ast.parse(text).body
    tests = _tests(body)
    found = (node for node in body if isinstance(node, _DEFINITIONS) and node not in tests and not node.decorator_list)
    return tuple(node.name for node in found)


def missing_names(text: str) -> frozenset[str]:
    """Return the names that a text uses and nothing in it binds: those of the code, in tests that do not import it. Empty for what does not compile."""
    try:
        tables = [symtable.symtable(text, "the tests", "exec")]
    except (SyntaxError, RecursionError):  # whoever runs it is told
        return frozenset()
    for table in tables:
        tables += table.get_children()
    symbols = [(table.get_type() == "module", symbol) for table in tables for symbol in table.get_symbols()]
    bound = {
        symbol.get_name()
        for at_top, symbol in symbols
        if (at_top or symbol.is_declared_global())
        and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())
    }
    used = {symbol.get_name() for _, symbol in symbols if symbol.is_global() and symbol.is_referenced()}
    return frozenset(name for name in used - bound if not hasattr(builtins, name) and not name.startswith("__"))


def forgotten_imports(text: str) -> tuple[str, ...]:
    """Return the modules that a text uses as `module.name` and does not import."""
    missing = missing_names(text) & _OFTEN_FORGOTTEN
    nodes = ast.walk(ast.parse(text))
    used = {n.value.id for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    return tuple(sorted(used & missing))


# -- what pytest collects -----------------------------------------------------------------------------------------------


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs when a module is loaded, without what functions and classes hold, and what only a program runs."""
    for node in body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            yield from _statements(node.orelse)
            continue
        yield node
        if isinstance(node, _DEFINITIONS):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, field, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)


def _tests(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return the functions and classes at the top that pytest collects tests from."""
    found: list[ast.stmt] = []
    test_cases, with_tests = {"TestCase", "IsolatedAsyncioTestCase"}, set[str]()
    for node in _statements(body):
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            found.append(node)
        elif isinstance(node, ast.ClassDef):
            bases = {_last_name(base) for base in node.bases}
            if bases & test_cases:
                test_cases.add(node.name)
            if bases & with_tests or any(isinstance(n, _FUNCTIONS) and n.name.startswith("test") for n in node.body):
                with_tests.add(node.name)
            if node.name in with_tests and (node.name.startswith("Test") or node.name in test_cases):
                found.append(node)
    return found


# -- what asserts -------------------------------------------------------------------------------------------------------


def _assert_something(starts: Iterable[ast.stmt], text: str) -> bool:
    """Return whether statements assert something, or name a function or class of the text that does."""
    defined: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DEFINITIONS):
            defined.setdefault(node.name, []).append(node)
    left = list(starts)
    while left:
        for node in ast.walk(left.pop()):
            if _is_assertion(node):
                return True
            left += defined.pop(_mentioned(node), ())
    return False


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        return name.lower().startswith("assert") or name in _ASSERTING
    if isinstance(node, ast.Raise) and node.exc is not None:
        return _last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc) == "AssertionError"
    return isinstance(node, ast.Assert)


def _mentioned(node: ast.AST) -> str:
    """Return the name by which a node may mean a function: also as an argument, which is a fixture."""
    return node.arg if isinstance(node, ast.arg) else _last_name(node)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
