"""Reference pages: their generated sections match the code.

A generated section lies between `<!-- generated: NAME -->` and `<!-- end -->`. UPDATE_GOLDEN=1 rewrites it; the diff is reviewed.
"""

import ast
import importlib
import inspect
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

import dsa
from dsa.cli.main import COMMANDS, program
from dsa.errors import CODES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
MISTAKES = ROOT / "specs" / "mistakes"
STRETCH = re.compile(r"(<!-- generated: (.*?) -->\n).*?(<!-- end -->\n)", re.DOTALL)
WIDEST = 170


def cell(text: str) -> str:
    """Return a text escaped for a cell of a Markdown table."""
    code = [
        part.replace("|", r"\|") if at % 2 else re.sub(r"([|*<])", r"\\\1", part)
        for at, part in enumerate(text.split("`"))
    ]
    return "`".join(code)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(columns), *([cell(text) for text in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def first_sentence(thing: object) -> str:
    """Return the first sentence of a docstring."""
    paragraph = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


# -- diagnostics ------------------------------------------------------------------------------------------------------


def findings(code: str) -> Iterator[tuple[str, str]]:
    """Yield each finding with a code in specs/mistakes: document and text, the smallest document first."""
    by_size = sorted(MISTAKES.glob("*.txt"), key=lambda path: (path.with_suffix(".md").stat().st_size, path.name))
    for path in by_size:
        for text in re.split(r"^(?=\S+:\d+:\d+: \w+ DSA)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if re.match(rf"\S+ \w+ {code}:", text):
                yield path.with_suffix(".md").name, text


def example(code: str) -> str:
    """Return the section of a code: its meaning, and a finding, preferably one with a hint and short lines."""

    def unfit(finding: tuple[str, str]) -> tuple[bool, bool]:
        return max(map(len, finding[1].splitlines())) > WIDEST, "hint:" not in finding[1]

    name, text = min(findings(code), key=unfit)
    shown = "".join(
        line if len(line) <= WIDEST else f"{line[: WIDEST - 3]}...\n" for line in text.splitlines(keepends=True)
    )
    document = f"[{name}](../../specs/mistakes/{name})"
    return f"{CODES[code]} In {document}:\n\n<!-- not run: the tests of specs/mistakes do -->\n```text\n{shown}```\n"


def codes() -> str:
    """Return the list of codes with their meanings."""
    return table(["code", "means"], ([f"[{code}](#{code.lower()})", meaning] for code, meaning in CODES.items()))


# -- the language -----------------------------------------------------------------------------------------------------


def parts_of_the_language() -> Iterator[tuple[str, str]]:
    """Yield each part of specs/table.md by its heading, except the diagnostics."""
    text = (ROOT / "specs" / "table.md").read_text(encoding="utf-8")
    for part in re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        if heading != "Diagnostics":
            yield heading, body


def columns() -> str:
    """Return the columns of each section."""
    tables = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
    found = [(heading, tables.search(body)) for heading, body in parts_of_the_language()]
    return "".join(f"\n### {heading}\n\n{match[0]}" for heading, match in found if match) + "\n"


def grammar() -> str:
    """Return the grammar of each part."""
    blocks = re.compile(r"^```ebnf\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
    text = "\n".join(
        f"(* {heading} *)\n{match[1]}" for heading, body in parts_of_the_language() for match in blocks.finditer(body)
    )
    return f"<!-- not run: a grammar -->\n```ebnf\n{text}```\n"


# -- commands ---------------------------------------------------------------------------------------------------------


HELP = "-h, --help"


def commands() -> str:
    """Return every command with its usage, help, arguments and options."""
    top = click.Context(program, info_name="dsa", **program.context_settings)
    text = table(["command", "does"], ([f"[`dsa {name}`](#dsa-{name})", line] for name, line in COMMANDS.items()))
    for name in COMMANDS:
        command = program.get_command(top, name)
        context = click.Context(command, info_name=name, parent=top)
        usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
        records = [
            record
            for item in command.get_params(context)
            if isinstance(item, click.Option) and (record := item.get_help_record(context))
        ]
        paragraphs = inspect.cleandoc(command.help or "").replace("\b\n", "").split("\n\n")
        text += f"\n## dsa {name}\n\n<!-- not run: a form -->\n```text\n{usage}\n```\n\n"
        text += "\n\n".join(re.sub(r"([*<])", r"\\\1", " ".join(paragraph.split())) for paragraph in paragraphs)
        text += "\n\n" + table(
            ["option", "does"],
            # A command that was called on its own before still has only the long name of its help option.
            ([f"`{HELP if option == '--help' else option}`", " ".join(does.split())] for option, does in records),
        )
    return text


# -- bindings ---------------------------------------------------------------------------------------------------------


def members(*classes: type) -> Iterator[tuple[str, str]]:
    """Yield the public members that classes define themselves, in order, with the first sentences of their docstrings."""
    for cls in classes:
        for name, member in vars(cls).items():
            if name.startswith("_") or not (isinstance(member, property) or inspect.isfunction(member)):
                continue
            if isinstance(member, property):
                yield f"`{name}`", first_sentence(member)
            else:
                arguments = [
                    given.name if given.default is given.empty else f"{given.name}="
                    for given in inspect.signature(member).parameters.values()
                    if given.name != "self"
                ]
                waits = (
                    "await "
                    if inspect.iscoroutinefunction(member)
                    or "Coroutine" in str(inspect.signature(member).return_annotation)
                    else ""
                )
                yield f"`{waits}{name}({', '.join(arguments)})`", first_sentence(member)


def context_members() -> str:
    classes = [cls for cls in reversed(dsa.PolicyContext.__mro__) if cls.__module__.startswith("dsa.")]
    return table(["`context.`", "is"], members(*classes))


def action_members() -> str:
    return table(["`action.`", "is"], members(dsa.Action))


def public_names(module: str) -> str:
    names = importlib.import_module(module)
    return table(
        ["name", "is"], ((f"`{name}`", first_sentence(getattr(names, name))) for name in sorted(names.__all__))
    )


# -- modules ----------------------------------------------------------------------------------------------------------


def contents_of_module(tree: ast.Module) -> str:
    """Return the diagnostics that a module reports and the exceptions that it defines, as the end of its line."""
    constants = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    reported = sorted(constants & CODES.keys()) if len(constants & CODES.keys()) < len(CODES) else []
    exceptions = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(re.search("(Error|Exception)$", ast.unparse(base)) for base in node.bases)
    ]
    return (f"; reports {', '.join(reported)}" if reported else "") + (
        f"; defines {', '.join(f'`{name}`' for name in exceptions)}" if exceptions else ""
    )


def modules() -> str:
    """Return every module with the first sentence of its docstring, its diagnostics and its exceptions, folder by folder."""
    paths = sorted(path for top in ("dsa", "machines") for path in (ROOT / top).rglob("*.py"))
    folders: dict[Path, list[str]] = {}
    for path in paths:
        if not path.name.startswith("__"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            sentence = (
                " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
                .partition(". ")[0]
                .removesuffix(".")
            )
            folders.setdefault(path.parent, []).append(f"- `{path.name}`: {cell(sentence)}{contents_of_module(tree)}\n")
    return "".join(f"\n`{folder.relative_to(ROOT)}/`\n\n{''.join(lines)}" for folder, lines in folders.items()) + "\n"


GENERATED = {
    **{code: lambda code=code: example(code) for code in CODES},
    "codes": codes,
    "columns": columns,
    "grammar": grammar,
    "commands": commands,
    "modules": modules,
    "context": context_members,
    "action": action_members,
    **{module: lambda module=module: public_names(module) for module in ("dsa", "dsa.guards", "dsa.generators")},
}
PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in (*REFERENCE.glob("*.md"), DOCS / "how-it-works.md")
    if STRETCH.search(path.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("page", PAGES)
def test_generated_sections_match_the_code(page: str):
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    now = STRETCH.sub(lambda found: f"{found[1]}{GENERATED[found[2]]()}{found[3]}", text)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(now, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == now, "UPDATE_GOLDEN=1 rewrites it"


def test_every_generated_section_is_on_a_page():
    named = [name for page in PAGES for _, name, _ in STRETCH.findall((DOCS / page).read_text(encoding="utf-8"))]
    assert sorted(named) == sorted(GENERATED)


def test_every_diagnostic_has_a_cause_and_a_cure():
    text = (REFERENCE / "diagnostics.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (DSA\d+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(CODES)
    for code, section in sections.items():
        assert re.findall(r"^\*\*(\w+)\.\*\* \S", section, re.MULTILINE) == ["Cause", "Cure"], code
        assert f"<!-- generated: {code} -->" in section, code
