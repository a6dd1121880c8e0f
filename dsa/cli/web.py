"""`dsa web [FILE..]`: machines and runs as pages in a browser on this computer."""

import importlib
from functools import partial

import click

from dsa.cli.command_line import CommandExit, say
from dsa.cli.run_options import runs_option
from dsa.errors import install_hint
from dsa.runs.runs import open_runs


@click.command("web")
@click.argument("files", nargs=-1)
@runs_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port; by default one that is free."
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def command(files: tuple[str, ...], *, root: str, port: int, opens: bool) -> None:
    """Show machines and runs as pages in a browser on this computer. The printed address works in the first browser that opens it, and in no other.

    A page is updated while its run goes on, and when its FILE is edited; the file is then checked again. On the pages you can answer what a run asks, settle effects in doubt
    (nobody knows whether they happened), and start runs. Only this computer can reach the pages. Ctrl-C ends the server; runs that it drives can be resumed.
    """
    try:
        server = importlib.import_module("dsa.web.server")
    except ModuleNotFoundError as missing:
        library = (missing.name or "").partition(".")[0]
        if library not in {"starlette", "uvicorn"}:
            raise
        raise CommandExit(f"dsa web needs {library}: {install_hint('web')}", 2) from missing
    server.serve(files, partial(open_runs, root), port=port, opens=opens, say=say)
