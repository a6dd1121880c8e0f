"""Names of tools: as models write them, and as they are sent back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines.tool_use.tool_call import display_name, provider_name


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("read_file", "read_file"),
        ("multi_tool_use.parallel", "multi_tool_use_parallel"),
        ("lis t dir!", "lis_t_dir_"),
        ("\u8bfb\n", "_"),
        ("", "unnamed"),
        ("a" * 200_000, "a" * 64),
    ],
)
def test_name_is_sent_back_in_a_form_every_provider_accepts(name, sent):
    assert provider_name(name) == sent


@given(st.text())
def test_any_text_gives_a_stable_name(name):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", provider_name(name))
    assert provider_name(provider_name(name)) == provider_name(name)


def test_long_name_is_displayed_short():
    assert display_name("read_file") == "read_file"
    assert display_name("a" * 200_000) == f"{'a' * 64}.."
