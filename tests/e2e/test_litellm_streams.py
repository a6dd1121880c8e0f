"""Losses in LiteLLM's streams, which cannot be repaired later: the table of docs/how-to/streams.md, measured over real HTTP.

A server plays the shapes, `litellm.completion` streams them, `reconcile_stream` assembles the chunks that it returns. Another version of LiteLLM may
lose other parts: then these tests fail and say which, and the table has to be updated.
"""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from stream_server import answered, events, lines, serving
from stream_shapes import SHAPES, TOOLS, said, wanted

from dsa.generators.provider import _litellm
from dsa.generators.streams import reconcile_stream

pytestmark = pytest.mark.skipif(find_spec("litellm") is None, reason="the extra `llm` is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "streams.md"
SECTION = re.search(r"^## Why not LiteLLM for this\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
#: The parts of an answer that may be lost, and their keys in the expected result of a shape.
PARTS = {"calls": "calls", "text": "content", "reasoning": "reasoning", "signature": "extra"}
ROWS = re.findall(r"^\| (\w+): (.+?) +\| (.+?) +\|$", SECTION, re.MULTILINE)
DOCUMENTED = {(file, name): set(lost.split(", ")) for file, name, lost in ROWS}
NAMED = {(shape.file, shape.name): shape for shape in SHAPES}


def handed_on(shape):
    """Return the chunks that LiteLLM makes of a shape; Ollama's own by its `ollama_chat`."""
    native = shape.file == "ollama"
    answer = answered(
        lines(shape.chunks) if native else events(shape.chunks),
        kind="application/x-ndjson" if native else "text/event-stream",
    )
    with serving(answer) as (address, _):
        return list(
            _litellm().completion(
                model="ollama_chat/m" if native else "openai/m", api_base=address if native else f"{address}/v1",
                api_key="none", messages=[{"role": "user", "content": "?"}], tools=TOOLS, stream=True,
                num_retries=0, max_retries=0, timeout=20, _skip_mcp_handler=True,
            )
        )  # fmt: skip


def losses(shape):
    """Return the lost parts of a shape; a stream that raises has lost nothing that could be mistaken for an answer."""
    try:
        result = reconcile_stream(handed_on(shape), shape.tools)
    except Exception:  # LiteLLM has many exceptions for a stream that ends badly
        if "error" in shape.expected:
            return set()
        raise
    told = said(result, shape.expected)
    right = wanted(shape.expected)
    for about in (told, right):  # an unreadable call is never executed, so its name does not matter
        about["calls"] = [call for call in about["calls"] if len(call) == 3]
    for mine, its in zip(told["calls"], right["calls"], strict=False):
        mine[0] = its[0] and mine[0]  # a missing id may be replaced by any id
    found = {part for part, key in PARTS.items() if key in right and told[key] != right[key]}
    return found | ({"end"} if right["error"] and not told["error"] else set())


def test_table_names_the_installed_version():
    assert f"LiteLLM {version('litellm')}" in SECTION, "measure anew: tests/e2e/test_litellm_streams.py with -m full"


@pytest.mark.parametrize("row", DOCUMENTED, ids=": ".join)
def test_documented_losses_occur(row):
    assert losses(NAMED[row]) == DOCUMENTED[row]


@pytest.mark.full
def test_no_other_losses_occur():
    found = {place: lost for place, shape in NAMED.items() if (lost := losses(shape))}
    assert found == DOCUMENTED
