"""The architecture: arrows point down, nothing grows without bound, and names and English are plain.

Imports are read from the source, also those inside functions, so a dodge is found too.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for top in ("dsa", "machines") for path in (ROOT / top).rglob("*.py"))

#: The parts of `dsa` that each part may import. A part may always import itself.
CORE = {
    "immutable", "text", "errors", "expr", "declarations", "machine", "data_use", "semantics", "compiled_step", "system", "ground_system", "trace",
}  # fmt: skip
ALLOWED = {
    "lang": CORE,
    "kernel": set(),
    "checks": CORE | {"kernel"},
    "targets": CORE,
    "runtime": CORE,
    "guards": CORE | {"runtime", "edge.sandbox", "edge.plugins"},
    "generators": CORE | {"runtime", "edge.http_stream", "edge.model_server", "edge.processes", "edge.plugins"},
    "edge": CORE | {"lang", "checks", "targets", "runtime"},
    "docs": CORE | {"lang", "checks", "targets", "edge"},
    "runs": CORE | {"lang", "checks", "targets", "runtime", "guards", "generators", "edge"},
    "temporal": CORE | {"lang", "checks", "runtime", "edge", "runs"},
    "testing": CORE | {"lang", "checks", "targets", "runtime", "edge", "runs"},
    "web": CORE | {"lang", "checks", "targets", "runtime", "edge", "runs"},
    "__main__": {"cli"},
    "cli": CORE
    | {
        "lang",
        "checks",
        "targets",
        "runtime",
        "guards",
        "generators",
        "edge",
        "docs",
        "runs",
        "testing",
        "kernel",
        "web",
    },
}
#: Within the core, each module may import those before it.
CORE_ORDER = [
    "immutable", "text", "errors", "expr", "declarations", "machine", "data_use", "semantics", "compiled_step", "system", "ground_system", "trace",
]  # fmt: skip
PURE = {"lang", "checks", "targets", "runtime", *CORE}
IMPURE_MODULES = {
    "asyncio", "git", "http", "httpx", "io", "litellm", "multiprocessing", "os", "pathlib", "random", "shutil", "signal",
    "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "xllamacpp",
}  # fmt: skip
#: Impure modules that a pure module may use all the same, with the reason.
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
    "_duckdb",
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
    "dsa.runs.runs": "Temporal, where no run is there",
    "dsa.cli.check": "JSON, SARIF, recorded traces, certificates, the C compiler",
    "dsa.cli.draw": "the page with an explorer, where another format is asked for",
    "dsa.cli.main": "the other commands",
    "dsa.cli.web": "the server, which needs the extra `web`",
    "dsa.web.machine_page": "odds, proofs and mutants, until a person asks for them",
    "dsa.runs.bindings": "the user's own modules",
    "dsa.temporal.payload_stores": "a store of the user's own",
    "dsa.edge.sandbox.inside.warm_process": "what a program that is run in the sandbox wants imported beforehand",
    "dsa.guards.text_guards": "the user's own models",
    "dsa.lang": "what writes documents, for who reads them",
    "dsa.guards.pytest_child": "the code to be tested, in the sandbox",
    "dsa.testing": "what pytest's start does without",
    "dsa.testing.pytest_plugin": "the reader of documents, where there is none to test",
    "machines": "the public names that are not asked for",
    "machines.chat.sql": "what the processes that read data do without",
}
#: Modules that a check of a small machine must not load: loading would take longer than the check.
NOT_FOR_A_SMALL_CHECK = HEAVY | {
    "ctypes", "dsa.checks.search.bdd_engine", "dsa.checks.search.c_engine", "dsa.checks.search.numpy_engine", "dsa.checks.odds",
    "dsa.checks.monitor", "dsa.checks.explanation", "dsa.edge.processes", "dsa.lang.document_writer", "dsa.runs", "email", "git",
    "importlib.metadata", "importlib.resources", "rich", "socket", "subprocess", "tempfile",
}  # fmt: skip
MAX_LINES, MAX_CLASS_LINES, MAX_FUNCTION_LINES = 700, 250, 40
MOST_EXCEPTIONS = 20
#: Files, classes and functions that may be longer, with the reason.
#: Modules that print by themselves: programs that are copied out, or run in a process of their own.
PRINTS: set[str] = {"dsa.kernel"}
EXCEPTIONS: dict[str, str] = {
    "dsa/kernel.py": "one file that is copied out, and read whole by people who are to trust it",
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
    """Return every module imported, its line, and whether the import is inside a function."""
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


def test_core_does_no_input_or_output() -> None:
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


def test_small_check_loads_no_heavy_module() -> None:
    code = "import sys, dsa.cli.main as m; m.program(['check', 'dual_state'], 'dsa', standalone_mode=False)"
    told = f"import atexit, sys; atexit.register(lambda: print('loaded', *sys.modules)); {code}"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    loaded = done.stdout.rsplit("\n", 2)[-2].split()
    assert loaded[0] == "loaded"
    assert not NOT_FOR_A_SMALL_CHECK & set(loaded)


#: Packages above it that a module loads by name, with the reason.
LOADED_ABOVE = {
    "dsa.runs.runs": {"temporal"}
}  # an address says where the runs are stored; the package is installed only with its extra


def _by_name(path: Path) -> list[tuple[str, int]]:
    """Return what each call of `import_module` names, as far as it is written there, and its line."""
    found = []
    for node in _nodes(path):
        if isinstance(node, ast.Call) and _dotted(node.func) == "importlib.import_module":
            first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            found.append((str(first.value) if isinstance(first, ast.Constant) else "", node.lineno))
    return found


def test_modules_loaded_by_name_point_down() -> None:
    found = {_module(path): named for path in SOURCES if (named := _by_name(path))}
    assert set(found) == set(BY_NAME)
    for module, named in found.items():
        part = _part(module)
        for name, line in named:
            target = name.removeprefix("dsa.").split(".")[0]
            assert not name.startswith("dsa") or target in ALLOWED[part] | {part} | LOADED_ABOVE.get(module, set()), (
                f"{module}:{line}: {part} loads {name}"
            )


def test_imports_have_no_cycles() -> None:
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
    """Return the files, classes and functions of a file that are too long, each with its number of lines."""
    name = str(path.relative_to(ROOT))
    sizes = [(name, path.read_text(encoding="utf-8").count("\n"), MAX_LINES)]
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            most = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
            sizes.append((f"{name}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1, most))
    return [(where, lines) for where, lines, most in sizes if lines > most]


def test_every_module_has_a_docstring() -> None:
    faults = [f"{path} has no docstring" for path in SOURCES if not ast.get_docstring(_tree(path))]
    assert not faults, "\n".join(faults)


def test_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    assert all((ROOT / name.split(":")[0]).exists() for name in EXCEPTIONS)


#: Classes that only these modules create: anything else that needs a run or a store asks the door (dsa.runs).
MADE_BY = {
    "Driver": ["dsa.runs.handle", "dsa.temporal.run_workflow"],
    "SqliteStore": ["dsa.runs.place"],
    "MemoryStore": ["dsa.runs.place"],
}
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
    """Return the syntax tree of a file; the callers share it and must not change it."""
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
    """Return a name with its dots; the result of a call or an index before a dot becomes an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def test_commands_print_through_one_function() -> None:
    printing = {"click.echo", "click.secho", "click.style", "print"}
    faults = [
        f"{path}:{line}: {name}; commands print with dsa.cli.command_line.say"
        for path in SOURCES
        if _module(path) not in PRINTS
        for name, line in _calls(path)
        if name in printing - ({"click.style"} if path.name == "command_line.py" else set())
    ]
    assert not faults, "\n".join(faults)


