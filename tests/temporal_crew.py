"""A crew of workers in processes of their own: two, and one more for each that was killed."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

#: What a worker prints that ends because no server is there.
NO_SERVER = "no Temporal server answers"


@attrs.define
class Crew:
    """Two workers that were started with a command, and one more for each that was killed."""

    folder: Path
    command: Sequence[str]
    #: The workers that have not ended, each with the file that has what it printed.
    workers: dict["subprocess.Popen[bytes]", Path] = attrs.field(factory=dict)
    #: How many were started, and how many were killed.
    count: int = 0
    loss_count: int = 0

    def hire(self) -> None:
        self.count += 1
        path = self.folder / f"worker-{self.count}.log"
        with path.open("wb") as log:
            self.workers[subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log)] = path

    async def replace(self) -> None:
        """Start a worker for each that was killed, for ever. One that found no server is started again, as a supervisor would."""
        while True:
            for process in [each for each in self.workers if each.poll() is not None]:
                text = self.workers.pop(process).read_text()
                if process.returncode == -signal.SIGKILL:
                    self.loss_count += 1
                else:
                    assert (process.returncode, NO_SERVER in text) == (1, True), f"only a kill ends a worker:\n{text}"
                self.hire()
            await asyncio.sleep(0.1)

    def dismiss(self) -> None:
        for process in self.workers:
            process.kill()
            process.wait()


@asynccontextmanager
async def crew(folder: Path, command: Sequence[str]) -> AsyncIterator[Crew]:
    """Start two workers; end all of them when the block ends. A worker that ends by itself ends the block, unless no server is there."""
    workers = Crew(folder, command)
    workers.hire()
    workers.hire()
    try:
        async with asyncio.TaskGroup() as group:
            replacing = group.create_task(workers.replace())
            yield workers
            replacing.cancel()
    finally:
        workers.dismiss()
