import attrs
import pytest
from benchmarks.tasks.arms import arms_named
from benchmarks.tasks.report import Made, report, sentence
from benchmarks.tasks.summary import ALL, Comparison, cells, compared, errors, false_accepts, is_nested, pairs_of
from benchmarks.tasks.trials import Trial

ARMS = arms_named("one_shot,best_of_4,guarded_3,guarded_4")
ONE, BEST, THREE, FOUR = ARMS


def rows(task, arm, outcomes, **more):
    """One row for each letter: Right, Wrong (accepted, and wrong), - (rejected), Error."""
    said = {"R": ("accepted", "right"), "W": ("accepted", "wrong"), "-": ("rejected", ""), "E": ("error", "")}
    made = Trial(task, arm.name, 0, 0, "", "", 2, "", 0, 1.0, 0.5, "", "d", "")
    return [
        attrs.evolve(made, sample=at, outcome=said[each][0], oracle=said[each][1], **more)
        for at, each in enumerate(outcomes)
    ]


def test_counts_leave_errors_out():
    (cell,) = cells(rows("lru", ONE, "RRW-E"), ["lru"], [ONE])
    assert (cell.trials, cell.errors, cell.accepted, cell.right, cell.false_accepts) == (4, 1, 3, 2, 1)
    assert (cell.generations, cell.median_generations, cell.median_s) == (8, 2, 1.5)


def test_counts_of_all_tasks_are_the_sum_of_each():
    found = cells([*rows("lru", ONE, "R-"), *rows("password", ONE, "RW")], ["lru", "password"], [ONE])
    assert [(cell.task, cell.trials, cell.right) for cell in found] == [("lru", 2, 1), ("password", 2, 1), (ALL, 4, 2)]


def test_arms_are_compared_over_samples_that_both_finished_without_an_error():
    both = [*rows("lru", FOUR, "RRRW-ER"), *rows("lru", BEST, "R--RRR")]
    (found,) = compared(both, ["lru"], [BEST, FOUR])
    assert (found.first, found.second, found.pairs, found.only_first, found.only_second) == (
        "guarded_4",
        "best_of_4",
        5,
        2,
        2,
    )
    assert found.p == 1.0
    assert found.is_null


def test_comparison_over_all_tasks_adds_up_the_pairs_that_differ():
    both = [row for task in ("a", "b") for row in (*rows(task, FOUR, "RRRRRR"), *rows(task, ONE, "------"))]
    found = compared(both, ["a", "b"], [ONE, FOUR])
    assert [(each.task, each.only_first, each.p) for each in found] == [
        ("a", 6, 2 / 2**6),
        ("b", 6, 2 / 2**6),
        (ALL, 12, 2 / 2**12),
    ]
    assert [each.adjusted for each in found] == pytest.approx([4 / 2**6, 4 / 2**6, 6 / 2**12])
    assert [each.is_null for each in found] == [True, True, False]


def test_arms_are_paired_with_one_shot_and_where_they_differ_in_one_thing():
    names = [(first.name, second.name) for first, second in pairs_of(ARMS)]
    assert sorted(names) == [
        ("best_of_4", "one_shot"),
        ("guarded_3", "one_shot"),
        ("guarded_4", "best_of_4"),
        ("guarded_4", "guarded_3"),
        ("guarded_4", "one_shot"),
    ]
    assert names[0] == ("guarded_4", "best_of_4")


def test_arm_that_begins_with_another_is_nested():
    assert is_nested(FOUR, THREE)
    assert is_nested(BEST, ONE)
    assert is_nested(FOUR, ONE)
    assert not is_nested(FOUR, BEST)


def test_text_that_was_wrongly_accepted_counts_once():
    wrong = [*rows("lru", ONE, "WW", digest="a", fault="slow"), *rows("lru", FOUR, "W", digest="b", fault="slow")]
    assert false_accepts([*wrong, *rows("lru", BEST, "R-")]) == [("lru", "slow", 2)]


def test_errors_are_counted_by_message():
    assert errors(rows("lru", ONE, "ERE", fault="gone")) == [("lru", "gone", 2)]


# -- sentences and the report ----------------------------------------------------------------------------------------


def test_null_result_is_called_a_null_result():
    said = sentence(Comparison("lru", "guarded_4", "best_of_4", 100, 9, 12, 0.66, 1.0), nested=False)
    assert said.startswith(
        "**Null result**: no difference between guarded_4 and best_of_4 was shown at lru (9 of 100 samples"
    )
    assert "solved more" not in said


@pytest.mark.parametrize(
    ("counts", "winner"),
    [((30, 2), "guarded_4 solved more than best_of_4"), ((2, 30), "best_of_4 solved more than guarded_4")],
)
def test_sentence_names_the_arm_that_solved_more(counts, winner):
    said = sentence(Comparison("lru", "guarded_4", "best_of_4", 100, *counts, 1e-6, 1e-5), nested=False)
    assert said.startswith(f"**{winner}** at lru")
    assert "Null" not in said


def test_sentence_about_a_nested_arm_says_that_it_is_nested():
    said = sentence(Comparison("lru", "guarded_4", "one_shot", 100, 30, 0, 1e-6, 1e-5), nested=True)
    assert said.endswith("guarded_4 begins with the attempts of one_shot, so it cannot solve less.")


def test_sentence_without_pairs_claims_nothing():
    said = sentence(Comparison("lru", "guarded_4", "one_shot", 0, 0, 0, 1.0, 1.0), nested=True)
    assert said == "**guarded_4 and one_shot** at lru: no sample has both, so nothing is said."


def text_of(found, arms=ARMS, samples=4):
    return report(found, ["lru"], arms, samples, Made((("model", "a|b"),), ("A note.",)), ["rates.svg"])


def test_report_has_the_counts_of_the_rows():
    said = text_of([*rows("lru", ONE, "RW-E"), *rows("lru", FOUR, "RRR-")], [ONE, FOUR])
    assert "| lru | one_shot | 3 | 2 | 67 % (21 to 94) | 1 | 33 % (6 to 79) | 1 | 1 | 6 | 2 | 1.50 |" in said
    assert "| lru | guarded_4 | 4 | 3 | 75 % (30 to 95) | 3 | 75 % (30 to 95) | 0 | 0 | 8 | 2 | 1.50 |" in said
    assert "| model | a\\|b |" in said
    assert "- A note." in said
    assert "![rates](rates.svg)" in said
    assert "Not finished" not in said


def test_unfinished_report_says_so():
    said = text_of(rows("lru", ONE, "R-"), [ONE])
    assert "**Not finished**: 2 of 4 trials are there" in said
    assert "There is one arm, so nothing is compared." in said
    assert "None: the oracle found nothing wrong with what guards passed in 1 trials." in said
    assert "No trial ended in an error." in said


def test_faults_found_by_the_oracle_are_listed():
    said = text_of(rows("lru", ONE, "WWR-", digest="a", fault="`it`|was slow"), [ONE])
    assert "| lru | 1 | `'it'\\|was slow` |" in said
