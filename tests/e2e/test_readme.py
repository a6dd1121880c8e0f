"""The example of README with the model that it names; tests/e2e/test_docs.py runs the rest of the page."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa.cli.main import program

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"<!-- example: fib.md -->\n```markdown\n(.*?)```\n", README, re.DOTALL)[0]
COMMAND, SHOWN = re.findall(r"```console\n\$ dsa (run .*?)\n(.*?)\n\n", README, re.DOTALL)[0]


def without_figures(text: str) -> list[list[str]]:
    return [re.sub(r"[0-9.]+", "", line).split() for line in text.splitlines()]


@pytest.mark.model
def test_example_runs_with_the_local_model(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fib.md").write_text(EXAMPLE, encoding="utf-8")
    done = CliRunner().invoke(program, COMMAND.split())
    assert done.exit_code == 0, done.output
    assert without_figures(done.output)[:4] == without_figures(SHOWN)
