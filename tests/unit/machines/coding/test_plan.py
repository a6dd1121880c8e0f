"""Plans of tasks as models write them, and their faults."""

import json

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from machines.coding.task_plan import LONGEST, TEMPLATES, Task, fallback, faults_of, read_plan, tasks_from, template
from machines.tool_use.records import as_data

GOOD = [{"description": "Create it", "subtasks": ["write_file a.py"]}]
TASK = (Task("Create it", ("write_file a.py",)),)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"Here it is:\n```json\n{json.dumps(GOOD)}\n```\nGood luck!",
        f"I think {json.dumps(GOOD)} will do.",
        json.dumps({"tasks": GOOD}),
        json.dumps(GOOD[0]),
        json.dumps([{"task": "Create it", "steps": [{"action": "write_file a.py"}]}]),
        json.dumps([{"description": " Create \n it ", "subtasks": ["write_file   a.py", "", 3]}]),
    ],
)
def test_tasks_are_found_in_the_text_of_a_model(text):
    assert read_plan(text) == (TASK, [])


@each_row(
    ("text", "says"),
    [
        ("I shall think about it.", "no JSON list of tasks"),
        ("[]", "there are no tasks"),
        (json.dumps(GOOD * 4), "there are 4 tasks; write at most 3"),
        (json.dumps([{"description": "x", "subtasks": []}]), "task 1 has no subtasks"),
        (json.dumps([{"subtasks": ["write_file a.py"]}]), "task 1 has no description"),
        (
            json.dumps([{"description": "x", "subtasks": ["write_file a.py"] * 9}]),
            "task 1 has 9 subtasks; write at most 8",
        ),
        (json.dumps([{"description": "x", "subtasks": ["Choose a language"]}]), "'Choose a language' needs no tool"),
        (json.dumps([{"description": "x", "subtasks": ["Think about design"]}]), "needs no tool"),
    ],
)
def test_invalid_plan_says_why(text, says):
    _, faults = read_plan(text)
    assert any(says in fault for fault in faults), faults


@pytest.mark.parametrize("subtask", ["Review main.py and edit it", "Plan with run_cmd pytest", "Identify files in src/app", "Print a greeting"])  # fmt: skip
def test_subtask_that_names_a_tool_or_a_file_is_concrete(subtask):
    assert faults_of((Task("x", (subtask,)),)) == []


@given(st.text(max_size=300))
def test_any_text_gives_tasks_or_faults(text):
    tasks, faults = read_plan(text)
    assert bool(tasks) or bool(faults)
    assert tasks_from([as_data(task) for task in tasks]) == tasks


def test_fallback_plan_is_the_goal_itself():
    (task,) = fallback("Do\nit " + "x" * 1_000)
    assert len(task.subtasks[0]) == LONGEST
    assert task.subtasks[0].startswith("Do it x")


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_valid_plans(name):
    tasks = template(name, "a game")
    assert faults_of(tasks) == []
    assert "{goal}" not in str(tasks)


def test_independent_subtasks_are_read_from_a_plan():
    said = [{"description": "Both", "independent": True, "subtasks": ["write_file a.txt", "write_file b.txt"]}]
    (task,), faults = read_plan(json.dumps(said))
    assert (task.independent, faults) == (True, [])
    assert tasks_from([as_data(task)]) == (task,)
    assert template("both", "it", {"both": (task,)})[0].independent
    assert not any(task.independent for name in TEMPLATES for task in template(name, "it"))
    assert not tasks_from([{**said[0], "independent": "no"}])[0].independent


def test_own_templates_are_added_to_the_shipped_ones():
    own = {"notes": (Task("Write", ("write_file notes.md about {goal}",)),)}
    assert template("notes", "birds", own) == (Task("Write", ("write_file notes.md about birds",)),)
