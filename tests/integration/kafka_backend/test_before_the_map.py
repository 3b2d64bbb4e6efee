"""A node whose gRPC door is open, and which does not know the other nodes yet: who asks waits with it, and hears of no
trouble."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from muster.client import Admin, Worker
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import PROTOCOL, PROTOCOL_TYPE
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import NodeProcess
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PATIENCE_S: Final = 60.0
QUIET_S: Final = 1.5
"""Nobody may have heard anything for so long; a client that tries again says so after a second."""
LEASE_MS: Final = 20_000
"""A node waits for two of them."""
AGAIN: Final = {14, 15, 16}
MEMBER_ID_REQUIRED: Final = 79


@contextmanager
def somebody_who_holds_up(kafka: str, group: str) -> Iterator[threading.Event]:
    """A member of the nodes' group that hears of no rebalance: nobody is dealt anything until the event is set, at
    which it leaves."""
    joined, leaves = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(lambda: asyncio.run(held_up(kafka, group, joined, leaves)))
        try:
            assert joined.wait(PATIENCE_S)
            yield leaves
        finally:
            leaves.set()
            done.result(PATIENCE_S)


async def held_up(kafka: str, group: str, joined: threading.Event, leaves: threading.Event) -> None:
    host, _, port = kafka.rpartition(":")
    protocol = struct("JoinGroupRequest.protocols")(name=PROTOCOL, metadata=b"{}")
    told: dict[str, Any] = {"group_id": group, "member_id": "", "group_instance_id": None, "protocols": [protocol]}
    told |= {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": PROTOCOL_TYPE}
    patience = Patience(PATIENCE_S)
    async with KafkaClient(host, int(port)) as client:
        while (answer := await client.ask("JoinGroup", 5, **told)).error_code:
            assert answer.error_code in {*AGAIN, MEMBER_ID_REQUIRED}, answer
            assert patience.lasts(), answer
            told["member_id"] = answer.member_id or told["member_id"]
            await client.ask("FindCoordinator", 1, key=group, key_type=0)
        me = {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id}
        assert (await client.ask("SyncGroup", 3, **me, group_instance_id=None, assignments=[])).error_code == 0
        joined.set()
        await asyncio.to_thread(leaves.wait)
        await client.ask("LeaveGroup", 2, group_id=group, member_id=answer.member_id)


def owned(node: NodeProcess, **how: Any) -> int:
    """How many partitions a member that has just begun is given."""
    with Worker(bootstrap_servers=node.address, **how) as worker:
        worker.join(topics=["unmapped"])
        patience = Patience(PATIENCE_S)
        while not worker.owned():
            assert patience.lasts(), "it is given nothing"
            worker.poll(0.05)
        return len(worker.owned())


def test_who_asks_before_a_node_knows_the_others_waits(
    kafka: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_topics(kafka, {"unmapped": 2})
    node = NodeProcess(tmp_path / "n1", over(kafka, "unmapped", engine_kafka_session_timeout_ms=str(LEASE_MS)))
    asked = [
        lambda admin: admin.nodes(),
        lambda admin: admin.alter_group_settings("a", set={"assignor": "uniform"}).values["assignor"],
        lambda admin: admin.group_offsets("b"),
    ]

    def by_admin(ask: Any) -> Any:
        with Admin(bootstrap_servers=node.address) as admin:
            return ask(admin)

    with somebody_who_holds_up(kafka, "unmapped.nodes") as leaves, ThreadPoolExecutor(len(asked) + 2) as beside:
        node.start()
        try:
            begun: list[Future[Any]] = [beside.submit(by_admin, ask) for ask in asked]
            begun.append(
                beside.submit(owned, node, group_id="polls", group_protocol="consumer", group_membership="poll")
            )
            begun.append(beside.submit(owned, node, group_id="pushed", group_membership="push"))
            assert not wait(begun, QUIET_S, FIRST_COMPLETED).done
            leaves.set()
            nodes, assignor, offsets, *shares = [each.result(PATIENCE_S) for each in begun]
        finally:
            node.stop()
    assert (nodes, assignor, offsets, shares) == ({node.address: 1}, "uniform", {}, [2, 2])
    told = [record.getMessage() for record in caplog.records if record.name == "muster.client"]
    assert [each for each in told if not each.startswith("COORDINATOR_NOT_AVAILABLE")] == []
