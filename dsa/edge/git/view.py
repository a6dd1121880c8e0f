"""Attempts as files that people read: a view, written once into an empty folder, from which nothing is read back."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dsa.edge.git.names import file_name
from dsa.expr import Outcome
from dsa.runtime.artifacts import Attempt, short_id

_WORDS: Mapping[Outcome | None, str] = {"passed": "-passed", "failed": "-rejected", "fatal": "-fatal", None: ""}


def file_names(attempts: Iterable[Attempt], suffix: str) -> dict[str, str]:
    """Give a path for each attempt, by its id: `STEP/ATTEMPT-VERDICT.txt`; a name that is taken gets the id's short form."""
    names: dict[str, str] = {}
    taken = set[str]()
    for attempt in attempts:
        folder, word = file_name(attempt.step), _WORDS[attempt.outcome]
        name = f"{folder}/{attempt.version}{word}{suffix}"
        if name in taken:
            name = (
                f"{folder}/{attempt.version}{word}-{file_name(short_id(attempt.artifact_id, attempt.run_id))}{suffix}"
            )
        taken.add(name)
        names[attempt.artifact_id] = name
    return names


def newest_passed(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Give for each step the newest attempt whose last verdict is `passed`."""
    return list({attempt.step: attempt for attempt in attempts if attempt.outcome == "passed"}.values())


def write_view(
    folder: Path, attempts: Iterable[Attempt], texts: Iterator[tuple[str, bytes]], names: Mapping[str, str]
) -> None:
    """Write texts, and what was said of them last, under the names given. FileExistsError unless the folder is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not empty; name a folder that is, or one that is not there yet")
    for artifact_id, text in texts:
        _write(folder / names[artifact_id], text)
    for attempt in attempts:
        feedback = attempt.verdicts[-1].feedback if attempt.verdicts else ""
        if feedback:
            file = folder / names[attempt.artifact_id]
            _write(file.with_name(f"{file.name}.feedback.txt"), f"{feedback}\n".encode("utf-8", "surrogatepass"))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
