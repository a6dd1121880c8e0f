"""Families of machines whose numbers of configurations are known, as documents: for tests of engines and exports, and for measuring.

Counts in closed form, all with one idle configuration at the start:
ordered n/rmax: 3 n (rmax + 1) + n + 2 (generating, validating and escalated everywhere, failed once for each step, idle, succeeded).
side by side n: 2^n + 1.
any-order N/R, with M = R + 2 (a step has passed, or failed 0 to R times): M^N + N M^(N - 1) (3 (R + 1) + 1) + 1.
"""

from example_machines import two_phase_commit as two_phase_commit_rows

from dsa.lang import dumps, loads
from dsa.machine import Machine

#: What each test of an engine expects.
ORDERED = {(100, 100): 30_402, (1_000, 1_000): 3_004_002}
ANY_ORDER = {
    (5, 3): 43_751,
    (6, 3): 259_376,
    (7, 3): 1_500_001,
    (8, 3): 8_515_626,
    (9, 3): 47_656_251,
    (11, 2): 119_537_665,
}
SIDE_BY_SIDE = {16: 65_537, 24: 16_777_217}
TWO_PHASE_COMMIT = {3: 288, 5: 8_832, 7: 296_448}

_ANSWERS = """
## Events
| event         | from          |
| ------------- | ------------- |
| {outside} | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Guards
| guard | judges  |
| ----- | ------- |
| g     | verdict |
"""


def ordered_configurations(n: int, rmax: int) -> int:
    """How many configurations `ordered(n, rmax)` has."""
    return 3 * n * (rmax + 1) + n + 2


def any_order_configurations(n: int, r: int) -> int:
    """How many configurations `any_order(n, r)` has."""
    m = r + 2
    return m**n + n * m ** (n - 1) * (3 * (r + 1) + 1) + 1


def ordered(n: int, rmax: int) -> Machine:
    """`n` steps one after the other, each with `rmax` retries after the first attempt."""
    return loads(f"""# ordered

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| n         | 1..    | {n}     |
| rmax      | 0..    | {rmax}  |

## Variables
| variable | scope       | domain  | initial |
| -------- | ----------- | ------- | ------- |
| done     | workflow    | 0..n    | 0       |
| retries  | environment | 0..rmax | 0       |
{_ANSWERS.format(outside="specification")}
## States
| state      | kind    |
| ---------- | ------- |
| idle       | initial |
| generating |         |
| validating |         |
| succeeded  | final   |
| failed     | final   |
| escalated  | final   |

## Transitions
| source     | event         | if                          | update                 | effects       | target     |
| ---------- | ------------- | --------------------------- | ---------------------- | ------------- | ---------- |
| idle       | specification |                             |                        | query_llm     | generating |
| generating | artifact      |                             |                        | execute_guard | validating |
| validating | verdict       | g.passed and done + 1 < n   | done += 1; retries = 0 | query_llm     | generating |
| validating | verdict       | g.passed and done + 1 == n  | done += 1; retries = 0 |               | succeeded  |
| validating | verdict       | g.failed and retries < rmax | retries += 1           | query_llm     | generating |
| validating | verdict       | else and g.failed           |                        |               | failed     |
| validating | verdict       | g.fatal                     |                        |               | escalated  |
""")


def any_order(n: int, r: int) -> Machine:
    """`n` steps in any order, each with `r` retries that are kept while other steps run."""
    numbers = range(1, n + 1)
    variables = [f"| ok_{i} | workflow | bool | false |" for i in numbers]
    variables += [f"| r_{i} | environment | 0..{r} | 0 |" for i in numbers]
    events = [f"| start_{i} | outside |" for i in numbers]
    states = [f"| {name}.s_{i} | {kind} |" for name, kind in _PHASES.items() for i in numbers]
    done = " and ".join(f"ok_{i}" for i in numbers)
    rows = [row for i in numbers for row in _step(i, r)]
    return loads("\n".join([
        "# any_order", "", "## Variables", "| variable | scope | domain | initial |", "| - | - | - | - |", *variables,
        _ANSWERS.format(outside="finish"), "## Events: starts", "| event | from |", "| - | - |", *events,
        "", "## States", "| state | kind |", "| - | - |", "| idle | initial |", *states, "| succeeded | final |",
        "", "## Transitions", "| source | event | if | update | effects | target |", "| - | - | - | - | - | - |",
        *rows, f"| idle | finish | {done} | | | succeeded |", "",
    ]))  # fmt: skip


_PHASES = {"generating": "", "validating": "", "failed": "final", "escalated": "final"}


