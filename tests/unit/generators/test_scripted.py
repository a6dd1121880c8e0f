import pytest

from dsa.errors import DocumentError
from dsa.generators.substitutes import ScriptedGenerator, load_script, parse_script
from dsa.runtime.content import AmbientEnvironment, Context
from dsa.runtime.generation import GenerationError

SCRIPT = """# A script

```python
one
```

Prose, and what is no reply:

- in a list:
  ```
  not me
  ```

    not me either (indented)

## `g_test`
~~~
for g_test
~~~

### still g_test
````
```python
fenced
```
````

# Back
```
two
"""


def ask(generator, step=""):
    return generator.generate(Context(AmbientEnvironment(), "Psi", step=step)).content


def test_replies_are_read_from_a_document():
    assert parse_script(SCRIPT) == {"": ["one\n", "two\n"], "g_test": ["for g_test\n", "```python\nfenced\n```\n"]}


def test_each_reply_is_used_once_in_order_and_steps_have_their_own(tmp_path):
    path = tmp_path / "script.md"
    path.write_text(SCRIPT)
    generator = load_script(path)
    assert [ask(generator, step) for step in ("", "g_test", "other", "g_test")] == [
        "one\n", "for g_test\n", "two\n", "```python\nfenced\n```\n",
    ]  # fmt: skip
    with pytest.raises(GenerationError, match=r"script.md has no reply left for step g_test: all 2 are used"):
        ask(generator, "g_test")
    with pytest.raises(GenerationError, match=r"script.md has no reply left: all 2 are used") as raised:
        ask(generator)
    assert raised.value.reason == "exhausted"


def test_replies_that_a_run_has_used_can_be_skipped():
    generator = ScriptedGenerator(["a", "b"], {"docs": ["c", "d"]})
    generator.skip("code")
    generator.skip("docs")
    assert [ask(generator, step) for step in ("docs", "code")] == ["d", "b"]
    generator.skip("other")
    with pytest.raises(GenerationError, match="all 2 are used"):
        ask(generator, "code")


def test_scripted_replies_cost_nothing():
    usage = ScriptedGenerator(["a"]).generate(Context(AmbientEnvironment(), "")).usage
    assert (usage.model, usage.seconds, usage.cost_usd, usage.prompt_tokens) == ("scripted", 0.0, 0.0, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), (b"no fence", "has no reply"), (b"\xff```", "it is not UTF-8")],
)
def test_invalid_script_file_is_one_clear_error(tmp_path, content, message):
    path = tmp_path / "script.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DocumentError, match=message) as raised:
        load_script(path)
    assert raised.value.path == str(path)
