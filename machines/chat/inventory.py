"""What a conversation has made: artifacts, each content kept once, under every name it has had (seed 002, workstreams A and B).

Takes what tools made, gives what is known of it. An artifact with the content of an earlier one is no new artifact: its name becomes an alias,
with the reason. One with the logical key of an earlier one and other content is the next version of it. Pure, and each thing costs the same
however many artifacts there are.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice

import attrs

from machines.tool_use.records import JsonObject

#: The rule that stands above the inventory in every request (seed 002, workstream A).
REUSE = "Reuse existing artifacts when possible; do not regenerate equivalent outputs."
#: How many artifacts a request describes: the newest.
MOST_SHOWN = 40


@attrs.frozen
class Made:
    """What a tool made, before anybody knows whether it is new. `equal_to` is the artifact that has the same content, if there is one.

    `digest` is SHA-256 of the bytes; `logical_key` says for what it was made: the tool, the data, and the name or the query.
    """

    name: str
    kind: str
    digest: str
    size_bytes: int
    logical_key: str
    equal_to: str | None = None


@attrs.frozen
class Artifact:
    """One content that was made. `version` counts those of one logical key from 1; `aliases` are other names, each with why.

    `file_name` is that of the file that people look at: the name, with the id in it where an earlier artifact has the name.
    """

    artifact_id: str
    name: str
    kind: str
    created_at: str
    source_call_id: str
    producer: str
    logical_key: str
    digest: str
    size_bytes: int
    file_name: str
    version: int = 1
    aliases: tuple[tuple[str, str], ...] = ()

    def as_made(self) -> Made:
        """Give it as what makes it again."""
        return Made(self.name, self.kind, self.digest, self.size_bytes, self.logical_key, self.artifact_id)

    def described(self) -> JsonObject:
        """Give what a model is told of it."""
        told = {
            "artifact_id": self.artifact_id,
            "name": self.name,
            "type": self.kind,
            "created_at": self.created_at,
            "source_call_id": self.source_call_id,
            "producer": self.producer,
            "logical_key": self.logical_key,
        }
        version = {"version": self.version} if self.version > 1 else {}
        return {**told, **version, **({"also_named": [name for name, _ in self.aliases]} if self.aliases else {})}


class Inventory:
    """The artifacts of a conversation, oldest first."""

    def __init__(self) -> None:
        self._artifacts: dict[str, Artifact] = {}
        self._by_content: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._by_key: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._file_names: set[str] = set()

    def __len__(self) -> int:
        return len(self._artifacts)

    def __iter__(self) -> Iterator[Artifact]:
        return iter(self._artifacts.values())

    def __getitem__(self, artifact_id: str) -> Artifact:
        return self._artifacts[artifact_id]

    def named(self, name: str) -> Artifact | None:
        """Give the newest artifact of a name, an alias included; also one by its id."""
        found = self._names.get(name) or (name if name in self._artifacts else None)
        return None if found is None else self._artifacts[found]

    def latest(self, logical_key: str) -> Artifact | None:
        """Give the newest version of what was made for one thing."""
        found = self._by_key.get(logical_key)
        return None if found is None else self._artifacts[found]

    def equal(self, digest: str) -> Artifact | None:
        """Give the artifact with this content."""
        found = self._by_content.get(digest)
        return None if found is None else self._artifacts[found]

    def id_after(self, count: int) -> str:
        """Give the id of the artifact that is added after so many others."""
        return f"a{len(self._artifacts) + count + 1}"

    def compared(self, made: Sequence[Made], *, dedups: bool = True) -> tuple[Made, ...]:
        """Give what was made, each with the artifact that it is equal to, also where that is made beside it.

        Without `dedups` everything is new.
        """
        beside, found = dict[str, str](), []
        for each in made:
            known = self.equal(each.digest) if dedups else None
            equal_to = beside.get(each.digest) if known is None else known.artifact_id
            if equal_to is None and dedups:
                beside[each.digest] = self.id_after(len(beside))
            found.append(attrs.evolve(each, equal_to=equal_to))
        return tuple(found)

    def add(self, made: Made, *, call_id: str, producer: str, created_at: str) -> Artifact:
        """Add what was made as an artifact of its own."""
        version = self._versions[made.logical_key] = self._versions.get(made.logical_key, 0) + 1
        source, kept = (created_at, call_id, producer), (made.logical_key, made.digest, made.size_bytes)
        artifact_id = self.id_after(0)
        file_name = next(name for name in _file_names(made.name, artifact_id) if name not in self._file_names)
        artifact = Artifact(artifact_id, made.name, made.kind, *source, *kept, file_name, version)
        self._file_names.add(file_name)
        self._artifacts[artifact.artifact_id] = artifact
        self._by_key[made.logical_key] = artifact.artifact_id
        self._by_content.setdefault(made.digest, artifact.artifact_id)
        self._names[made.name] = artifact.artifact_id
        return artifact

    def alias(self, made: Made) -> Artifact:
        """Take note that an artifact was made again, under this name. KeyError when `equal_to` is unknown."""
        artifact = self._artifacts[made.equal_to or ""]
        self._names[made.name] = artifact.artifact_id
        known = {artifact.name, *(name for name, _ in artifact.aliases)}
        if made.name not in known:
            reason = f"duplicate_artifact_prevented: its content is that of {artifact.artifact_id} ({artifact.name})"
            artifact = attrs.evolve(artifact, aliases=(*artifact.aliases, (made.name, reason)))
            self._artifacts[artifact.artifact_id] = artifact
        return artifact

    def described(self) -> list[JsonObject]:
        """Give what a model is told: the newest artifacts, oldest first."""
        return [artifact.described() for artifact in self.newest()]

    def newest(self) -> list[Artifact]:
        """Give the artifacts that a request describes, oldest first."""
        return [*islice(reversed(self._artifacts.values()), MOST_SHOWN)][::-1]


def _file_names(name: str, artifact_id: str) -> Iterator[str]:
    """Give the names that a file may have, the best first."""
    stem, dot, ending = name.rpartition(".")
    ids = chain([artifact_id], (f"{artifact_id}_{number}" for number in count(2)))
    return chain([name], (f"{stem}_{number}.{ending}" if dot else f"{ending}_{number}" for number in ids))
