"""Chance: a seed answers the same question the same way, whatever was asked before; different questions are independent."""

from collections import Counter

from dsa.testing.simulation.seed_plan import Chance


def test_same_question_gets_the_same_answer():
    one, other = Chance(7), Chance(7)
    asked = [("kill", 1), ("kill", 2), ("verdict", "g", 1)]
    first = [one.number(*about) for about in asked]
    assert [other.number(*about) for about in asked[::-1]] == first[::-1]
    assert [one.number(*about) for about in asked] == first
    assert len({*first, Chance(8).number("kill", 1)}) == 4


def test_words_of_a_question_are_separated():
    chance = Chance(1)
    assert chance.number("ab", "c") != chance.number("a", "bc")
    assert chance.number("a", 1) == chance.number("a", "1")


def test_draws_are_spread():
    chance = Chance(3)
    assert Counter(chance.below(3, n) for n in range(3_000)).keys() == {0, 1, 2}
    assert all(900 < count < 1_100 for count in Counter(chance.below(3, n) for n in range(3_000)).values())
    assert Counter(chance.one_of("xy", n) for n in range(1_000)).keys() == {"x", "y"}
    assert 200 < sum(chance.happens(25, n) for n in range(1_000)) < 300
    assert not any(chance.happens(0, n) for n in range(100))
    assert all(chance.happens(100, n) for n in range(100))
