"""Prompts within a budget of tokens: by any counter never over it, with the newest feedback and all required parts whole; or an error."""

import re

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.runtime.content import AmbientEnvironment, Artifact, Context, PromptTemplate, render
from dsa.runtime.generation import GenerationError, TokenBudget, bytes_of

WORDS = st.text("ab {}\né☃", max_size=60)
#: Counters that differ: bytes, words, characters in pairs (which joins what stands next to each other), and one with a fixed cost.
COUNTERS = {
    "bytes": bytes_of,
    "words": lambda text: len(text.split()),
    "pairs": lambda text: (len(text) + 1) // 2,
    "framed": lambda text: 7 + len(text),
}


@st.composite
def contexts(draw):
    """A context with a history, in which feedback comes again and again; each text has a mark of its own."""
    said = draw(st.lists(st.tuples(WORDS, st.sampled_from(["no get", "no put", "x" * 40, ""])), max_size=12))
    history = tuple((f"<text {place}> {text}", feedback) for place, (text, feedback) in enumerate(said, start=1))
    uses = {"test": Artifact(f"<used> {draw(WORDS)}")} if draw(st.booleans()) else {}
    current = history[-1][0] if history else draw(st.none() | WORDS)
    ambient = AmbientEnvironment(constraints=draw(WORDS))
    return Context(ambient, f"<Psi> {draw(WORDS)}", current, history, uses, "step")


TEMPLATES = st.none() | st.builds(
    PromptTemplate,
    role=st.sampled_from(["", "<role>"]),
    constraints=st.sampled_from(["", "<rules>"]),
    task=st.sampled_from(["", "<task> {specification}"]),
    feedback_wrapper=st.sampled_from(["Rejected: {feedback}", "{feedback}"]),
)


def rendered(context, template, budget):
    """Return the prompt, or the error."""
    try:
        return render(template, context, budget)
    except GenerationError as error:
        return error


#: The longest notes that a prompt may have beside the parts that are never left out.
BESIDE = "(Its text is left out: it is too long.) (99 earlier attempts are left out.) --- Attempt 99 --- Previous attempt: Feedback: # HISTORY"


@given(contexts(), TEMPLATES, st.integers(1, 900), st.sampled_from(sorted(COUNTERS)))
@settings(max_examples=sample_size(72, full=400))
def test_prompt_keeps_to_its_budget_or_is_an_error(context, template, tokens, counter):
    count = COUNTERS[counter]
    prompt = rendered(context, template, TokenBudget(tokens, count))
    if isinstance(prompt, GenerationError):
        newest = tuple(("", feedback) for _, feedback in context.feedback_history[-1:])
        least = attrs.evolve(context, feedback_history=newest, current_artifact=None)
        least_tokens, limit = map(int, re.search(r"has (\d+) tokens .* allows (\d+);", str(prompt)).groups())
        assert least_tokens > limit == tokens
        assert count(render(template, least)) + 2 * count(BESIDE) > tokens, "an error although there is room"
        return
    assert count(prompt) <= tokens
    assert prompt == rendered(context, template, TokenBudget(tokens, count)), "the same arguments, the same prompt"
    used = [artifact.content for artifact in context.dependencies.values()]
    own = [] if template is None else [template.role, template.constraints, template.task.partition(" ")[0]]
    newest = [feedback for _, feedback in context.feedback_history[-1:]]
    for part in ("<Psi>", context.specification, context.ambient.constraints, *used, *own, *newest):
        assert part in prompt


@given(contexts(), TEMPLATES, st.integers(1, 900))
@settings(max_examples=sample_size(36, full=200))
def test_oldest_attempts_are_left_out_first_and_counted(context, template, tokens):
    prompt = rendered(context, template, TokenBudget(tokens))
    if isinstance(prompt, GenerationError):
        return
    count = len(context.feedback_history)
    there = [
        place for place in range(1, count + 1) if f"Attempt {place} ---" in prompt or f"Attempt {place}: " in prompt
    ]
    assert there == list(range(count - len(there) + 1, count + 1))
    gone = count - len(there)
    told = f"({gone} earlier attempt{' is' if gone == 1 else 's are'} left out.)"
    assert (told in prompt) == bool(gone)


@given(contexts(), TEMPLATES)
def test_prompt_with_enough_room_has_all_attempts_and_each_feedback_once(context, template):
    prompt = render(template, context, TokenBudget(10**9))
    assert "left out" not in prompt
    for feedback in {said for _, said in context.feedback_history if len(said) > 3}:
        assert prompt.count(feedback) == 1
    if template is not None:
        assert all(text in prompt for text, _ in context.feedback_history)
    said = [feedback for _, feedback in context.feedback_history if feedback]
    if len(set(said)) == len(said):
        assert prompt == render(template, context)


@pytest.mark.parametrize("tokens", [0, -1])
def test_budget_below_one_token_is_refused(tokens):
    with pytest.raises(ValueError, match="max_prompt_tokens"):
        TokenBudget(tokens)
