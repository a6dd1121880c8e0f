"""The two families in Promela, written by hand the way SPIN likes it best: the phase is where the process is, not a variable."""


def any_order(n: int, r: int) -> str:
    """`families.any_order(n, r)`: each configuration is one state of SPIN's."""
    numbers = range(1, n + 1)
    starts = "\n".join(f"  :: !ok_{i} -> goto generating_{i}" for i in numbers)
    variables = "\n".join(f"bool ok_{i}; byte r_{i};" for i in numbers)
    return f"""{variables}
active proctype agent() {{
idle:
  if
{starts}
  :: {" && ".join(f"ok_{i}" for i in numbers)} -> goto end_succeeded
  fi;
{"".join(_step(i, r) for i in numbers)}
end_succeeded: false
}}
"""


def _step(i: int, r: int) -> str:
    return f"""
generating_{i}:
  goto_validating_{i}: true;
validating_{i}:
  if
  :: d_step {{ ok_{i} = true; r_{i} = 0 }} -> goto idle
  :: d_step {{ r_{i} < {r} -> r_{i}++ }} -> goto idle
  :: r_{i} == {r} -> goto end_failed_{i}
  :: true -> goto end_escalated_{i}
  fi;
end_failed_{i}: false;
end_escalated_{i}: false;
"""


def ordered(n: int, rmax: int) -> str:
    """`families.ordered(n, rmax)`: each configuration is one state of SPIN's."""
    return f"""short done, retries;
active proctype agent() {{
  true;
generating:
  true;
  if
  :: d_step {{ done + 1 < {n} -> done++; retries = 0 }} -> goto generating
  :: d_step {{ done + 1 == {n} -> done++; retries = 0 }} -> goto end_succeeded
  :: d_step {{ retries < {rmax} -> retries++ }} -> goto generating
  :: retries == {rmax} -> goto end_failed
  :: true -> goto end_escalated
  fi;
end_succeeded: false;
end_failed: false;
end_escalated: false
}}
"""
