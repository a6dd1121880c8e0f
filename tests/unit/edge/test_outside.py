"""Events from outside, before a run takes them."""

import pytest
from stored_runs import begun

from dsa.edge.binding import Bindings, FromOutside
from dsa.errors import OccurrenceError
from dsa.runtime.policy.policies import LONGEST_DATA
from dsa.runtime.secrets import Secrets
from dsa.semantics import Occurrence


@pytest.mark.parametrize(("event", "source", "said"), [
    ("paid", None, "'paid' does not come from outside; these do: order, more"),
    ("pay.failed", None, "does not come from outside"),
    ("nonsense", None, "has no event 'nonsense'"),
    ("after 2s", "resting", "has no timer"),
])  # fmt: skip
def test_only_events_from_outside_can_be_sent(event, source, said):
    run, reader = begun(), FromOutside(Bindings({}))
    with pytest.raises(OccurrenceError, match=said):
        reader.read(run, Occurrence(event, source=source))
    assert reader.read(run, Occurrence("order")) == Occurrence("order")


def test_size_of_event_data_is_limited_for_every_kind_of_content():
    run, reader = begun(), FromOutside(Bindings({}, secrets=Secrets({"PIN": "4711"})))
    assert reader.read(run, Occurrence("order", data="x" * (LONGEST_DATA - 11))).data
    told = (
        "'order' has data of .* characters of JSON; the limit is 8,388,608: store it in a file and send the file's path"
    )
    for data in ("x" * 20_000_000, ["x"] * 2_200_000, "\x01" * 1_500_000, "4711" * 2_000_000):
        with pytest.raises(OccurrenceError, match=told):
            reader.read(run, Occurrence("order", data=data))


def test_depth_of_event_data_is_limited():
    def nested(depth):
        inner = []
        for _ in range(depth):
            inner = [inner]
        return inner

    run, reader = begun(), FromOutside(Bindings({}))
    assert reader.read(run, Occurrence("order", data=nested(190))).data
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        reader.read(run, Occurrence("order", data=nested(100_000)))
