"""Speech of a model, split into drafts, channels and answers; marks in code are text."""

import pytest
from each_row import each_row

from dsa.runtime.content import Artifact
from dsa.runtime.speech import FunctionText, Speech, as_unicode, split_speech, strip_drafts

ASKED = (
    '<|start|>assistant<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "a"}<|call|>'
)
CALL = FunctionText("functions.read_file", '{"path": "a"}')


@each_row(
    ("text", "answer", "drafts"),
    [
        ("hello", "hello", ""),
        ("  a <b> c ", "  a <b> c ", ""),
        ("<think>x</think>\n\nyes", "yes", "x"),
        ("\n<THINK>x</THINK>yes", "yes", "x"),
        ("<thinking>x</thinking>yes", "yes", "x"),
        ("<think></think>yes", "yes", ""),
        ("<think>never", "", "never"),
        ("<think>a</think>\n<think>b</think>\nyes", "yes", "a\nb"),
        ("x\n</think>\nyes", "yes", "x\n"),
        ("x</think>```python\ny\n```", "```python\ny\n```", "x"),
        ("**x**</think>**yes**", "**yes**", "**x**"),
        ("<think>a `</think>` b</think>yes", "yes", "a `</think>` b"),
        ("Sure.\n<think>x</think>\nyes", "Sure.\n\nyes", "x"),
    ],
)
def test_drafts_are_not_part_of_the_answer(text, answer, drafts):
    said = split_speech(text)
    assert (said.answer, said.drafts, said.calls) == (answer, drafts, ())


@each_row(
    "text",
    [
        "Use `<think>` and `</think>`.",
        "The tags <think> and </think> mark drafts.",
        "Drop all up to </think>.",
        "```\n<think>\nx\n</think>\n```\nSo.",
        "~~~\nx\n</think>\n~~~\n",
        'def f(t):\n    return t.split("</think>")[-1]\n',
        "END = '</think>'\n",
        're.sub(r"<think>.*</think>", "", t)',
        "Sure.\n<think>is a tag",
        "The mark <|channel|> is special, <|message|> too.",
        "Write `<|channel|>final<|message|>`.",
        "a <|end|> b",
        "```\n<|start|>assistant<|channel|>final<|message|>x\n```",
    ],
)
def test_mentioned_mark_is_text(text):
    assert split_speech(text).answer == text


@each_row(
    ("text", "answer", "drafts", "calls"),
    [
        ("<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>yes", "yes", "x", ()),
        ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", "{}", "", ()),
        ("<|channel|>analysis<|message|>x", "", "x", ()),
        (f"<|channel|>analysis<|message|>x<|end|>{ASKED}", "", "x", (CALL,)),
        (ASKED.removesuffix("<|call|>"), "", "", (CALL,)),
        (f"{ASKED}{ASKED}", "", "", (CALL, CALL)),
        ('<|start|>assistant to=functions.read_file<|channel|>commentary json<|message|>{"path": "a"}', "", "", (CALL,)),
        ("<|channel|>commentary<|message|>Look.<|end|><|start|>assistant<|channel|>final<|message|>yes", "Look.\n\nyes", "", ()),
        ('<|channel|>commentary to=f<|message|>{"a": "<|end|>"}<|call|>', "", "", (FunctionText("f", '{"a": "<|end|>"}'),)),
        ("<|start|>functions.f to=assistant<|channel|>commentary<|message|>made up<|end|>", "", "made up", ()),
        ("<|channel|>commentary<|channel|>analysis<|message|>x<|end|>", "", "x", ()),
        ("<|channel|>final", "", "final", ()),
        ("yes<|return|>", "yes", "", ()),
    ],
)  # fmt: skip
def test_channels_are_separated(text, answer, drafts, calls):
    said = split_speech(text)
    assert (said.answer, said.drafts, said.calls) == (answer, drafts, calls)


@pytest.mark.parametrize(
    ("pieces", "answer"),
    [
        (["ok \ud83d", "\ude00"], "ok \U0001f600"),
        (["ok \ud83d", "", "\ude00!"], "ok \U0001f600!"),
        (["ok \ud83d", "no"], "ok \ufffdno"),
        (["ok", "\ude00", "no"], "ok\ufffdno"),
        (["ok \ud83d"], "ok \ufffd"),
        (["\ud83d", "\ud83d", "\ude00"], "\ufffd\U0001f600"),
    ],
)
def test_halves_of_characters_are_joined_or_replaced(pieces, answer):
    speech = Speech()
    shown = "".join(map(speech.feed, pieces))
    assert speech.finish().answer == answer
    assert answer.startswith(shown)
    assert split_speech("".join(pieces)).answer == answer


def test_surrogates_in_values_and_names_are_repaired():
    assert as_unicode({"\ud83d": ["\ud83d\ude00", 1, None]}) == {"\ufffd": ["\U0001f600", 1, None]}


def test_display_restarts_after_a_draft_without_an_opening_mark():
    speech = Speech()
    assert (speech.feed("Hm.\n"), speech.begins_anew) == ("Hm.\n", False)
    assert (speech.feed("</think>\nyes"), speech.begins_anew) == ("yes", True)
    assert (speech.feed("!"), speech.begins_anew) == ("!", False)
    assert speech.finish().answer == "yes!"


def test_incomplete_mark_is_held_back_until_it_is_known():
    speech = Speech()
    assert [speech.feed(piece) for piece in ("a ", "<", "b> <thi", "s> x <|", "end", "|> y")] == [
        "a ", "", "<b> ", "<this> x ", "", "<|end|> y",
    ]  # fmt: skip


def test_artifact_has_only_the_answer():
    made = Artifact("x\n</think>\nyes", artifact_id="a")
    assert strip_drafts(made) == Artifact("yes", artifact_id="a")
    assert strip_drafts(Artifact("yes")).content == "yes"


@each_row(
    "piece",
    ["<", "<think>", "</think>", "`</think>", "<|channel|>", "<|end|>", "<|channel|>analysis<|message|>", " ", "\n```\n</think>", "\ud83d",
     "<|channel|>commentary to=f<|message|>{<|end|>"],
)  # fmt: skip
def test_cost_is_linear(piece):
    """A model may write anything. If each piece were read again with every one that follows, this would take minutes."""
    speech = Speech()
    for _ in range(40_000):
        speech.feed(piece)
    assert len(speech.finish().answer) <= 40_000 * len(piece)