def test_only_the_runs_package_opens_stores() -> None:
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


def test_callers_of_generators_strip_drafts() -> None:
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


# --- the house: how much there is, and what it is called ---

MOST_MODULES, MOST_IN_A_FOLDER, MOST_FLOORS = 320, 16, 7
LEAST_IN_A_FOLDER = 3
#: A folder of commands has a file for each, and those that they share.
MOST_SHARED_BY_COMMANDS = 4
#: Module names that every package of a kind has.
SLOTS = {"__init__", "__main__", "bindings", "command", "policies"}
#: Counts that may only fall; test_counts_only_fall says what each one counts.
MOST_JSON_DICTS, MOST_LONG_SIGNATURES, MOST_EXCEPTION_CLASSES = (
    129,
    33,
    35,
)  # `start` of the door counts twice: its protocol repeats it
MANY_PARAMETERS, SHORT_LINES = 7, 150
#: Short modules with one importer of their folder that stand by themselves, with the reason.
ALONE: dict[str, str] = {}


def _folders() -> dict[Path, list[Path]]:
    folders: dict[Path, list[Path]] = {}
    for path in SOURCES:
        if path.stem != "__init__":
            folders.setdefault(path.parent, []).append(path)
    return folders


def _is_command(path: Path) -> bool:
    return path.parent == ROOT / "dsa" / "cli" and f'"{path.stem.rstrip("_")}"' in _text(
        ROOT / "dsa" / "cli" / "main.py"
    )


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_modules_are_few() -> None:
    assert len(SOURCES) <= MOST_MODULES


