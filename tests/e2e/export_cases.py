"""Cases for exports to model checkers: machines with their exact counts, and claims with their truth values."""

import families
import pytest
from repository import all_machines, shipped_machines

from dsa.checks.search.exploration import explore
from dsa.machine import Machine

SHIPPED, ALL = shipped_machines(), all_machines()
#: Every document here; the configurations of each are few.
SMALL = sorted(ALL)
FULL = pytest.mark.full


def count_of(machine: Machine) -> int:
    return explore(machine).configurations


COUNTS = [
    pytest.param(lambda: SHIPPED["dual_state"], 15, id="dual_state"),
    pytest.param(lambda: SHIPPED["workflow"], 67, id="workflow"),
    pytest.param(lambda: SHIPPED["examples/jugs"], 16, id="jugs", marks=FULL),
    pytest.param(lambda: families.two_phase_commit(3), 288, id="two-phase commit 3", marks=FULL),
    pytest.param(lambda: families.ordered(100, 100), 30_402, id="ordered 100/100"),
    pytest.param(lambda: families.any_order(5, 3), 43_751, id="any-order 5/3"),
    pytest.param(lambda: families.two_phase_commit(5), 8_832, id="two-phase commit 5", marks=FULL),
    pytest.param(lambda: families.two_phase_commit(7), 296_448, id="two-phase commit 7", marks=FULL),
    pytest.param(lambda: families.any_order(6, 3), 259_376, id="any-order 6/3", marks=FULL),
    pytest.param(lambda: families.any_order(7, 3), 1_500_001, id="any-order 7/3", marks=FULL),
    pytest.param(lambda: families.any_order(8, 3), 8_515_626, id="any-order 8/3", marks=FULL),
]
#: Rows that loop, rest, answer with a new question and restart a timer, with claims of every form that SPIN supports and whether each holds.
LOOPS = """# loops

## Events
| event | from    |
| ----- | ------- |
| begin | outside |
| again | outside |
| tick  | ask     |
| tock  | ask     |
| stop  | outside |

## Guards
| guard | judges |
| ----- | ------ |
| g     | tock   |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..2   | 0       |
| m        | 0..2   | 1       |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| done  | final   |

## Transitions
| source | event     | if       | update       | effects | target |
| ------ | --------- | -------- | ------------ | ------- | ------ |
| idle   | begin     |          |              | ask     | busy   |
| idle   | again     |          |              |         | =      |
| busy   | tick      |          |              | ask     | =      |
| busy   | tock      | g.passed | n = 1        |         | done   |
| busy   | tock      | else     | n = m; m = n | ask     | =      |
| busy   | after 30s |          |              |         | =      |

## Properties
"""
CLAIMS = [
    ("always n < 2", True),
    ("always n == 0", False),
    ("never tick and idle", True),
    ("never tick", False),
    ("never g.failed and busy", False),
    ("always count(n == 1, m == 1, idle or busy) <= 2", True),
    ("never count(n == 1, m == 1) == 2", False),
    ("possible count(tock, g.passed, done) == 3", True),
    ("on tick: count(n == 1, m == 1) unchanged", True),
    ("possible done", True),
    ("possible done and n == 2", False),
    ("possible idle and begin", False),
    ("on tick: n, m unchanged", True),
    ("on tock: n unchanged", False),
    ("on g.passed: m unchanged", True),
    ("tock only after begin", True),
    ("busy only after idle", True),
    ("done only after tick", False),
    ("at most 1 begin", True),
    ("at most 0 begin", False),
    ("at most 1 ask between ask and (tick or tock)", True),
    ("at most 1 tick between begin and done", False),
    ("begin leads to ask", True),
    ("begin leads to done", False),
    ("begin leads to tick or tock", True),
    ("begin leads to tock", False),
    ("begin leads to tock assuming fair tock", True),
    ("idle leads to busy", False),
    ("pending ask leads to done", False),
    ("tock leads to done or pending ask", True),
    ("busy leads to done assuming fair tock", False),
]
#: Two effects, one after the other, with claims about the promise that effects are answered, and whether each holds.
PROMISED = """# promised

## Events
| event | from    |
| ----- | ------- |
| begin | outside |
| one   | first   |
| two   | second  |
| back  | second  |

## Transitions
| source | event    | effects | target |
| ------ | -------- | ------- | ------ |
| idle   | begin    | first   | a      |
| a      | one      | second  | b      |
| a      | after 1s |         | a      |
| b      | two      |         | c      |
| b      | back     | first   | a      |

## Properties
"""
PROMISED_CLAIMS = [
    ("pending first leads to pending second", True),
    ("a leads to b", True),
    ("a leads to c", False),
    ("b leads to c assuming fair two", True),
    ("idle leads to a", False),
]
#: Names that are equal without their dots, reserved words of every target, domains below zero, and everything a row can express.
HARD = """# hard.case.x

Prose that a target could take for its own: ü 日本語 <b>&amp; ]]> -- */ \\* (* *)

## Parameters
| parameter | domain | default |
| - | - | - |
| k | -5.. | -2 |
| p.q | 0.. | 2 |
| flag | bool | true |
| kind_of | {byte, mtype, chan} | mtype |

## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| a.b | workflow | -3..2 | 0 |
| a_b | environment | k..p.q | k |
| mode | environment | {do, od, if, fi, skip, true_, INIT, proctype, VARIABLE, EXTENDS, class, null, endmodule, init, G, F, X} | do |
| on | environment | bool | flag |
| at | environment | 0..1 | 0 |
| kk | environment | {byte, mtype, chan} | kind_of |

## Events
| event | from |
| - | - |
| go | outside |
| go.back | outside |
| go_back | outside |
| back | ask.it |
| no | ask.it |
| back2 | ask_it |
| any | outside |

## Guards
| guard | judges |
| - | - |
| g | go |
| g.h | go, back |
| g_h | go |

## States
| state | kind |
| - | - |
| a | |
| a.one | initial |
| a.two | |
| a.two.deep | initial |
| a.two.other | |
| c | initial |
| c.one | initial |
| end | final |
| end_ | final |

## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| c | go | g.passed and g.h.passed and g_h.passed | a.b = 1; a_b = p.q | ask.it | a |
| c | go | g.passed and not (g.h.passed and g_h.passed) | mode = od | log | a.two |
| c | go | else | at = 1 - at | | = |
| a.one | back | g.h.passed | revoke a.b; on = not on | ask_it | a.two |
| a.one | back | g.h.failed | a.b -= 1; a_b = a.b * a.b * 0 + k | ask.it | = |
| a.one | back | g.h.fatal | | cancel | c |
| a.two | back2 | a.b < 0 or mode in {do, if} | mode = if; kk = chan | | a.two.other |
| a.two | back2 | else | mode = class | cancel ask_it | end |
| a.two.deep | back2 | | at = 0 | | end_ |
| a | no | | on = true; revoke a.b | cancel | c |
| a.two.other | after 30s | on | on = false | | = |
| a.two.other | after 30s | else | | | end |
| a | after 2m | | | cancel | c |
| * | any | at == 1 | at = 0 | | = |
| * | go.back | | | cancel | c |
| * | after 1h | | mode = null | | a.two |
| a.two | go_back | | | ask_it, cancel ask_it, ask_it | a.two.other |
| a.two.other | go_back | | | cancel ask_it, ask_it | a |
| * | back2 | | | | = |
| * | no | | | | = |
| * | back | | | | = |
"""
HARD_COUNT = 1_134
