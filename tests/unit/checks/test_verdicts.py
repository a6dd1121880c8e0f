"""Verdicts over several valuations, and the faults and limits that prevent them."""

import itertools

import pytest

from dsa.checks.report import check
from dsa.lang import loads

CLAIMS = "- always retries <= rmax\n- on g.failed or g.fatal: satisfied unchanged"


def results(text, **options):
    return {result.text: result for result in check(loads(text, "m.md"), **options).properties}


@pytest.fixture
def text():
    from dsa.edge.document_files import locate

    return locate("dual_state").read_text(encoding="utf-8")


def test_property_that_holds_lists_the_checked_values(text):
    found = results(text)["always retries <= rmax"]
    assert (found.verdict, found.values) == ("HOLDS", ((("rmax", 3),), (("rmax", 0),)))
    assert results(text, parameters={"rmax": 7})["always retries <= rmax"].values == ((("rmax", 7),),)


def test_property_violated_at_one_valuation_is_violated_there(text):
    found = results(text.replace("- always retries <= rmax", "- never failed and rmax == 0"))
    violated = found["never failed and rmax == 0"]
    assert (violated.verdict, violated.values) == ("VIOLATED", ((("rmax", 0),),))
    assert violated.trace.parameters == (("rmax", 0),)
    assert violated.failed


@pytest.mark.parametrize(("old", "new", "code"), [
    ("g.fatal                     |", "g.fatal or g.failed         |", "DSA304"),
    ("| validating | verdict       | g.fatal ", "| validating | verdict       | g.fatal and retries > 9 ", None),
    ("retries += 1 ", "retries += 2 ", "DSA306"),
    ("refine_context, query_llm     | generating", "query_llm, query_llm | generating", "DSA307"),
    ("| validating | verdict       | else ", "| validating | verdict       | g.failed and retries > rmax ", "DSA305"),
])  # fmt: skip
def test_faults_keep_properties_from_holding_but_not_from_being_violated(text, old, new, code):
    assert text.count(old) == 1
    text = text.replace(old, new).replace(
        "- never succeeded and not satisfied", "- never generating\n- possible generating"
    )
    found = results(text)
    assert found["never generating"].verdict == "VIOLATED"
    others = {result.verdict for name, result in found.items() if name != "never generating"}
    assert others == ({"UNKNOWN"} if code else {"HOLDS"})
    if code:
        assert code in found["possible generating"].reason


def test_limit_leaves_properties_unknown(text):
    found = results(text, max_states=3)
    assert {result.verdict for result in found.values()} == {"UNKNOWN"}
    said = found["always retries <= rmax"].reason
    assert said.startswith("the search stopped at the limit of 3 configurations, after ")


def test_only_verdicts_that_wait_for_an_error_have_blocking_codes(text):
    wrong = text.replace("retries += 1 ", "retries += 2 ").replace(
        "- never succeeded and not satisfied", "- never generating"
    )
    found = results(wrong)
    assert {name: result.blocking_codes for name, result in found.items() if result.blocking_codes} == {
        name: ("DSA306",) for name in found if name != "never generating"
    }
    assert not any(result.blocking_codes for result in results(text, max_states=3).values())


@pytest.mark.parametrize(("ticks", "said"), [
    (3, {"the time limit was reached while the rows of 2 locations were compared", "the time limit was used up before this property was searched"}),
    (20, {"the search stopped at the time limit, after 2 configurations", "the time limit was used up before this property was searched"}),
    (43, {"", "the time limit was used up before this property was searched"}),
])  # fmt: skip
def test_time_limit_is_named_and_so_are_properties_that_came_too_late(text, ticks, said):
    """The clock advances by a second at each reading."""
    clock = itertools.count().__next__
    found = results(text, parameters={"rmax": 3}, time_limit_s=ticks, clock=clock)
    assert {result.reason for result in found.values()} == said
    assert {result.verdict for result in found.values()} >= {"UNKNOWN"}


def test_start_outside_its_domain_leaves_properties_unknown():
    text = "# m\n\n## Parameters\n| parameter | domain | default |\n| - | - | - |\n| p | 0..9 | 0 |\n\n## Variables\n"
    text += "| variable | domain | initial |\n| - | - | - |\n| x | p..5 | p |\n\n## Transitions\n"
    text += (
        "| source | event | update | target |\n| - | - | - | - |\n| a | e | x = x | = |\n\n## Properties\n- always a\n"
    )
    (found,) = results(text, parameters={"p": 7}).values()
    assert (found.verdict, found.values) == ("UNKNOWN", ())
    assert "DSA205" in found.reason


def test_violated_property_makes_a_check_fail(text):
    assert not check(loads(text)).failed
    assert check(loads(text.replace("- always retries <= rmax", "- always retries < rmax"))).failed


def test_unknown_property_makes_a_check_fail(text):
    report = check(loads(text.replace("- always retries <= rmax", "- expected query_llm <= 3")))
    assert [result.verdict for result in report.properties if result.failed] == ["UNKNOWN"]
    assert not [finding for finding in report.diagnostics if finding.severity == "error"]
    assert report.failed


def test_counterexamples_take_different_rows_and_a_passing_run_is_shown(text):
    text = text.replace("- always retries <= rmax", "- never failed or escalated")
    found = check(loads(text, "m.md"), traces=5).properties[0]
    shortest, *more = [
        [taken.line for taken in trace.steps] for trace in (found.trace, *(more for more, _ in found.more))
    ]
    assert len(shortest) == 3
    assert more
    assert len({frozenset(lines) for lines in [shortest, *more]}) == 1 + len(more)
    assert [taken.state for taken in found.passing_run.steps] == ["generating", "validating", "succeeded"]


def test_vacuous_property_is_a_warning_only_if_it_is_vacuous_at_all_values(text):
    odd = text.replace("- always retries <= rmax", "- on retries == 1: satisfied unchanged")
    assert "DSA313" not in {finding.code for finding in check(loads(odd)).diagnostics}  # not at rmax = 0, but at 3
    idle = text.replace("- always retries <= rmax", "- on retries > rmax: satisfied unchanged")
    (found,) = [finding for finding in check(loads(idle)).diagnostics if finding.code == "DSA313"]
    assert found.severity == "warning"
    assert "'retries > rmax' is never true (explored with rmax = 3 and with rmax = 0)" in found.message
