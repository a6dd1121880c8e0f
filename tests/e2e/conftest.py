"""Commands begin faster here: one process imports the program, and forks for each call (`forked`)."""

import os
import subprocess

import forked
import pytest
import web_gallery


@pytest.fixture(scope="session", autouse=True)
def forking() -> None:
    """Have calls forked."""
    forked.start()


@pytest.fixture(autouse=True)
def forking_for_temporal(request, monkeypatch):
    """Have the commands of tests that have a Temporal server forked from a process that has imported what these commands do."""
    if "namespaces" in request.fixturenames:
        for name, value in forked.variables(forked.TEMPORAL).items():
            monkeypatch.setenv(name, value)


@pytest.fixture
def dsa(tmp_path):
    """Run the program in an empty folder, with more variables in its environment. Nothing it says may be a traceback; `code` is how it has to end."""

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
    """The gallery of the web page, opened once."""
    with web_gallery.gallery(tmp_path_factory.mktemp("gallery")) as opened:
        yield opened
