"""The library of guards."""

from dsa.guards.cases import CasesGuard
from dsa.guards.code import ForbiddenGuard, SyntaxGuard, extract_code
from dsa.guards.guard_kinds import AllOf, Combination, build_guard, register
from dsa.guards.pytest_guard import NewTestsGuard, TDDTestGuard, TestGuard
from dsa.guards.text_guards import JudgeGuard, PydanticGuard, RegexGuard, ReviewGuard, SchemaGuard
from dsa.guards.tool_guards import CommandGuard, MypyGuard, RuffGuard
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

__all__ = [
    "AllOf", "Artifact", "CasesGuard", "Combination", "CommandGuard", "ForbiddenGuard", "GuardInterface",
    "GuardResult", "JudgeGuard", "MypyGuard", "NewTestsGuard", "PydanticGuard", "RegexGuard", "ReviewGuard", "RuffGuard",
    "SchemaGuard", "SyntaxGuard", "TDDTestGuard", "TestGuard", "build_guard",
    "extract_code", "register",
]  # fmt: skip
