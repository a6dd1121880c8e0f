"""The Sphinx extension: the directive `dsa-machine` shows a machine as it is.

    .. dsa-machine:: machine.md
       :show: diagram, table, verdicts, scenarios
       :grouped:
       :rows:

The path starts at the folder of the page, or, with a `/`, at the source folder; the name of a shipped machine works too. The default is the diagram and the
table. The picture is SVG in the page: no script draws it, and it needs no other host. Builders other than those for HTML leave it out.
With MyST the directive is written as MyST writes directives.
"""

from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from dsa.docs.blocks import Caption, Grid, MermaidDiagram, Part, Sentence, SvgDiagram, figure, parts_of
from dsa.docs.pages import BLOCKS, BlockError, Library
from dsa.errors import DsaError
from dsa.machine import Machine
from dsa.text import closest

_DEFAULT_KINDS = "diagram, table"


class MachineDirective(SphinxDirective):
    """The directive `dsa-machine`. A fault in it is an error of the page, with its line."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"show": directives.unchanged_required, "grouped": directives.flag, "rows": directives.flag}  # noqa: RUF012  (Sphinx' way)

    def run(self) -> list[nodes.Node]:
        """Return the nodes that show the machine."""
        kinds = [kind.strip() for kind in self.options.get("show", _DEFAULT_KINDS).split(",")]
        for kind in kinds:
            if kind not in BLOCKS:
                raise self.error(f"there is no block '{kind}'; {closest(kind, BLOCKS)}")
        options = {name: "" for name in ("grouped", "rows") if name in self.options}
        try:
            folder, name = self._place()
            self._note_dependencies({str(folder / name)} if (folder / name).exists() else set())
            document = Library().document(folder, name)
            self._note_dependencies(_sources(document.machine))
            parts = [part for kind in kinds for part in parts_of(kind, options if kind == "table" else {}, document)]
            return [_node(part) for part in parts]
        except BlockError as fault:
            raise self.error(f"{fault}; {fault.hint}") from fault
        except DsaError as fault:
            raise self.error(str(fault)) from fault

    def _place(self) -> tuple[Path, str]:
        """Return the folder from which the document is found, and its name there."""
        name = self.arguments[0]
        if name.startswith("/"):
            return Path(self.env.srcdir), name.lstrip("/")
        return Path(self.env.doc2path(self.env.docname)).parent, name

    def _note_dependencies(self, paths: set[str]) -> None:
        """Rebuild the page when one of these files has changed."""
        for path in sorted(paths):
            self.env.note_dependency(str(Path(path).absolute()))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive to Sphinx."""
    app.add_directive("dsa-machine", MachineDirective)
    return {"version": version("dual-state-agents"), "parallel_read_safe": True, "parallel_write_safe": True}


def _sources(machine: Machine) -> set[str]:
    """Return the paths of the documents that a machine was read from."""
    items = (*machine.transitions, *machine.properties, *machine.scenarios)
    return {item.span.path for item in items if item.span is not None}


def _node(part: Part) -> nodes.Node:
    match part:
        case Sentence(text):
            return nodes.paragraph(text, text)
        case Caption(name, more):
            rest = [nodes.Text(f" {more}")] if more else []
            return nodes.paragraph("", "", nodes.strong(name, name), *rest)
        case Grid():
            return _table(part)
        case MermaidDiagram() | SvgDiagram():
            return nodes.raw("", figure(part), format="html")


def _table(grid: Grid) -> nodes.Node:
    body = [
        _row([_cell(text, is_code=name in grid.code) for name, text in zip(grid.header, row, strict=True)])
        for row in grid.rows
    ]
    widths = [max(map(len, column)) for column in zip(grid.header, *grid.rows, strict=True)]
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in widths), cols=len(widths))
    group += nodes.thead("", _row([nodes.paragraph(name, name) for name in grid.header]))
    group += nodes.tbody("", *body)
    return nodes.table("", group, classes=["colwidths-auto"])  # in HTML columns are as wide as they need


def _row(cells: list[nodes.Node]) -> nodes.Node:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def _cell(text: str, *, is_code: bool) -> nodes.Node:
    return nodes.paragraph("", "", nodes.literal(text, text)) if is_code and text else nodes.paragraph(text, text)
