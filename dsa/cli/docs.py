"""`dsa docs PATH..`: keep the blocks of Markdown pages fresh, or only print which are stale."""

import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from dsa.cli.command_line import EXIT_UNREADABLE, JsonCommand, json_option, print_json, say
from dsa.docs.pages import BlockState, Library, PageDraft, draft, pages_in
from dsa.text import plural


@click.command("docs", cls=JsonCommand)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 when a block is stale.")
@json_option
def command(paths: tuple[Path, ...], *, only_check: bool, json_wanted: bool) -> None:
    """Bring blocks of Markdown pages up to date. A block is the text between <!-- dsa:BLOCK DOCUMENT --> and <!-- /dsa -->.

    In the marker, BLOCK is the word for the part of DOCUMENT to show: diagram, table, verdicts (which properties hold) or scenarios. PATH is a page, or a folder of pages. Exit 2, with nothing written, if a marker is wrong.
    """
    library = Library()
    drafts = [draft(path, library) for path in pages_in(paths)]
    faulty = any(page.faults for page in drafts)
    if not only_check and not faulty:
        for page in drafts:
            if page.is_stale:
                page.write()
    if json_wanted:
        print_json(_as_json(drafts, is_written=not only_check and not faulty))
    else:
        _print_result(drafts, only_check=only_check)
    sys.exit(EXIT_UNREADABLE if faulty else int(only_check and any(page.is_stale for page in drafts)))


def _print_result(drafts: Sequence[PageDraft], *, only_check: bool) -> None:
    faults = [fault for page in drafts for fault in page.faults]
    for fault in faults:
        say(str(fault), err=True)
    if faults:
        say(f"{plural(len(faults), 'marker is', 'markers are')} wrong; nothing was written", err=True)
        return
    for page in drafts:
        stale = [state for state in page.blocks if state.is_stale]
        if stale and not only_check:
            say(f"wrote {page.path}: {', '.join(map(_name, stale))}")
        for state in stale if only_check else ():
            say(f"{page.path}:{state.block.line}: {_name(state)} is stale")
    _print_counts(drafts, only_check=only_check)


def _print_counts(drafts: Sequence[PageDraft], *, only_check: bool) -> None:
    blocks = [state for page in drafts for state in page.blocks]
    if not blocks:
        counts_text = f"no blocks in {plural(len(drafts), 'page')}"
        say(f"{counts_text}; begin one with <!-- dsa:diagram machine.md --> and end it with <!-- /dsa -->")
        return
    pages = plural(sum(bool(page.blocks) for page in drafts), "page")
    stale = sum(state.is_stale for state in blocks)
    how = f"{stale} stale; run dsa docs without --check to write them" if only_check else f"{stale} written"
    say(f"{plural(len(blocks), 'block')} in {pages}: {how if stale else 'all fresh'}")


def _name(state: BlockState) -> str:
    drawing = "" if state.drawing is None else f" ({state.drawing.path.name})"
    return f"{state.block.kind} of {state.block.document}{drawing}"


def _as_json(drafts: Sequence[PageDraft], *, is_written: bool) -> dict[str, object]:
    return {
        "pages": [
            {
                "file": str(page.path),
                "blocks": [
                    {
                        "line": state.block.line,
                        "block": state.block.kind,
                        "document": state.block.document,
                        "options": dict(state.block.options),
                        "stale": state.is_stale,
                        "drawing": None if state.drawing is None else str(state.drawing.path),
                    }
                    for state in page.blocks
                ],
                "faults": [
                    {
                        **attrs.asdict(fault.span, filter=attrs.filters.exclude("text")),
                        "message": fault.message,
                        "hint": fault.hint,
                    }
                    for fault in page.faults
                ],
            }
            for page in drafts
        ],
        "written": is_written,
    }
