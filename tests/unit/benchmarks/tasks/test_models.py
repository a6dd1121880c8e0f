import attrs
import pytest
from benchmarks.tasks.models import SHIPPED, AskedModel, ModelError, Question, read_model
from benchmarks.tasks.tasks import task_named

from dsa.runtime.generation import GenerationError

MACHINE = task_named("template").machine
QUESTION = Question(MACHINE, "template", 5, "Write it.")
SCRIPT = "## template\n```\none\n```\n```\ntwo\n```\n## template after feedback\n```\nthree\n```\n"


@pytest.fixture
def drawn(tmp_path):
    (tmp_path / "template.md").write_text(SCRIPT)
    return read_model(f"scripted:{tmp_path}", (MACHINE,))


def test_seed_selects_the_reply(drawn):
    said = [drawn.answer(attrs.evolve(QUESTION, seed=seed)).content for seed in range(4)]
    assert said == ["```python\none\n```\n", "```python\ntwo\n```\n"] * 2


def test_question_after_feedback_has_its_own_replies(drawn):
    assert drawn.answer(attrs.evolve(QUESTION, has_feedback=True)).content == "```python\nthree\n```\n"


def test_changed_script_gives_other_parameters(drawn, tmp_path):
    before = drawn.script("template")
    (tmp_path / "template.md").write_text(SCRIPT.replace("two", "2"))
    after = read_model(f"scripted:{tmp_path}", (MACHINE,))
    assert after.script("template") != before
    assert after.parameters(QUESTION) != drawn.parameters(QUESTION)


def test_shipped_scripts_are_a_model_by_name():
    assert read_model(SHIPPED, (MACHINE,)).answer(QUESTION).content.startswith("```python\n# ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "template.md cannot be read: No such file"),
        ("## other\n```\nx\n```\n", "no replies for step template: write fenced blocks"),
    ],
)
def test_folder_without_replies_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "template.md").write_text(text)
    with pytest.raises(ModelError, match=message):
        read_model(f"scripted:{tmp_path}", (MACHINE,))


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is not a folder; scripted:DIR takes a folder"):
        read_model(f"scripted:{tmp_path / 'none'}", (MACHINE,))


def test_only_the_local_model_counts_as_deterministic():
    assert AskedModel("local").is_deterministic
    assert not AskedModel("openai/gpt-4o-mini").is_deterministic
    assert not AskedModel("http://127.0.0.1:9/v1#m").is_deterministic


def test_options_of_the_document_are_parameters():
    assert AskedModel("local").parameters(QUESTION) == {"step": "template", "temperature": "0.7"}


@pytest.mark.model
def test_local_model_gives_the_same_answer_to_the_same_question():
    question = Question(task_named("factorial").machine, "factorial", 3, "Write a Python function `def factorial(n):`.")
    first, second = (AskedModel("local").answer(question).content for _ in range(2))
    assert first == second
    others = {AskedModel("local").answer(attrs.evolve(question, seed=seed)).content for seed in (4, 5)}
    assert others != {first}


def test_unreachable_server_is_a_generation_error():
    with pytest.raises(GenerationError, match=r"127\.0\.0\.1"):
        AskedModel("http://127.0.0.1:9/v1#m").answer(QUESTION)
