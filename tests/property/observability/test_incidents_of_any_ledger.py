"""Whatever a ledger holds, its incidents are a whole: each entry once, in order, and the past stays as it was told."""

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.observability.views.incidents import LOOP_MS, find_incidents
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove, NodeStall, Rebalance
from tests.support.ledger_entries import BEGIN_MS
from tests.support.ledgers import ledgers

STALLS = st.lists(
    st.builds(
        lambda at_s, stalled_ms: NodeStall(ended_at_ms=BEGIN_MS + at_s * 1000, stalled_ms=stalled_ms),
        st.integers(0, 5000),
        st.integers(1000, 60_000),
    ),
    max_size=2,
)
MOVES = st.lists(
    st.builds(
        lambda at_s: CoordinatorMove(serving_ms=BEGIN_MS + at_s * 1000, last_heard_ms=BEGIN_MS + at_s * 1000 - 4000),
        st.integers(0, 5000),
    ),
    max_size=2,
)


@given(ledgers(), STALLS, MOVES)
def test_every_entry_is_in_one_incident_and_time_goes_forward(
    entries: list[Rebalance], stalls: list[NodeStall], moves: list[CoordinatorMove]
) -> None:
    found = find_incidents(reversed(entries), Names({}), stalls, moves)
    assert sorted(number for each in found for number in each.entries) == [entry.number for entry in entries]
    assert [each.from_ms for each in found] == sorted(each.from_ms for each in found)
    starts = {entry.number: entry.started_at_ms for entry in entries}
    for each in found:
        assert list(each.entries) == sorted(each.entries)
        assert each.from_ms <= each.to_ms
        assert all(each.from_ms <= starts[number] <= each.to_ms for number in each.entries)
        assert each.sentence.endswith(".")


@given(ledgers(), st.integers(0, 14))
def test_what_ended_long_ago_stays_as_it_was_told(entries: list[Rebalance], cut: int) -> None:
    known, later = entries[:cut], entries[cut:]
    if not later:
        return
    told = [each for each in find_incidents(known, Names({})) if each.to_ms + LOOP_MS < later[0].started_at_ms]
    again = {(each.kind, each.entries, each.from_ms, each.to_ms) for each in find_incidents(entries, Names({}))}
    assert {(each.kind, each.entries, each.from_ms, each.to_ms) for each in told} <= again
