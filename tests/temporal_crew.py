"""A crew of workers in processes of their own: two, and one more for each that was killed."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs


@attrs.define
class Crew:
    """Two workers that were started with a command, and one more for each that has ended."""

    folder: Path
    command: Sequence[str]
    processes: list["subprocess.Popen[bytes]"] = attrs.field(factory=list)
    loss_count: int = 0

    def hire(self) -> None:
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(self.command, cwd=self.folder, **quiet))

    async def replace(self) -> None:
        """Start a worker for each that has ended, for ever."""
        while True:
            for process in [each for each in self.processes if each.poll() is not None]:
                assert process.returncode == -9, "only a kill ends a worker"
                self.processes.remove(process)
                self.loss_count += 1
                self.hire()
            await asyncio.sleep(0.1)

    def dismiss(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@asynccontextmanager
async def crew(folder: Path, command: Sequence[str]) -> AsyncIterator[Crew]:
    """Start two workers; end all of them when the block ends."""
    workers = Crew(folder, command)
    workers.hire()
    workers.hire()
    replacing = asyncio.create_task(workers.replace())
    try:
        yield workers
    finally:
        replacing.cancel()
        workers.dismiss()
