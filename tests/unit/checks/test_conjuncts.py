from dsa.checks.places import rows_at, show_false
from dsa.edge.document_files import load
from dsa.semantics import Configuration, Occurrence

MACHINE = load("dual_state")
VALIDATING = Configuration("validating", (False, 3), frozenset({"execute_guard"}))


def test_each_conjunct_is_listed_separately_and_else_is_one():
    views = rows_at(MACHINE, VALIDATING, Occurrence("verdict", (("g", "failed"),)))
    assert [(view.row.target, view.is_enabled, view.conjuncts) for view in views] == [
        ("succeeded", False, (("g.passed", False),)),
        ("generating", False, (("g.failed", True), ("retries < rmax", False))),
        ("escalated", False, (("g.fatal", False),)),
        ("failed", True, (("else", True), ("true", True))),
    ]


def test_false_conjuncts_are_shown_with_their_lines():
    views = rows_at(MACHINE, VALIDATING, Occurrence("verdict", (("g", "failed"),)))
    assert (
        show_false(views)
        == "in line 48, 'g.passed' is false; in line 49, 'retries < rmax' is false; in line 50, 'g.fatal' is false"
    )
    assert show_false(view for view in views if view.is_enabled) == ""
