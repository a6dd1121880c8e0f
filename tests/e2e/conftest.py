"""Fixtures of the end-to-end tests: commands start fast, because one process imports the program and forks for each call (`forked`)."""

import os
import subprocess

import forked
import pytest
import web_gallery


@pytest.fixture(scope="session", autouse=True)
def forking() -> None:
    """Fork the commands of tests."""
    forked.start()


@pytest.fixture(autouse=True)
def forking_for_temporal(request, monkeypatch):
    """Fork the commands of tests with a Temporal server from a process that has imported the modules of these commands."""
    if "namespaces" in request.fixturenames:
        for name, value in forked.variables(forked.TEMPORAL).items():
            monkeypatch.setenv(name, value)


@pytest.fixture
def dsa(tmp_path):
    """Run the program in an empty folder, with additional environment variables. It must print no traceback; `code` is the expected exit code."""

    def run(*arguments, code=None, **environment):
        done = subprocess.run(
            [*forked.DSA, *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert code in {None, done.returncode}, (done.stdout, done.stderr)
        return done

    return run


@pytest.fixture(scope="session")
def shown(tmp_path_factory):
    """The gallery of the web page, opened only once."""
    with web_gallery.gallery(tmp_path_factory.mktemp("gallery")) as opened:
        yield opened
