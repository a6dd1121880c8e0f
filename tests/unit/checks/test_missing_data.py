"""DSA316: data that may be missing when a prompt or a guard reads it."""

import pytest

from dsa.checks.report import check
from dsa.errors import MachineError
from dsa.lang import loads

TABLE = """# rag

## Events
| event    | from     |
| -------- | -------- |
| question | outside  |
| chat     | outside  |
| found    | retrieve |
| drafted  | answer   |

## Guards
| guard    | judges  | uses                            |
| -------- | ------- | ------------------------------- |
| grounded | drafted | passages = found since question |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| searching |         |
| answering |         |

## Transitions
| source    | event    | if              | effects  | target    |
| --------- | -------- | --------------- | -------- | --------- |
| idle      | question |                 | retrieve | searching |
| searching | found    |                 | answer   | answering |
| answering | drafted  | grounded.passed |          | idle      |
| answering | drafted  | else            | retrieve | searching |

## Prompt: answer
### Task
```
{question}: {found.text}
```
"""


def warned(text):
    found = [each for each in check(loads(text)).diagnostics if each.code == "DSA316"]
    assert {each.severity for each in found} <= {"warning"}
    return [each.message for each in found]


def with_row(row):
    """Add a row of Transitions."""
    return TABLE.replace("\n\n## Prompt", f"\n{row}\n\n## Prompt")


def test_no_warning_if_all_data_arrived_before():
    assert warned(TABLE) == []


def test_second_turn_that_skips_the_search_is_found_only_with_since():
    skipped = with_row("| idle | chat | | | chatting |\n| chatting | question | | answer | answering |")
    skipped = skipped.replace("| answering |         |", "| answering |         |\n| chatting | |")
    assert warned(skipped) == [
        "the guard 'grounded' uses the data 'found since question', but in some runs the event 'found' has not occurred by then; an example of such a run: chat, question",
        "the prompt of 'answer' uses the data 'found.text', but in some runs the event 'found' has not occurred by then; an example of such a run: chat, question",
    ]
    only_later = skipped.replace("| idle | chat | | | chatting |", "| answering | chat | | cancel | chatting |")
    assert warned(only_later) == [
        "the guard 'grounded' uses the data 'found since question', but in some runs the event 'found' has not occurred since 'question'; an example of such a run: question, found, chat, question",
    ]
    assert warned(only_later.replace("found since question", "found")) == []
    assert warned(only_later.replace("found since question", "found? since question")) == []


def test_warning_has_a_shortest_trace_and_the_line_of_the_reader():
    text = with_row("| idle | chat | | answer | answering |")
    found = [each for each in check(loads(text)).diagnostics if each.code == "DSA316"]
    assert [(each.span.line, each.message.rpartition(": ")[2]) for each in found] == [(14, "chat")] + [(32, "chat")] * 2
    assert "or write 'found.text?' if it may be missing" in found[1].hint


@pytest.mark.parametrize("effect", ["answer", "retrieve"])
def test_prompt_is_read_only_by_its_own_effect(effect):
    text = TABLE.replace("Prompt: answer", f"Prompt: {effect}")
    missing = [
        f"the prompt of '{effect}' uses the data 'found.text', but in some runs the event 'found' has not occurred by then; an example of such a run: question"
    ]
    assert warned(text) == (missing if effect == "retrieve" else [])


def test_guard_that_judges_an_outside_event_sees_that_event():
    text = TABLE.replace(
        "| grounded | drafted |", "| polite | chat | said = chat; asked = question |\n| grounded | drafted |"
    )
    text = text.replace(
        "\n\n## Prompt", "\n| idle | chat | polite.passed | | = |\n| idle | chat | else | | = |\n\n## Prompt"
    )
    assert warned(text) == [
        "the guard 'polite' uses the data 'question', but in some runs the event 'question' has not occurred by then; an example of such a run: chat polite.passed"
    ]


def test_each_step_is_checked_for_its_own_data():
    steps = """# plan

## Steps
| step | guard  | task                              |
| ---- | ------ | --------------------------------- |
| plan | short  | Plan it {rejected?}               |
| code | syntax | Write it {artifact.artifact_id}   |
| last | syntax | {approved}                        |

## Guards
| guard | is    | uses           |
| ----- | ----- | -------------- |
| short | regex | why = amended  |
"""
    (approved, amended) = sorted(warned(steps))[::-1]
    assert approved.startswith(
        "the prompt of 'query_llm' uses the data 'approved', but in some runs the event 'approved' has not occurred by then; an example of such a run: specification, artifact"
    )
    assert amended.startswith(
        "the guard 'short' uses the data 'amended', but in some runs the event 'amended' has not occurred by then; an example of such a run: specification, artifact"
    )


def test_guard_asked_in_a_later_state_is_checked_too():
    """The effect is still outstanding in `c`, where the guard judges its answer."""
    table = """# esc

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| move  | outside |
| info  | outside |
| done  | work    |

## Guards
| guard | judges | uses     |
| ----- | ------ | -------- |
| g     | done   | i = info |

## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| b     |         |
| c     |         |
| z     | final   |

## Transitions
| source | event | if       | effects | target |
| ------ | ----- | -------- | ------- | ------ |
| a      | go    |          | work    | b      |
| a, b   | info  |          |         | =      |
| b      | done  |          |         | z      |
| b      | move  |          | EFFECT  | c      |
| c      | done  | g.passed |         | z      |
| c      | done  | else     |         | z      |
"""
    assert warned(table.replace("EFFECT", "")) == [
        "the guard 'g' uses the data 'info', but in some runs the event 'info' has not occurred by then; an example of such a run: go"
    ]
    assert (
        warned(
            table.replace("EFFECT", "cancel").replace(
                "| c      | done  | g.passed |         | z      |\n| c      | done  | else     |         | z      |",
                "| c | move | | | = |",
            )
        )
        == []
    )


def test_event_is_never_older_than_itself():
    assert warned(TABLE.replace("{found.text}", "{found.text since found} {question since question}")) == []


def test_data_since_the_judged_event_itself_is_an_error():
    with pytest.raises(
        MachineError,
        match=r"'found since drafted' is never available: the guard judges drafted, and no event is newer",
    ):
        loads(TABLE.replace("passages = found since question", "passages = found since drafted"))


@pytest.mark.parametrize("words", ["{all\nfound}", "{found since\nquestion}"])
def test_braces_over_two_lines_are_not_a_placeholder(words):
    assert warned(TABLE.replace("{found.text}", words)) == []


def test_event_called_feedback_is_a_reference_except_in_a_feedback_section():
    text = TABLE.replace("chat     |", "feedback |").replace("{found.text}", "{feedback}")
    assert warned(text) == [
        "the prompt of 'answer' uses the data 'feedback', but in some runs the event 'feedback' has not occurred by then; an example of such a run: question, found"
    ]
    assert warned(text.replace("{feedback}\n```", "x\n```\n### Feedback\n```\n{feedback}\n```")) == []
