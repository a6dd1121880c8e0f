"""Properties that say little: what they speak of never happens.

Takes what was judged at each valuation, gives a warning for each property whose left side is never true in any exploration.
"""

from collections.abc import Sequence

from dsa.checks.places import place
from dsa.claims import AtMost, Form, LeadsTo, OnlyAfter, Property, Unchanged
from dsa.errors import Diagnostic
from dsa.expr import Expr


def subject(form: Form) -> Expr | None:
    """Give what a property speaks of: where that never happens, it holds and says nothing. None for the forms that need none."""
    match form:
        case LeadsTo(cause, _, _):
            return cause
        case Unchanged(trigger, _):
            return trigger
        case OnlyAfter(later, _):
            return later
        case AtMost(_, counted, between):
            return between[0] if between else counted
        case _:
            return None


def vacuous(claim: Property, text: str, idle: Sequence[str], where: str) -> Diagnostic | None:
    """Report a property whose subject happens in none of the explorations; `idle` has what never happens in each."""
    if not idle or not all(idle):
        return None
    what = "no scope opens: " if isinstance(claim.form, AtMost) and claim.form.between else ""
    message = f"'{text}' holds because {what}{idle[0]} never happens{where}"
    return Diagnostic("DSA313", "warning", message, place(claim.span), "mend the property, or the rows it speaks of")
