"""Power cuts: a file always keeps its synced bytes; of the rest nothing remains, a part, all but a sector, or everything."""

from dsa.testing.simulation.disk_store import File
from dsa.testing.simulation.seed_plan import Chance

SYNCED, LATER = b"synced " * 10, bytes(range(1, 201))


def cut(seed):
    file = File()
    file.write(SYNCED)
    file.sync()
    file.write(LATER)
    file.lose_power(Chance(seed))
    assert file.synced_length == len(file.content)
    assert file.content.startswith(SYNCED)
    return bytes(file.content[len(SYNCED) :])


def kind(left):
    if left in {b"", LATER}:
        return "lost" if not left else "kept"
    if LATER.startswith(left):
        return "torn"
    begin = left.index(0)
    blank = left.count(0)
    assert begin % 64 == 0
    assert blank == min(64, len(LATER) - begin)
    assert left == LATER[:begin] + bytes(blank) + LATER[begin + blank :]
    return f"sector {begin // 64}"


def test_power_cut_loses_tears_blanks_or_keeps_unsynced_bytes():
    kinds = [kind(cut(seed)) for seed in range(300)]
    assert set(kinds) == {"lost", "torn", "kept", "sector 0", "sector 1", "sector 2", "sector 3"}
    assert min(kinds.count("lost"), kinds.count("torn"), kinds.count("kept")) > 40


def test_synced_bytes_survive_a_power_cut():
    for seed in range(20):
        file = File()
        file.write(SYNCED)
        file.sync()
        file.lose_power(Chance(seed))
        assert file.content == SYNCED


def test_same_seed_loses_the_same_bytes():
    assert [cut(seed) for seed in range(40)] == [cut(seed) for seed in range(40)]


def test_bytes_that_were_cut_off_no_longer_count_as_synced():
    file = File()
    file.write(b"abcdef")
    file.sync()
    file.cut(2)
    file.write(b"xy")
    assert file.content == b"abxy"
    assert file.synced_length == 2


def test_byte_that_is_flipped_twice_is_unchanged():
    file = File()
    file.write(b"abc")
    file.flip(1)
    assert file.content != b"abc"
    assert len(file.content) == 3
    file.flip(1)
    assert file.content == b"abc"