def test_folders_are_small() -> None:
    sizes = {folder: [path for path in paths if not _is_command(path)] for folder, paths in _folders().items()}
    faults = [f"{folder} has {len(paths)} modules" for folder, paths in sizes.items() if len(paths) > MOST_IN_A_FOLDER]
    assert not faults, "\n".join(faults)
    shared = [path.stem for path in sizes[ROOT / "dsa" / "cli"] if path.stem != "main"]
    assert len(shared) <= MOST_SHARED_BY_COMMANDS, shared


def test_folders_hold_several_modules() -> None:
    """A folder of one or two modules is a detour (docs/decisions/0052); a machine has a folder in any case."""
    faults = [
        f"{folder} has {len(paths)} modules"
        for folder, paths in _folders().items()
        if len(paths) < LEAST_IN_A_FOLDER and folder.parent != ROOT / "machines"
    ]
    assert not faults, "\n".join(faults)


def test_folders_have_few_floors() -> None:
    for folder, paths in _folders().items():
        modules = {_module(path): {name for name, _, _ in _imports(path)} for path in paths}

        def floor(module: str, modules: dict[str, set[str]] = modules) -> int:
            return 1 + max((floor(name) for name in modules[module] if name in modules and name != module), default=0)

        assert max(map(floor, modules)) <= MOST_FLOORS, folder


def test_module_and_class_names_are_unique() -> None:
    modules = [path.stem for path in SOURCES if path.stem not in SLOTS and not _is_command(path)]
    classes = [node.name for path in SOURCES for node in _nodes(path) if isinstance(node, ast.ClassDef)]
    assert [name for names in (modules, classes) for name, count in Counter(names).items() if count > 1] == []


def test_short_modules_are_imported_by_several() -> None:
    """A short module that only one module of its folder imports belongs into that one."""
    importers: dict[str, set[Path]] = {}
    for path in SOURCES:
        for name, _, _ in _imports(path):
            importers.setdefault(name, set()).add(path)
    faults = [
        f"{name} has {_text(path).count(chr(10))} lines, and only {by.name} imports it"
        for path in SOURCES
        for name in [_module(path)]
        if len(importers.get(name, ())) == 1
        for by in importers[name]
        if by.parent == path.parent and by != path and _text(path).count("\n") < SHORT_LINES
        if path.stem not in SLOTS and not _is_command(path) and name not in ALONE
    ]
    assert not faults, "\n".join(faults)


