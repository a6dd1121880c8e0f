"""The story of a run on Temporal: its moments and artifacts from the beginning, in pages.

A workflow holds the entries of its own execution. Before the run continues in the next one, they become pages, each the input of a small workflow,
`PageWorkflow`, which stays open as long as the run does: a server forgets closed workflows after a while, and a run may wait for
longer. Readers take a page from the server without asking a worker.

Positions are counted from the beginning of the run. A page has at most `PAGE` characters of JSON, or one entry or artifact.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import attrs
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue, VersioningBehavior
from temporalio.service import RPCError, RPCStatusCode

from dsa.runtime.json_text import text_of
from dsa.runtime.ledger import Entry, Ledger, to_json
from dsa.runtime.run_store import StoreError
from dsa.temporal import payloads
from dsa.temporal.payload_stores import store_errors
from dsa.temporal.payloads import PAGE_QUEUE, Json

#: The length of one page, in characters of JSON.
PAGE = 500_000


def page_id(run_id: str, number: int) -> str:
    """Return the id of the workflow that holds a page of a run's story, from 0."""
    return f"{run_id}~{number}"


@workflow.defn(name=payloads.PAGE_WORKFLOW, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class PageWorkflow:
    """The workflow that holds one page. It ends after the signal `end`; from then on the server keeps it as long as the run."""

    @workflow.init
    def __init__(self, page: RawValue) -> None:  # noqa: ARG002  (the signature of the workflow)
        self._is_over = False

    @workflow.run
    async def run(self, _page: RawValue) -> None:
        """Wait for the end of the run."""
        await workflow.wait_condition(lambda: self._is_over)

    @workflow.signal(name=payloads.END)
    def end(self) -> None:
        """End."""
        self._is_over = True


def first_objects(objects: Iterable[Json], most: int) -> tuple[list[Json], int]:
    """Return the first objects of a list that fit into `most` characters of JSON, and how much room is left."""
    page = list[Json]()
    for each in objects:
        size = len(text_of(each))
        if size > most:
            break
        page.append(each)
        most -= size
    return page, most


@attrs.define
class StoryPages:
    """The story of a run as its workflow has it.

    `ends` has the numbers of entries and of artifacts up to the end of each page. `entries` and `artifacts` came before this execution, but are not in
    a page of the previous one; `begin` are their positions. `skips` are the entries of the run's ledger that an earlier execution left, which
    are already in the story, and `artifact_skips` the artifacts of that kind.
    """

    ends: list[tuple[int, int]] = attrs.field(factory=list)
    entries: list[Json] = attrs.field(factory=list)
    artifacts: list[Json] = attrs.field(factory=list)
    begin: tuple[int, int] = (0, 0)
    skips: int = 0
    artifact_skips: int = 0

    @property
    def _end(self) -> tuple[int, int]:
        """The positions after the last page."""
        end, artifact_end = self.ends[-1] if self.ends else (0, 0)
        return end, artifact_end

    def _lengths(self, ledger: Ledger[Entry], records: Sequence[Json]) -> tuple[int, int]:
        """Return the numbers of entries and of artifacts of the whole story."""
        begin, artifact_begin = self.begin
        return (
            begin + len(self.entries) + len(ledger) - self.skips,
            artifact_begin + len(self.artifacts) + len(records) - self.artifact_skips,
        )

    def to_json(self, ledger: Ledger[Entry], records: Sequence[Json]) -> Json:
        """Return its position as a JSON object: pages, and what is not in a page."""
        after, artifacts_after = self._end
        entries = [*self._entries_after(after, ledger)]
        artifacts = [*self._artifacts_after(artifacts_after, records)]
        return {"ends": self.ends, "begin": self._end, "entries": entries, "artifacts": artifacts}

    def read(self, after: int, artifacts_after: int, ledger: Ledger[Entry], records: Sequence[Json]) -> Json:
        """Return the artifacts after the first ones, then the entries, as many as one answer may have; `more` says whether there are others.

        No entry comes before an artifact to which it may refer.

        If they are in pages, the answer has the `ends` of the pages instead.
        """
        if after < self._end[0] or artifacts_after < self._end[1]:
            return {"ends": self.ends, "entries": [], "artifacts": [], "more": True}
        artifacts, room = first_objects(self._artifacts_after(artifacts_after, records), PAGE)
        lengths, artifact_end = self._lengths(ledger, records), artifacts_after + len(artifacts)
        entries = first_objects(self._entries_after(after, ledger), room)[0] if artifact_end == lengths[1] else []
        if not artifacts and not entries:  # the next one is longer than a page
            artifacts = [*islice(self._artifacts_after(artifacts_after, records), 1)]
            entries = [] if artifacts else [*islice(self._entries_after(after, ledger), 1)]
        end = after + len(entries), artifacts_after + len(artifacts)
        return {"entries": entries, "artifacts": artifacts, "more": end != lengths}

    def _entries_after(self, after: int, ledger: Ledger[Entry]) -> Iterator[Json]:
        earlier = after - self.begin[0]
        yield from self.entries[earlier:]
        for entry in ledger[self.skips + max(0, earlier - len(self.entries)) :]:
            yield to_json(entry)

    def _artifacts_after(self, after: int, records: Sequence[Json]) -> Iterator[Json]:
        earlier = after - self.begin[1]
        yield from self.artifacts[earlier:]
        yield from records[self.artifact_skips + max(0, earlier - len(self.artifacts)) :]

    async def write_pages(
        self, run_id: str, ledger: Ledger[Entry], records: Sequence[Json], room_for: Callable[[int], Awaitable[None]]
    ) -> None:
        """Let other workflows hold everything up to now; `room_for` waits until a number of bytes may be sent."""
        end, artifact_end = self._lengths(ledger, records)
        while self._end != (end, artifact_end):
            page = self.read(*self._end, ledger, records)
            content = {"entries": page["entries"], "artifacts": page["artifacts"]}
            await room_for(len(text_of(content)))
            await workflow.start_child_workflow(
                payloads.PAGE_WORKFLOW,
                content,
                id=page_id(run_id, len(self.ends)),
                task_queue=PAGE_QUEUE,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            )
            self.ends.append((self._end[0] + len(page["entries"]), self._end[1] + len(page["artifacts"])))

    async def end_pages(self, run_id: str) -> None:
        """End the workflows that hold the pages."""
        for number in range(len(self.ends)):
            await workflow.get_external_workflow_handle(page_id(run_id, number)).signal(payloads.END)


async def pages_after(
    client: Client, run_id: str, ends: Sequence[Sequence[int]], after: int, artifacts_after: int
) -> AsyncIterator[Json]:
    """Yield the pages of a run's story after its first entries and artifacts. Raises StoreError for a page that the server does not have."""
    begin = (0, 0)
    for number, end in enumerate(ends):
        if end[0] > after or end[1] > artifacts_after:
            page = await _page(client, page_id(run_id, number))
            entries = page["entries"][max(0, after - begin[0]) :]
            yield {"entries": entries, "artifacts": page["artifacts"][max(0, artifacts_after - begin[1]) :]}
        begin = (end[0], end[1])


async def _page(client: Client, workflow_id: str) -> Any:  # noqa: ANN401  (JSON)
    """Return the input of the workflow that holds a page."""
    try:
        async for event in client.get_workflow_handle(workflow_id).fetch_history_events(page_size=1):
            inputs = event.workflow_execution_started_event_attributes.input.payloads
            with store_errors(f"page {workflow_id} of a run's record"):
                return (await client.data_converter.decode(inputs))[0]
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise StoreError(
                f"a part of the run's record, in the workflow {workflow_id}, cannot be read: {error.message}"
            ) from error
    raise StoreError(f"the server no longer has page {workflow_id} of a run's record")
