from pathlib import Path

import pytest
from each_row import each_row

from dsa.declarations import Generator
from dsa.errors import BindingError, DocumentError, Span
from dsa.generators.compatible_server import OpenAICompatibleGenerator
from dsa.generators.generator_kinds import KINDS, build_generator, register
from dsa.generators.local_model import LocalGenerator
from dsa.generators.provider import LiteLLMGenerator
from dsa.generators.substitutes import ScriptedGenerator
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runtime.content import AmbientEnvironment, Artifact, Context, GeneratorInterface


def machine(*generators):
    return Machine("m", (), (), "", generators=generators)


def build(name, *generators, **more):
    return build_generator(name, machine(*generators), **{"model": "local", "seed": 0, **more})


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "s.md"
    path.write_text("```\nx\n```\n")
    return path


def test_llm_is_the_requested_model(script):
    assert isinstance(build("llm"), LocalGenerator)
    assert isinstance(build("llm", model=f"scripted:{script}"), ScriptedGenerator)
    assert isinstance(build("llm", model="openai/gpt-4o-mini"), LiteLLMGenerator)
    assert isinstance(build("writer", Generator("writer"), model="ollama_chat/x"), LiteLLMGenerator)
    assert isinstance(build("llm", model="http://127.0.0.1:9/v1#x"), OpenAICompatibleGenerator)


def test_row_may_name_model_and_kind(script):
    assert isinstance(build("g", Generator("g", options=(("model", "openai/x"),))), LiteLLMGenerator)
    assert isinstance(build("g", Generator("g", kind="local"), model="openai/x"), LocalGenerator)
    assert isinstance(build("g", Generator("g", kind="scripted", options=(("file", str(script)),))), ScriptedGenerator)
    options = (("model", "openai/x"), ("timeout_s", "3"), ("api_base", "http://127.0.0.1:1/v1"))
    assert isinstance(build("g", Generator("g", kind="litellm", options=options)), LiteLLMGenerator)


class Mine(GeneratorInterface):
    """Return an empty artifact."""

    def __init__(self, seed: int, size: int = 2) -> None:
        self.seed, self.size = seed, size

    def generate(self, context, template=None):
        return Artifact(content="")


def test_generators_of_the_user_come_first_by_name_and_by_kind():
    mine = Mine(0)
    assert build("llm", extra={"llm": mine}) is mine
    assert build("g", Generator("g", kind="special"), extra={"special": mine}) is mine


def test_registered_kind_receives_its_options_and_the_seed_of_the_run(monkeypatch):
    monkeypatch.setattr("dsa.generators.generator_kinds.KINDS", dict(KINDS))
    register("mine")(Mine)
    built = build("g", Generator("g", kind="mine", options=(("size", "5"),)), seed=7)
    assert (built.seed, built.size) == (7, 5)


def test_every_kind_has_a_description():
    assert set(KINDS) == {"llm", "local", "scripted", "litellm", "openai_compatible", "command", "machine"}
    assert all(kind.description for kind in KINDS.values())


@each_row(
    ("generator", "message"),
    [
        (
            Generator("g", kind="lokal", span=Span("m.md", 4, 1, 2, "")),
            "m.md:4:1: generator g is of kind 'lokal', which",
        ),
        (Generator("g", kind="lokal"), "did you mean 'local'?"),
        (Generator("g", options=(("temprature", "1"),)), "did you mean 'temperature'?"),
        (Generator("g", options=(("temperature", "hot"),)), "'temperature' of generator g is 'hot', not a number"),
        (Generator("g", options=(("max_tokens", "1.5"),)), "not a whole number"),
        (Generator("g", kind="scripted"), "needs the option 'file'"),
        (
            Generator("g", options=(("model", "http://127.0.0.1:9/v1"),)),
            "generator g: 'http://127.0.0.1:9/v1' does not name a model",
        ),
        (
            Generator("g", kind="openai_compatible", options=(("model", "x"),)),
            "generator g: 'x' is not an address of a server",
        ),
        (Generator("g", kind="special", options=(("a", "b"),)), "takes no options"),
        (
            Generator("g", options=(("model", "scriped:x.md"),)),
            "generator g: 'scriped:x.md' is not a model; did you mean",
        ),
        (
            Generator("g", options=(("model", "http://127.0.0.1:9/v1#x"), ("api_base", "http://127.0.0.1:8/v1"))),
            "generator g: api_base = http://127.0.0.1:8/v1 can be used only with a LiteLLM name, but the model http://127.0.0.1:9/v1#x is given by its address",
        ),
    ],
)
def test_every_mistake_is_one_error_that_says_what_to_do(generator, message):
    with pytest.raises(BindingError) as raised:
        build("g", generator, extra={"special": Mine(0)})
    assert message in str(raised.value)


def test_option_paths_start_at_the_document_and_model_paths_at_the_cwd(tmp_path, monkeypatch):
    (tmp_path / "doc").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "doc" / "s.md").write_text("```\nbeside\n```\n")
    (tmp_path / "here" / "s.md").write_text("```\nhere\n```\n")
    monkeypatch.chdir(tmp_path / "here")
    context = Context(AmbientEnvironment(), "")

    def reply(*options, folder, kind="", **more):
        row = Generator("g", kind=kind, options=options)
        return build("g", row, folder=folder, **more).generate(context).content.strip()

    for folder in (tmp_path / "doc", Path("../doc")):
        assert reply(("file", "s.md"), kind="scripted", folder=folder) == "beside"
        assert reply(("model", "scripted:s.md"), folder=folder) == "beside"
    assert reply(("file", f"{tmp_path}/here/s.md"), kind="scripted", folder=tmp_path / "doc") == "here"
    assert reply(("file", "s.md"), kind="scripted", folder=None) == "here"
    assert reply(folder=tmp_path / "doc", model="scripted:s.md") == "here"


@pytest.mark.parametrize(("kind", "option"), [("scripted", ("file", "no.md")), ("", ("model", "scripted:no.md"))])
def test_missing_script_of_a_row_is_reported_with_line_and_full_path(kind, option):
    row = Generator("g", kind=kind, options=(option,), span=Span("sub/m.md", 6, 3, 4, ""))
    with pytest.raises(
        BindingError, match=r"^sub/m\.md:6:3: generator g: sub/no\.md: the script cannot be read: No such"
    ):
        build("g", row, folder=Path("sub"))


def test_unbound_generator_of_a_step_is_reported_with_the_line_of_the_step():
    text = "# m\n\n## Steps\n| step | generator | guard |\n| - | - | - |\n| a | llm | syntax |\n| b | main | syntax |\n"
    machine = loads(text, "m.md")
    with pytest.raises(BindingError, match=r"^m\.md:7:3: generator main is not bound to anything"):
        build_generator("main", machine)


def test_unknown_name_and_missing_script_are_reported():
    with pytest.raises(BindingError, match=r"generator lmm is not bound to anything\n +hint: did you mean 'llm'"):
        build("lmm")
    with pytest.raises(DocumentError, match=r"nowhere.md: the script cannot be read: No such file"):
        build("llm", model="scripted:nowhere.md")
