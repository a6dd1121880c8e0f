"""Machine to diagnostics and verdicts: `check`, `explore`."""

from dsa.checks.explore import Exploration, explore
from dsa.checks.report import Report, check

__all__ = ["Exploration", "Report", "check", "explore"]
