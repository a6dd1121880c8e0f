import sys

import pytest

from dsa.declarations import Generator
from dsa.errors import BindingError, GenerationError, ModelUnavailable
from dsa.generators import Artifact, CommandGenerator, Context, FunctionGenerator, PromptTemplate, build_generator
from dsa.lang import loads
from dsa.runtime.content import AmbientEnvironment

CONTEXT = Context(AmbientEnvironment(), "Write \u00e4dd", feedback_history=(("x", "no"),))


def command(source, **options):
    return CommandGenerator(f"{sys.executable} -c '{source}'", **options)


def test_a_program_is_given_the_prompt_and_writes_the_artifact():
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
        ('import sys; sys.stdout.buffer.write(b"ab\\xff")', {}, "no UTF-8 (byte 2).", "bad_answer"),
        ("print()", {}, "wrote nothing.", "bad_answer"),
    ],
    ids=["fails", "killed", "slow", "much", "bytes", "nothing"],
)
def test_what_a_program_cannot_do_is_said(source, options, said, reason):
    with pytest.raises(GenerationError) as caught:
        command(source, **options).generate(CONTEXT)
    assert said in str(caught.value)
    assert caught.value.reason == reason


def test_a_program_that_is_not_there_is_unavailable():
    with pytest.raises(ModelUnavailable, match="no-such-program cannot be started: No such file or directory"):
        CommandGenerator("no-such-program").generate(CONTEXT)


@pytest.mark.parametrize(
    "options", [{"command": " "}, {"command": "x", "timeout_s": 0}, {"command": "x", "most_bytes": 0}]
)
def test_numbers_that_mean_nothing_are_refused(options):
    with pytest.raises(ValueError, match=r"command is empty|no time limit|too few"):
        CommandGenerator(**options)


def test_a_table_names_a_program():
    text = "# m\n\n## Generators\n| generator | is | options |\n| - | - | - |\n| g | command | command = {} |\n"
    steps = "\n## Steps\n| step | generator | guard |\n| - | - | - |\n| a | g | syntax |\n"
    machine = loads(text.format("printf 'x = 1'") + steps)
    assert build_generator("g", machine).generate(CONTEXT).content == "x = 1"
    with pytest.raises(BindingError, match="No closing quotation"):
        build_generator("g", loads(text.format("printf 'x") + steps))
    assert machine.generators == (Generator("g", "command", (("command", "printf 'x = 1'"),)),)


def test_a_function_writes_from_the_prompt():
    given = FunctionGenerator(lambda prompt: prompt.splitlines()[0]).generate(Context(AmbientEnvironment(), "one\ntwo"))
    assert given == Artifact("one")
    whole = Artifact("whole")
    assert FunctionGenerator(lambda _: whole).generate(CONTEXT) is whole


def test_a_function_that_gives_no_text_is_named():
    def nothing(_prompt):
        return None

    with pytest.raises(TypeError, match="nothing gave NoneType, not a text or an Artifact"):
        FunctionGenerator(nothing).generate(CONTEXT)
