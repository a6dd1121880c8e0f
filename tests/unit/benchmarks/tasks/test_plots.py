import xml.etree.ElementTree as ET

import pytest
from benchmarks.tasks.arms import arms_named
from benchmarks.tasks.plots import draw
from benchmarks.tasks.trials import Trial

ARMS = arms_named("one_shot,best_of_4,guarded_3,guarded_4")


def rows(tasks):
    return [
        Trial(
            task,
            arm.name,
            at,
            0,
            "accepted",
            "right" if at % 3 else "wrong",
            at % arm.attempts + 1,
            "",
            0,
            1.0,
            0.5,
            "",
            "d",
            "",
        )
        for task in tasks
        for arm in ARMS
        for at in range(7)
    ]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_pictures_are_drawn_for_any_number_of_tasks(tmp_path, count):
    tasks = [f"task_{number}" for number in range(count)]
    assert draw(rows(tasks), tasks, ARMS, tmp_path) == ("rates.svg", "generations.svg")
    for name in ("rates", "generations"):
        assert ET.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_same_rows_give_the_same_picture(tmp_path):
    drawn = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        draw(rows(["one"]), ["one"], ARMS, tmp_path / place)
        drawn.append((tmp_path / place / "rates.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_pictures_are_drawn_without_rows(tmp_path):
    draw([], ["one", "two"], ARMS, tmp_path)
