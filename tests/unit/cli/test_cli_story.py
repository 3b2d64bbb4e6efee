"""What `groups explain` says of an entry, line by line."""

import pytest

from muster.assignors.api import Member, Snapshot
from muster.coordinator.cli.groups.story import assignor_lines
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
