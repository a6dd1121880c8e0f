from itertools import product

from dsa.generators.model_options import derive_seed


def test_each_call_has_its_own_repeatable_seed():
    calls = list(product((0, 1), ("", "a"), (1, 2), ("x", "y\ud800")))
    seeds = [derive_seed(*call) for call in calls]
    assert len(set(seeds)) == len(calls)
    assert seeds == [derive_seed(*call) for call in calls]
    assert all(0 <= seed < 2**31 for seed in seeds)
