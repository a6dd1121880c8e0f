"""Kinds from installed packages: real metadata on the path, real imports."""

import os
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest
from packages import Shelf

from dsa.declarations import Generator, Guard
from dsa.edge.plugins import Packages
from dsa.errors import BindingError, Span
from dsa.generators.generator_kinds import build_generator
from dsa.guards.guard_kinds import KINDS, OWN, PACKAGES, build_guard
from dsa.machine import Machine
from dsa.runtime.content import AmbientEnvironment, Artifact, Context

SPAN = Span("m.md", 7, 3, 5, "| g | shouted |")
SHOUTED = '''
    from dsa.guards import GuardInterface, GuardResult
    from dsa.generators import Artifact, GeneratorInterface

    class Shouted(GuardInterface):
        """Pass a text in capitals."""

        def __init__(self, least: int = 1) -> None:
            self.least = least

        def validate(self, artifact, **dependencies):
            return GuardResult(artifact.content.isupper() and len(artifact.content) >= self.least, "Shout.")

    class Shouting(GeneratorInterface):
        """Write the specification in capitals."""

        def __init__(self, seed: int, mark: str = "!") -> None:
            self.mark = mark

        def generate(self, context, template=None):
            return Artifact(context.specification.upper() + self.mark)

    number = 3

    def odd(given: object) -> Shouted:
        """Take what no table can give."""
        return Shouted()

    def wrong():
        """Give no guard."""
        return 3
'''
GUARDS, GENERATORS = "dsa.guards", "dsa.generators"


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    return Shelf(tmp_path, monkeypatch)


def guard(kind, options=()):
    return build_guard("g", Machine("m", (), (), "", guards=(Guard("g", kind=kind, options=options, span=SPAN),)))


def test_package_provides_guards_and_generators_with_options(shelf):
    shelf.install(
        "shouty",
        {GUARDS: ["shouted = shouty_kinds:Shouted"], GENERATORS: ["shouting = shouty_kinds:Shouting"]},
        shouty_kinds=SHOUTED,
    )
    made = guard("shouted", (("least", "3"),))
    assert [made.validate(Artifact(text)).passed for text in ("ABC", "AB", "abc")] == [True, False, False]
    row = Generator("g", kind="shouting", options=(("mark", "?"),))
    generator = build_generator("g", Machine("m", (), (), "", generators=(row,)))
    assert generator.generate(Context(AmbientEnvironment(), "a")).content == "A?"
    with pytest.raises(
        BindingError, match=r"m.md:7:3: guard g is of kind shouted, which has no option 'lest'\n.*did you mean 'least'"
    ):
        guard("shouted", (("lest", "3"),))


def test_package_is_imported_only_when_its_kind_is_used(shelf):
    shelf.install("shouty", {GUARDS: ["shouted = shouty_kinds:Shouted"]}, shouty_kinds=SHOUTED)
    shelf.install("broken", {GUARDS: ["breaks = broken_kinds:Any"]}, broken_kinds="1 / 0")
    assert guard("syntax").validate(Artifact("x = 1")).passed
    assert "shouty_kinds" not in sys.modules
    assert guard("shouted").validate(Artifact("A")).passed
    with pytest.raises(BindingError, match="did you mean 'shouted'"):
        guard("shoutd")


