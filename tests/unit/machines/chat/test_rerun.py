"""Messages that ask for work to be done again."""

import pytest
from each_row import each_row

from machines.chat.bindings import asks_again, read_message


@each_row(
    "text",
    [
        "run it again", "Please re-run the query", "rerun", "Run that SQL again, please", "plot it again", "make the chart once more",
        "recompute the totals", "regenerate the CSV", "start from scratch", "overwrite the file", "do the same analysis again", "redo it",
    ],
)  # fmt: skip
def test_message_can_ask_for_a_rerun(text):
    assert asks_again(text)


@each_row(
    "text",
    [
        "continue", "refine this", "show me again", "refresh the idea", "again, what was the total?", "thanks again", "don't run it again",
        "do not recompute it", "no need to re-run it", "the rerunning costs", "compare it with the rebuild rate", "What happened again in 1982?",
    ],
)  # fmt: skip
def test_other_messages_do_not_ask_for_a_rerun(text):
    assert not asks_again(text)


def test_message_can_set_rerun_beside_its_text():
    assert read_message({"text": "hello", "rerun": True}) == {"text": "hello", "rerun": True}
    assert read_message({"text": "run it again", "rerun": False}) == {"text": "run it again", "rerun": False}
    assert read_message("run it again") == {"text": "run it again", "rerun": True}


@pytest.mark.parametrize("data", [None, "", "  ", 7, {}, {"text": 7}, ["hello"]])
def test_message_without_text_is_refused(data):
    with pytest.raises(ValueError, match="a message must be a text"):
        read_message(data)
