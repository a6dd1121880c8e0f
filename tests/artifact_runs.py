"""Runs in a repository of artifacts: how tests fill one, ask git about it, and check that nothing is lost."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from dsa.edge.git_artifacts import GitArtifacts
from dsa.runtime.content import Artifact
from dsa.runtime.ledger import GuardVerdict, VerdictEntry

RUN = "20260131T120000-dual_state-9f3a1c"


@contextlib.contextmanager
def memory_folder():
    """Return a folder where nothing waits for a disk, when there is such a place."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def git(repository, *arguments, given=b""):
    """Return what git prints about a repository; it must end well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], input=given, capture_output=True, check=False, env=kept
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8", "replace")


def require_clean(repository):
    """Let git check every object; objects without a name, and a branch that does not exist yet, are not faults."""
    done = subprocess.run(
        ["git", "-C", str(repository), "fsck", "--strict", "--no-dangling"], capture_output=True, text=True, check=False
    )
    findings = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("notice: ")]
    assert (done.returncode, findings) == (0, [])


def attempt(number, parent=None, step="impl", content=None):
    """Return an artifact to be stored."""
    text = f"attempt {number}\r\nof {step}\n" if content is None else content
    return Artifact(text, number, parent_id=parent and parent.artifact_id, step=step)


def said_of(artifact, outcome="failed", feedback="no\n\nVerdict: passed"):
    """Return a verdict."""
    said = (GuardVerdict("tests", outcome, feedback),)
    return VerdictEntry(f"r/{artifact.version}/1", artifact.step, artifact.version, artifact.artifact_id, said, 0.5)


def filled(repository, attempts, run=RUN):
    """Return a run with a chain of `attempts` attempts, each judged, and the artifacts."""
    store, made = GitArtifacts(repository, run), []
    for number in range(1, attempts + 1):
        made.append(store.store(attempt(number, made[-1] if made else None), "llm"))
        store.record_verdict(said_of(made[-1]))
    return store, made


def loose_files(repository):
    """Return the files of single objects, in order."""
    return sorted(path for path in (repository / "objects").glob("??/*"))


def by_hand(repository, message="by hand", run=RUN):
    """Commit on a branch as a person with git would."""
    branch = f"runs/{run}"
    tree = git(repository, "rev-parse", f"{branch}^{{tree}}").strip()
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    commit = git(repository, *who, "commit-tree", tree, "-p", branch, "-m", message).strip()
    git(repository, "update-ref", f"refs/heads/{branch}", commit)
    return commit


def open_files():
    """Count what this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
