from datetime import UTC, datetime

import attrs
import pytest

from dsa.edge.document_files import load
from dsa.errors import DocumentError
from dsa.runs.place import RunFolder, accepted_artifacts, new_run_id, opened_place
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact
from dsa.runtime.ledger import ArtifactEntry, GuardVerdict, VerdictEntry
from dsa.runtime.run import begin
from dsa.semantics import Occurrence


def test_run_ids_sort_by_time_and_differ():
    early = new_run_id("dual_state", now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), entropy="ff")
    late = new_run_id("dual_state", now=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC), entropy="00")
    assert early == "20260102T030405-dual_state-ff"
    assert early < late
    assert len({new_run_id("dual_state") for _ in range(20_000)}) == 20_000  # as many as may begin in one second


def test_a_folder_is_written_as_the_run_goes(tmp_path):
    machine, artifacts = load("workflow"), MemoryArtifacts()
    run, _ = begin(machine, "r1")
    folder = RunFolder(tmp_path, run, "# workflow\n")
    assert not folder.path.exists(), "nothing is durable yet"
    for entry in run.ledger:
        folder.observe(entry, artifacts)
    run, _ = run.feed(Occurrence("specification", data="add"))
    for entry in run.ledger[1:]:
        folder.observe(entry, artifacts)
    made = artifacts.store(Artifact("x = '\ud800é'", step="g_test"))
    folder.observe(ArtifactEntry("k", "g_test", 1, made.artifact_id, made.content_digest), artifacts)
    assert (folder.path / "g_test-1.py").exists(), "the artifact is there before its verdict"
    rejected = VerdictEntry("k", "g_test", 1, made.artifact_id, [GuardVerdict("g_test", "failed", "no")])
    folder.observe(rejected, artifacts)
    assert folder.write_final(accepted_artifacts(run, artifacts)) is None
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "g_test-1-rejected.feedback.txt",
        "g_test-1-rejected.py",
        "machine.md",
    ]
    assert (folder.path / "g_test-1-rejected.feedback.txt").read_text().rstrip() == rejected.feedback
    assert (folder.path / "machine.md").read_text() == "# workflow\n"
    assert (folder.path / "g_test-1-rejected.py").read_bytes().decode("utf-8", "surrogatepass") == made.content


def test_what_a_person_says_later_renames_the_file_again(tmp_path):
    artifacts = MemoryArtifacts()
    made = artifacts.store(Artifact("x", step="g_test"))
    folder = RunFolder(tmp_path, begin(load("workflow"), "r1")[0], "")
    folder.observe(ArtifactEntry("k", "g_test", 1, made.artifact_id, ""), artifacts)
    for outcome in ("fatal", "failed"):
        folder.observe(VerdictEntry("k", "g_test", 1, made.artifact_id, [GuardVerdict("g", outcome)]), artifacts)
    assert (folder.path / "g_test-1-rejected.py").exists()
    assert not (folder.path / "g_test-1-fatal.py").exists()


def test_where_no_run_can_be_kept_is_a_document_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    run, _ = begin(load("dual_state"), "r1")
    with pytest.raises(DocumentError, match="file: no run can be kept here"):
        RunFolder(tmp_path / "file", run, "").observe(run.ledger[0], MemoryArtifacts())


def keep_place(root):
    """Open the store of a folder and close it."""
    place = opened_place(root)
    assert place.store.runs() == ()
    place.close()


def test_git_passes_over_the_folder_of_runs_that_nobody_has_named(tmp_path):
    for name in (".dsa", "named"):
        keep_place(tmp_path / name)
        assert (tmp_path / name / "ledger.db").exists()
    assert (tmp_path / ".dsa" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "named" / ".gitignore").exists()
    (tmp_path / ".dsa" / ".gitignore").unlink()
    keep_place(tmp_path / ".dsa")
    assert not (tmp_path / ".dsa" / ".gitignore").exists(), "somebody wants to commit runs"


def test_names_of_any_length_make_names_of_files(tmp_path):
    machine = attrs.evolve(load("dual_state"), name="m" * 5000)
    first, second = new_run_id(machine.name, entropy="a"), new_run_id("m" * 4999, entropy="a")
    assert first != second
    artifacts = MemoryArtifacts()
    made = [artifacts.store(Artifact("x", step=step)) for step in ("s" * 400, "s" * 401)]
    folder = RunFolder(tmp_path, begin(machine, first)[0], "")
    for artifact in made:
        folder.observe(ArtifactEntry("k", artifact.step, 1, artifact.artifact_id, ""), artifacts)
    names = list(folder.path.glob("s*"))
    assert len(names) == 2
