"""The any-order family in TLA+, written by hand as its users write: functions over the steps."""


def any_order(n: int, r: int) -> tuple[str, str]:
    """Return the module `any_order` and its configuration: each configuration is one state of TLC's."""
    module = f"""---- MODULE any_order ----
EXTENDS Naturals
Steps == 1..{n}
VARIABLES phase, at, ok, r
vars == <<phase, at, ok, r>>
Init == phase = "idle" /\\ at = 0 /\\ ok = [i \\in Steps |-> FALSE] /\\ r = [i \\in Steps |-> 0]
Start(i) == phase = "idle" /\\ ~ok[i] /\\ phase' = "generating" /\\ at' = i /\\ UNCHANGED <<ok, r>>
Finish == phase = "idle" /\\ (\\A i \\in Steps : ok[i]) /\\ phase' = "succeeded" /\\ UNCHANGED <<at, ok, r>>
Artifact == phase = "generating" /\\ phase' = "validating" /\\ UNCHANGED <<at, ok, r>>
Pass == /\\ phase = "validating" /\\ phase' = "idle" /\\ at' = 0
        /\\ ok' = [ok EXCEPT ![at] = TRUE] /\\ r' = [r EXCEPT ![at] = 0]
Fail == /\\ phase = "validating" /\\ r[at] < {r} /\\ phase' = "idle" /\\ at' = 0
        /\\ r' = [r EXCEPT ![at] = @ + 1] /\\ UNCHANGED ok
Exhaust == phase = "validating" /\\ r[at] = {r} /\\ phase' = "failed" /\\ UNCHANGED <<at, ok, r>>
Fatal == phase = "validating" /\\ phase' = "escalated" /\\ UNCHANGED <<at, ok, r>>
Next == (\\E i \\in Steps : Start(i)) \\/ Finish \\/ Artifact \\/ Pass \\/ Fail \\/ Exhaust \\/ Fatal
Spec == Init /\\ [][Next]_vars
====
"""
    return module, "SPECIFICATION Spec\n"
