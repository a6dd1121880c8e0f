from datetime import UTC, datetime

import attrs
import pytest

from dsa.edge.document_files import load
from dsa.errors import DocumentError
from dsa.lang import loads
from dsa.runs.place import RunFolder, accepted_artifacts, new_run_id, open_place, result_of, suffix_of
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


def test_folder_is_written_while_the_run_progresses(tmp_path):
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
    assert accepted_artifacts(run, artifacts) == []
    assert folder.write_steps([]) is None
    assert folder.write_final(None) is None
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "g_test-1-rejected.feedback.txt",
        "g_test-1-rejected.py",
        "machine.md",
    ]
    assert (folder.path / "g_test-1-rejected.feedback.txt").read_text().rstrip() == rejected.feedback
    assert (folder.path / "machine.md").read_text() == "# workflow\n"
    assert (folder.path / "g_test-1-rejected.py").read_bytes().decode("utf-8", "surrogatepass") == made.content


def test_later_decision_of_a_person_renames_the_file_again(tmp_path):
    artifacts = MemoryArtifacts()
    made = artifacts.store(Artifact("x", step="g_test"))
    folder = RunFolder(tmp_path, begin(load("workflow"), "r1")[0], "")
    folder.observe(ArtifactEntry("k", "g_test", 1, made.artifact_id, ""), artifacts)
    for outcome in ("fatal", "failed"):
        folder.observe(VerdictEntry("k", "g_test", 1, made.artifact_id, [GuardVerdict("g", outcome)]), artifacts)
    assert (folder.path / "g_test-1-rejected.py").exists()
    assert not (folder.path / "g_test-1-fatal.py").exists()


def test_unusable_folder_of_runs_is_a_document_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    run, _ = begin(load("dual_state"), "r1")
    with pytest.raises(DocumentError, match="file: runs cannot be stored here"):
        RunFolder(tmp_path / "file", run, "").observe(run.ledger[0], MemoryArtifacts())


def keep_place(root):
    """Open the store of a folder and close it."""
    place = open_place(root)
    assert place.store.runs() == ()
    place.close()


def test_git_ignores_only_the_default_folder_of_runs(tmp_path):
    for name in (".dsa", "named"):
        keep_place(tmp_path / name)
        assert (tmp_path / name / "ledger.db").exists()
    assert (tmp_path / ".dsa" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "named" / ".gitignore").exists()
    (tmp_path / ".dsa" / ".gitignore").unlink()
    keep_place(tmp_path / ".dsa")
    assert not (tmp_path / ".dsa" / ".gitignore").exists(), "a deleted file is not written again"


def test_names_of_any_length_become_different_file_names(tmp_path):
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


STEPS = """# m
## Guards
| guard | is | options |
| - | - | - |
| shaped | json | schema = s.json |
| both | all | of = syntax, polite |
| polite | regex | pattern = a |
## Steps
| step | guard |
| - | - |
| code | syntax |
| data | shaped |
| mixed | both |
| text | polite |

Result: data
"""


def steps_folder(tmp_path, text=STEPS):
    """Return a machine, the folder of a run, and a function that makes an artifact of a step."""
    machine, artifacts = loads(text), MemoryArtifacts()
    folder = RunFolder(tmp_path, begin(machine, "r1")[0], text)
    folder.path.mkdir()
    return machine, folder, lambda step, content: artifacts.store(Artifact(content, step=step))


def test_each_passed_step_has_a_file_with_the_suffix_of_its_content(tmp_path):
    _, folder, made = steps_folder(tmp_path)
    fenced = "Here it is:\n```python\nx = 1\n```\nEnjoy."
    accepted = [
        made("code", fenced),
        made("data", '```json\n{"a": 1}\n```'),
        made("mixed", "y = 2"),
        made("text", "a word"),
    ]
    assert folder.write_steps(accepted) == folder.path / "steps"
    assert {path.name: path.read_text() for path in (folder.path / "steps").iterdir()} == {
        "code.py": "x = 1\n", "data.json": '{"a": 1}\n', "mixed.py": "y = 2\n", "text.txt": "a word\n",
    }  # fmt: skip


def test_file_of_a_revoked_step_is_removed(tmp_path):
    _, folder, made = steps_folder(tmp_path)
    folder.write_steps([made("code", "x = 1"), made("text", "a")])
    folder.write_steps([made("text", "a")])
    assert [path.name for path in (folder.path / "steps").iterdir()] == ["text.txt"]
    assert folder.write_steps([]) is None
    assert not (folder.path / "steps").exists()


def test_single_step_has_only_the_final_file(tmp_path):
    _, folder, made = steps_folder(tmp_path, "# m\n## Steps\n| step | guard |\n| - | - |\n| g | syntax |\n")
    result = made("g", "x = 1")
    assert folder.write_steps([result]) is None
    assert folder.write_final(result).read_text() == "x = 1\n"


def test_final_file_is_the_result_and_the_only_one(tmp_path):
    machine, folder, made = steps_folder(tmp_path)
    accepted = [made("code", "x = 1"), made("data", "[1]"), made("text", "a")]
    assert folder.write_final(result_of(machine, accepted)).name == "final.json"
    assert folder.write_final(None, "an answer").read_text() == "an answer\n"
    assert [path.name for path in folder.path.glob("final.*")] == ["final.txt"]
    assert folder.write_final(None) is None
    assert not list(folder.path.glob("final.*"))


def test_result_is_the_named_step_or_the_last_that_has_passed(tmp_path):
    machine, _, made = steps_folder(tmp_path)
    code, data, text = made("code", "x"), made("data", "[]"), made("text", "a")
    assert result_of(machine, [code, data, text]) is data
    assert result_of(machine, [code, text]) is None
    unnamed = attrs.evolve(machine, result=None)
    assert result_of(unnamed, [code, text]) is text
    assert result_of(unnamed, []) is None


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        ("def f():\n    return 1\n", ".py"),
        ("```python\nx = 1\n```", ".py"),
        ("import the goods\nfrom abroad", ".txt"),
        ('{"a": [1, 2]}', ".json"),
        ("[1, 2", ".txt"),
        ("[" * 100_000, ".txt"),
        ("# A title\n\nand text", ".md"),
        ("| a | b |\n| - | :-: |\n| 1 | 2 |", ".md"),
        ("Text, and then:\n\n```\ncode\n```", ".md"),
        ("- a dash\n# no", ".md"),
        ("Plain words, #1 | 2.", ".txt"),
        ("", ".txt"),
    ],
)
def test_suffix_follows_the_content_when_guards_do_not_determine_it(tmp_path, content, suffix):
    machine, _, _ = steps_folder(tmp_path)
    assert suffix_of(machine, "text", content) == suffix
    assert suffix_of(machine, "code", content) == ".py"
