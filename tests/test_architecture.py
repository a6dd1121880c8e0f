"""The arrows point down, and nothing grows without bound: DESIGN sections 1 and the layout rules, as a test.

Imports are read from the source, also those inside functions, so a dodge is found too.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for top in ("dsa", "machines") for path in (ROOT / top).rglob("*.py"))

#: What each part of `dsa` may import of `dsa`. A part may always import itself.
CORE = {
    "errors", "expr", "simplify", "references", "declarations", "claims", "machine", "durations", "meaning", "timers", "compiled_step", "system", "moments", "ground",
    "trace", "records", "shipped_kinds", "tables", "uses", "words",
}  # fmt: skip
ALLOWED = {
    "lang": CORE,
    "kernel": set(),
    "checks": CORE | {"kernel"},
    "targets": CORE,
    "runtime": CORE,
    "guards": CORE | {"runtime", "edge.sandbox", "edge.plugins"},
    "generators": CORE | {"runtime", "edge.http", "edge.programs", "edge.plugins"},
    "edge": CORE | {"lang", "checks", "targets", "runtime"},
    "runs": CORE | {"lang", "checks", "targets", "runtime", "guards", "generators", "edge"},
    "testing": CORE | {"lang", "checks", "targets", "runtime", "edge", "runs"},
    "__main__": {"cli"},
    "cli": CORE | {"lang", "checks", "targets", "runtime", "guards", "generators", "edge", "runs", "testing", "kernel"},
}
#: Within the core, each module may import those before it.
CORE_ORDER = [
    "words", "errors", "expr", "simplify", "satisfiable", "references", "declarations", "claims", "machine", "timers", "durations", "uses", "meaning", "compiled_step", "system",
    "moments", "ground", "trace", "records", "tables", "shipped_kinds",
]  # fmt: skip
PURE = {"lang", "checks", "targets", "runtime", *CORE}
IMPURE_MODULES = {
    "asyncio", "git", "http", "httpx", "io", "litellm", "multiprocessing", "os", "pathlib", "random", "shutil", "signal",
    "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "xllamacpp",
}  # fmt: skip
#: What a pure module may use of these all the same, with the reason.
PURE_ENOUGH = {
    ("dsa.runtime.turns", "asyncio"): "futures, and letting the event loop go round: no input, no output",
    ("dsa.runtime.secrets", "urllib"): "texts as URLs write them",
    ("dsa.runtime.secret_names", "urllib"): "texts as URLs write them",
}
#: Heavy packages: imported inside the function that uses them, never at the top of a module.
HEAVY = {
    "jsonschema",
    "referencing",
    "anyio",
    "fpdf",
    "mcp",
    "pandas",
    "duckdb",
    "httpx",
    "litellm",
    "matplotlib",
    "numpy",
    "opentelemetry",
    "pydantic",
    "scipy",
    "statemachine",
    "xllamacpp",
    "z3",
    "dd",
}
#: Where modules are loaded by name, so that what a command does without is not loaded; each with what that is.
BY_NAME = {
    "dsa": "the public names that are not asked for",
    "dsa.checks.engines.choose": "the engines for what is large",
    "dsa.checks.verdicts": "odds, where no property speaks of any",
    "dsa.cli.runs": "replaying and what drives runs, where neither `--verify` nor `rm` asks for it",
    "dsa.runs.archive": "replaying, where runs are only listed",
    "dsa.runs.place": "git, where no artifact is asked for",
    "dsa.cli.check": "JSON, SARIF, recorded traces, certificates, the C compiler",
    "dsa.cli.main": "the other commands",
    "dsa.runs.bindings": "the user's own modules",
    "dsa.edge.sandbox.inside.serve": "what a program that is run in the sandbox wants imported beforehand",
    "dsa.guards.models": "the user's own models",
    "dsa.lang": "what writes documents, for who reads them",
    "dsa.guards.tested_child": "the code to be tested, in the sandbox",
    "dsa.testing": "what pytest's start does without",
    "dsa.testing.pytest_plugin": "the reader of documents, where there is none to test",
    "machines": "the public names that are not asked for",
}
#: What a check of a small machine must not load: it would take longer than the check.
NOT_FOR_A_SMALL_CHECK = HEAVY | {
    "ctypes", "dsa.checks.engines.bdd", "dsa.checks.engines.compiled", "dsa.checks.engines.vectors", "dsa.checks.odds",
    "dsa.checks.replay", "dsa.checks.why", "dsa.cli.as_json", "dsa.cli.replayed", "dsa.edge.compiler", "dsa.lang.dump",
    "dsa.lang.format", "dsa.records", "email", "git", "importlib.metadata", "importlib.resources", "rich", "socket", "subprocess",
    "tempfile",
}  # fmt: skip
MAX_LINES, MAX_CLASS_LINES, MAX_FUNCTION_LINES = 700, 250, 40
MOST_EXCEPTIONS = 20
#: Files, classes and functions that may be longer, with the reason.
#: What prints by itself: programs that are copied out, or run in a process of their own.
PRINTS: set[str] = {"dsa.kernel"}
EXCEPTIONS: dict[str, str] = {
    "dsa/kernel.py": "one file that is copied out and read whole by whoever trusts it",
    "dsa/kernel.py:Claim": "what is claimed, and how that is seen, is read from top to bottom",
    "dsa/edge/driver.py:Driver": "one run's event loop: what comes in and what goes out share its state",
    "machines/coding/work.py:Work": "the fold of a coding run's events, one method for each",
}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _part(module: str) -> str:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


def _without_type_checking(tree: ast.Module) -> ast.Module:
    """Leave out what only type checkers import."""
    tree.body = [n for n in tree.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
    return tree


@cache
def _imports(path: Path) -> list[tuple[str, int, bool]]:
    """Give every module imported, its line, and whether it stands inside a function."""
    tree = _without_type_checking(ast.parse(path.read_text()))
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            local = [n for n in names if (ROOT / Path(*n.split("."))).with_suffix(".py").exists()]
            found += [(name, node.lineno, id(node) in inside) for name in (local or [node.module or ""])]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=_module)
def test_imports_point_down(path: Path) -> None:
    module = _module(path)
    if module == "dsa" or module.startswith("machines"):  # the public names; the bindings, which may use everything
        return
    part = _part(module)
    allowed = set(CORE_ORDER[: CORE_ORDER.index(part)]) if part in CORE_ORDER else ALLOWED[part] | {part}
    for name, line, _ in _imports(path):
        assert not name.startswith("machines"), f"{path}:{line}: dsa must not import the machines"
        if name.startswith("dsa."):
            target = name.removeprefix("dsa.")
            known = target.split(".")[0] in allowed or any(target.startswith(part) for part in allowed if "." in part)
            assert known, f"{path}:{line}: {part} imports {target}"


@pytest.mark.parametrize("path", [p for p in SOURCES if _part(_module(p)) in PURE], ids=_module)
def test_the_core_does_no_input_or_output(path: Path) -> None:
    for name, line, _ in _imports(path):
        permitted = (_module(path), name.split(".")[0]) in PURE_ENOUGH
        assert permitted or name.split(".")[0] not in IMPURE_MODULES, f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=_module)
def test_only_heavy_packages_are_imported_inside_functions(path: Path) -> None:
    for name, line, inside in _imports(path):
        heavy = name.split(".")[0] in HEAVY
        assert inside == heavy, f"{path}:{line}: {name} {'is heavy' if heavy else 'dodges a cycle?'}"


def test_help_imports_no_heavy_package() -> None:
    code = "import sys, dsa.cli.main; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not (HEAVY | {"markdown_it", "rich", "git"}) & set(loaded)


def test_a_small_check_loads_little() -> None:
    code = "import sys, dsa.cli.main as m; m.program(['check', 'dual_state'], 'dsa', standalone_mode=False)"
    told = f"import atexit, sys; atexit.register(lambda: print('loaded', *sys.modules)); {code}"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    loaded = done.stdout.rsplit("\n", 2)[-2].split()
    assert loaded[0] == "loaded"
    assert not NOT_FOR_A_SMALL_CHECK & set(loaded)


def _by_name(path: Path) -> list[tuple[str, int]]:
    """Give what each call of `import_module` names, as far as it is written there, and its line."""
    calls = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        if ast.unparse(call.func) == "importlib.import_module":
            first = call.args[0].values[0] if isinstance(call.args[0], ast.JoinedStr) else call.args[0]
            found.append((str(first.value) if isinstance(first, ast.Constant) else "", call.lineno))
    return found


def test_what_is_loaded_by_name_points_down_too() -> None:
    found = {_module(path): named for path in SOURCES if (named := _by_name(path))}
    assert set(found) == set(BY_NAME)
    for module, named in found.items():
        part = _part(module)
        for name, line in named:
            target = name.removeprefix("dsa.").split(".")[0]
            assert not name or target in ALLOWED[part] | {part}, f"{module}:{line}: {part} loads {name}"


def test_no_import_cycles() -> None:
    graph = {_module(path): {name for name, _, _ in _imports(path) if name.startswith("dsa")} for path in SOURCES}

    def reaches(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in graph.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    cyclic = sorted(module for module in graph if module in reaches(module))
    assert cyclic == []


@pytest.mark.parametrize("path", SOURCES, ids=_module)
def test_files_classes_and_functions_are_short(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    text = path.read_text()
    if name not in EXCEPTIONS:
        assert text.count("\n") <= MAX_LINES, f"{name} has {text.count(chr(10))} lines"
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            most = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            where = f"{name}:{node.name}"
            assert lines <= most or where in EXCEPTIONS, f"{where} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=_module)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(_tree(path)), f"{path} has no docstring"


def test_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    assert all((ROOT / name.split(":")[0]).exists() for name in EXCEPTIONS)


#: What only one module makes: whoever else wants a run, or a store, asks the door (dsa.runs).
MADE_BY = {"Driver": ["dsa.runs.held"], "SqliteStore": ["dsa.runs.place"], "MemoryStore": ["dsa.runs.place"]}
#: Functions that serve the door alone.
WITHIN_THE_DOOR = ("open_store", "open_artifacts")


@pytest.mark.parametrize("name", MADE_BY)
def test_drivers_and_stores_are_made_in_one_place(name: str) -> None:
    assert sorted({module for module, called in _calls() if called == name}) == MADE_BY[name]


@cache
def _calls() -> list[tuple[str, str]]:
    return [(_module(path), _called(node)) for path in SOURCES for node in ast.walk(_tree(path))]


@cache
def _tree(path: Path) -> ast.Module:
    """Return what a file says; nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _called(node: ast.AST) -> str:
    """Give the last name of what is called; empty for what is no call."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


@pytest.mark.parametrize("path", SOURCES, ids=_module)
def test_all_that_is_printed_goes_through_one_function(path: Path) -> None:
    printing = {"click.echo", "click.secho", "click.style", "print"} - (
        {"click.style"} if path.name == "terminal.py" else set()
    )
    called = {ast.unparse(node.func): node.lineno for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)}
    found = {name: line for name, line in called.items() if name in printing}
    assert not found or _module(path) in PRINTS, f"{path}: {found}; commands print with dsa.cli.terminal.say"


@pytest.mark.parametrize("path", SOURCES, ids=_module)
def test_only_the_door_opens_what_keeps_runs(path: Path) -> None:
    if _part(_module(path)) != "runs":
        names = {each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else each.name
                 for each in ast.walk(_tree(path)) if isinstance(each, ast.Name | ast.Attribute | ast.alias)}  # fmt: skip
        assert not names & set(WITHIN_THE_DOOR)
