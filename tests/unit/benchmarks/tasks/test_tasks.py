"""The documents are sound machines, and their prompts are those of the published benchmark."""

import hashlib
import re

import pytest
from benchmarks.tasks.models import SCRIPTS
from benchmarks.tasks.oracles import calls_of
from benchmarks.tasks.prompts import published_prompt
from benchmarks.tasks.tasks import DOCUMENTS, KATAS, PUBLISHED, SETS, task_named, tasks_named
from each_row import each_row

from dsa.checks.report import check
from dsa.edge.document_files import load
from dsa.generators.substitutes import parse_script
from dsa.lang import format_document
from dsa.runtime.content import AmbientEnvironment, Artifact, Context
from machines.dual_state.bindings import template_for

ALL = SETS["all"]
#: SHA-256 of each published prompt, with TESTS in the place of the tests.
PROMPTS = {
    ("template", "template"): "acad2823683e664d",
    ("password", "password"): "e883dba8049f2e8d",
    ("lru", "lru"): "be95863994f2cd2b",
    ("tdd_stack", "g_test"): "dfd8bbabc4cd00d6",
    ("tdd_stack", "g_impl"): "63d3566b980d1b39",
    ("tdd_calculator", "g_test"): "4733ec0efaad72ad",
    ("tdd_calculator", "g_impl"): "78bbdbbca1ed8c33",
    ("tdd_queue", "g_test"): "288ac23c49ba4bb2",
    ("tdd_queue", "g_impl"): "ae4d60b24c175a47",
    ("tdd_lrucache", "g_test"): "9598d76892ba1545",
    ("tdd_lrucache", "g_impl"): "f7915773cdcf3fc0",
    ("tdd_template", "g_test"): "524cec3f11bf6fff",
    ("tdd_template", "g_impl"): "2eb19086f2f3e7f6",
    ("tdd_password", "g_test"): "b91a8696876c3be7",
    ("tdd_password", "g_impl"): "b1f45194b3482be9",
}


def asked(name, step, **used):
    """Return the first prompt of a step."""
    dependencies = {of: Artifact(text) for of, text in used.items()}
    context = Context(AmbientEnvironment(), "", step=step, dependencies=dependencies)
    return published_prompt(context, template_for(task_named(name).machine, step, "query_llm"))


def test_every_document_is_a_task_and_every_task_has_what_it_needs():
    assert sorted(path.stem for path in DOCUMENTS.glob("*.md")) == sorted(ALL)
    assert sorted(path.stem for path in SCRIPTS.glob("*.md")) == sorted(PUBLISHED)
    assert all(sum(len(calls) for calls, _ in calls_of(name)) >= 4 for name in ALL)


@each_row("name", ALL)
def test_document_is_sound_and_formatted(name):
    task = task_named(name)
    found = check(task.machine)
    assert [each.message for each in found.diagnostics if each.severity != "info"] == []
    assert format_document(task.text) == task.text
    assert task.machine.name == name
    assert all(dict(row.options)["temperature"] == "0.7" for row in task.machine.generators)


@pytest.mark.parametrize("name", KATAS[:3])
def test_katas_are_the_same_as_the_shipped_ones(name):
    step = next(step for step in load("katas/katas").steps if f"def {name}(" in step.task)
    cases = {section.name: section.cases for section in load("katas/katas").cases}
    ours = task_named(name).machine
    assert ours.steps[0].task == step.task
    assert [(case.call, case.expected) for case in ours.cases[0].cases] == [
        (case.call, case.expected) for case in cases[step.name]
    ]


@each_row(
    ("name", "step", "line"),
    [
        ("template", "template", '- render_template("Hi {{ missing }}", {}) -> "Hi {{ missing }}"'),
        ("template", "template", '- render_template("{% if show %}Visible{% endif %}", {"show": True}) -> "Visible"'),
        ("password", "password", "5. The sum of all digits in the password must be a prime number."),
        ("lru", "lru", "4. The functions `get` and `put` must each run in O(1) average time complexity."),
        ("tdd_template", "g_test", "4. Escaped braces: {{ becomes { and }} becomes } in output"),
        ("tdd_template", "g_test", ' template = SimpleTemplate("Hello, {name}!")'),
        ("tdd_password", "g_test", "- Edge case: only special characters (should fail other rules)"),
        (
            "tdd_stack",
            "g_test",
            "Output ONLY the test code, no implementation. Use 'from implementation import Stack'.",
        ),
    ],
)
def test_prompt_has_the_published_line_word_for_word(name, step, line):
    assert line in asked(name, step).splitlines()


@each_row(("name", "step"), list(PROMPTS))
def test_prompt_is_the_published_one_to_the_letter(name, step):
    _, _, task = asked(name, step, test="TESTS").partition("# your code here\n```\n\n")
    assert task
    assert hashlib.sha256(task.removesuffix("\n").encode()).hexdigest()[:16] == PROMPTS[name, step], task


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith("tdd_")])
def test_prompt_of_the_second_step_has_the_tests_as_they_were_written(name):
    tests = "def test_it():\n    assert {'{{a}}': 1} and '{test}'"
    shown = asked(name, "g_impl", test=f"Here they are:\n```python\n{tests}\n```\nGood luck.")
    assert shown.endswith(f"You must implement code that passes the following tests:\n{tests}\n")


@each_row("name", PUBLISHED)
def test_prompt_begins_with_the_role(name):
    assert asked(name, task_named(name).steps[0]).startswith(
        "You are a helpful Python programming assistant. Your task is to provide"
    )


@each_row("name", PUBLISHED)
def test_script_labels_each_of_its_replies(name):
    replies = parse_script((SCRIPTS / f"{name}.md").read_text(encoding="utf-8"))
    assert replies.pop("") == []
    for each in replies.values():
        assert all(re.match(r"# (right|whole|weak|(gap|wrong): \w.*)\n", reply) for reply in each)


def test_names_select_tasks_or_sets_of_tasks():
    assert [task.name for task in tasks_named("lru, katas,lru")] == ["lru", *KATAS]
    assert len(tasks_named("all")) == len(PUBLISHED) + len(KATAS)
    with pytest.raises(ValueError, match="there is no task 'lur'; there are: template, password, lru"):
        tasks_named("lur")
    with pytest.raises(ValueError, match="no task is named"):
        tasks_named(" , ")