def _step(i: int, r: int) -> list[str]:
    return [
        f"| idle | start_{i} | not ok_{i} | | query_llm | generating.s_{i} |",
        f"| generating.s_{i} | artifact | | | execute_guard | validating.s_{i} |",
        f"| validating.s_{i} | verdict | g.passed | ok_{i} = true; r_{i} = 0 | | idle |",
        f"| validating.s_{i} | verdict | g.failed and r_{i} < {r} | r_{i} += 1 | | idle |",
        f"| validating.s_{i} | verdict | else and g.failed | | | failed.s_{i} |",
        f"| validating.s_{i} | verdict | g.fatal | | | escalated.s_{i} |",
    ]


def side_by_side_configurations(count: int) -> int:
    """How many configurations `side_by_side(count)` has."""
    return 2**count + 1


def side_by_side(count: int, *claims: str) -> Machine:
    """A machine that asks for `count` effects at once, and rests when all are answered; in claims, EVERYTHING is that one of them is outstanding."""
    numbers = range(count)
    properties = [f"- {claim.replace('EVERYTHING', ' or '.join(f'pending e{n}' for n in numbers))}" for claim in claims]
    return loads("\n".join([
        "# side_by_side", "", "## States", "| state | kind |", "| - | - |", "| idle | initial |", "| work | end when true |",
        "", "## Events", "| event | from |", "| - | - |", "| go | outside |", *(f"| d{n} | e{n} |" for n in numbers),
        "", "## Transitions", "| source | event | effects | target |", "| - | - | - | - |",
        f"| idle | go | {', '.join(f'e{n}' for n in numbers)} | work |", *(f"| work | d{n} | | = |" for n in numbers),
        "", *(["## Properties", *properties] if properties else []), "",
    ]))  # fmt: skip


def two_phase_commit(count: int) -> Machine:
    """`count` resource managers and a coordinator (Gray and Lamport); no two of them may decide differently."""
    numbers = range(1, count + 1)
    claims = [f"- never rm_{i} == aborted and rm_{j} == committed" for i in numbers for j in numbers if i != j]
    return loads(dumps(two_phase_commit_rows(count)) + "\n## Properties\n" + "\n".join(claims) + "\n")


def peterson(n: int = 3, *, broken: bool = False) -> Machine:
    """Peterson's lock for `n` processes (the filter lock: `n - 1` levels, at each of which the last to come waits).

    Every read and write of a shared variable is a step of its own, an event from outside. A process raises its level, then says that it
    came last, then looks at the others one by one; `broken` has it say so before it raises its level.
    """
    processes, levels = range(1, n + 1), range(1, n)
    rows = [row for i in processes for row in _process(i, n, broken=broken)]
    variables = [f"| pc_{i} | {{outside, first, second, looking, critical}} | outside |" for i in processes]
    variables += [f"| aim_{i} | 1..{n - 1} | 1 |" for i in processes]
    variables += [f"| at_{i} | 1..{n} | 1 |" for i in processes]
    variables += [f"| level_{i} | 0..{n - 1} | 0 |" for i in processes]
    variables += [f"| last_{level} | 1..{n} | 1 |" for level in levels]
    claims = [f"- never pc_{i} == critical and pc_{j} == critical" for i in processes for j in processes if i < j]
    return loads("\n".join([
        "# peterson", "", "## Variables", "| variable | domain | initial |", "| - | - | - |", *variables,
        "", "## States", "| state | kind |", "| - | - |", "| running | initial |",
        "", "## Transitions", "| source | event | if | update | target |", "| - | - | - | - | - |", *rows,
        "", "## Properties", *claims, *(f"- possible pc_{i} == critical" for i in processes), "",
    ]))  # fmt: skip


def _process(i: int, n: int, *, broken: bool) -> list[str]:
    others = [j for j in range(1, n + 1) if j != i]
    raising, yielding = ("second", "first") if broken else ("first", "second")

    def row(condition: str, update: str) -> str:
        return f"| running | step_{i} | {condition} | {update} | = |"

    def then(pc: str) -> str:
        return f"pc_{i} = second" if pc == "first" else f"pc_{i} = looking; at_{i} = {others[0]}"

    found = [
        row(f"pc_{i} == outside", f"pc_{i} = first; aim_{i} = 1"),
        row(f"pc_{i} == {raising}", f"level_{i} = aim_{i}; {then(raising)}"),
    ]
    for level in range(1, n):
        found.append(row(f"pc_{i} == {yielding} and aim_{i} == {level}", f"last_{level} = {i}; {then(yielding)}"))
        for place, other in enumerate(others):
            free = f"(level_{other} < {level} or last_{level} != {i})"
            if place + 1 < len(others):
                after = f"at_{i} = {others[place + 1]}"
            else:
                after = f"pc_{i} = first; aim_{i} = {level + 1}" if level + 1 < n else f"pc_{i} = critical"
            found.append(row(f"pc_{i} == looking and aim_{i} == {level} and at_{i} == {other} and {free}", after))
    found.append(row(f"pc_{i} == critical", f"pc_{i} = outside; level_{i} = 0"))
    return found
