import pytest
from benchmarks.tasks.arms import DEFAULT_ARMS, Arm, arm_named, arms_named


def test_default_arms_are_those_of_the_issue():
    assert [(arm.attempts, arm.feedback) for arm in arms_named(",".join(DEFAULT_ARMS))] == [
        (1, False),
        (4, False),
        (3, True),
        (4, True),
    ]


def test_arm_named_twice_is_taken_once():
    assert arms_named("one_shot, guarded_12,one_shot") == (
        Arm("one_shot", 1, feedback=False),
        Arm("guarded_12", 12, feedback=True),
    )


@pytest.mark.parametrize("name", ["best_of", "guarded_0", "one_shot_2", "guarded_100", "guarded_04", "Guarded_4", ""])
def test_invalid_arm_is_refused_with_the_valid_ones(name):
    with pytest.raises(ValueError, match="write one_shot, best_of_N or guarded_N"):
        arm_named(name)


def test_empty_list_of_arms_is_refused():
    with pytest.raises(ValueError, match="no arm is named"):
        arms_named(",")
