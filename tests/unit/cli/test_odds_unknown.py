"""What `dsa odds` says where something is not known, and where it is although one might not think so."""

import json

import pytest
from click.testing import CliRunner
from odds_documents import DOWN, TOOLS

from dsa.cli.main import program


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run `dsa odds` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def calls_made(*arguments):
        return CliRunner().invoke(program, ["odds", *arguments])

    return calls_made


@pytest.mark.parametrize("rmax", ["6", "12", "50"])
def test_a_start_outside_its_domain_is_unknown(call, tmp_path, rmax):
    (tmp_path / "m.md").write_text(DOWN)
    result = call("m.md", "--param", f"rmax={rmax}")
    assert result.exit_code == 1
    assert f"UNKNOWN: left starts as {rmax}, outside 0..5" in result.output
    assert json.loads(call("m.md", "--param", f"rmax={rmax}", "--json").output)["known"] is False


def test_a_target_says_which_value_is_the_largest(call, tmp_path):
    (tmp_path / "m.md").write_text(DOWN)
    result = call("m.md", "--target", "0.99")
    assert result.exit_code == 1
    assert (
        "target 0.99: UNKNOWN, not reached up to rmax = 5, where success is 0.98438; at rmax = 6: left starts as 6,"
        in result.output
    )
    (tmp_path / "m.md").write_text(
        DOWN.replace("| rmax    |", "| 0       |").replace("left > 0", "left < rmax").replace("-=", "+=")
    )
    result = call("m.md", "--target", "0.99")
    assert result.exit_code == 1
    assert (
        "target 0.99: impossible, ceiling 0.98438 (rmax is at most 5; at rmax = 6: the table refuses" in result.output
    )


def test_a_circle_that_is_rarely_left_has_numbers(call, tmp_path):
    """Whoever chooses goes round, and is done once in 10^12 times, or gives up."""
    text = TOOLS.replace("| used < 3 | used += 1 | run_tool", "| used < 4 |           | run_tool")
    (tmp_path / "m.md").write_text(
        text.replace("| call     | ask      |", "| call     | ask      |\n| stop     | ask      |").replace(
            "| thinking | done ",
            "| thinking | stop       |          |           |          | failed    |\n| thinking | done ",
        )
    )
    result = call("m.md", "--event", "done=0.000000000001")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.split("\n")]
    assert ["succeeded", "1e-12", "to", "1"] in rows
    assert ["run_tool", "0", "to", "999999999999"] in [row[:4] for row in rows]


def test_a_plot_of_nothing_is_unknown(call, tmp_path):
    pytest.importorskip("matplotlib")
    result = call("dual_state", "--plot", "odds.svg")
    assert result.exit_code == 1
    assert result.stderr == "UNKNOWN: nothing to plot, so odds.svg is not written\n"
    assert not (tmp_path / "odds.svg").exists()
    (tmp_path / "m.md").write_text(DOWN)
    drawn = call("m.md", "--plot", "odds.svg")
    assert (drawn.exit_code, drawn.stderr) == (0, "wrote odds.svg\n")  # 0 to 5 are plotted


def test_a_plot_without_one_value_is_a_failure_whatever_else_is_known(call, tmp_path):
    pytest.importorskip("matplotlib")
    text = DOWN.replace("| 0..5   |", "| 0..30  |").replace("| 3       |", "| 25      |")
    (tmp_path / "m.md").write_text(text.replace("| else  ", "| not g.passed and left == 0 and rmax > 20  "))
    assert call("m.md").exit_code == 0
    result = call("m.md", "--plot", "odds.svg")
    assert (result.exit_code, result.stderr) == (1, "UNKNOWN: nothing to plot, so odds.svg is not written\n")
