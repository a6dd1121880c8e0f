import json

import attrs
import pytest
from benchmarks.tasks.calls import Calls, key_of
from benchmarks.tasks.models import Question
from benchmarks.tasks.tasks import task_named

from dsa.runtime.content import Artifact, Usage
from dsa.runtime.generation import GenerationError

MACHINE = task_named("template").machine
QUESTION = Question(MACHINE, "template", 5, "Write it.")


class Counting:
    """A model whose answer is the number of the call."""

    name, is_deterministic = "counting", True

    def __init__(self):
        self.asked = 0
        self.options = {"temperature": "0.7"}

    def answer(self, question):
        self.asked += 1
        if question.prompt == "fail":
            raise GenerationError("it is gone", "unreachable")
        return Artifact(f"{self.asked} \u2028 \udcff\n", usage=Usage("counting", 1.5, 3, 4, cost_usd=0.25))

    def parameters(self, _question):
        return self.options


def test_equal_call_is_made_once_and_found_by_the_next_process(tmp_path):
    model = Counting()
    calls = Calls(model, tmp_path / "calls.jsonl", shared=True)
    first, is_new = calls.answer(QUESTION)
    again, is_newer = calls.answer(QUESTION)
    later, is_newest = Calls(model, tmp_path / "calls.jsonl", shared=True).answer(QUESTION)
    assert (is_new, is_newer, is_newest) == (True, False, False)
    assert first.content == again.content == later.content == "1 \u2028 \udcff\n"
    assert later.usage == first.usage == Usage("counting", 1.5, 3, 4, cost_usd=0.25)
    assert (model.asked, calls.made) == (1, 1)


@pytest.mark.parametrize("change", [{"seed": 6}, {"prompt": "Write it!"}, {"machine": task_named("lru").machine}])
def test_another_question_is_a_new_call(tmp_path, change):
    calls = Calls(Counting(), tmp_path / "calls.jsonl", shared=True)
    calls.answer(QUESTION)
    assert calls.answer(attrs.evolve(QUESTION, **change))[1]


def test_other_parameters_and_other_models_have_other_keys():
    one, other = Counting(), Counting()
    other.options = {"temperature": "0.8"}
    assert key_of(one, QUESTION) != key_of(other, QUESTION)
    other.options, other.name = one.options, "another"
    assert key_of(one, QUESTION) != key_of(other, QUESTION)


def test_unshared_calls_are_all_made_and_recorded(tmp_path):
    calls = Calls(Counting(), tmp_path / "calls.jsonl", shared=False)
    assert [calls.answer(QUESTION)[0].content[0] for _ in range(3)] == ["1", "2", "3"]
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 3


def test_failed_call_is_not_recorded(tmp_path):
    calls = Calls(Counting(), tmp_path / "calls.jsonl", shared=True)
    with pytest.raises(GenerationError):
        calls.answer(attrs.evolve(QUESTION, prompt="fail"))
    assert not (tmp_path / "calls.jsonl").exists()
    assert calls.made == 0


def test_call_with_an_incomplete_line_is_made_again(tmp_path):
    path = tmp_path / "calls.jsonl"
    calls = Calls(Counting(), path, shared=True)
    calls.answer(QUESTION)
    calls.answer(attrs.evolve(QUESTION, seed=6))
    path.write_bytes(path.read_bytes()[:-9])
    opened = Calls(Counting(), path, shared=True)
    assert not opened.answer(QUESTION)[1]
    assert opened.answer(attrs.evolve(QUESTION, seed=6))[1]
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [5, 6]


def test_invalid_line_is_named_with_its_number(tmp_path):
    (tmp_path / "calls.jsonl").write_text('{"key": "a"}\n[]\n')
    with pytest.raises(ValueError, match=r"calls\.jsonl:2: this line is not a call"):
        Calls(Counting(), tmp_path / "calls.jsonl", shared=True)
