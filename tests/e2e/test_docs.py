"""The examples of README and docs/ are executed: documents are written and changed, commands and Python print the text shown below them.

The blocks of a page are executed in order, in one empty folder. A comment before a block says what it is:

    <!-- example: NAME -->          the block is the file NAME
    <!-- section: NAME -->          it replaces NAME's section of that heading, or is added at the end
    <!-- .. NAME from STAGE -->     the example or section is that of the file STAGE in docs/tutorial
    <!-- stage: NAME is STAGE -->   NAME is now what the file STAGE in docs/tutorial says
    <!-- given: NAME from STAGE --> NAME is a copy of that file
    <!-- added: NAME -->            it is added at the end of the file NAME
    <!-- change: NAME as OTHER -->  a diff: OTHER is NAME with the `-` lines replaced by the `+` lines
    <!-- drawn: NAME -->            what `dsa draw NAME` prints
    <!-- exit: 1 -->                the exit code of the console's commands; without it, 0
    <!-- server: ADDRESS -->        a server with the OpenAI protocol runs during the console's commands
    <!-- peer: PROGRAM -->          another project's program prints it, with the Python of tests/set_up_peers.py
    <!-- not run: REASON -->        it is not executed

In shown output `...` stands for any text on its line, and a line of `...` for any lines. UPDATE_GOLDEN=1 updates output and
drawings that differ; the diff is reviewed.
"""

import atexit
import contextlib
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import click
import forked
import pytest
import yaml
from markdown_it import MarkdownIt

import dsa.generators.generator_kinds
import dsa.guards.guard_kinds
from dsa.cli.main import program
from dsa.lang import format_document
from dsa.runtime.content import _TYPES, ComponentKind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STAGES = DOCS / "tutorial"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if path.parent not in {DOCS / "decisions", STAGES}),
]
READMES = sorted((ROOT / "machines").glob("*/README.md"))
KINDS_PAGE = DOCS / "reference" / "kinds.md"

MARK = re.compile(r"<!-- (example|added|section|change|drawn|exit|server|stage|given|peer|not run): (.*?) -->")
PROGRAMS = Path(sys.executable).parent
PEERS = Path(sys.prefix) / "peers" / "durable" / "bin"
REPLY = "```python\ndef slug(title):\n    return title.lower().replace(' ', '-')\n```\n"


@attrs.frozen
class Block:
    """A fenced block: the marks in the comments before it, its language, its text, and its first line."""

    marks: dict[str, str]
    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """Return a page's fenced blocks with the comments right before them."""
    found, marks = [], {}
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            marks |= dict(MARK.findall(token.content))
        elif token.type == "fence":
            found.append(Block(marks, token.info.strip(), token.content, token.map[0] + 1))
            marks = {}
        elif token.block and token.type != "html_block":
            marks = {}
    return found


# -- execution of blocks ----------------------------------------------------------------------------------------------


def with_section(text: str, section: str) -> str:
    """Replace the section of the same heading, or add it at the end."""
    heading = re.escape(section.partition("\n")[0])
    present = re.search(rf"^{heading}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if present is None:
        return f"{text.rstrip()}\n\n{section}"
    after = text[present.end() :]
    return text[: present.start()] + section.rstrip() + "\n" + (f"\n{after}" if after else "")


def with_change(text: str, diff: str) -> str:
    """Replace the lines marked `-`, which must occur together and only once, by those marked `+`."""
    lines = diff.splitlines(keepends=True)
    assert all(line[:2] in {"- ", "+ ", "  "} for line in lines), "a diff's lines begin with '- ', '+ ' or two spaces"
    before = "".join(line[2:] for line in lines if line[0] != "+")
    after = "".join(line[2:] for line in lines if line[0] != "-")
    assert text.count(before) == 1, f"what is changed stands there {text.count(before)} times:\n{before}"
    return text.replace(before, after)


def matches(shown: str, printed: str) -> bool:
    """Return whether printed text matches a page: `...` stands for any text in a line, alone in a line for some lines, and `0.0 s` for any time.

    It compares line by line, because a single pattern for the whole text would try every combination of lines.
    """
    lines, ends = printed.rstrip().split("\n"), {0}
    for line in shown.rstrip().split("\n"):
        if line.strip() == "...":
            ends = set(range(min(ends, default=len(lines)) + 1, len(lines) + 1))
            continue
        anything = re.escape(line).replace(r"\.\.\.", ".*")
        anything = re.sub(r"(?:\\ )+0\\\.0\\ s\b", r" +[0-9]+\.[0-9] s", anything)  # a busy computer takes more time
        # What varies has no fixed width.
        wanted = re.compile(re.sub(r"(\\ )+", " +", anything) if "..." in line else anything)
        ends = {end + 1 for end in ends if end < len(lines) and wanted.fullmatch(lines[end])}
    return len(lines) in ends


def commands_in(text: str) -> list[tuple[str, str]]:
    """Return each command of a console block with the output shown below it."""
    commands: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), ""))
        else:
            command, shown = commands.pop()
            commands.append((command, f"{shown}{line}\n"))
    return commands


