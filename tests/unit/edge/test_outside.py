"""Events from outside, before a run takes them."""

import pytest
from kept_runs import begun

from dsa.edge.binding import Bindings
from dsa.edge.outside import FromOutside
from dsa.errors import OccurrenceError
from dsa.meaning import Occurrence


@pytest.mark.parametrize(("event", "source", "said"), [
    ("paid", None, "'paid' does not come from outside; what does: order, more"),
    ("pay.failed", None, "does not come from outside"),
    ("nonsense", None, "has no event 'nonsense'"),
    ("after 2s", "resting", "has no timer"),
])  # fmt: skip
def test_only_events_from_outside_can_be_sent(event, source, said):
    run, reader = begun(), FromOutside(Bindings({}))
    with pytest.raises(OccurrenceError, match=said):
        reader.read(run, Occurrence(event, source=source))
    assert reader.read(run, Occurrence("order")) == Occurrence("order")
