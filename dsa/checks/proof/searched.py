"""What a search says of a property at given parameter values: exact, but only there."""

from collections.abc import Callable

from dsa.checks.engines.found import Limits
from dsa.checks.properties import Judgement, Questions, judge
from dsa.claims import Form
from dsa.system import System


def judged(system: System, form: Form, most: int, expired: Callable[[], bool] = lambda: False) -> Judgement:
    """Judge a property at the parameter values of the system's machine, within `most` configurations."""
    questions = Questions(system, [form])
    limits = Limits(most, expired)
    return judge(questions, questions.search(limits), limits)[form]