@cache
def _commands() -> Path:
    """Return a folder with a `dsa` that starts fast."""
    folder = Path(tempfile.mkdtemp(prefix="dsa-docs-"))
    atexit.register(shutil.rmtree, folder)
    forked.command_in(folder)
    return folder


def _asks_litellm(command: str, folder: Path) -> bool:
    """Return whether a command imports LiteLLM, which takes seconds."""
    documents = (folder / word for word in command.split() if word.endswith(".md"))
    texts = [path.read_text(encoding="utf-8") for path in documents if path.is_file()]
    return any(" openai/" in text for text in [command, *texts])


def typed(command: str, folder: Path, programs: Path = PROGRAMS) -> tuple[str, int]:
    """Return the output of a command, with its errors, and its exit code; a shell runs it in the folder, and looks for other programs in `programs` first."""
    path = os.pathsep.join([str(_commands()), str(programs), os.environ["PATH"]])
    home = {"PATH": path, "LC_ALL": "C.UTF-8"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    kept |= forked.variables(forked.LITELLM if _asks_litellm(command, folder) else forked.PROGRAM)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=kept | home | {"PYTHONDONTWRITEBYTECODE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout, done.returncode


@contextlib.contextmanager
def serving(address: str) -> Iterator[str]:
    """Serve one reply at an address like `address`, on a free port; yield the real address."""
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    answer["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": REPLY}}]
    answer["usage"] = {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield re.sub(r"//[^/]*", f"//127.0.0.1:{server.server_port}", address)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def type_console(block: Block, folder: Path) -> list[tuple[str, str, str, int]]:
    """Run the commands of a block; return each with its shown output, its real output, and its exit code."""
    address = block.marks.get("server", "")
    done = []
    with serving(address) if address else contextlib.nullcontext("") as real:
        for command, shown in commands_in(block.text):
            printed, code = typed(command.replace(address, real) if address else command, folder)
            done.append((command, shown, printed.replace(real, address) if address else printed, code))
    return done


def python_prints(block: Block, folder: Path) -> None:
    """Run a block of Python in the folder: each `print(..)  # text` must print the text."""
    (folder / ".shown.py").write_text(block.text, encoding="utf-8")
    printed, code = typed(shlex.join([*forked.SCRIPT, ".shown.py"]), folder)
    assert code == 0, printed
    assert printed.splitlines() == re.findall(r"print\(.*\)  # (.*)", block.text), printed


def staged(block: Block) -> tuple[str, str]:
    """Return the name of the file that a block shows, and its text in the file of the stage; without a stage the text of the block."""
    name, _, stage = block.marks.get("example", block.marks.get("section", "")).partition(" from ")
    if not stage:
        return name, block.text
    text = (STAGES / stage).read_text(encoding="utf-8")
    if "example" in block.marks:
        return name, text
    heading = re.escape(block.text.partition("\n")[0])
    return name, re.search(rf"^{heading}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[0].rstrip() + "\n"


def take(block: Block, folder: Path) -> None:
    """Execute a block, and compare the results with the page."""
    if "given" in block.marks:
        name, _, stage = block.marks["given"].partition(" from ")
        (folder / name).write_bytes((STAGES / stage).read_bytes())
    if "stage" in block.marks:
        name, _, stage = block.marks["stage"].partition(" is ")
        assert (folder / name).read_text(encoding="utf-8") == (STAGES / stage).read_text(encoding="utf-8")
    name, text = staged(block)
    assert block.text == text, f"docs/tutorial has another text:\n{text}"
    match block.marks:
        case {"not run": _} | {"peer": _}:
            return
        case {"example": _}:
            (folder / name).write_text(block.text, encoding="utf-8")
        case {"added": name}:
            before = (folder / name).read_text(encoding="utf-8")
            (folder / name).write_text(f"{before}\n\n{block.text}", encoding="utf-8")
        case {"section": _}:
            before = (folder / name).read_text(encoding="utf-8")
            (folder / name).write_text(with_section(before, block.text), encoding="utf-8")
        case {"change": how}:
            name, _, other = how.partition(" as ")
            before = (folder / name).read_text(encoding="utf-8")
            (folder / (other or name)).write_text(with_change(before, block.text), encoding="utf-8")
        case {"drawn": name}:
            assert typed(f"dsa draw {name}", folder)[0].rstrip() == block.text.rstrip()
        case _ if block.language == "console":
            for command, shown, printed, code in type_console(block, folder):
                assert matches(shown, printed), f"$ {command}\nprinted:\n{printed}"
                assert code == int(block.marks.get("exit", 0)), f"$ {command} ended with {code}:\n{printed}"
        case _ if block.language == "python":
            python_prints(block, folder)
        case _:
            pytest.fail(f"line {block.line}: this kind of block cannot be executed")


def shown_whole(page: Path) -> set[str]:
    """Return the names of the machine documents that a page shows in full; documents that are only changed need not be formatted."""
    return {
        staged(block)[0]
        for block in blocks_of(page)
        if staged(block)[0].endswith(".md") and re.search(r"^## (Steps|Transitions)", block.text, re.MULTILINE)
    }


def updated(block: Block, folder: Path) -> str:
    """Execute a block and return it with the output or drawing of today."""
    if "drawn" in block.marks:
        return typed(f"dsa draw {block.marks['drawn']}", folder)[0].rstrip() + "\n"
    if block.language != "console" or {"not run", "peer"} & block.marks.keys():
        now = attrs.evolve(block, text=staged(block)[1])
        take(now, folder)
        return now.text
    take(attrs.evolve(block, language="console", text=""), folder)
    text = ""
    for command, shown, printed, _ in type_console(block, folder):
        varying = re.sub(r"\d+\.\d s\b", "... s", re.sub(r"\b\d{8}T\d{6}-\w+-[0-9a-f]{12}", "...", printed))
        same = matches(shown, printed)
        text += f"$ {command}\n" + (shown if same else f"{varying.rstrip()}\n".lstrip("\n"))
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_examples_work_as_shown(page: Path, tmp_path: Path):
    for block in blocks_of(page):
        try:
            if os.environ.get("UPDATE_GOLDEN"):
                now = updated(block, tmp_path)
                page.write_text(page.read_text(encoding="utf-8").replace(block.text, now, 1), encoding="utf-8")
            else:
                take(block, tmp_path)
        except AssertionError as fault:
            raise AssertionError(f"{page.relative_to(ROOT)}:{block.line}: {fault}") from None
    for name in shown_whole(page):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert format_document(text) == text, f"{page.relative_to(ROOT)}: {name} is not in canonical layout"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "<!-- peer: " in page.read_text(encoding="utf-8")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_peer_prints_what_a_page_shows(page: Path, tmp_path: Path):
    if not (PEERS / "python").exists():
        pytest.skip("NOT TESTED: what docs show of LangGraph; it is not here: run tests/set_up_peers.py")
    for block in blocks_of(page):
        if {"example", "change"} & block.marks.keys():
            take(block, tmp_path)
        elif "peer" in block.marks:
            for command, shown in commands_in(block.text):
                printed, code = typed(command, tmp_path, PEERS)
                assert matches(shown, printed), (
                    f"{page.relative_to(ROOT)}:{block.line}: $ {command}\nprinted:\n{printed}"
                )
                assert code == 0, printed


@pytest.mark.parametrize("stage", sorted(path.name for path in STAGES.glob("[0-9]-*.md")))
def test_tutorial_stage_passes_its_check_and_runs(stage: str, tmp_path: Path):
    for path in STAGES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    asked = '"Write slug(title)."' if "## Steps" not in (STAGES / stage).read_text(encoding="utf-8") else ""
    for command in (f"dsa check {stage}", f"dsa run {stage} {asked} --model scripted:replies.md"):
        printed, code = typed(command, tmp_path)
        assert code == 0, f"$ {command}\n{printed}"


# -- the pages themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_opens_with_a_heading_and_a_paragraph(page: Path):
    first = [token.type for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))[:4]]
    assert first == ["heading_open", "inline", "heading_close", "paragraph_open"]


