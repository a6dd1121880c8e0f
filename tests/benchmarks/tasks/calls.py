"""Each call of a model is written down, and an equal one is not made twice.

Takes questions, gives answers and what they took. A call is known by the model, the seed, the prompt and the parameters; the seed has the
sample in it, so samples never share. Two arms that ask the same of one sample are given one answer: for a deterministic model that is what
they would have been given anyway.
"""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import attrs
from benchmarks.tasks.lines import append_line, read_lines
from benchmarks.tasks.models import Model, Question

from dsa.runtime.content import Artifact, Usage


@attrs.define
class Calls:
    """The calls of one model, kept in a file of JSON lines.

    `shared` says whether equal calls are made once; `made` counts those made since this was opened. Raises ValueError for a file that
    holds anything else. Safe to call from several threads.
    """

    model: Model
    path: Path
    shared: bool
    made: int = 0
    _known: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    _writing: threading.Lock = attrs.field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        """Read what is there."""
        for number, line in enumerate(read_lines(self.path), start=1):
            try:
                kept = json.loads(line)
                self._known[kept["key"]] = kept
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path}:{number}: this line is not a call") from error

    def answer(self, question: Question) -> tuple[Artifact, bool]:
        """Return an answer, and whether it was asked for just now. Raises what the model raises; then nothing is kept."""
        key = key_of(self.model, question)
        if self.shared and key in self._known:
            return _artifact(self._known[key]), False
        artifact = self.model.answer(question)
        usage = artifact.usage or Usage(self.model.name, 0.0)
        kept = {
            "key": key,
            "seed": question.seed,
            "step": question.step,
            "prompt": question.prompt,
            "content": artifact.content,
        }
        kept |= {name: value for name, value in attrs.asdict(usage).items() if isinstance(value, str | int | float)}
        with self._writing:
            append_line(self.path, json.dumps(kept, ensure_ascii=True))
            self._known[key] = kept
            self.made += 1
        return artifact, True


def key_of(model: Model, question: Question) -> str:
    """Return the key of a call: equal for equal model, machine, seed, prompt and parameters, and for nothing else."""
    told = [
        model.name,
        question.machine.name,
        question.seed,
        question.prompt,
        sorted(model.parameters(question).items()),
    ]
    return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogatepass")).hexdigest()


def _artifact(kept: dict[str, Any]) -> Artifact:
    known = {
        each.name: kept[each.name] for each in attrs.fields(Usage) if isinstance(kept.get(each.name), str | int | float)
    }
    return Artifact(content=kept["content"], usage=Usage(**known))
