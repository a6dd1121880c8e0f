"""The library of generators. None loads a model or a provider's package before it is asked to generate."""

from dsa.edge.http.streaming import Limits
from dsa.generators.compatible import ChatClient, OpenAICompatibleGenerator
from dsa.generators.library import build_generator, register
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.local import LocalGenerator
from dsa.generators.programs import CommandGenerator, FunctionGenerator
from dsa.generators.requests import Settings
from dsa.generators.scripted import ScriptedGenerator, load_script
from dsa.generators.streams import StreamReconciler, StreamResult, ToolCall, reconcile_stream
from dsa.runtime.content import (
    AmbientEnvironment,
    Artifact,
    AsyncGeneratorInterface,
    Context,
    GeneratorInterface,
    PromptTemplate,
)
from dsa.runtime.prompt_budget import TokenBudget

__all__ = [
    "AmbientEnvironment", "Artifact", "AsyncGeneratorInterface", "ChatClient", "CommandGenerator", "Context",
    "FunctionGenerator", "GeneratorInterface", "Limits", "LiteLLMGenerator", "LocalGenerator",
    "OpenAICompatibleGenerator", "PromptTemplate", "ScriptedGenerator", "Settings", "StreamReconciler",
    "StreamResult", "TokenBudget", "ToolCall", "build_generator", "load_script", "reconcile_stream", "register",
]  # fmt: skip
