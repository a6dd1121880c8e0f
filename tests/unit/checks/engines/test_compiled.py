"""The compiled engine's limits: configurations, time, memory, 64 bits. Its results are compared in property/test_engines.py."""

from collections.abc import Callable, Sequence
from itertools import count

import families
import pytest

from dsa.checks.search import c_engine
from dsa.checks.search.c_engine import source
from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.edge.processes import compile_library as compile_c
from dsa.errors import UndecidedError
from dsa.ground_system import Ground, GroundWatch, ground
from dsa.lang import loads
from dsa.system import closed_system

UNLIMITED = SearchLimits(10**12)


def system(text: str) -> Ground:
    return ground(closed_system(loads(text)))


def search(
    grounded: Ground,
    limits: SearchLimits = UNLIMITED,
    watches: Sequence[GroundWatch] = (),
    memory_bytes: int = c_engine.MEMORY_BYTES,
) -> SearchResult:
    return c_engine.search(grounded, watches, limits, compile_c, memory_bytes)


def counters(*highs: int, condition: str = "x{i} < 300", down: bool = False) -> Ground:
    """Return a system with one counter for each bound, which goes up while the condition holds and, with `down`, down again."""
    names = range(len(highs))
    variables = "\n".join(f"| x{i} | 0..{high} | 0 |" for i, high in enumerate(highs))
    rows = "\n".join(f"| s | e{i} | {condition.format(i=i)} | x{i} += 1 | = |" for i in names)
    if down:
        rows += "".join(f"\n| s | d{i} | x{i} > 0 | x{i} -= 1 | = |" for i in names)
    return system(f"""# counters

## Variables
| variable | domain | initial |
| - | - | - |
{variables}

## Transitions
| source | event | if | update | target |
| - | - | - | - | - |
{rows}
""")


def test_more_configurations_than_allowed_stop_the_search():
    found = search(ground(closed_system(families.any_order(6, 3))), SearchLimits(1_000))
    assert not found.complete
    assert found.configurations > 1_000


def test_exactly_as_many_configurations_as_allowed_are_complete():
    grounded = counters(400)
    assert search(grounded, SearchLimits(301)).complete
    assert not search(grounded, SearchLimits(300)).complete


def test_clock_is_read_at_every_layer():
    looks = count(1)
    found = search(counters(400), SearchLimits(10**9, is_expired=lambda: next(looks) == 10))
    assert not found.complete
    assert found.configurations == 11
    assert found.layers is not None
    assert len(found.layers) == 10


def test_progress_is_reported_with_the_distance():
    told: list[tuple[int, int]] = []
    search(counters(400), SearchLimits(10**9, progress=lambda states, depth: told.append((states, depth))))
    assert told == [*((depth + 2, depth) for depth in range(300)), (301, 300)]


def test_domain_too_large_for_a_bitmap_uses_a_hash_table_that_grows():
    found = search(counters(10**9, 10**9, down=True), memory_bytes=2**24)
    assert (found.configurations, found.transitions, found.complete) == (301 * 301, 4 * 300 * 301, True)


@pytest.mark.parametrize("memory_bytes", [2**20, 3 * 2**19])
def test_memory_is_bounded(memory_bytes: int):
    found = search(counters(10**9, 10**9), memory_bytes=memory_bytes)
    assert not found.complete
    # Each remembered configuration takes at least 8 bytes.
    assert found.configurations < memory_bytes // 8


def test_layers_that_do_not_fit_are_dropped_and_the_search_goes_on():
    grounded = ground(closed_system(families.any_order(5, 3)))
    found = search(grounded, memory_bytes=5 * 43_000 * 4)
    assert found.layers is None
    assert (found.configurations, found.complete) == (43_751, True)
    assert search(grounded, memory_bytes=5 * 43_751 * 4).layers is not None


def test_too_little_memory_to_begin_is_an_error():
    with pytest.raises(MemoryError, match="may use 100 bytes of memory"):
        search(counters(400), memory_bytes=100)