def test_counts_only_fall() -> None:
    """`dict[str, Any]` (JSON where it enters or leaves), signatures of seven parameters or more, exception classes."""
    functions = [n for path in SOURCES for n in _nodes(path) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [node for path in SOURCES for node in _nodes(path) if isinstance(node, ast.ClassDef)]
    assert sum(_text(path).count("dict[str, Any]") for path in SOURCES) <= MOST_JSON_DICTS
    assert sum(_parameters(function) >= MANY_PARAMETERS for function in functions) <= MOST_LONG_SIGNATURES
    assert sum(_is_exception(node) for node in classes) <= MOST_EXCEPTION_CLASSES


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    parameters = function.args
    names = [each.arg for each in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def _is_exception(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)


# --- names ---

#: Participles and verb forms that do not end in -ed or -ing.
VERB_FORMS = frozenset(
    """
    told kept standing stands found given said done begun seen made held got gone heard meant came went written shown
    spent owed brought thrown drawn bound lost caught sought thought bought taken known grown sent laid built chosen
    broken spoken forgotten born torn worn hidden fallen stolen lent struck stuck stood understood fed led met paid rung
    sat shot slept swept taught won
    """.split()  # noqa: SIM905  (a list that people read)
)
#: Nouns, and terms of the field, that end in -ed or -ing.
NOUNS = frozenset(
    """
    seed feed need speed embed bed red weed deed string ring king thing warning heading setting meaning finding binding
    encoding nesting spelling listing timing training routing mapping padding indexing numbering beginning ending
    drawing building opening recording greeting following during sibling ceiling sampling branching grouping ordering wording spacing nothing something anything
    everything embedding tracing logging pricing billing rating rounding reasoning understanding planning testing
    streaming scheduling missing remaining pending passed failed rejected approved accepted
    """.split()  # noqa: SIM905  (a list that people read)
)
#: Names of the paper, of the door and of the language, of its tables and of the ledger.
TERMS = frozenset(
    """
    taken posted interrupted answering outstanding cancelled handling bound expected rung nested hardened redacted retried started changed spared
    """.split()  # noqa: SIM905  (a list that people read)
)
#: Fields that are keys of JSON, by the folder whose results, settings and records have them.
JSON_KEYS = {
    "machines/chat": "guided succeeded said",
    "machines/coding": "added allowed asked blocked deleted done ended made named omitted planned polled polling protected refused removed restarted "
    "restored seen shown skipped staged structured truncated unconfined untracked",
    "machines/tool_use": "misplaced offered required wanted",
}


def _is_verb_form(path: Path, name: str) -> bool:
    word = name.strip("_").lower()
    if "_" in word or name.startswith("__") or re.search("[a-z][A-Z]", name) or word in NOUNS | TERMS:
        return False
    if any(path.is_relative_to(ROOT / folder) and word in keys.split() for folder, keys in JSON_KEYS.items()):
        return False
    return word in VERB_FORMS or re.fullmatch("[a-z]{2,}(ed|ing)", word) is not None


def _stored_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names that a file gives: of its classes, functions, parameters, variables and attributes."""
    for node in _nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def test_names_are_nouns() -> None:
    """No module, class, function or variable is called by a bare participle or verb form."""
    faults = [
        f"{path}:{line}: {name}" for path in SOURCES for line, name in _stored_names(path) if _is_verb_form(path, name)
    ]
    faults += [str(path) for path in SOURCES if _is_verb_form(path, path.stem)]
    assert not faults, "\n".join(faults)


# --- English ---

#: Phrases that nobody would say aloud, of the table in the style guide.
PHRASES = re.compile(
    r"\b(Give (the|a|an|what|back|each|every|it)\b|Tell (whether|what|how|which|the)\b|Take note|so many\b|what is the matter|[Ww]hoever\b"
    r"|(?<![Tt]here\s)\b(is|are)\s+(none\b|no\s+(?!longer\b|more\b|less\b|fewer\b|better\b|worse\b|other\b)\w)|\bnames\s+no\s+\w"
    r"|leave is asked|somebody is asked|is told\b|are told\b"
    r"|it is looked|has it that|hands out\b|let go of\b|lay out\b|lays out\b|laid out\b|mend(s|ed|ing)?\b|what stands in|nobody has told|comes of it"
    r"|what came of|what became of)"
)
NO_NOUN = re.compile(r"(What|How|Which|Where|Who|Whether|When|Why)\b")
RULE_NUMBER = re.compile(r"\([SD]\d+'?\)")


def _docstrings(path: Path) -> dict[int, str]:
    """Return the docstrings of a file, by the ids of their nodes."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    first = [node.body[0] for node in _nodes(path) if isinstance(node, kinds) and node.body]
    values = [node.value for node in first if isinstance(node, ast.Expr)]
    return {
        id(value): value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _strings(path: Path) -> list[ast.Constant]:
    return [node for node in _nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_english_is_plain() -> None:
    texts = [(path, node.lineno, str(node.value)) for path in SOURCES for node in _strings(path)]
    texts += [
        (path, number, line.partition("#")[2])
        for path in SOURCES
        for number, line in enumerate(_text(path).splitlines(), 1)
        if "#" in line
    ]
    faults = [f"{path}:{line}: {match.group()}" for path, line, text in texts for match in PHRASES.finditer(text)]
    assert not faults, "\n".join(faults)


def test_modules_open_with_a_noun() -> None:
    openings = [(path, ast.get_docstring(_tree(path)) or "") for path in SOURCES]
    faults = [f"{path}: {text[:40]}" for path, text in openings if NO_NOUN.match(text)]
    assert not faults, "\n".join(faults)


def test_messages_have_no_rule_numbers() -> None:
    faults = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        for docstrings in [_docstrings(path)]
        for node in _strings(path)
        if id(node) not in docstrings and " " in str(node.value) and RULE_NUMBER.search(str(node.value))
    ]
    assert not faults, "\n".join(faults)


# --- the page that says where a new thing goes ---

_PATH_WITH_NAME = re.compile(r"`((?:dsa|machines|tests|docs|specs)/[^`]*|[A-Za-z]+\.(?:md|toml))`(?: \(`(\w+)`\))?")


def test_places_for_new_things_exist() -> None:
    page = (
        _text(ROOT / "docs" / "how-it-works.md")
        .partition("## Where a new thing goes")[2]
        .partition("## Every module")[0]
    )
    places = _PATH_WITH_NAME.findall(page)
    assert len(places) > 60
    faults = [path for path, name in places if not (ROOT / path).exists()]
    faults += [
        f"{path}: {name}"
        for path, name in places
        if name and not re.search(rf"^(class |def )?{name}\b", _text(ROOT / path), re.MULTILINE)
    ]
    assert not faults, "\n".join(faults)


_FILE_IN_README = re.compile(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`")


def test_files_named_in_machines_readmes_exist() -> None:
    pages = sorted((ROOT / "machines").glob("*/README.md"))
    named = [(page, name) for page in pages for name in _FILE_IN_README.findall(_text(page))]
    assert len(named) > 30
    faults = [
        f"{page}: {name}" for page, name in named if not (page.parent / name).exists() and not (ROOT / name).exists()
    ]
    assert not faults, "\n".join(faults)
