"""The library of guards."""

from dsa.guards.cases import CasesGuard
from dsa.guards.code import SyntaxGuard, extract_code
from dsa.guards.compose import AllOf, Combination
from dsa.guards.forbidden import ForbiddenGuard
from dsa.guards.judge import JudgeGuard
from dsa.guards.library import build_guard, register
from dsa.guards.review import ReviewGuard
from dsa.guards.tested import TDDTestGuard, TestGuard
from dsa.guards.texts import ModelGuard, RegexGuard, SchemaGuard
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

__all__ = [
    "AllOf",
    "Artifact",
    "CasesGuard",
    "Combination",
    "ForbiddenGuard",
    "GuardInterface",
    "GuardResult",
    "JudgeGuard",
    "ModelGuard",
    "RegexGuard",
    "ReviewGuard",
    "SchemaGuard",
    "SyntaxGuard",
    "TDDTestGuard",
    "TestGuard",
    "build_guard",
    "extract_code",
    "register",
]
