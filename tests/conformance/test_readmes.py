"""README files of machines show what the commands print; `...` stands for any text."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa.cli.main import program

ROOT = Path(__file__).parents[2]
READMES = sorted((ROOT / "machines").glob("*/README.md"))
EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n(~+)\w*\n(.*?)\n\2\n", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)\n```", re.DOTALL)


def _commands() -> list[tuple[Path, str, str]]:
    found = []
    for readme in READMES:
        for block in CONSOLE.findall(readme.read_text(encoding="utf-8")):
            command, _, shown = block.removeprefix("$ dsa ").partition("\n")
            found.append((readme, command, shown))
    return found


#: Takes as long as all the others.
LARGEST = "check specs/coding"
COMMANDS = [
    pytest.param(*each, id=each[1], marks=[pytest.mark.full] if each[1] == LARGEST else []) for each in _commands()
]


def _pattern(shown: str) -> re.Pattern[str]:
    return re.compile(re.escape(shown).replace(r"\.\.\.", ".*"), re.DOTALL)


@pytest.mark.parametrize(("readme", "command", "shown"), COMMANDS)
def test_readme_shows_what_its_commands_print(readme: Path, command: str, shown: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, _, text in EXAMPLE.findall(readme.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    done = CliRunner().invoke(program, shlex.split(command))
    assert done.exit_code == 0, done.output
    assert _pattern(shown).fullmatch(done.output.strip()), done.output


def test_generated_blocks_of_all_pages_are_up_to_date():
    done = CliRunner().invoke(program, ["docs", "--check", str(ROOT)])
    assert done.exit_code == 0, done.output


def test_every_machine_readme_shows_its_diagram():
    for path in (ROOT / "machines").glob("*/machine.md"):
        assert "<!-- dsa:diagram machine.md -->" in (path.parent / "README.md").read_text(encoding="utf-8")


def test_every_machine_folder_has_a_readme_with_a_command():
    shown = {readme for readme, _, _ in _commands()}
    assert shown == {path.parent / "README.md" for path in (ROOT / "machines").glob("*/machine.md")}
