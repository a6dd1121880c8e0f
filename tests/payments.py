"""A small machine with one effect, for pages and walks: `pay` may be answered, may fail, and may be in doubt."""

_TEXT = """# pay

## Events
| event | from    |
| ----- | ------- |
| asked | outside |
| paid  | pay     |

## Effects
| effect | kind     |
| ------ | -------- |
| pay    | actuator |

## States
| state  | kind    |
| ------ | ------- |
| idle   | initial |
| paying |         |
| done   | final   |

## Transitions
| source | event      | effects | target |
| ------ | ---------- | ------- | ------ |
| idle   | asked      | pay     | paying |
| paying | paid       |         | done   |
"""
#: The line of the row for a failure, where there is one.
FAILURE_LINE = 26


def payment(*claims: str, on_failure: str | None = None) -> str:
    """Return the document. `on_failure` are the effects of a row for `pay.failed`, which stays in its state; None leaves the row out."""
    row = f"| paying | pay.failed | {on_failure:<7} | =      |\n" if on_failure is not None else ""
    properties = "".join(f"- {claim}\n" for claim in claims)
    return _TEXT + row + (f"\n## Properties\n{properties}" if claims else "")
