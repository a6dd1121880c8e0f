"""A crew of workers in processes of their own: two, and one more for each that was killed."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs


@attrs.define
class Crew:
    """Two workers that were started with a command, and one more for each that has ended."""

    folder: Path
    command: Sequence[str]
    processes: list["subprocess.Popen[bytes]"] = attrs.field(factory=list)
    loss_count: int = 0

    @property
    def log(self) -> Path:
        """What the workers print."""
        return self.folder / "workers.log"

    def hire(self) -> None:
        with self.log.open("ab") as log:
            self.processes.append(subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log))

    async def replace(self) -> None:
        """Start a worker for each that has ended, for ever."""
        while True:
            for process in [each for each in self.processes if each.poll() is not None]:
                assert process.returncode == -9, f"only a kill ends a worker:\n{self.log.read_text()}"
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
    """Start two workers; end all of them when the block ends. A worker that ends by itself ends the block."""
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
