import json

import attrs
import pytest
from benchmarks.tasks.arms import arms_named
from benchmarks.tasks.command import folder_name, planned
from benchmarks.tasks.models import read_model
from benchmarks.tasks.plan import Plan, SettingsError, settle
from benchmarks.tasks.tasks import Task, tasks_named


def plan(folder, names="lru", arms="one_shot,best_of_4,guarded_3,guarded_4", **changes):
    chosen = tasks_named(names)
    model = read_model("scripted", tuple(task.machine for task in chosen))
    made = Plan(model, chosen, arms_named(arms), 10, 1, "published", True, folder)  # noqa: FBT003
    return attrs.evolve(made, **changes)


def test_folder_accepts_more_tasks_and_samples(tmp_path):
    settle(plan(tmp_path / "a"))
    settle(plan(tmp_path / "a", "template,lru", "one_shot", samples=50))
    known = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert sorted(known["tasks"]) == ["lru", "template"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "seed was 1, and is 2 now"),
        ({"prompt": "dsa"}, "prompt was published, and is dsa now"),
        ({"shared": False}, "shared was True, and is False now"),
    ],
)
def test_folder_refuses_other_settings(tmp_path, change, message):
    settle(plan(tmp_path))
    with pytest.raises(SettingsError, match=f"{message}.*Take another folder with --out"):
        settle(plan(tmp_path, **change))


def test_folder_refuses_an_edited_document(tmp_path):
    settle(plan(tmp_path))
    (task,) = tasks_named("lru")
    with pytest.raises(SettingsError, match="the document, the oracle or the script of lru has changed"):
        settle(plan(tmp_path, tasks=(Task("lru", task.text + "\nMore.\n"),)))


@pytest.mark.parametrize("text", ["", "[]", '{"tasks": 3}'])
def test_invalid_settings_file_is_named(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(SettingsError, match=r"settings\.json"):
        settle(plan(tmp_path))


@pytest.mark.parametrize(
    ("arms", "shared", "calls"),
    [
        ("one_shot", True, 1),
        ("best_of_4", True, 4),
        ("one_shot,best_of_4,guarded_3,guarded_4", True, 7),
        ("one_shot,best_of_4,guarded_3,guarded_4", False, 12),
    ],
)
def test_calls_of_a_sample_are_bounded(tmp_path, arms, shared, calls):
    assert plan(tmp_path, arms=arms, shared=shared).most_calls() == calls
    assert plan(tmp_path, names="lru,tdd_stack", arms=arms, shared=shared).most_calls() == 3 * calls


@pytest.mark.parametrize(
    ("model", "share", "shared"),
    [("local", None, True), ("openai/x", None, False), ("openai/x", True, True), ("local", False, False)],
)
def test_calls_are_shared_for_deterministic_models_by_default(tmp_path, model, share, shared):
    made = planned(model, "katas", tmp_path, share=share, arms="one_shot", samples=1, seed=1, prompt="published")
    assert made.shared == shared


def test_name_of_a_model_becomes_a_folder_name():
    assert folder_name("http://127.0.0.1:8080/v1#m") == "http_127.0.0.1_8080_v1_m"
    assert folder_name("scripted:../x") == "scripted_.._x"
    assert folder_name("..") == "model"
