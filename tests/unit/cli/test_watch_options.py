import click
import pytest
from click.testing import CliRunner

from dsa.cli.run_options import WatchOptions, watching_options
from dsa.runtime.secrets import SecretOptions, Secrets


def parsed(*arguments):
    """Return the values that a command gets for these options, or the result of the failed call."""
    given = []

    @click.command()
    @watching_options
    @click.option("--other")
    def command(other, *, watch_options):
        given.append((other, watch_options))

    done = CliRunner().invoke(command, arguments)
    return given[0] if given else done


def test_watch_options_are_one_value_beside_those_of_the_command(monkeypatch):
    monkeypatch.setenv("A", "one")
    monkeypatch.setenv("B", "")
    assert parsed("--other", "x") == ("x", WatchOptions())
    arguments = ("--secret", "A", "--secret", "B", "--secret-pattern", "x+", "--not-secret", "C", "--log", "info")
    _, watch_options = parsed(*arguments, "--log-format", "json", "--no-otel")
    assert watch_options == WatchOptions(SecretOptions(("A", "B"), ("x+",), ("C",)), "info", "json", otel=False)
    assert watch_options.is_logging
    assert parsed("--log", "loud").exit_code == 2


def test_secret_must_name_a_set_variable_and_its_value_is_not_repeated(monkeypatch):
    monkeypatch.setenv("A", "one")
    done = parsed("--secret", "A", "--secret", "abc123xyz")
    assert done.exit_code == 2
    assert "--secret takes the name of a variable that is set; no such variable is set (2 of 2)" in done.output
    assert "abc123xyz" not in done.output


def test_options_of_the_start_are_extended_at_resumption():
    settings = {"secrets": {"names": ("A",), "patterns": ("x",), "spared": ()}}
    again = WatchOptions(SecretOptions(("B",)), "info").as_started(settings)
    assert again == WatchOptions(SecretOptions(("A", "B"), ("x",)), "info")
    assert WatchOptions().as_started({}) == WatchOptions()


@pytest.mark.parametrize(("data", "said"), [
    ("a opensesame b", "note: DATA contains a secret; the run and its model get [secret WORD] instead\n"),
    ([{"opensesame": 1}, None, 2], "note: DATA contains a secret; the run and its model get [secret WORD] instead\n"),
    ({"a": ["nothing"]}, ""),
    (None, ""),
])  # fmt: skip
def test_data_with_a_secret_is_reported(data, said, capsys, monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with WatchOptions().watch(Secrets({"WORD": "opensesame"}, ())) as watchers:
        watchers.note("DATA", data)
    assert capsys.readouterr() == ("", said)
