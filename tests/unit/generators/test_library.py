import pytest

from dsa.declarations import Generator
from dsa.errors import BindingError, DocumentError, Span
from dsa.generators.compatible import OpenAICompatibleGenerator
from dsa.generators.library import KINDS, build_generator, register
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.local import LocalGenerator
from dsa.generators.scripted import ScriptedGenerator
from dsa.machine import Machine
from dsa.runtime.content import Artifact, GeneratorInterface


def machine(*generators):
    return Machine("m", (), (), "", generators=generators)


def build(name, *generators, **more):
    return build_generator(name, machine(*generators), **{"model": "local", "seed": 0, **more})


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "s.md"
    path.write_text("```\nx\n```\n")
    return path


def test_llm_is_whatever_model_is_asked_for(script):
    assert isinstance(build("llm"), LocalGenerator)
    assert isinstance(build("llm", model=f"scripted:{script}"), ScriptedGenerator)
    assert isinstance(build("llm", model="openai/gpt-4o-mini"), LiteLLMGenerator)
    assert isinstance(build("writer", Generator("writer"), model="ollama_chat/x"), LiteLLMGenerator)
    assert isinstance(build("llm", model="http://127.0.0.1:9/v1#x"), OpenAICompatibleGenerator)


def test_a_row_may_name_model_and_kind(script):
    assert isinstance(build("g", Generator("g", options=(("model", "openai/x"),))), LiteLLMGenerator)
    assert isinstance(build("g", Generator("g", kind="local"), model="openai/x"), LocalGenerator)
    assert isinstance(build("g", Generator("g", kind="scripted", options=(("file", str(script)),))), ScriptedGenerator)
    options = (("model", "openai/x"), ("timeout_s", "3"), ("api_base", "http://127.0.0.1:1/v1"))
    assert isinstance(build("g", Generator("g", kind="litellm", options=options)), LiteLLMGenerator)


class Mine(GeneratorInterface):
    """Give nothing."""

    def __init__(self, seed: int, size: int = 2) -> None:
        self.seed, self.size = seed, size

    def generate(self, context, template=None):
        return Artifact(content="")


def test_the_users_generators_come_first_by_name_and_by_kind():
    mine = Mine(0)
    assert build("llm", extra={"llm": mine}) is mine
    assert build("g", Generator("g", kind="special"), extra={"special": mine}) is mine


def test_users_register_kinds_with_options_and_the_seed_of_the_run(monkeypatch):
    monkeypatch.setattr("dsa.generators.library.KINDS", dict(KINDS))
    register("mine")(Mine)
    built = build("g", Generator("g", kind="mine", options=(("size", "5"),)), seed=7)
    assert (built.seed, built.size) == (7, 5)


def test_every_kind_describes_itself():
    assert set(KINDS) == {"llm", "local", "scripted", "litellm", "openai_compatible", "command", "machine"}
    assert all(kind.description for kind in KINDS.values())


@pytest.mark.parametrize(
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
            "generator g: 'http://127.0.0.1:9/v1' names no model",
        ),
        (
            Generator("g", kind="openai_compatible", options=(("model", "x"),)),
            "generator g: 'x' is no address of a server",
        ),
        (Generator("g", kind="special", options=(("a", "b"),)), "takes no options"),
    ],
)
def test_every_mistake_is_one_error_that_says_what_to_do(generator, message):
    with pytest.raises(BindingError) as raised:
        build("g", generator, extra={"special": Mine(0)})
    assert message in str(raised.value)


def test_an_unknown_name_and_a_missing_script_are_told():
    with pytest.raises(BindingError, match=r"generator lmm is not bound to anything\n +hint: did you mean 'llm'"):
        build("lmm")
    with pytest.raises(DocumentError, match=r"nowhere.md: the script cannot be read: No such file"):
        build("llm", model="scripted:nowhere.md")
