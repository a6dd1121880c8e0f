"""`dsa doctor`: what this machine offers, what is missing, and the line that installs it."""

import platform
import shutil
import sys
import textwrap
from importlib.metadata import PackageNotFoundError, version

import click

from dsa.edge.compiler import compiler
from dsa.edge.files import shipped
from dsa.edge.isolated import IsolationError, achieved_features, limits
from dsa.edge.render import renderer
from dsa.errors import ModelUnavailable
from dsa.generators.local import model_path

_INDENT = 18
_PACKAGES = {
    "xllamacpp": "runs the local model; pip install xllamacpp",
    "litellm": "reaches model providers; pip install 'litellm>=1.83'",
    "hypothesis": "runs generated tests; pip install hypothesis",
    "numpy": "searches machines of many configurations faster; pip install numpy",
    "dd": "counts more configurations than could be held; pip install dd",
}


@click.command("doctor")
def command() -> None:
    """Say what this machine offers and what is missing. Exit 1 when the shipped demo could not run."""
    _say(
        "Python", f"{platform.python_version()} ({sys.implementation.name}) on {platform.system()} {platform.machine()}"
    )
    for package, use in _PACKAGES.items():
        _say(package, _version(package) or f"missing: {use}")
    model, found = _local_model()
    _say("local model", model)
    _say("C compiler", str(compiler() or "missing: searches very large machines faster; install gcc or clang"))
    program = renderer()
    _say("pictures", str(program) if program else "missing: pip install graphviz-pure, or install Graphviz")
    isolated = _say_isolation()
    _say("documents", ", ".join(sorted(shipped())))
    if not (found and isolated):
        raise SystemExit(1)


def _say_isolation() -> bool:
    """Say what code of a model is kept from, and tell whether it can be run at all."""
    try:
        features = achieved_features()
    except (IsolationError, OSError) as fault:
        _say("isolation", f"missing: {fault}")
        return False
    _say("isolation", ", ".join(sorted(features)) or "none")
    for limit in limits(features):
        _say("", f"- not stopped: {limit}")
    return True


def _say(label: str, text: str) -> None:
    width = max(_INDENT + 22, min(120, shutil.get_terminal_size((120, 24)).columns))
    first = label.ljust(_INDENT)
    click.echo(textwrap.fill(text, width, initial_indent=first, subsequent_indent=" " * _INDENT))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _local_model() -> tuple[str, bool]:
    """Say which local model there is, and whether it can be used."""
    try:
        return f"{model_path().name}, used by --model local", True
    except ModelUnavailable as missing:
        return f"missing: {missing}", False
