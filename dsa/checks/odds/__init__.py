"""The odds of a machine: how runs end, what they cost, how many retries a target needs."""

from dsa.checks.odds.answer import OddsAnswer, odds_answer
from dsa.checks.odds.assumed import OddsError
from dsa.checks.odds.judge import judge
from dsa.checks.odds.reckon import Bounds, Reckoning, odds, question

__all__ = ["Bounds", "OddsAnswer", "OddsError", "Reckoning", "judge", "odds", "odds_answer", "question"]
