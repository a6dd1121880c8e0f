import re

import pytest

from dsa.runtime.content import AmbientEnvironment, Artifact, Context, PromptTemplate, fill, placeholders, render

AMBIENT = AmbientEnvironment(constraints="No network.")


def test_prompt_has_all_parts_in_order():
    template = PromptTemplate("You write Python.", "Plain functions.", "Write it.", "Rejected: {feedback}")
    context = Context(AMBIENT, "An LRU cache", "class A", (("class A", "no get"), ("class B", "no put")))
    assert render(template, context) == (
        "# ROLE\nYou write Python.\n\n"
        "# CONSTRAINTS\nPlain functions.\n\n"
        "# CONTEXT\nNo network.\n\nSpecification:\nAn LRU cache\n\n"
        "# HISTORY\n--- Attempt 1 ---\nclass A\nRejected: no get\n\n--- Attempt 2 ---\nclass B\nRejected: no put\n\n"
        "# TASK\nWrite it."
    )


def test_text_in_a_placeholder_is_not_repeated_in_the_context():
    test = Artifact("def test(): {x}")
    context = Context(AmbientEnvironment(), "Psi", dependencies={"test": test, "other": Artifact("O")})
    text = render(PromptTemplate(task="Implement {specification} to pass {test}"), context)
    assert text == "# CONTEXT\nother:\nO\n\n# TASK\nImplement Psi to pass def test(): {x}"


def test_inserted_text_is_not_filled_again():
    values = {"a": "{b} {{ {unknown}", "b": "never"}
    assert fill("{a} {{b}", values) == "{b} {{ {unknown} {b}"


def test_braces_without_a_placeholder_are_unchanged():
    assert fill('{"x": 1} { } {}', {}) == '{"x": 1} { } {}'
    assert placeholders('{a} {{b} {"x"} {g.c}') == {"a", "g.c"}


def test_unknown_placeholder_is_an_error():
    with pytest.raises(ValueError, match=r"specificaton.*did you mean 'specification'"):
        render(PromptTemplate(task="{specificaton}"), Context(AmbientEnvironment(), "x"))


def test_feedback_may_contain_braces():
    context = Context(AmbientEnvironment(), "S", "a", (("a{b}", "got {1: 2}"),))
    assert "a{b}\nThe attempt above was rejected:\ngot {1: 2}\n" in render(PromptTemplate(task="T"), context)


def test_prompt_without_a_template_is_plain():
    context = Context(AMBIENT, "Psi", "a2", (("a1", "f1"), ("a2", "f2")), {"test": Artifact("T")})
    assert render(None, context) == (
        "No network.\n\nPsi\n\ntest:\nT\n\nPrevious attempt:\na2\n\nFeedback:\nAttempt 1: f1\nAttempt 2: f2"
    )
    assert render(None, Context(AmbientEnvironment(), "Psi")) == "Psi"


def test_specification_is_the_default_task():
    assert render(PromptTemplate(role="R"), Context(AmbientEnvironment(), "Psi")).endswith("# TASK\nPsi")


def test_template_renders_itself():
    template = PromptTemplate("You write Python.", task="Write {specification}.")
    context = Context(AMBIENT, "an LRU cache", "class A", (("class A", "no get"),))
    assert template.render(context) == render(template, context)
    assert template.render(context).endswith("# TASK\nWrite an LRU cache.")


@pytest.mark.parametrize(
    ("wrapper", "said"),
    [
        ("Rejected: {feedbak}", "the placeholder {feedbak} of feedback_wrapper; did you mean 'feedback'?"),
        (
            "{feedback} of {specification}",
            "the placeholder {specification} of feedback_wrapper; known here: 'feedback'",
        ),
        ("{feedback} of {found.order}", "{found.order}"),
    ],
)
def test_wrapper_with_an_unknown_placeholder_is_refused_at_creation(wrapper, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        PromptTemplate(task="Write it.", feedback_wrapper=wrapper)


@pytest.mark.parametrize(
    "wrapper", ["Rejected: {feedback}", "{{feedbak}} {feedback}", "Again.", '{"said": 1} {feedback}']
)
def test_wrapper_may_contain_other_braces_or_lack_a_placeholder(wrapper):
    assert PromptTemplate(feedback_wrapper=wrapper).feedback_wrapper == wrapper


def test_wrapper_of_a_table_may_use_the_names_of_its_prompts():
    template = PromptTemplate(feedback_wrapper="{feedback} ({test})", wrapper_names=frozenset({"test"}))
    context = Context(AMBIENT, "Psi", "a", (("a", "no"),), {"test": Artifact("T")})
    assert "no (T)" in template.render(context)


@pytest.mark.parametrize("part", ["system", "role", "constraints", "task"])
def test_unknown_placeholder_of_any_part_is_reported_by_require(part):
    template = PromptTemplate(**{part: "{specification} {test}"})
    template.require(["test"])
    with pytest.raises(ValueError, match=f"placeholder {{test}} of {part}; did you mean 'tests'"):
        template.require(["tests"])
