"""A machine with effects of every kind, and policies that count outside the ledger how often each is performed.

A line is appended to a file, and synced, each time an effect happens: `LIFE KEY`. A life is one process that works on the run.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from dsa.edge.binding import Bindings
from dsa.lang import loads
from dsa.runtime.policy.policies import error_step, event_step

TEXT = """# parcels

## Events
| event         | from        |
| ------------- | ----------- |
| specification | outside     |
| weighed       | weigh       |
| priced        | price       |
| printed       | print_label |
| posted        | post        |

## Effects
| effect      | kind     | in doubt | retries | note                           |
| ----------- | -------- | -------- | ------- | ------------------------------ |
| note        | internal |          |         |                                |
| weigh       | sensing  |          | 1       | fails the first time           |
| price       | internal |          |         | a large answer                 |
| charge      | actuator |          |         | somebody is asked when in doubt |
| print_label | actuator | fail     |         |                                |
| post        | actuator | retry    |         |                                |

## States
| state       | kind    |
| ----------- | ------- |
| idle        | initial |
| asking      |         |
| only_weight |         |
| only_price  |         |
| printing    |         |
| resting     |         |
| posting     |         |
| done        | final   |

## Transitions
| source      | event              | effects             | target      |
| ----------- | ------------------ | ------------------- | ----------- |
| idle        | specification      | note, weigh, price  | asking      |
| asking      | weighed            | note                | only_weight |
| asking      | priced             | note                | only_price  |
| only_weight | priced             | charge, print_label | printing    |
| only_price  | weighed            | charge, print_label | printing    |
| printing    | printed            |                     | resting     |
| printing    | print_label.failed | note                | resting     |
| resting     | after 5ms          | post                | posting     |
| posting     | posted             | note                | done        |
"""
MACHINE = loads(TEXT, "parcels.md")
#: What the table says of each effect in doubt.
HANDLED = {"note": "retry", "weigh": "retry", "price": "retry", "charge": "ask", "print_label": "fail", "post": "retry"}
ANSWERS = {"weigh": "weighed", "price": "priced", "print_label": "printed", "post": "posted"}


def performed(log: Path) -> Iterator[tuple[int, str]]:
    """Yield the life and the key of each time an effect happened."""
    for line in log.read_text().splitlines() if log.exists() else ():
        life, key = line.split()
        yield int(life), key


def binding(log: Path, life: int, between: Callable[[], None], size: int = 6_000) -> Bindings:
    """Return policies that note what they do. `between` is called before and after an effect happens; `size` is that of the large answer."""

    async def happen(action, _context):
        key, effect = action.payload["key"].partition("/")[2], action.policy
        between()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(file, f"{life} {key}\n".encode())
        os.fsync(file)
        os.close(file)
        between()
        if effect == "weigh" and sum(each == key for _, each in performed(log)) == 1:
            return [error_step(effect, "UNSTEADY", "the scales are not still")]
        answer = ANSWERS.get(effect)
        data = "price " * (size // 6) if effect == "price" else {"key": key}
        return [event_step(effect, answer, data=data)] if answer else []

    return Bindings(dict.fromkeys(HANDLED, happen))
