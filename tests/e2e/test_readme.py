"""Everything that README shows: its documents, its Python, what its commands print."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program
from dsa.edge.document_files import locate
from dsa.lang import formatted, loads

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TOUR = re.findall(r"<!-- example: tour.md -->\n```markdown\n(.*?)```\n", README, re.DOTALL)[0]
CONSOLE = re.findall(r"```console\n(.*?)\n```", README, re.DOTALL)


def shown(command: str) -> str:
    """Return what README shows below a command."""
    found = [block for block in CONSOLE if block.startswith(f"$ {command}")]
    assert len(found) == 1, f"README shows '{command}' {len(found)} times"
    return found[0].partition("\n")[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


def test_the_tour_is_a_machine_in_canonical_layout():
    assert [step.name for step in loads(TOUR).steps] == ["add", "fibonacci"]
    assert formatted(TOUR) == TOUR


@pytest.mark.model
def test_the_tour_runs_with_the_real_model(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tour.md").write_text(TOUR, encoding="utf-8")
    done = run("run", "tour.md", "--seed", "5")
    assert done.exit_code == 0, done.output
    printed, wanted = (
        [re.sub(r"[0-9.]+", "", line).split() for line in text.splitlines()[:2]]
        for text in (done.output, shown("dsa run tour.md --seed 5"))
    )
    assert printed == wanted


def test_a_planted_fault_is_reported_as_shown(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = locate("dual_state").read_text(encoding="utf-8")
    broken = text.replace("g.failed and retries < rmax |", "g.failed and retries <= rmax |")
    assert broken != text
    Path("broken.md").write_text(broken, encoding="utf-8")
    done = run("check", "broken.md")
    assert done.exit_code == 1
    assert shown("dsa check broken.md") in done.output


def test_why_prints_what_is_shown():
    command = next(block.splitlines()[0] for block in CONSOLE if block.startswith("$ dsa why"))
    done = run(*shlex.split(command)[2:])
    assert done.output.strip() == shown(command.removeprefix("$ ")).strip()


LOOP = """# loop

## Events
| event    | from    |
| -------- | ------- |
| order    | outside |
| accepted | ask     |
| declined | ask     |

## States
| state  | kind    |
| ------ | ------- |
| idle   | initial |
| asking |         |
| happy  | final   |

## Transitions
| source | event    | effects | target |
| ------ | -------- | ------- | ------ |
| idle   | order    | ask     | asking |
| asking | accepted |         | happy  |
| asking | declined | ask     | =      |

## Properties
- order leads to happy
"""


def test_a_loop_is_shown(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop.md").write_text(LOOP, encoding="utf-8")
    done = run("check", "loop.md")
    assert done.exit_code == 1
    assert shown("dsa check loop.md") in done.output


@pytest.mark.parametrize("name", ["odds", "mutate"])
def test_odds_and_mutants_are_as_shown(name: str, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    command = next(block.splitlines()[0] for block in CONSOLE if block.startswith(f"$ dsa {name}"))
    done = run(*shlex.split(command)[2:])
    assert done.exit_code == 0
    assert done.output.strip() == shown(command.removeprefix("$ ")).strip()


def test_the_diagram_is_the_one_that_is_drawn():
    diagram = re.findall(r"```mermaid\n(.*?)\n```", README, re.DOTALL)[0]
    assert run("draw", "dual_state").output.rstrip() == diagram


PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", [pytest.param(c, marks=[pytest.mark.model] if "Local" in c else []) for c in PYTHON])
def test_the_python_prints_what_its_comments_say(code):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"print\(.*\)  # (.*)", code)


def test_new_and_check_work_as_installed(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("new", "review"),
        ("check", "--strict", "review.md"),
        ("new", "--steps", "plan"),
        ("check", "plan.md"),
    ):
        done = run(*arguments)
        expected = 1 if "--strict" in arguments else 0  # the starter has rows that no scenario takes, which it says
        assert done.exit_code == expected, done.output
    assert "1 warning" in run("check", "review.md").output
    assert run("new", "review").exit_code == 2
