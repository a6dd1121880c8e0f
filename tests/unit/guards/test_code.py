import ast

import pytest
from each_row import each_row

from dsa.guards.code import SyntaxGuard, extract_code
from dsa.runtime.content import Artifact


@each_row(
    ("reply", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("Sure!\n```\ny = 2\n```\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```bash\nls\n```\n```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("```python\r\nx = 1\r\n```\r\n", "x = 1\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ('```python\ns = """\n```bash\nls\n```\n"""\n```\nDone.', 's = """\n```bash\nls\n```\n"""\n'),
        ('```\ns = """\n```\nls\n```\n"""\n```\nDone.', 's = """\n```\nls\n```\n"""\n'),
        ("```python\nx = 1\n```\nBetter:\n```python\nx = 1\ny = 2\n```", "x = 1\ny = 2\n"),
        ("```python\nx = (\n```\nBetter:\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = (\n```\nOr:\n```python\ny = (\n```", "x = (\n"),
        ("```python\nx = 1\n```\nIt prints:\n```\nx\n```", "x = 1\n"),
        ("Here it is:\ndef f():\n    pass\n", "def f():\n    pass\n"),
        ("Here it is:\nasync def f(): ...", "async def f(): ..."),
        ("Text\n@cache\ndef f(): ...", "@cache\ndef f(): ..."),
        ("Text\nfrom a import b\n", "from a import b\n"),
        ("Sure\nseen = []\ndef f(): ...", "seen = []\ndef f(): ..."),
        ("Sure\nseen: list[int] = []\ndef f(): ...", "seen: list[int] = []\ndef f(): ..."),
        ("Sure\nseen: dict[str, int]  = {}\n", "seen: dict[str, int]  = {}\n"),
        ("Note: this is\nprose: a = b = c\n", "prose: a = b = c\n"),
        ("define nothing", "define nothing"),
        ("x = 1", "x = 1"),
        ("", ""),
    ],
)
def test_code_is_extracted_from_a_reply(reply, code):
    assert extract_code(reply) == code


@pytest.mark.parametrize(
    ("content", "feedback"),
    [
        ("def f():\n    return (1", "The code has a syntax error in line 2: '(' was never closed."),
        ("```python\nok = 1\nx ==\n```", "The code has a syntax error in line 2: invalid syntax."),
        ("", "There is no code in the answer."),
        ("```python\n```", "There is no code in the answer."),
        ("x = '\ud800'", "The code has characters that are not allowed in a source file."),
        ("x" + "+x" * 200_000, "The code is nested too deeply to be read."),
        ("-" * 100_000 + "1", "The code is nested too deeply to be read."),
    ],
)
def test_syntax_guard_says_what_is_wrong_and_where(content, feedback):
    result = SyntaxGuard().validate(Artifact(content=content))
    assert not result.passed
    assert not result.fatal
    assert result.feedback == feedback


IN_A_LIST = [
    "1. Here:\n\n    ```python\n    def f():\n        return 1\n    ```\n2. Done.",
    "1. Here:\n   ```python\n   def f():\n       return 1\n   ```",
    "- One\n  - Two:\n\n    ```\n    def f():\n        return 1\n    ```",
    "10. Here:\n\n       ~~~py\n       def f():\n           return 1\n       ~~~\n",
    "  ```python\n  def f():\n      return 1\n  ```",
    "* Here:\n    ```python\n  def f():\n        return 1\n    ```",
]


@pytest.mark.parametrize("reply", IN_A_LIST)
def test_code_in_a_list_is_found_without_the_indentation_of_the_list(reply):
    assert ast.unparse(ast.parse(extract_code(reply))) == "def f():\n    return 1"


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """\n    - as in:\n\n      ```\n      x\n      ```\n    """\n',
        'x = """\n    ```python\n    y\n    ```\n"""\n',
    ],
)
def test_fences_inside_code_are_part_of_the_code(code):
    assert extract_code(code) == code
    assert extract_code(f"Here:\n```python\n{code}```\n") == code


def test_syntax_guard_refuses_a_nul():
    assert not SyntaxGuard().validate(Artifact(content="x = 1\0")).passed


def test_syntax_guard_passes_code_that_only_warns():
    assert SyntaxGuard().validate(Artifact(content="x = '\\d'\nassert x is 1")).passed


@pytest.mark.parametrize(
    "text",
    [
        f"a:{' ' * 1_000_000}",
        f"a: {'b ' * 500_000}",
        f"```{'a' * 1_000_000}`",
        f"```{' ' * 1_000_000}`",
        f"~~~{'~' * 1_000_000}",
        "```x\n" * 200_000,
        "a: b\n" * 200_000,
    ],
    ids=["spaces", "words", "language", "blanks", "tildes", "fences", "lines"],
)
def test_time_to_extract_code_is_linear_in_the_text(text):
    """A model may write anything. When a pattern looks back again and again, this takes hours."""
    assert len(extract_code(text)) <= len(text)


def test_code_that_is_too_long_is_rejected_unread():
    result = SyntaxGuard().validate(Artifact("x = 1\n" * 1_000_000))
    assert not result.passed
    assert result.feedback == "The code is too long: 6000000 characters; at most 500000 are read."
