"""The library of generators. None loads a model or a provider's package before it is asked to generate."""

from dsa.generators.library import build_generator, register
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.local import LocalGenerator
from dsa.generators.scripted import ScriptedGenerator, load_script

__all__ = ["LiteLLMGenerator", "LocalGenerator", "ScriptedGenerator", "build_generator", "load_script", "register"]
