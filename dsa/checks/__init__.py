"""Machine to diagnostics and verdicts: `check`, `explore`, `why`."""

from dsa.checks.explore import Exploration, explore
from dsa.checks.report import Report, check
from dsa.checks.why import Why, why

__all__ = ["Exploration", "Report", "Why", "check", "explore", "why"]
