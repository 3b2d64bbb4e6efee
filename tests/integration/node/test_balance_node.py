"""Balance against a real node: it measures logs and commits, and what pays moves; a node without it does nothing."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer, Producer
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause
from tests.support.client_stories import poll_until
from tests.support.node import running_node

SETTINGS: dict[str, Any] = {"balance": "act", "balance.sample.ms": 1000, "balance.rounds": 2}


def write(producer: Producer) -> None:
    """A moment's worth: to the first two partitions of four a hundred times as much as to the others."""
    for partition, records in enumerate((100, 100, 1, 1)):
        for _ in range(records):
            producer.produce("t", b"x", partition=partition)


def hot(*consumers: Consumer) -> list[int]:
    """How many of the hot partitions each has."""
    return [sum(tp.partition < 2 for tp in consumer.assignment()) for consumer in consumers]


@pytest.mark.integration
@pytest.mark.parametrize(
    "how",
    [
        {"group_protocol": "consumer"},
        {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 100},
    ],
    ids=["consumer", "classic"],
)
def test_what_is_hot_is_shared_out(tmp_path: Path, how: dict[str, Any]) -> None:
    with running_node(tmp_path / "data") as node, Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("t", 4)
        # Both hot ones go to one member by this plan: the first member has the first half.
        admin.alter_group_settings("g", {"assignor": "range"})
        common = {"bootstrap_servers": node.address, "group_id": "g", "auto_commit_interval_ms": 100, **how}
        with Producer(bootstrap_servers=node.address) as producer, Consumer(**common) as one, Consumer(**common) as two:
            for consumer in (one, two):
                consumer.subscribe(["t"])
            poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two, what="two each")
            assert sorted(hot(one, two)) == [0, 2]
            admin.alter_group_settings("g", SETTINGS)

            def even() -> bool:
                write(producer)
                return hot(one, two) == [1, 1]

            poll_until(even, one, two, what="one hot partition each")
            told = [entry for entry in admin.explain("g") if entry.cause == LAG_IMBALANCE]
    assert " times the mean; with " in told[-1].detail
    assert " in 2 evaluations in a row over " in told[-1].detail


LAG_IMBALANCE = RebalanceCause.REBALANCE_CAUSE_LAG_IMBALANCE

HEAVY = ("balance.evaluation", "balance.loads", "monitoring.load_meter")


def test_nothing_of_it_is_imported_where_no_group_asks() -> None:
    look = "import muster.coordinator.server.node.node, sys; print(*sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert "balance.balance_switch" in told.stdout
    assert not [name for name in HEAVY if name in told.stdout]
