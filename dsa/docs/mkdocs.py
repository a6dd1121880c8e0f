"""The MkDocs plugin `dsa`: pages show machines as they are, with pictures that are a part of the page.

    plugins:
      - dsa

A build makes the blocks between markers (`dsa.docs.pages`) anew. A page that is a machine document itself has its picture below its title. Pictures
are SVG in the page: no script draws them, and they need no other host.
"""

from pathlib import Path

from mkdocs.config import config_options
from mkdocs.config.base import Config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, get_plugin_logger
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from dsa.docs.blocks import figure, markdown, parts_of
from dsa.docs.pages import BlockError, Library, MarkedBlock, MarkedText, MarkerFault, may_have_markers, read_markers
from dsa.errors import DsaError
from dsa.lang.markdown import MarkdownDocument, read

_log = get_plugin_logger("dsa")


class PluginOptions(Config):
    """`pictures`: whether a page that is a machine document has its picture below its title."""

    pictures = config_options.Type(bool, default=True)


class MkDocsPlugin(BasePlugin[PluginOptions]):
    """The plugin: machines in the pages of a site."""

    def on_pre_build(self, *, config: MkDocsConfig) -> None:  # noqa: ARG002  (MkDocs' signature)
        """Forget the documents: `mkdocs serve` builds again when they have changed."""
        self._library = Library()

    def on_page_markdown(self, markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG002
        """Return the page with its machines. Raises PluginError, which ends the build, for markers that are wrong."""
        if page.file.src_dir is None or page.file.abs_src_path is None:  # another plugin made it
            return markdown
        path = Path(page.file.abs_src_path)
        try:
            if may_have_markers(markdown):
                return self._with_blocks(_read_page(markdown, page), path)
            return self._with_picture(markdown, path) if self.config.pictures else markdown
        except DsaError as fault:
            raise PluginError(str(fault)) from fault

    def _with_blocks(self, page: MarkedText, path: Path) -> str:
        faults = list(page.faults)
        contents = []
        for block in page.blocks:
            try:
                contents.append(self._content(block, path))
            except BlockError as fault:
                faults.append(MarkerFault(block.span, str(fault), fault.hint))
        if faults:
            raise PluginError("\n".join(map(str, faults)))
        return page.with_contents(contents)

    def _content(self, block: MarkedBlock, path: Path) -> str:
        document = self._library.document(path.parent, block.document)
        return markdown(parts_of(block.kind, dict(block.options), document), figure)

    def _with_picture(self, text: str, path: Path) -> str:
        """Return a page that is a machine with its picture; any other page as it is."""
        page = read(text, path.name)
        if not _is_about_rows(page):
            return text
        try:
            document = self._library.document(path.parent, path.name)
        except BlockError as fault:
            _log.warning("%s; no picture is shown (%s)", fault, fault.hint)
            return text
        lines = text.split("\n")
        after = page.titles[0].line + (page.titles[0].source.lstrip()[:1] != "#")
        return "\n".join([*lines[:after], "", markdown(parts_of("diagram", {}, document), figure), "", *lines[after:]])


def _is_about_rows(page: MarkdownDocument) -> bool:
    """Return whether a page has a title and a table of Transitions or Steps, and so is meant as a machine document."""
    return bool(page.titles) and any(
        section.kind in {"transitions", "steps"} and section.tables for section in page.sections
    )


def _read_page(text: str, page: Page) -> MarkedText:
    """Read the markers of a page, with their lines in its file, where settings may come first."""
    whole = page.file.content_string
    before = whole[: -len(text)].count("\n") if whole.endswith(text) else 0
    return read_markers("\n" * before + text, page.file.src_uri)
