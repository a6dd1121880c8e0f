import re
from collections.abc import Sequence

import pytest
from each_row import each_row

from dsa.runtime.content import AmbientEnvironment, Artifact, Context, PromptTemplate, render
from dsa.runtime.generation import GenerationError, TokenBudget, bytes_of

TEMPLATE = PromptTemplate("You write Python.", "", "Write it.", "Rejected: {feedback}")


def words(tokens):
    return TokenBudget(tokens, lambda text: len(text.split()), "in words")


def context(*history, specification="Psi"):
    return Context(AmbientEnvironment(), specification, history[-1][0] if history else None, history)


def test_byte_counts_as_a_token():
    assert (bytes_of("abc"), bytes_of("é☃"), bytes_of("\udc80"), bytes_of("")) == (3, 5, 3, 0)


def test_oldest_history_is_left_out_first():
    history = [(f"class A{number}", f"no method {number}") for number in range(1, 6)]
    assert render(TEMPLATE, context(*history), words(44)) == (
        "# ROLE\nYou write Python.\n\n# CONTEXT\nSpecification:\nPsi\n\n"
        "# HISTORY\n(3 earlier attempts are left out.)\n\n"
        "--- Attempt 4 ---\nclass A4\nRejected: no method 4\n\n--- Attempt 5 ---\nclass A5\nRejected: no method 5\n\n"
        "# TASK\nWrite it."
    )


def test_repeated_feedback_is_replaced_by_a_reference():
    history = [("class A", "no get"), ("class B", "no put"), ("class C", "no get"), ("class D", "")]
    prompt = render(TEMPLATE, context(*history, ("class E", "")), words(1000))
    assert "class A\nRejected: (The same as for attempt 3.)" in prompt
    assert "class C\nRejected: no get" in prompt
    assert prompt.count("no get") == 1
    assert "class D\nRejected: \n" in prompt, "empty feedback has no reference"


def test_history_of_a_plain_prompt_is_left_out_too():
    prompt = render(None, context(("a1", "f1"), ("a2", "f2"), ("a3", "f1")), words(18))
    assert (
        prompt
        == "Psi\n\nPrevious attempt:\na3\n\nFeedback:\n(1 earlier attempt is left out.)\nAttempt 2: f2\nAttempt 3: f1"
    )
    assert "Attempt 1: (The same as for attempt 3.)" in render(
        None, context(("a1", "f1"), ("a2", "f2"), ("a3", "f1")), words(100)
    )


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_last_rejected_text_is_left_out_after_everything_else(template):
    prompt = render(template, context(("old", "not so"), ("word " * 100, "too long")), words(45))
    assert "(Its text is left out: it is too long.)" in prompt
    assert "(1 earlier attempt is left out.)" in prompt
    assert "too long" in prompt
    assert "word word" not in prompt


def tokens_in(error):
    return int(re.search(r"has (\d+) tokens", str(error))[1])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (context(specification="word " * 50), r"has 62 tokens without its history \(specification 50, role 3, task 2; counted: in words\)"),
        (context(("a", "word " * 50)), r"has 71 tokens with the smallest part of its history \(newest feedback 50, "),
    ],
    ids=["specification", "feedback"],
)  # fmt: skip
def test_required_part_that_does_not_fit_is_an_error_with_sizes(given, told):
    with pytest.raises(
        GenerationError, match=f"{told}.*allows 30; shorten these parts, or raise max_prompt_tokens"
    ) as raised:
        render(TEMPLATE, given, words(30))
    assert raised.value.reason == "prompt_too_long"
    assert tokens_in(raised.value) > 30


HISTORIES = {
    "short text": [("ab", "no")],
    "long text": [("ab " * 40, "no")],
    "short old attempt": [("a", "no"), ("b", "bad")],
    "a few short attempts": [("a", "no"), ("b", "no"), ("c", "no")],
    "many attempts": [(f"text {number}", f"reason {number}") for number in range(20)],
}


@each_row("history", HISTORIES.values(), ids=HISTORIES)
@each_row("template", [None, TEMPLATE], ids=["plain", "template"])
@each_row("specification", ["Psi", "Psi " * 90])
def test_error_names_the_smallest_sufficient_budget(template, history, specification):
    """The line that replaces a text or some attempts may be longer than they are."""
    given = context(*history, specification=specification)
    with pytest.raises(GenerationError) as raised:
        render(template, given, TokenBudget(1))
    least = tokens_in(raised.value)
    assert bytes_of(render(template, given, TokenBudget(least))) == least
    for fewer in range(max(1, least - 60), least):
        with pytest.raises(GenerationError) as raised:
            render(template, given, TokenBudget(fewer))
        assert tokens_in(raised.value) == least


def test_error_names_the_step():
    with pytest.raises(GenerationError, match="The prompt of step g_impl has"):
        render(TEMPLATE, Context(AmbientEnvironment(), "word " * 50, step="g_impl"), words(30))


def test_dependency_of_a_step_is_never_cut():
    given = Context(AmbientEnvironment(), "Psi", dependencies={"test": Artifact("word " * 50)})
    with pytest.raises(GenerationError, match="test 50"):
        render(TEMPLATE, given, words(40))


class Counted(Sequence):
    """A history that records how far back it was read."""

    def __init__(self, length):
        self.length, self.oldest = length, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self.length))]
        place = index % self.length
        self.oldest = min(self.oldest, place)
        return f"text {place}", f"feedback {place}"


def test_long_history_is_read_back_to_at_most_twice_what_fits():
    history, counted = Counted(10_000), []
    budget = TokenBudget(200, lambda text: counted.append(1) or len(text.split()))
    prompt = render(TEMPLATE, Context(AmbientEnvironment(), "Psi", "text", history), budget)
    shown = prompt.count("--- Attempt")
    assert shown > 10
    assert history.length - history.oldest <= 2 * shown
    assert len(counted) < 15
