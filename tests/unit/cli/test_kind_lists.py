import json

import pytest
from click.testing import CliRunner
from packages import Shelf
from stored_runs import dsa

from dsa.cli.main import program
from dsa.generators.generator_kinds import KINDS as GENERATORS
from dsa.guards.guard_kinds import KINDS as GUARDS

OWN = '''
from dsa.guards.guard_kinds import register
from dsa.runtime.content import GuardInterface, GuardResult

@register("at_most_for_this_test")
class AtMost(GuardInterface):
    """Pass a text of ten words
    or fewer.

    This is not said.
    """

    def __init__(self, words: int, strict: bool = True, marks: tuple[str, ...] = (",", ";"), rate: float = 2.0):
        self.words = words

    def validate(self, artifact, **dependencies):
        return GuardResult(True)
'''


def listed(*arguments):
    return CliRunner().invoke(program, arguments)


@pytest.mark.parametrize(("command", "kinds"), [("guards", GUARDS), ("generators", GENERATORS)])
def test_every_kind_is_listed_with_every_option(command, kinds):
    found = {kind["kind"]: kind for kind in json.loads(listed(command, "--json").output)["kinds"]}
    assert sorted(found) == sorted(kinds)
    for name, kind in kinds.items():
        assert [option["name"] for option in found[name]["options"]] == [option.name for option in kind.options]
        assert found[name]["description"] == kind.description != ""
    shown = listed(command).output.splitlines()
    assert [line for line in shown if not line.startswith(" ")] == sorted(kinds)


def test_options_are_listed_with_types_and_defaults():
    assert listed("guards").output.startswith(
        "all\n"
        "  Pass when all parts pass; every part is asked.\n"
        "  takes the option `of`: names of guards or kinds, separated by commas\n"
        "    parallel   true or false [false]\n"
        "    timeout_s  a number\n"
    )


def test_user_defined_kinds_are_listed_too(tmp_path):
    module = tmp_path / "own.py"
    module.write_text(OWN, encoding="utf-8")
    try:
        result = listed("guards", "--with", str(module))
        assert result.exit_code == 0
        begin = result.output.index("at_most_for_this_test")
        first, *lines = result.output[begin:].splitlines()[:6]
        assert first == f"at_most_for_this_test  (from {module})"
        assert lines == [
            "  Pass a text of ten words or fewer.",
            "    words   a whole number; must be given",
            "    strict  true or false [true]",
            "    marks   names separated by commas [,, ;]",
            "    rate    a number [2]",
        ]
    finally:
        GUARDS.pop("at_most_for_this_test", None)


BROUGHT = '''
    from dsa.guards import GuardInterface, GuardResult

    class Fine(GuardInterface):
        """Pass everything."""

        def validate(self, artifact, **dependencies):
            return GuardResult(True)
'''


def test_kinds_of_packages_are_listed_and_broken_ones_reported(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("nice", {"dsa.guards": ["fine_for_this_test = nice_kinds:Fine"]}, "0.3", nice_kinds=BROUGHT)
    told = {
        kind["kind"]: (kind["from"], kind["package"]) for kind in json.loads(listed("guards", "--json").output)["kinds"]
    }
    assert told["fine_for_this_test"] == ("nice_kinds", "nice 0.3")
    assert told["syntax"] == ("dsa.guards.code", "")
    shelf.install("broken", {"dsa.guards": ["all = x:Y", "bad = nowhere_at_all:Y"]})
    done = dsa("guards")
    assert done.exit_code == 2
    assert "\nfine_for_this_test  (from nice_kinds, of the package nice 0.3)\n  Pass everything.\n" in done.output
    assert "the guard 'all' of the package 'broken 1.0' is never used, because this name belongs to dsa" in done.output
    assert "the guard 'bad' of the package 'broken 1.0' (nowhere_at_all:Y) cannot be imported" in done.output
    whole = dsa("guards", "--json")
    assert (whole.exit_code, len(json.loads(whole.stdout)["kinds"])) == (2, len(GUARDS) + 1)


def test_missing_module_is_named():
    result = listed("guards", "--with", "nowhere.py", "--json")
    assert (result.exit_code, "nowhere.py: no such Python file" in str(result.exception)) == (1, True)
