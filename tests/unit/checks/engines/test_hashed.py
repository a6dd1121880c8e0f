import random

import numpy as np

from dsa.checks.search.numpy_engine import HashTable


def test_number_seen_before_is_not_new():
    table, known, chance = HashTable(), set[int](), random.Random(7)
    for _ in range(60):
        top = chance.choice([50, 10_000, 2**62])
        numbers = np.array(sorted({chance.randrange(top) for _ in range(500)}), dtype=np.int64)
        found = table.new(numbers)
        assert set(found.tolist()) == set(numbers.tolist()) - known
        assert len(set(found.tolist())) == len(found)
        known |= set(numbers.tolist())


def test_numbers_with_the_same_slot_are_stored_side_by_side():
    table = HashTable()
    numbers = np.arange(0, 2**40, 2**28, dtype=np.int64)
    assert table.new(numbers).tolist() == numbers.tolist()
    assert table.new(numbers).tolist() == []
    assert table.new(numbers + 1).tolist() == (numbers + 1).tolist()


def test_numbers_of_32_bits_are_stored_unchanged():
    table = HashTable()
    numbers = np.array([3, 0, 2**31 - 1], dtype=np.int32)
    assert table.new(numbers).dtype == np.int32
    assert table.new(numbers).tolist() == []