@pytest.mark.parametrize(
    "grounded",
    [
        pytest.param(lambda: counters(10**10, 10**10), id="configuration numbers"),
        pytest.param(lambda: counters(10**7, condition="x{i} * x{i} * x{i} < 300"), id="product"),
        pytest.param(lambda: counters(10**17, condition="x{i} + x{i} + 999999999999999999 * 10 < 3"), id="constant"),
        pytest.param(lambda: counters(10**17, condition="-(x{i} * 100) < 3"), id="negation"),
        pytest.param(
            lambda: counters(10, condition="count(x{i} > 0, x{i} > 1, x{i} > 2) * 10 * 500000000000000000 < 3"),
            id="count",
        ),
    ],
)
def test_system_that_could_exceed_64_bits_is_refused(grounded: Callable[[], Ground]):
    assert not c_engine.fits(grounded())
    with pytest.raises(UndecidedError, match="64 bits"):
        search(grounded())


def test_arithmetic_near_the_bound_is_exact():
    """3,000,000,000 squared is just below 2**63."""
    grounded = system("""# near

## Variables
| variable | domain | initial |
| - | - | - |
| x | 2999999990..3000000000 | 2999999990 |

## Transitions
| source | event | if | update | target |
| - | - | - | - | - |
| s | up | x * x < 3000000000 * 2999999995 | x += 1 | = |
""")
    assert c_engine.fits(grounded)
    expected = next(x for x in range(2_999_999_990, 3_000_000_001) if x * x >= 3_000_000_000 * 2_999_999_995)
    assert search(grounded).configurations == expected - 2_999_999_990 + 1


def test_negative_values_and_fields_below_zero_are_searched():
    grounded = system("""# low

## Variables
| variable | domain | initial |
| - | - | - |
| x | -7..-2 | -2 |
| y | -3..9 | -x_at |

## Parameters
| parameter | domain | default |
| - | - | - |
| x_at | 0.. | 3 |

## Transitions
| source | event | if | update | target |
| - | - | - | - | - |
| s | down | x > -7 and y - x <= 20 | x -= 1; y = -y | = |
""")
    watch = GroundWatch(0, grounded.ground_condition(grounded.rules[0].condition))
    found = search(grounded, watches=[watch])
    assert found.configurations == 6
    assert found.layers is not None
    assert [grounded.values(number) for layer in found.layers for number in layer] == [
        {"x": x, "y": y} for x, y in zip(range(-2, -8, -1), [-3, 3] * 3, strict=True)
    ]


def named(*names: str) -> Ground:
    """Return a system of two configurations with flags of these names."""
    variables = "\n".join(f"| {name} | bool | false |" for name in names)
    rest = " and ".join(f"not {name}" for name in names[1:])
    return system(f"""# unlikely

## Variables
| variable | domain | initial |
| - | - | - |
{variables}

## Transitions
| source | event | if | update | target |
| - | - | - | - | - |
| unlikely_state | unlikely_event | {rest} | {names[0]} = true | = |
""")


def test_variables_may_have_the_names_that_the_program_uses():
    assert (
        search(named("s", "d", "i", "number", "hit", "DATA", "main", "int", "struct", "t0", "g0")).configurations == 2
    )


def test_program_contains_no_name_of_the_document():
    grounded = named("unlikely_flag", "unlikely_other")
    assert "unlikely" not in source(grounded, [GroundWatch(0, grounded.rules[0].condition)], bitmap=True)


def test_long_programs_are_not_for_this_engine():
    grounded = counters(400)
    assert c_engine.fits(grounded)
    assert not c_engine.fits(grounded, [GroundWatch(0, grounded.rules[0].condition)] * c_engine.MAX_PARTS)


def test_events_with_the_same_outcome_are_counted_separately():
    grounded = system("""# same

## Transitions
| source | event | target |
| - | - | - |
| s | one, two | t |
| t | stay, wait | t |
| t | go | u |
""")
    found = search(grounded)
    assert (found.configurations, found.transitions) == (3, 5)
    assert found.taken == frozenset(range(len(grounded.rules)))
