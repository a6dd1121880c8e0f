"""Documents on pages, and work on them that a person can stop: a changed document stops the work on the earlier one for good."""

import asyncio
import math
import time

from dsa.edge.document_files import load
from dsa.web.machine_page import StoppableWork, WatchedDocument


async def until(is_so):
    while not is_so():  # noqa: ASYNC110  (it happens in a thread)
        await asyncio.sleep(0.001)


def test_work_on_an_earlier_document_stays_stopped():
    machine, ends = load("dual_state"), []

    def until_stopped(_machine, work):
        number = len(ends)
        ends.append(None)
        while work.clock() < math.inf:
            time.sleep(0.001)
        ends[number] = time.perf_counter()
        return number

    async def scenario():
        work = StoppableWork(until_stopped, "/machines/0", lambda: None)
        work.start(machine, "beginning")
        await until(lambda: ends)
        work.clear()  # as when the file changes
        work.start(machine, "beginning again")
        await until(lambda: len(ends) == 2)
        assert ends[0] is not None, "the second one waits until the first has ended"
        assert work.activity == "beginning again"
        work.stop()
        await until(lambda: not work.activity)
        return work.result

    assert asyncio.run(scenario()) == 1


def test_error_of_the_work_is_stored_as_text():
    def failing(_machine, _work):
        raise ValueError("it does not pass")

    async def scenario():
        work = StoppableWork(failing, "/machines/0", lambda: None)
        work.start(load("dual_state"), "beginning")
        await until(lambda: not work.activity)
        return work.fault, work.result

    assert asyncio.run(scenario()) == ("it does not pass", None)


def test_page_that_needs_the_machine_reads_the_current_file(tmp_path):
    path = tmp_path / "greeting.md"
    text = "# greeting\n\n## Events\n| event | from |\n| - | - |\n| hello | outside |\n\n## States\n| state | kind |\n| - | - |\n| idle | initial |\n| done | final |\n\n## Transitions\n| source | event | target |\n| - | - | - |\n| idle | hello | done |\n"  # fmt: skip

    async def scenario():
        document = WatchedDocument(0, str(path))
        names = []
        for name in ("greeting", "farewell"):  # no page follows the file yet, and it was never read
            path.write_text(text.replace("greeting", name))
            names.append(document.required_machine().name)
        document.stop()
        await until(lambda: not document.check.activity)
        return names

    assert asyncio.run(scenario()) == ["greeting", "farewell"]
