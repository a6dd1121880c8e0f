"""The arrows point down, and nothing grows without bound: DESIGN sections 1 and the layout rules, as a test.

Imports are read from the source, also those inside functions, so a dodge is found too.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for top in ("dsa", "machines") for path in (ROOT / top).rglob("*.py"))

#: What each part of `dsa` may import of `dsa`. A part may always import itself.
CORE = {
    "immutable", "text", "errors", "expr", "declarations", "machine", "data_use", "semantics", "compiled_step", "system", "ground_system", "trace", "trace_format",
}  # fmt: skip
ALLOWED = {
    "lang": CORE,
    "kernel": set(),
    "checks": CORE | {"kernel"},
    "targets": CORE,
    "runtime": CORE,
    "guards": CORE | {"runtime", "edge.sandbox", "edge.plugins"},
    "generators": CORE | {"runtime", "edge.http", "edge.processes", "edge.plugins"},
    "edge": CORE | {"lang", "checks", "targets", "runtime"},
    "docs": CORE | {"lang", "checks", "targets", "edge"},
    "runs": CORE | {"lang", "checks", "targets", "runtime", "guards", "generators", "edge"},
    "testing": CORE | {"lang", "checks", "targets", "runtime", "edge", "runs"},
    "__main__": {"cli"},
    "cli": CORE
    | {"lang", "checks", "targets", "runtime", "guards", "generators", "edge", "docs", "runs", "testing", "kernel"},
}
#: Within the core, each module may import those before it.
CORE_ORDER = [
    "immutable", "text", "errors", "expr", "declarations", "machine", "data_use", "semantics", "compiled_step", "system", "ground_system", "trace", "trace_format",
]  # fmt: skip
PURE = {"lang", "checks", "targets", "runtime", *CORE}
IMPURE_MODULES = {
    "asyncio", "git", "http", "httpx", "io", "litellm", "multiprocessing", "os", "pathlib", "random", "shutil", "signal",
    "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "xllamacpp",
}  # fmt: skip
#: What a pure module may use of these all the same, with the reason.
PURE_ENOUGH = {
    ("dsa.runtime.policy.policy_calls", "asyncio"): "futures, and letting the event loop go round: no input, no output",
    ("dsa.runtime.secrets", "urllib"): "texts as URLs write them",
}
#: Heavy packages: imported inside the function that uses them, never at the top of a module.
HEAVY = {
    "jsonschema",
    "re2",
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
    "dsa.checks.search.exploration": "the engines for what is large",
    "dsa.checks.report": "odds, where no property speaks of any",
    "dsa.cli.runs": "replaying and what drives runs, where neither `--verify` nor `rm` asks for it",
    "dsa.runs.place": "git, where no artifact is asked for",
    "dsa.cli.check": "JSON, SARIF, recorded traces, certificates, the C compiler",
    "dsa.cli.main": "the other commands",
    "dsa.runs.bindings": "the user's own modules",
    "dsa.edge.sandbox.inside.warm_process": "what a program that is run in the sandbox wants imported beforehand",
    "dsa.guards.text_guards": "the user's own models",
    "dsa.lang": "what writes documents, for who reads them",
    "dsa.guards.pytest_child": "the code to be tested, in the sandbox",
    "dsa.testing": "what pytest's start does without",
    "dsa.testing.pytest_plugin": "the reader of documents, where there is none to test",
    "machines": "the public names that are not asked for",
}
#: What a check of a small machine must not load: it would take longer than the check.
NOT_FOR_A_SMALL_CHECK = HEAVY | {
    "ctypes", "dsa.checks.search.bdd_engine", "dsa.checks.search.c_engine", "dsa.checks.search.numpy_engine", "dsa.checks.odds",
    "dsa.checks.monitor", "dsa.checks.explanation", "dsa.edge.processes", "dsa.lang.document_writer", "dsa.runs", "email", "git",
    "importlib.metadata", "importlib.resources", "rich", "socket", "subprocess", "tempfile",
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
    "machines/coding/coding_work.py:Work": "the fold of a coding run's events, one method for each",
}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _part(module: str) -> str:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


@cache
def _imports(path: Path) -> list[tuple[str, int, bool]]:
    """Return every module imported, its line, and whether it stands inside a function."""
    blocks = [n for n in _tree(path).body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    for_type_checkers = {id(n) for block in blocks for n in ast.walk(block)}
    functions = [n for n in _nodes(path) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(n) for function in functions for n in ast.walk(function)}
    found = []
    for node in _nodes(path):
        if id(node) in for_type_checkers:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            local = [n for n in names if (ROOT / Path(*n.split("."))).with_suffix(".py").exists()]
            found += [(name, node.lineno, id(node) in inside) for name in (local or [node.module or ""])]
    return found


def test_imports_point_down() -> None:
    faults = [fault for path in SOURCES for fault in _pointing_up(path)]
    assert not faults, "\n".join(faults)


def _pointing_up(path: Path) -> list[str]:
    """Return the imports of a file that its place in the layers does not permit."""
    module = _module(path)
    if module == "dsa" or module.startswith("machines"):  # the public names; the bindings, which may use everything
        return []
    part = _part(module)
    allowed = set(CORE_ORDER[: CORE_ORDER.index(part)]) if part in CORE_ORDER else ALLOWED[part] | {part}

    def permitted(name: str) -> bool:
        target = name.removeprefix("dsa.")
        return target.split(".")[0] in allowed or any(target.startswith(each) for each in allowed if "." in each)

    return [
        f"{path}:{line}: {part} imports {name}"
        for name, line, _ in _imports(path)
        if name.startswith("machines") or (name.startswith("dsa.") and not permitted(name))
    ]


def test_the_core_does_no_input_or_output() -> None:
    pure = [path for path in SOURCES if _part(_module(path)) in PURE]
    assert pure
    faults = [
        f"{path}:{line}: imports {name}"
        for path in pure
        for name, line, _ in _imports(path)
        if name.split(".")[0] in IMPURE_MODULES and (_module(path), name.split(".")[0]) not in PURE_ENOUGH
    ]
    assert not faults, "\n".join(faults)


def test_only_heavy_packages_are_imported_inside_functions() -> None:
    faults = [
        f"{path}:{line}: {name} {'dodges a cycle?' if inside else 'is heavy'}"
        for path in SOURCES
        for name, line, inside in _imports(path)
        if inside != (name.split(".")[0] in HEAVY)
    ]
    assert not faults, "\n".join(faults)


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
    """Return what each call of `import_module` names, as far as it is written there, and its line."""
    found = []
    for node in _nodes(path):
        if isinstance(node, ast.Call) and _dotted(node.func) == "importlib.import_module":
            first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            found.append((str(first.value) if isinstance(first, ast.Constant) else "", node.lineno))
    return found


def test_what_is_loaded_by_name_points_down_too() -> None:
    found = {_module(path): named for path in SOURCES if (named := _by_name(path))}
    assert set(found) == set(BY_NAME)
    for module, named in found.items():
        part = _part(module)
        for name, line in named:
            target = name.removeprefix("dsa.").split(".")[0]
            assert not name.startswith("dsa") or target in ALLOWED[part] | {part}, (
                f"{module}:{line}: {part} loads {name}"
            )


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


def test_files_classes_and_functions_are_short() -> None:
    found = [(where, lines) for path in SOURCES for where, lines in _too_long(path)]
    faults = [f"{where} has {lines} lines" for where, lines in found if where not in EXCEPTIONS]
    assert not faults, "\n".join(faults)


def _too_long(path: Path) -> list[tuple[str, int]]:
    """Return what is longer than its kind may be in a file, by its place, with its lines."""
    name = str(path.relative_to(ROOT))
    sizes = [(name, path.read_text(encoding="utf-8").count("\n"), MAX_LINES)]
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            most = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
            sizes.append((f"{name}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1, most))
    return [(where, lines) for where, lines, most in sizes if lines > most]


def test_every_module_says_what_it_is() -> None:
    faults = [f"{path} has no docstring" for path in SOURCES if not ast.get_docstring(_tree(path))]
    assert not faults, "\n".join(faults)


def test_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    assert all((ROOT / name.split(":")[0]).exists() for name in EXCEPTIONS)


#: What only one module makes: whoever else wants a run, or a store, asks the door (dsa.runs).
MADE_BY = {"Driver": ["dsa.runs.handle"], "SqliteStore": ["dsa.runs.place"], "MemoryStore": ["dsa.runs.place"]}
#: Functions that serve the door alone.
WITHIN_THE_DOOR = ("open_store", "open_artifacts")


def test_drivers_and_stores_are_made_in_one_place() -> None:
    makers: dict[str, set[str]] = {name: set() for name in MADE_BY}
    for path in SOURCES:
        for called, _ in _calls(path):
            if (name := called.rpartition(".")[2]) in makers:
                makers[name].add(_module(path))
    assert {name: sorted(modules) for name, modules in makers.items()} == MADE_BY


@cache
def _tree(path: Path) -> ast.Module:
    """Return what a file says; nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """Return every node of a file."""
    return list(ast.walk(_tree(path)))


