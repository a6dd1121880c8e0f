"""Long texts of a model that provoke slow reading: the time to read them grows only with their length."""

import signal

import pytest

from machines.chat.chat_tools import TOOLS
from machines.coding.task_plan import read_plan
from machines.tool_use.tool_call import ToolCall, read_call

LENGTH = 1_000_000


@pytest.fixture(autouse=True)
def alarm():
    """Raise a TimeoutError after 60 s instead of running for hours."""

    def rang(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, rang)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "text",
    [
        "```" + "\n" * LENGTH,
        "```a\nx\n" * (LENGTH // 8),
        "[" * LENGTH,
        '["' + "a" * LENGTH,
        "``` " + "a" * LENGTH,
        "```" + " " * LENGTH,
    ],
)
def test_long_text_without_a_plan_is_rejected_in_time(text):
    assert read_plan(text)[1] == ["the answer has no JSON list of tasks"]


@pytest.mark.parametrize(
    "text",
    [
        "\n```a\nx" * (LENGTH // 8),
        "\n```a\n```y" * (LENGTH // 8),
        "```" + " " * LENGTH + "\\",
        "```\n" + "\n" * LENGTH + "\\",
    ],
)
def test_code_with_unclosed_fences_is_left_unchanged(text):
    assert "fence" not in read_call(ToolCall("1", "1", "execute_sql", {"query": text}), TOOLS).rescues