@pytest.mark.parametrize("page", ["from-the-sources.md", "theory.md"])
def test_tests_named_in_pages_exist(page: str):
    named = set(re.findall(r"`(test_\w+)`", (DOCS / page).read_text(encoding="utf-8")))
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    present = {name for text in files for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    assert named
    assert named <= present, sorted(named - present)


# -- files for other programs ------------------------------------------------------------------------------------------

CI_PAGE = DOCS / "how-to" / "ci.md"
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def ci_file(name: str) -> Any:
    (text,) = (block.text for block in blocks_of(CI_PAGE) if block.marks.get("example") == name)
    return yaml.safe_load(text)


def test_workflow_file_runs_what_its_page_runs():
    (job,) = ci_file("machines.yml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step and not step["run"].startswith("pip install ")]
    consoles = [block.text for block in blocks_of(CI_PAGE) if block.language == "console"]
    typed_there = {part for text in consoles for command, _ in commands_in(text) for part in command.split("; ")}
    assert commands
    assert set(commands) <= typed_there


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hook_is_a_command(hook: dict[str, str]):
    assert hook.keys() >= {"id", "name", "entry", "language", "files"}
    program_name, command, *options = hook["entry"].split()
    assert program_name in {
        point.name for point in entry_points(group="console_scripts") if point.module == "dsa.cli.main"
    }
    found = program.get_command(click.Context(program), command)
    assert found is not None
    known = {option for each in found.params for option in each.opts}
    assert set(options) <= known
    assert re.search(hook["files"], "agents/machine.md")
    assert not re.search(hook["files"], "README.md")


OPERATIONS_PAGE = DOCS / "how-to" / "temporal-operations.md"


def lists_in(value: Any) -> Iterator[list[str]]:
    """Yield the lists of words in a YAML document."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from lists_in(each)


def test_container_files_are_valid_yaml_and_start_workers():
    texts = [block.text for block in blocks_of(OPERATIONS_PAGE) if block.language == "yaml"]
    compose, kubernetes = ([*yaml.safe_load_all(text)] for text in texts)
    assert compose[0]["services"].keys() == {"postgres", "temporal", "worker"}
    assert compose[0]["services"]["worker"]["deploy"] == {"replicas": 2}
    assert {each["kind"] for each in kubernetes} == {"Secret", "PersistentVolumeClaim", "Deployment"}
    (dockerfile,) = (block.text for block in blocks_of(OPERATIONS_PAGE) if block.language == "dockerfile")
    commands = [words for words in lists_in(kubernetes) if words[0] == "work"]
    commands += [json.loads(line.removeprefix("CMD ")) for line in dockerfile.splitlines() if line.startswith("CMD ")]
    assert len(commands) == 2
    found = program.get_command(click.Context(program), "work")
    for _, *words in commands:
        context = found.make_context("work", list(words))  # raises for an unknown option
        assert context.params["folders"] == ("/agents",)
        assert re.fullmatch(r"temporal://[\w-]+:\d+/default\?store=/payloads", context.params["root"])


def test_page_uses_hooks_that_exist():
    (repository,) = ci_file(".pre-commit-config.yaml")["repos"]
    assert {hook["id"] for hook in repository["hooks"]} == {hook["id"] for hook in HOOKS}


def test_index_names_every_page():
    links = {target for target, _ in links_of(DOCS / "README.md")}
    assert links >= {os.path.relpath(path, DOCS) for path in PAGES} - {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_file_is_named_before_it_is_shown(page: Path):
    text, at = page.read_text(encoding="utf-8"), 0
    for block in blocks_of(page):
        start = text.index(block.text, at)
        before, at = re.sub("<!--.*?-->", "", text[at:start]), start + len(block.text)
        named = (
            block.marks.get("example", "").partition(" from ")[0]
            or block.marks.get("added")
            or block.marks.get("change", "").split(" as ")[-1]
        )
        assert not named or f"`{named}`" in before, (
            f"{page.relative_to(ROOT)}:{block.line}: the page does not name {named} before it"
        )


def links_of(page: Path) -> list[tuple[str, str]]:
    """Return the relative links of a page: file and anchor."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    spans = [child for token in tokens for child in token.children or ()]
    targets = [span.attrGet("href") for span in spans if span.type == "link_open"]
    return [(target.partition("#")[0], target.partition("#")[2]) for target in targets if "://" not in target]


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES + READMES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_existing_targets(page: Path):
    for target, anchor in links_of(page):
        there = page.parent / target if target else page
        assert there.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors_of(there), f"{target} has no heading #{anchor}"


WORDS = """action, answer, artifact, attempt, configuration, definition 4, effect, event, guard, ledger, omega, outcome,
outstanding, percept, psi, refusal, rmax, scenario, sigma, spec, verdict"""


def test_glossary_lists_its_words_in_order_in_each_part():
    parts = (DOCS / "glossary.md").read_text(encoding="utf-8").split("\n## ")[1:]
    words = [[word.lower() for word in re.findall(r"^\*\*(.*?)\*\*", part, re.MULTILINE)] for part in parts]
    assert {word for part in words for word in part} >= set(re.split(r",\s+", WORDS))
    assert words == [sorted(set(part)) for part in words]
    assert len({word for part in words for word in part}) == sum(map(len, words))


# -- the reference of kinds -------------------------------------------------------------------------------------------


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for token in MarkdownIt("commonmark").parse("\n".join(lines)):
        if token.type == "fence":
            lines[token.map[0] : token.map[1]] = [""] * (token.map[1] - token.map[0])
    return "\n".join(lines)


def rows_of(text: str) -> list[list[str]]:
    """Return the body rows of all tables in a text, without backticks."""
    rows = [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines()]
    return [row for row in rows if row and not set("".join(row)) <= set("-: ") and row[0] not in {"option", "guard"}]


def described(kinds: dict[str, ComponentKind]) -> dict[str, tuple[str, list[list[str]]]]:
    """Return what the page must say about each kind: its line, and the name, type and default of each option."""
    shown = {attrs.NOTHING: "must be given", "": "", None: ""}
    expected = {}
    for name, kind in kinds.items():
        options = []
        for option in kind.options:
            default = option.default
            if isinstance(default, tuple):
                default = ", ".join(default).replace("*", r"\*")
            text = (
                shown[default]
                if default in shown
                else f"{default:g}"
                if option.type is float
                else str(default).lower()
                if option.type is bool
                else str(default)
            )
            options.append([option.name, _TYPES[option.type], text])
        of = [["of", "names separated by commas", "must be given"]] if "parts" in kind.supplied_arguments else []
        by = [["by", "the name of a generator, or a kind", "llm"]] if "generator" in kind.supplied_arguments else []
        expected[name] = (kind.description, of + by + options)
    return expected


@pytest.mark.parametrize(
    ("part", "kinds"),
    [("Guards", dsa.guards.guard_kinds.KINDS), ("Generators", dsa.generators.generator_kinds.KINDS)],
    ids=["guards", "generators"],
)
def test_reference_lists_every_kind_and_option(part: str, kinds: dict[str, ComponentKind]):
    section = re.search(rf"^## {part}\n(.*?)(?=^## |\Z)", prose_of(KINDS_PAGE), re.MULTILINE | re.DOTALL)[1]
    said = {}
    for name, body in re.findall(r"^### `(\w+)`\n(.*?)(?=^### |\Z)", section, re.MULTILINE | re.DOTALL):
        said[name] = (body.strip().partition("\n\n")[0].replace("\n", " "), [row[:3] for row in rows_of(body)])
    assert said == described(kinds)


def test_shipped_bindings_define_no_guards_beyond_the_reference():
    modules = [point.load() for point in entry_points(group="dsa.bindings") if point.module.startswith("machines.")]
    assert [name for module in modules for name in getattr(module, "guards", {})] == []
