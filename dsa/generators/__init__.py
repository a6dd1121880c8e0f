"""The library of generators. None loads a model or a provider's package before it is asked to generate."""

from dsa.generators.library import build_generator, register
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.local import LocalGenerator
from dsa.generators.scripted import ScriptedGenerator, load_script
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate

__all__ = [
    "Artifact",
    "Context",
    "GeneratorInterface",
    "LiteLLMGenerator",
    "LocalGenerator",
    "PromptTemplate",
    "ScriptedGenerator",
    "build_generator",
    "load_script",
    "register",
]
