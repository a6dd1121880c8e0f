import functools
import sys

import pytest

from dsa.declarations import Generator
from dsa.errors import BindingError
from dsa.generators import Artifact, CommandGenerator, Context, FunctionGenerator, PromptTemplate, build_generator
from dsa.lang import loads
from dsa.runtime.content import AmbientEnvironment
from dsa.runtime.generation import GenerationError, ModelUnavailable

CONTEXT = Context(AmbientEnvironment(), "Write \u00e4dd", feedback_history=(("x", "no"),))


def command(source, **options):
    return CommandGenerator(f"{sys.executable} -c '{source}'", **options)


def test_program_reads_the_prompt_and_writes_the_artifact():
    echo = command("import sys; sys.stdout.write(sys.stdin.read().upper())")
    artifact = echo.generate(CONTEXT, PromptTemplate(task="Do {specification}."))
    assert "DO WRITE \u00c4DD." in artifact.content
    assert "NO" in artifact.content
    assert (artifact.usage.model, artifact.usage.prompt_tokens) == (sys.executable, None)
    assert artifact.usage.seconds > 0


@pytest.mark.parametrize(
    ("source", "options", "said", "reason"),
    [
        ('import sys; sys.exit("out  of\\npaper")', {}, "ended with 1: out of paper", "failed"),
        ("import os; os.kill(os.getpid(), 15)", {}, "was killed by signal 15", "failed"),
        ("import time; time.sleep(60)", {"timeout_s": 0.3}, "was stopped after 0.3 s.", "timeout"),
        ("while True: print(1)", {"most_bytes": 1_000}, "wrote more than 1,000 bytes.", "bad_answer"),
        ('import sys; sys.stdout.buffer.write(b"ab\\xff")', {}, "not UTF-8 (byte 2).", "bad_answer"),
        ("print()", {}, "wrote nothing.", "bad_answer"),
    ],
    ids=["fails", "killed", "slow", "too long", "not UTF-8", "empty"],
)
def test_failure_of_a_program_is_reported(source, options, said, reason):
    with pytest.raises(GenerationError) as caught:
        command(source, **options).generate(CONTEXT)
    assert said in str(caught.value)
    assert caught.value.reason == reason


def script(path, reply):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {reply}\n")
    path.chmod(0o755)


def test_deleted_program_is_unavailable(tmp_path):
    script(tmp_path / "pen", "x")
    generator = CommandGenerator(f"{tmp_path}/pen")
    (tmp_path / "pen").unlink()
    with pytest.raises(ModelUnavailable, match="pen cannot be started: No such file or directory"):
        generator.generate(CONTEXT)


def test_program_is_found_at_binding_from_the_folder_or_in_path(tmp_path, monkeypatch):
    script(tmp_path / "doc" / "pen", "beside")
    script(tmp_path / "here" / "pen", "here")
    script(tmp_path / "path" / "pen", "found")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    folder = tmp_path / "doc"
    made = {name: CommandGenerator(name, document_folder=folder) for name in ("./pen", f"{tmp_path}/here/pen", "pen")}
    made["pen here"], made["./pen here"] = CommandGenerator("pen"), CommandGenerator("./pen")
    monkeypatch.chdir(tmp_path)
    given = [generator.generate(CONTEXT).content.strip() for generator in made.values()]
    assert given == ["beside", "here", "found", "found", "here"]
    with pytest.raises(ValueError, match=f"there is no program '{folder}/quill'"):
        CommandGenerator("./quill", document_folder=folder)


@pytest.mark.parametrize(
    "options", [{"command": " "}, {"command": "sh", "timeout_s": 0}, {"command": "sh", "most_bytes": 0}]
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=r"command is empty|not a valid time limit|too few"):
        CommandGenerator(**options)


def test_table_can_name_a_program():
    text = "# m\n\n## Generators\n| generator | is | options |\n| - | - | - |\n| g | command | command = {} |\n"
    steps = "\n## Steps\n| step | generator | guard |\n| - | - | - |\n| a | g | syntax |\n"
    machine = loads(text.format("printf 'x = 1'") + steps)
    assert build_generator("g", machine).generate(CONTEXT).content == "x = 1"
    with pytest.raises(BindingError, match="No closing quotation"):
        build_generator("g", loads(text.format("printf 'x") + steps))
    with pytest.raises(BindingError, match=r":6:3: generator g: there is no program 'no-such-program': write its path"):
        build_generator("g", loads(text.format("no-such-program") + steps))
    assert machine.generators == (Generator("g", "command", (("command", "printf 'x = 1'"),)),)


def test_function_writes_from_the_prompt():
    given = FunctionGenerator(lambda prompt: prompt.splitlines()[0]).generate(Context(AmbientEnvironment(), "one\ntwo"))
    assert given == Artifact("one")
    whole = Artifact("whole")
    assert FunctionGenerator(lambda _: whole).generate(CONTEXT) is whole


def test_function_that_returns_no_text_is_named_in_the_error():
    def nothing(_prompt):
        return None

    with pytest.raises(TypeError, match="nothing gave NoneType, not a text or an Artifact"):
        FunctionGenerator(nothing).generate(CONTEXT)


async def asked(prompt):
    return prompt


async def streamed(prompt):
    yield prompt


class Asked:
    async def __call__(self, prompt):
        return prompt


@pytest.mark.parametrize("function", [asked, streamed, Asked(), functools.partial(asked), Asked().__call__])
def test_async_function_is_refused_with_the_alternative(function):
    with pytest.raises(TypeError, match=r"is an async function.*derive a class from AsyncGeneratorInterface"):
        FunctionGenerator(function)


def test_returned_coroutine_is_refused_and_closed():
    with pytest.raises(TypeError, match=r"<lambda> gave a coroutine.*AsyncGeneratorInterface"):
        FunctionGenerator(lambda prompt: asked(prompt.strip())).generate(CONTEXT)


def test_value_that_is_not_a_function_is_refused():
    with pytest.raises(TypeError, match="needs a function that takes the prompt, but got a str"):
        FunctionGenerator("prompt")
