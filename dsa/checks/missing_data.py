"""Data that may be missing when a prompt or a guard reads it: DSA316 (rule D5).

Takes a system with its machine's values, and limits; asks for each use whether its event always came before, and, for `since`, whether it came
after that. Gives a warning with a shortest way to where it did not.
"""

import attrs

from dsa.checks.engines.found import Engine, Limits
from dsa.checks.places import place
from dsa.checks.properties import Questions, judge
from dsa.claims import AtMost, Form, OnlyAfter
from dsa.errors import Diagnostic
from dsa.expr import Integer, Name
from dsa.system import System
from dsa.trace import Trace, show_events
from dsa.uses import Use, uses


def missing_data(system: System, limits: Limits, engine: Engine | None = None) -> dict[Use, Diagnostic]:
    """Return a warning for each use of data that may not be there, by a prompt or a guard."""
    asked = [(use, form) for use in uses(system.machine) for form in _forms(use)]
    if not asked:
        return {}
    questions = Questions(system, [form for _, form in asked])
    judged = judge(questions, questions.search(limits, engine), limits, engine=engine)
    found: dict[Use, Diagnostic] = {}
    for use, form in asked:
        judgement = judged[form]
        if judgement.verdict == "VIOLATED" and judgement.trace is not None:
            found.setdefault(use, _warning(use, form, judgement.trace))
    return found


def _forms(use: Use) -> tuple[Form, ...]:
    """Return the properties that say that the data is there; none for what may be missing."""
    if use.reference.is_optional:
        return ()
    event = Name(use.reference.event, "event")
    forms: list[Form] = [OnlyAfter(use.when, event)]
    if use.reference.since not in {None, use.reference.event}:
        forms.append(AtMost(Integer(0), use.when, (Name(str(use.reference.since), "event"), event)))
    return tuple(forms)


def _warning(use: Use, form: Form, trace: Trace) -> Diagnostic:
    event, since = use.reference.event, use.reference.since
    missing = f"no {event} may have come" + (f" since {since}" if isinstance(form, AtMost) else "")
    way = show_events([step.occurrence for step in trace.steps])
    message = f"{use.reader} reads '{use.reference}', and {missing} by then: {way}"
    optional = attrs.evolve(use.reference, is_optional=True)
    hint = f"let {event} come first on every way to {use.at}, or write '{optional}' where it may be missing"
    return Diagnostic("DSA316", "warning", message, place(use.span), hint)
