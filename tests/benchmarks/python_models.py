"""The any-order family for checkers written in Python, as their users write it; run as a program: CHECKER N R.

Imports nothing of this project, so that any interpreter runs it. Prints the configurations found and the seconds of processor time.
"""

import sys
import time


def minicheck(n, r):
    """minicheck's Protocol: tuples, and a function that gives the moves."""
    from minicheck import Protocol, check_safety

    steps = range(n)

    def put(values, place, value):
        return (*values[:place], value, *values[place + 1 :])

    def moves(state):
        phase, at, ok, tries = state
        if phase == "idle":
            found = [("start", ("generating", i, ok, tries)) for i in steps if not ok[i]]
            return found or [("finish", ("succeeded", -1, ok, tries))]
        if phase == "generating":
            return [("artifact", ("validating", at, ok, tries))]
        if phase == "validating":
            found = [
                ("passed", ("idle", -1, put(ok, at, value=True), put(tries, at, 0))),
                ("fatal", ("escalated", at, ok, tries)),
            ]
            if tries[at] < r:
                return [*found, ("failed", ("idle", -1, ok, put(tries, at, tries[at] + 1)))]
            return [*found, ("failed", ("failed", at, ok, tries))]
        return []

    protocol = Protocol(
        name="any_order", candidate=False, fields=("phase", "at", "ok", "tries"),
        initial=("idle", -1, (False,) * n, (0,) * n), transitions=moves, invariants={},
    )  # fmt: skip
    return check_safety(protocol, max_states=10**8)["reachable_states"]


def musil(n, r):
    """musil's actions: guards and effects over a frozen state."""
    from typing import NamedTuple

    from musil import Action, Model, check

    class State(NamedTuple):
        phase: str
        at: int
        ok: tuple
        tries: tuple

    def put(values, place, value):
        return (*values[:place], value, *values[place + 1 :])

    def passed(s):
        return State("idle", -1, put(s.ok, s.at, value=True), put(s.tries, s.at, 0))

    def failed(s):
        return State("idle", -1, s.ok, put(s.tries, s.at, s.tries[s.at] + 1))

    starts = [
        Action(f"start_{i}", lambda s, i=i: not s.ok[i], lambda s, i=i: s._replace(phase="generating", at=i))
        for i in range(n)
    ]
    by_phase = {
        "idle": [*starts, Action("finish", lambda s: all(s.ok), lambda s: s._replace(phase="succeeded"))],
        "generating": [Action("artifact", lambda _: True, lambda s: s._replace(phase="validating"))],
        "validating": [
            Action("passed", lambda _: True, passed),
            Action("failed", lambda s: s.tries[s.at] < r, failed),
            Action("exhausted", lambda s: s.tries[s.at] == r, lambda s: s._replace(phase="failed")),
            Action("fatal", lambda _: True, lambda s: s._replace(phase="escalated")),
        ],
    }
    model = Model(
        init=[State("idle", -1, (False,) * n, (0,) * n)],  # a list: a tuple would be taken for several states
        actions_fn=lambda s: by_phase.get(s.phase, ()),
        terminal=lambda s: s.phase not in by_phase,
    )
    found = check(model, max_states=10**8)
    assert found.ok, found
    return found.states_explored


if __name__ == "__main__":
    checker, n, r = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    begun = time.process_time()
    found = {"minicheck": minicheck, "musil": musil}[checker](n, r)
    print(found, time.process_time() - begun)
