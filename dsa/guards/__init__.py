"""The library of guards."""

from dsa.guards.cases import CasesGuard
from dsa.guards.code import SyntaxGuard, extract_code
from dsa.guards.command import CommandGuard
from dsa.guards.compose import AllOf, Combination
from dsa.guards.forbidden import ForbiddenGuard
from dsa.guards.judge import JudgeGuard, ReviewGuard
from dsa.guards.library import build_guard, register
from dsa.guards.models import PydanticGuard
from dsa.guards.mypy import MypyGuard
from dsa.guards.new_tests import NewTestsGuard
from dsa.guards.ruff import RuffGuard
from dsa.guards.tested import TDDTestGuard, TestGuard
from dsa.guards.texts import RegexGuard, SchemaGuard
from dsa.guards.tool import ToolFailedError, ToolMissingError
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

__all__ = [
    "AllOf", "Artifact", "CasesGuard", "Combination", "CommandGuard", "ForbiddenGuard", "GuardInterface",
    "GuardResult", "JudgeGuard", "MypyGuard", "NewTestsGuard", "PydanticGuard", "RegexGuard", "ReviewGuard", "RuffGuard",
    "SchemaGuard", "SyntaxGuard", "TDDTestGuard", "TestGuard", "ToolFailedError", "ToolMissingError", "build_guard",
    "extract_code", "register",
]  # fmt: skip
