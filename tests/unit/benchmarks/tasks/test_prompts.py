from benchmarks.tasks.prompts import agents_prompt, published_prompt

from dsa.runtime.content import AmbientEnvironment, Artifact, Context, PromptTemplate

TEMPLATE = PromptTemplate(role="Be brief.", task="Write {{x} for {test}.")
TESTS = Artifact("Sure:\n```python\nassert {x}\n```\n")


def context(*history):
    return Context(AmbientEnvironment(), "", feedback_history=history, dependencies={"test": TESTS})


def test_prompt_of_the_first_attempt_has_the_task_alone():
    assert published_prompt(context(), TEMPLATE) == "Be brief.\n\nWrite {x} for assert {x}\n."


def test_prompt_of_later_attempts_has_each_feedback_once_and_never_the_code():
    said = published_prompt(context(("CODE 1", "no"), ("CODE 2", "too long"), ("CODE 3", "no")), TEMPLATE)
    assert said == (
        "Be brief.\n\nWrite {x} for assert {x}\n."
        "\n\n=== PREVIOUS ATTEMPTS ===\n"
        "\nAttempt 1 failed:\nno\n"
        "\nAttempt 2 failed:\ntoo long\n"
        "\n=== END FEEDBACK ===\n\nPlease address the issues above and provide corrected code."
    )


def test_prompt_without_a_template_is_the_specification():
    assert published_prompt(Context(AmbientEnvironment(), "Write {x}."), None) == "Write {x}."


def test_agents_own_prompt_has_the_rejected_code():
    said = agents_prompt(context(("CODE 1", "no")), TEMPLATE)
    assert "CODE 1" in said
    assert "Be brief." in said
