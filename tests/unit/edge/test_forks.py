"""Work that is spread over forks: results in order, faults raised here, no process left behind."""

import os

import pytest

from dsa.edge import processes
from dsa.edge.processes import spread

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
MANY = 50


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processors", lambda: 2)


def require_waited_for(processes: set[int]) -> None:
    """Require that processes have ended and have been waited for."""
    for process in processes:
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


def test_results_come_in_order_from_two_other_processes() -> None:
    results = list(spread(lambda number: (number, os.getpid()), MANY))
    assert [number for number, _ in results] == list(range(MANY))
    pids = {pid for _, pid in results}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_small_work_is_done_in_this_process() -> None:
    assert set(spread(lambda _number: os.getpid(), 3)) == {os.getpid()}


def test_error_of_the_work_is_raised_here_and_ends_the_processes() -> None:
    processes = set[int]()
    with pytest.raises(ZeroDivisionError):
        processes.update(spread(lambda number: os.getpid() * (1 // (MANY - 1 - number) or 1), MANY))
    assert processes
    require_waited_for(processes)


def test_reader_that_stops_ends_the_processes() -> None:
    results = spread(lambda _number: os.getpid(), MANY)
    processes = {next(results), next(results)}
    results.close()  # type: ignore[attr-defined]  # a generator
    require_waited_for(processes)


def test_work_of_a_process_that_died_is_done_here() -> None:
    here = os.getpid()

    def work(number: int) -> int:
        if number == MANY // 2 and os.getpid() != here:
            os._exit(1)
        return number

    assert list(spread(work, MANY)) == list(range(MANY))
