"""Courses of arrows: which ones lead back, and in which frame the label is."""

from graphlib import TopologicalSorter

from hypothesis import given, settings

from dsa.declarations import STAY, Event, State, Transition
from dsa.machine import Machine
from dsa.targets.dot import courses
from dsa.targets.picture import Frame, picture
from dsa.testing.strategies import machines


def leading_back(machine: Machine) -> list[tuple[str, str]]:
    drawn = picture(machine)
    courses_ = zip(drawn.arrows, courses(drawn), strict=True)
    return [(arrow.source, arrow.target) for arrow, course in courses_ if course.leads_back]


def machine_of(states: str, *rows: str) -> Machine:
    """Return a machine of states (the initial ones end in `!`) and of rows `source > target`."""
    names = [(name.rstrip("!"), "initial" if name.endswith("!") else "") for name in states.split()]
    transitions = tuple(Transition(row.split(" > ")[0], "go", row.split(" > ")[1]) for row in rows)
    return Machine("m", transitions, tuple(State(*name) for name in names), names[0][0], events=(Event("go"),))


def test_only_retries_lead_back(dual_state):
    assert leading_back(dual_state) == [("validating", "generating")]


def test_row_into_the_parent_around_its_source_leads_back(review):
    assert leading_back(review) == [
        ("review", "review.waiting"),
        ("review.checking", "review"),
        ("review.waiting", "review.drafting"),
    ]


def test_row_to_its_own_source_leads_back():
    assert leading_back(machine_of("a!", "a > a")) == [("a", "a")]


def test_row_of_a_cycle_that_comes_first_from_the_start_leads_forward():
    rows = ("b > a", "a > b", "b > c", "c > b")
    assert leading_back(machine_of("a! b c", *rows)) == [("b", "a"), ("c", "b")]


def test_rows_of_a_parent_leave_each_of_its_states():
    """`p` is left to `out`, and `out` leads to `p` again: one of the two must lead back."""
    assert leading_back(machine_of("a! p.x! p.y out", "a > p", "p > out", "out > p")) == [("out", "p")]


def test_entering_a_parent_counts_as_entering_its_initial_child():
    """The run comes to `p.x` directly, so the dot of `p` is not on the path to `p.y`."""
    assert leading_back(machine_of("a! p.x! p.y", "a > p.x", "p.x > p.y", "p.y > p")) == [("p.y", "p")]


def test_frame_of_an_arrow_is_the_innermost_around_both_ends(review):
    assert [course.frame for course in courses(picture(review))] == [
        "", "review", "", "review", "review", "review", "", "review", "review", "", "",
    ]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(machines(claims=False))
def test_arrows_that_do_not_lead_back_form_no_cycle(machine):
    drawn = picture(machine)
    entered = dict(_dots(drawn.frame))
    before: dict[str, set[str]] = {dot: set() for dot in entered}
    for dot, initial in entered.items():
        before.setdefault(f"{initial} dot" if f"{initial} dot" in entered else initial, set()).add(dot)
    for arrow, course in zip(drawn.arrows, courses(drawn), strict=True):
        head = f"{arrow.target} dot" if f"{arrow.target} dot" in entered else arrow.target
        tail = arrow.source if arrow.source in machine.leaves else f"{arrow.source} any"
        if not course.leads_back:
            before.setdefault(head, set()).add(tail)
        elif head != tail:
            before.setdefault(tail, set()).add(head)
    TopologicalSorter(before).prepare()
    assert len(drawn.arrows) == sum(row.target != STAY for row in machine.transitions)


def _dots(frame: Frame):
    if frame.entry is not None:
        yield f"{frame.name} dot", frame.entry
    for item in frame.inside:
        if isinstance(item, Frame):
            yield from _dots(item)
