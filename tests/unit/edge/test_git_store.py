import pytest
from artifact_runs import RUN, attempt, filled, git, memory_folder, require_clean, said_of

from dsa.edge.git_artifacts import GitArtifacts, run_ids
from dsa.runtime.content import Artifact, Usage
from dsa.runtime.ledger import GuardVerdict, VerdictEntry
from dsa.runtime.run_store import StoreError

BRANCH = f"runs/{RUN}"


@pytest.fixture
def repository():
    with memory_folder() as folder:
        yield folder / "artifacts.git"


# -- output of git ----------------------------------------------------------------------------------------------------


def test_record_is_a_commit_that_git_log_shows(repository):
    store = GitArtifacts(repository, RUN, now_s=lambda: 1_790_000_000.5)
    made = store.store(Artifact("x = 1\n", 1, step="impl", usage=Usage("m1", 0.5, 10, 20, 0.25)), author="llm")
    store.record_verdict(VerdictEntry("2/1", "impl", 1, made.artifact_id, (GuardVerdict("tests", "failed", "a\nb"),)))
    assert (
        git(repository, "log", "--reverse", "--format=%an %at%n%B", BRANCH)
        == f"""\
dsa 1790000000
impl: attempt 1

Dsa-Record: artifact
Run: {RUN}
Step: impl
Attempt: 1
Artifact: {made.artifact_id}
Content-Digest: {made.content_digest}
Generator: llm
Model: m1
Seconds: 0.5
Prompt-Tokens: 10
Completion-Tokens: 20
Cost-Usd: 0.25
Path: impl

dsa 1790000000
impl: attempt 1 failed

Dsa-Record: verdict
Run: {RUN}
Step: impl
Attempt: 1
Artifact: {made.artifact_id}
Verdict: failed
Guard: tests
Outcome: failed
Feedback: |
  | a
  | b
Seconds: 0.0
Key: 2/1

"""
    )
    assert git(repository, "log", "--oneline", "--format=%s") == "impl: attempt 1 failed\nimpl: attempt 1\n", (
        "HEAD is it"
    )
    require_clean(repository)


def test_tree_has_the_newest_text_of_each_step(repository):
    store, made = filled(repository, 2)
    store.store(attempt(1, step="a b/c"))
    assert git(repository, "ls-tree", "-r", "--name-only", BRANCH) == "a%20b%2Fc\nimpl\n"
    assert git(repository, "show", f"{BRANCH}:impl") == made[1].content
    assert git(repository, "show", f"{BRANCH}~4:impl") == made[0].content
    assert git(repository, "diff", "--stat", f"{BRANCH}~4", f"{BRANCH}~2").startswith(" impl | 2 +-")
    assert git(repository, "show", "--format=", f"{BRANCH}~1") == "", "a verdict changes no text"


def test_folders_stay_small_with_many_steps(repository):
    store = GitArtifacts(repository, RUN)
    for number in range(250):
        store.store(attempt(1, step=f"s{number}"))
    for number in (7, 249):
        store.store(attempt(2, step=f"s{number}", content=f"again {number}"))
    names = git(repository, "ls-tree", "-r", "--name-only", BRANCH).split()
    assert len(names) == 250
    assert {"s99", "+1/s100", "+2/s249"} < set(names)
    assert git(repository, "show", f"{BRANCH}:+2/s249") == "again 249"
    assert [a.content for a in map(GitArtifacts(repository, RUN).get_artifact, ids_of(store)[-2:])] == [
        "again 7",
        "again 249",
    ]
    require_clean(repository)


def ids_of(store):
    return [attempt.artifact_id for attempt in store.attempts()]


@pytest.mark.parametrize("run", ["", "a/b", "..", "x.lock", "é \ud800", "HEAD", "-d", "r" * 450], ids=range(8))
def test_any_text_can_name_a_run(repository, run):
    _, made = filled(repository, 2, run)
    filled(repository, 1, "other")
    assert run_ids(repository) == tuple(sorted([run, "other"]))
    assert GitArtifacts(repository, run).get_provenance(made[1].artifact_id) == made
    require_clean(repository)
    git(repository, "gc", "-q", "--prune=now")
    assert run_ids(repository) == tuple(sorted([run, "other"]))
    assert GitArtifacts(repository, run).get_provenance(made[1].artifact_id) == made


def test_run_with_a_very_long_name_is_refused(repository):
    with pytest.raises(StoreError, match="a run's id of 9000 characters is too long"):
        GitArtifacts(repository, "r" * 9000)


# -- views ------------------------------------------------------------------------------------------------------------


def test_checkout_has_every_attempt_as_a_file(repository, tmp_path):
    store, made = filled(repository, 2)
    store.record_verdict(said_of(made[1], "passed", ""))
    store.store(attempt(1, step="a/b", content="\ud800\r\n"))
    store.store(attempt(1, step="a/b", content="another first"))
    store.checkout(tmp_path / "view", suffix=".py")
    files = {str(path.relative_to(tmp_path / "view")) for path in (tmp_path / "view").rglob("*.*")}
    twin = store.attempts()[-1].artifact_id.rpartition("/")[2][:12]
    assert files == {
        "impl/1-rejected.py",
        "impl/1-rejected.py.feedback.txt",
        "impl/2-passed.py",
        "a%2Fb/1.py",
        f"a%2Fb/1-{twin}.py",
    }
    assert (tmp_path / "view/a%2Fb/1.py").read_bytes() == b"\xed\xa0\x80\r\n"
    assert (tmp_path / "view/impl/1-rejected.py.feedback.txt").read_text() == "no\n\nVerdict: passed\n"
    store.checkout(tmp_path / "made", only_passed=True)
    assert [path.name for path in (tmp_path / "made").rglob("*.*")] == ["2-passed.txt"]


def test_checkout_into_a_folder_with_files_is_refused(repository, tmp_path):
    store, _ = filled(repository, 1)
    (tmp_path / "view").mkdir()
    store.checkout(tmp_path / "view")
    with pytest.raises(FileExistsError, match="is not empty; name an empty folder"):
        store.checkout(tmp_path / "view")
