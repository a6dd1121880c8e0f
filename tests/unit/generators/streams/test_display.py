from each_row import each_row

from dsa.generators.streams.offered_tools import read_tools
from dsa.generators.streams.reconciliation import StreamText

TOOLS = read_tools(["f"])


def shown(*pieces, tools=TOOLS):
    display = StreamText(tools)
    return [display.feed(piece) for piece in pieces]


@each_row(
    ("pieces", "expected"),
    [
        (["Hel", "lo"], ["Hel", "lo"]),
        (["a < b, ", "a[0] ", "<b>"], ["a < b, ", "a[0] ", "<b>"]),
        (["Look.", "<tool", "_call>", "{}", "more"], ["Look.", "", "", "", ""]),
        (["Look <", "b>"], ["Look ", "<b>"]),
        (["Look <tool", "box>"], ["Look ", "<toolbox>"]),
        (["Look [TOOL", "_BOX]"], ["Look ", "[TOOL_BOX]"]),
        (["x <<tool_call>"], ["x <"]),
        (["  ", '{"a"', ": 1}"], ["", "", ""]),
        (["[1", "]"], ["", ""]),
        (["```", "json\n{}", "```"], ["", "", ""]),
        (["```py", "thon\nx", "```"], ["", "```python\nx", "```"]),
        (["`x` is"], ["`x` is"]),
        (["Look.<function=f>"], ["Look."]),
        (["Look.</tool_call>"], ["Look."]),
    ],
)
def test_text_that_may_be_a_call_is_not_shown(pieces, expected):
    assert shown(*pieces) == expected


def test_all_text_is_shown_without_tools():
    assert shown("{", "<tool_call>", tools=read_tools(())) == ["{", "<tool_call>"]
