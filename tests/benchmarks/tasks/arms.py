"""The arms that are compared: how often a model may try, and whether it gets feedback.

Takes names such as `guarded_3`, gives `Arm` values.
"""

import re

import attrs

_FORMS = re.compile(r"(one_shot)|(best_of|guarded)_([1-9][0-9]?)")
DEFAULT_ARMS = ("one_shot", "best_of_4", "guarded_3", "guarded_4")


@attrs.frozen
class Arm:
    """At most `attempts` attempts at each step; with `feedback`, the prompts of later ones say why earlier ones were rejected."""

    name: str
    attempts: int
    feedback: bool


def arm_named(name: str) -> Arm:
    """Read `one_shot`, `best_of_N` or `guarded_N`, N attempts from 1 to 99. ValueError for anything else."""
    found = _FORMS.fullmatch(name)
    if found is None:
        raise ValueError(
            f"'{name}' is not an arm: write one_shot, best_of_N or guarded_N, such as {', '.join(DEFAULT_ARMS)}"
        )
    return Arm(name, 1 if found[1] else int(found[3]), feedback=found[2] == "guarded")


def arms_named(names: str) -> tuple[Arm, ...]:
    """Return the arms of a list with commas, each once. ValueError for a name that is not an arm."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ValueError(f"no arm is named; write such as {', '.join(DEFAULT_ARMS)}")
    return tuple(arm_named(name) for name in dict.fromkeys(wanted))
