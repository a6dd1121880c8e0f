"""The options of all commands: each name has one meaning, and similar commands take the same options."""

from collections import defaultdict

import click
import pytest
from each_row import each_row

from dsa.cli.main import COMMANDS, program

RUNNING = ("run", "resume", "send", "demo", "chat", "code")
#: Commands that write a file, print a text for another program, or serve pages; they have nothing to report.
WRITING = ("draw", "expand", "export", "new", "tests", "web")
EVERY_RUN_TAKES = (
    "--model", "--with", "--param", "--budget", "--json", "--quiet", "--secret", "--secret-pattern", "--not-secret", "--log",
    "--log-format", "--otel", "--runs",
)  # fmt: skip


def options_of(name):
    """Return the options of a command by each of their names."""
    command = program.get_command(click.Context(program), name)
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {written: option for option in options for written in option.opts}


@pytest.mark.parametrize("name", RUNNING)
def test_commands_that_run_share_options_with_the_same_meaning(name):
    found, of_run = options_of(name), options_of("run")
    assert [option for option in EVERY_RUN_TAKES if option not in found] == []
    for option in EVERY_RUN_TAKES:
        mine, its = found[option], of_run[option]
        assert (mine.name, mine.metavar, mine.multiple, mine.type.name) == (
            its.name,
            its.metavar,
            its.multiple,
            its.type.name,
        )
        assert option in {"--model", "--param"} or mine.help == its.help


@each_row("name", [name for name in COMMANDS if name not in WRITING])
def test_commands_that_report_have_a_json_option(name):
    assert options_of(name)["--json"].is_flag


def test_options_of_one_name_mean_the_same_in_every_command():
    kinds = defaultdict(set)
    for name in COMMANDS:
        for written, option in options_of(name).items():
            kinds[written].add((option.metavar, option.is_flag))
    assert (kinds["--with"], kinds["--data"]) == ({("MODULE", False)}, {("DATA", False)})
    assert kinds["--param"] == {("NAME=VALUE", False)}
    assert {written: kind for written, kind in kinds.items() if len({is_flag for _, is_flag in kind}) > 1} == {}
