"""The library of generators. None of them loads a model or a provider's package before it has to generate."""

from dsa.edge.http_stream import StreamLimits
from dsa.generators.compatible_server import ChatClient, OpenAICompatibleGenerator, ServerSettings
from dsa.generators.generator_kinds import build_generator, register
from dsa.generators.local_model import LocalGenerator
from dsa.generators.provider import LiteLLMGenerator
from dsa.generators.streams import StreamCall, StreamReconciler, StreamResult, reconcile_stream
from dsa.generators.substitutes import CommandGenerator, FunctionGenerator, ScriptedGenerator, load_script
from dsa.runtime.content import (
    AmbientEnvironment,
    Artifact,
    AsyncGeneratorInterface,
    Context,
    GeneratorInterface,
    PromptTemplate,
)
from dsa.runtime.generation import TokenBudget

__all__ = [
    "AmbientEnvironment",
    "Artifact",
    "AsyncGeneratorInterface",
    "ChatClient",
    "CommandGenerator",
    "Context",
    "FunctionGenerator",
    "GeneratorInterface",
    "LiteLLMGenerator",
    "LocalGenerator",
    "OpenAICompatibleGenerator",
    "PromptTemplate",
    "ScriptedGenerator",
    "ServerSettings",
    "StreamCall",
    "StreamLimits",
    "StreamReconciler",
    "StreamResult",
    "TokenBudget",
    "build_generator",
    "load_script",
    "reconcile_stream",
    "register",
]  # fmt: skip