@pytest.mark.parametrize(
    ("value", "text", "said"),
    [
        ("kinds_x:A", "1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("kinds_x:A", "raise SystemExit", "cannot be imported: SystemExit"),
        ("kinds_x:A", "def (", "cannot be imported: SyntaxError"),
        ("nowhere_x:A", "", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_x'"),
        ("kinds_x:Missing", "", "cannot be imported: AttributeError"),
        ("kinds_x:number", SHOUTED, "is int, not a class or function that makes a guard"),
        (
            "kinds_x:odd",
            SHOUTED,
            "cannot be a kind: TypeError: argument 'given' of kind bad cannot be an option; an option can only be: true or false; a whole number; a number; a text; names separated by commas",
        ),
        ("kinds_x", "x = 1", "is module, not a class or function that makes a guard"),
    ],
)
def test_broken_plugin_is_one_error_that_names_the_package_and_the_line(shelf, value, text, said):
    shelf.install("faulty", {GUARDS: [f"bad = {value}"]}, "2.5", kinds_x=text)
    with pytest.raises(BindingError) as raised:
        guard("bad")
    assert str(raised.value).startswith(f"m.md:7:3: the guard 'bad' of the package 'faulty 2.5' ({value}) {said}")


def test_plugin_that_builds_no_guard_is_reported(shelf):
    shelf.install("faulty", {GUARDS: ["bad = kinds_x:wrong"]}, kinds_x=SHOUTED)
    with pytest.raises(
        BindingError, match="the kind 'bad' must build a GuardInterface, but built an object of type int"
    ):
        guard("bad")


def test_two_packages_cannot_provide_the_same_name(shelf):
    shelf.install("loud", {GUARDS: ["shouted = loud_kinds:Shouted"]}, loud_kinds=SHOUTED)
    shelf.install("shouty", {GUARDS: ["shouted = shouty_kinds:Shouted"]}, shouty_kinds=SHOUTED)
    with pytest.raises(
        BindingError, match=r"m.md:7:3: .*'shouted' is provided by the packages 'loud 1.0' and 'shouty 1.0'"
    ):
        guard("shouted")
    brought, faults = PACKAGES.import_all(KINDS, OWN)
    assert (brought, len(faults)) == ([], 1)


def test_package_cannot_override_a_shipped_name(shelf):
    shelf.install("taker", {GUARDS: ["syntax = taker_kinds:Shouted"]}, taker_kinds=SHOUTED)
    assert guard("syntax").validate(Artifact("x = 1")).passed
    assert PACKAGES.import_all(KINDS, OWN) == (
        [],
        ["the guard 'syntax' of the package 'taker 1.0' is never used, because this name belongs to dsa"],
    )


def test_secrets_are_not_shown_in_import_errors(shelf, monkeypatch):
    monkeypatch.setenv("A_SECRET_KEY", "hunter2hunter2")
    shelf.install("leaky", {GUARDS: ["bad = leaky_kinds:A"]}, leaky_kinds="raise ValueError('hunter2hunter2')")
    with pytest.raises(BindingError) as raised:
        guard("bad")
    assert "hunter2" not in str(raised.value)


def test_package_that_is_installed_later_is_found(shelf):
    shelf.install("shouty", {GUARDS: ["shouted = shouty_kinds:Shouted"]}, shouty_kinds=SHOUTED)
    assert Packages(GUARDS, "guard", frozenset()).names() == {"shouted"}
    os.utime(shelf.folder, ns=(0, 0))  # as if the last look was long ago
    assert Packages(GUARDS, "guard", frozenset()).names() == {"shouted"}
    shelf.install("later", {GUARDS: ["whispered = later_kinds:Shouted"]}, later_kinds=SHOUTED)
    assert Packages(GUARDS, "guard", frozenset()).names() == {"shouted", "whispered"}


def test_other_groups_are_ignored(shelf):
    shelf.install("shouty", {GENERATORS: ["shouted = shouty_kinds:Shouted"]}, shouty_kinds=SHOUTED)
    assert Packages(GUARDS, "guard", frozenset()).names() == frozenset()
    with pytest.raises(BindingError, match="not bound to anything"):
        guard("shouted")


def test_package_installed_by_pip_in_a_separate_environment_is_found(tmp_path):
    wheel = tmp_path / "shouty-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as parts:
        parts.writestr("shouty_kinds.py", textwrap.dedent(SHOUTED))
        parts.writestr("shouty-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: shouty\nVersion: 1.2\n")
        parts.writestr("shouty-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        parts.writestr("shouty-1.2.dist-info/entry_points.txt", "[dsa.guards]\nshouted = shouty_kinds:Shouted\n")
        parts.writestr("shouty-1.2.dist-info/RECORD", "")
    environment = tmp_path / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    (site,) = environment.glob("lib/python*/site-packages")
    _run(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site), str(wheel))
    ours = f"{Path(__file__).parents[3]}\n{sysconfig.get_path('purelib')}\n"
    (site / "ours.pth").write_text(ours)  # this package and what it needs, without installing them again
    told = _run(str(environment / "bin" / "python"), "-c", "from dsa.cli.main import main; main()", "guards")
    shown = "shouted  (from shouty_kinds, of the package shouty 1.2)\n  Pass a text in capitals.\n    least  a whole number [1]\n"
    assert f"\n{shown}" in told


def _run(*command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