@cache
def _calls(path: Path) -> list[tuple[str, int]]:
    """Return what is called in a file, as far as it is a dotted name, and the lines."""
    return [(name, node.lineno) for node in _nodes(path) if isinstance(node, ast.Call) and (name := _dotted(node.func))]


def _dotted(node: ast.expr) -> str:
    """Return a name with its dots; what a call or an index gave stands as nothing before the dot."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def test_all_that_is_printed_goes_through_one_function() -> None:
    printing = {"click.echo", "click.secho", "click.style", "print"}
    faults = [
        f"{path}:{line}: {name}; commands print with dsa.cli.command_line.say"
        for path in SOURCES
        if _module(path) not in PRINTS
        for name, line in _calls(path)
        if name in printing - ({"click.style"} if path.name == "command_line.py" else set())
    ]
    assert not faults, "\n".join(faults)


def test_only_the_door_opens_what_keeps_runs() -> None:
    outside = [path for path in SOURCES if _part(_module(path)) != "runs"]
    faults = [str(path) for path in outside if not _names(path).isdisjoint(WITHIN_THE_DOOR)]
    assert not faults, "\n".join(faults)


def _names(path: Path) -> set[str]:
    """Return every name, attribute and import of a file."""
    return {
        node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.name
        for node in _nodes(path)
        if isinstance(node, ast.Name | ast.Attribute | ast.alias)
    }


#: Ways to ask a generator, and functions that only pass one on.
ASKING = {"generate", "agenerate", "_generate"}


def test_whoever_asks_a_generator_hears_the_answer_alone() -> None:
    asking = [path for path in SOURCES if "machines" in path.parts or _part(_module(path)) == "guards"]
    faults = [
        f"{path}:{node.lineno}: {node.name} asks a generator: what it gives passes dsa.runtime.speech.strip_drafts"
        for path in asking
        for node in _nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in ASKING
        if (called := _called_in(node)) & ASKING and "strip_drafts" not in called
    ]
    assert not faults, "\n".join(faults)


def _called_in(node: ast.AST) -> set[str]:
    """Return the last words of what is called in a part of a file."""
    return {_dotted(each.func).rpartition(".")[2] for each in ast.walk(node) if isinstance(each, ast.Call)}
