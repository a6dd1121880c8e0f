"""Work that is spread over forks: results in order, faults raised here, no process left behind."""

import os
from collections.abc import Iterator

import pytest

from dsa.edge import forks
from dsa.edge.forks import spread

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
MANY = 50


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "processors", lambda: 2)


def children() -> Iterator[int]:
    """Give the processes of which this one is the parent and that it has not waited for."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found[0]
    except ChildProcessError:
        return


def test_results_come_in_order_from_two_other_processes() -> None:
    results = list(spread(lambda number: (number, os.getpid()), MANY))
    assert [number for number, _ in results] == list(range(MANY))
    pids = {pid for _, pid in results}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_little_work_is_done_here() -> None:
    assert set(spread(lambda _number: os.getpid(), 3)) == {os.getpid()}


def test_a_fault_of_the_work_is_raised_here_and_ends_the_processes() -> None:
    with pytest.raises(ZeroDivisionError):
        list(spread(lambda number: 1 // (MANY - 1 - number), MANY))
    assert not list(children())


def test_a_reader_that_stops_ends_the_processes() -> None:
    results = spread(lambda number: number, MANY)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]  # a generator
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_what_a_process_did_not_do_is_done_here() -> None:
    here = os.getpid()

    def work(number: int) -> int:
        if number == MANY // 2 and os.getpid() != here:
            os._exit(1)
        return number

    assert list(spread(work, MANY)) == list(range(MANY))
