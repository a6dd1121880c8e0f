"""Search attributes: what a Temporal server knows of each run besides its history, so that a list of runs asks few workflows.

A workflow sets them when its run comes to rest, and when it performs effects again: one event in the history each time. They are registered
once for a namespace. `ensure` does so if the server allows it, as a local one does; without them, lists ask every workflow.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from dsa.runtime.status import Rest

_LOGGER = logging.getLogger("dsa.temporal")
#: The status of a run, as in `dsa runs --status`; the name of its machine; the events that it waits for; its next deadline.
STATUS = SearchAttributeKey.for_keyword("DsaStatus")
MACHINE = SearchAttributeKey.for_keyword("DsaMachine")
WAITS_FOR = SearchAttributeKey.for_keyword_list("DsaWaitsFor")
DUE = SearchAttributeKey.for_datetime("DsaDue")
#: What they are called where they are registered.
TYPES: Mapping[str, Any] = {
    STATUS.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    MACHINE.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    WAITS_FOR.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    DUE.name: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
}
UNDER_WAY = "under way"
_COMMAND = "temporal operator search-attribute create" + "".join(
    f" --name {name} --type {kind}"
    for name, kind in zip(TYPES, ("Keyword", "Keyword", "KeywordList", "Datetime"), strict=True)
)


async def ensure(client: Client) -> bool:
    """Return whether a namespace has the attributes, registering them if possible. If it has none, log how to register them."""
    namespace = client.namespace
    try:
        request = ListSearchAttributesRequest(namespace=namespace)
        names = (await client.operator_service.list_search_attributes(request)).custom_attributes
        missing = {name: kind for name, kind in TYPES.items() if name not in names}
        if missing:
            add = AddSearchAttributesRequest(namespace=namespace, search_attributes=missing)
            await client.operator_service.add_search_attributes(add)
    except RPCError as error:
        _LOGGER.warning(
            "namespace %s has no search attributes for runs (%s), so dsa asks every workflow when it lists runs. To register them: %s --namespace %s",
            namespace,
            error.message,
            _COMMAND,
            namespace,
        )
        return False
    return True


def has_any() -> bool:
    """Return whether the run of this workflow has attributes."""
    return workflow.info().typed_search_attributes.get(STATUS) is not None


def of_new_run(machine: str) -> TypedSearchAttributes:
    """Return the attributes with which a run begins."""
    return TypedSearchAttributes([SearchAttributePair(MACHINE, machine), SearchAttributePair(STATUS, UNDER_WAY)])


def show_under_way() -> None:
    """Report that the run of this workflow performs effects, unless that is known."""
    attributes = workflow.info().typed_search_attributes
    if attributes.get(STATUS) not in {None, UNDER_WAY}:
        workflow.upsert_search_attributes([STATUS.value_set(UNDER_WAY)])


def show_rest(rest: Rest) -> None:
    """Report why the run of this workflow rests, unless that is known."""
    if not has_any():
        return  # the namespace has no attributes
    attributes = workflow.info().typed_search_attributes
    events, due = sorted(rest.waits_for), None
    if rest.due_ms is not None:
        due = datetime.fromtimestamp(rest.due_ms / 1000, UTC)
    before = (attributes.get(STATUS), sorted(attributes.get(WAITS_FOR) or ()), attributes.get(DUE))
    if before != (rest.kind, events, due):
        waits = WAITS_FOR.value_set(events) if events else WAITS_FOR.value_unset()
        deadline = DUE.value_unset() if due is None else DUE.value_set(due)
        workflow.upsert_search_attributes([STATUS.value_set(rest.kind), waits, deadline])


def query_of(status: str | None, waiting_for: str | None, machine: str | None) -> str:
    """Return the query for the runs that may match a filter; those under way may have come to rest a moment ago.

    A waiting run is due once its deadline has passed, which the attributes do not say.
    """
    parts = list[str]()
    if machine is not None:
        parts.append(f"{MACHINE.name} = {_literal(machine)}")
    if waiting_for is not None:
        parts.append(f"({WAITS_FOR.name} = {_literal(waiting_for)} OR {STATUS.name} = '{UNDER_WAY}')")
    if status is not None and status != UNDER_WAY:
        known_status = "waiting" if status == "due" else status
        parts.append(f"{STATUS.name} IN ({_literal(known_status)}, '{UNDER_WAY}')")
    return "".join(f" AND {part}" for part in parts)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
