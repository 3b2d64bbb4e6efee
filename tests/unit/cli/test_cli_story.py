"""What `groups explain` says of an entry, line by line."""

import pytest

from muster.assignors.api import Member, Snapshot
from muster.cli.groups.rebalance_story import assignor_lines, merge_by_time
from muster.coordinator.rpc.v1 import ledger_pb2

GROUP = Snapshot({"t": 3}, [Member("a", ("t",))], assignor="lag")


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (Snapshot(GROUP.topics, GROUP.members, {"t": [1, 2, 3]}), []),
        (
            Snapshot(GROUP.topics, GROUP.members, {"t": [1, 2, 3]}, stale={"t": [0, 2]}),
            ["the lags of 2 partitions are those of when their leaders last answered"],
        ),
        (
            Snapshot(GROUP.topics, GROUP.members, stale={"t": [1]}),
            ["planned by count, without lags: nobody has said where the logs of 1 partition end"],
        ),
    ],
)
def test_what_lags_rest_on_is_told(snapshot: Snapshot, said: list[str]) -> None:
    entry = ledger_pb2.Rebalance(protocol_name="lag", snapshot_json=snapshot.to_json())
    assert [line.plain for line in assignor_lines(entry)] == ["lag", *said]


def test_nodes_whose_clocks_are_apart_tell_of_one_thing_after_the_other() -> None:
    """By time alone what a node an hour behind had told came before what had led to it."""
    hour_ms = 3_600_000
    entries = [
        ledger_pb2.Rebalance(number=1, started_at_ms=2 * hour_ms),
        ledger_pb2.Rebalance(number=2, started_at_ms=5),
    ]
    moves = [
        ledger_pb2.CoordinatorMove(to_node=2, serving_ms=hour_ms),
        ledger_pb2.CoordinatorMove(to_node=3, serving_ms=9 * hour_ms),
        ledger_pb2.CoordinatorMove(to_node=1, serving_ms=1),
    ]
    told = [
        f"to {each.to_node}" if isinstance(each, ledger_pb2.CoordinatorMove) else f"#{each.number}"
        for each in merge_by_time(entries, moves)
    ]
    assert told == ["to 2", "#1", "#2", "to 3", "to 1"]
