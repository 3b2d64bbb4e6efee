"""Nodes whose ways to a real Kafka are cut, one by one and all at once: nobody tells what may be another's to tell."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.client import Admin, Worker
from muster.client.errors import ClientError
from muster.client.types import TopicPartition
from tests.interop.kafka_broker import free_port, kafka_broker
from tests.support.cluster_cuts import ZOOKEEPER, Cuts
from tests.support.kafka_backend.processes import GROUPS, SESSION_MS, three
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import running_node
from tests.support.pace import until

UPSTREAM = ZOOKEEPER
"""The other end of each node's way."""
LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control},<own>
advertised.listeners=PLAINTEXT://127.0.0.1:{port},<told>
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,N1:PLAINTEXT,N2:PLAINTEXT,N3:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
group.min.session.timeout.ms=1000
"""


class Ways(NamedTuple):
    addresses: Mapping[int, str]
    cuts: Cuts


@pytest.fixture(scope="module")
def ways(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """One broker, to which each node has a listener of its own, and a way of its own."""
    cuts = Cuts()
    own = {node: f"127.0.0.1:{free_port()}" for node in (1, 2, 3)}
    told = {node: cuts.to_zookeeper(node, address) for node, address in own.items()}
    more = LISTENERS.replace("<own>", named(own)).replace("<told>", named(told))
    place: Path = tmp_path_factory.mktemp("cut") / "kafka"
    try:
        with kafka_broker(kafka_classpath, place, more):
            yield Ways(told, cuts)
    finally:
        cuts.mend()
        cuts.stop()


def named(addresses: Mapping[int, str]) -> str:
    return ",".join(f"N{node}://{address}" for node, address in addresses.items())


def test_a_node_that_is_cut_off_from_kafka_alone_answers_nobody_once_its_lease_is_over(ways: Ways) -> None:
    async def story() -> None:
        async with three(ways.addresses, "cutone") as nodes:
            cut = nodes.nodes.pop(2)
            ways.cuts.cut(2, UPSTREAM)
            await nodes.share(3, 3)
            await nodes.clients.more()
            for group in GROUPS:
                assert (await cut.ask(group))[1] != "NONE"
            assert cut.serves == 0
            ways.cuts.mend()
            nodes.nodes[2] = cut
            await nodes.share(2, 2, 2)

    asyncio.run(story())


def test_while_kafka_is_away_nobody_answers_and_all_is_there_when_it_is_back(ways: Ways) -> None:
    async def story() -> None:
        async with three(ways.addresses, "cutall") as nodes:
            for node in (1, 2, 3):
                ways.cuts.cut(node, UPSTREAM)
            await nodes.share(0, 0, 0)
            ways.cuts.mend()
            await nodes.share(2, 2, 2)

    asyncio.run(story())


def test_a_short_cut_moves_nothing(ways: Ways) -> None:
    """CL-G6: shorter than the lease; what waits is answered when it is over."""

    async def story() -> None:
        async with three(ways.addresses, "cutshort", 20 * SESSION_MS) as nodes:
            for node in (1, 2, 3):
                ways.cuts.cut(node, UPSTREAM)
            waits = asyncio.ensure_future(nodes.clients.more())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.0):
                    await asyncio.shield(waits)
            ways.cuts.mend()
            await waits
            assert [node.serves for node in nodes.nodes.values()] == [2, 2, 2]

    asyncio.run(story())


def test_a_slow_upstream_is_told_to_who_writes_and_members_go_on(ways: Ways, tmp_path: Path) -> None:
    """Answers wait, then hear COORDINATOR_NOT_AVAILABLE; heartbeats that write nothing are answered while the lease
    holds, and nobody is put out, though it lasts longer than a member's session."""
    address = ways.addresses[1]
    make_topics(address, {"slow-orders": 2})
    settings = over(address, "slow", offsets_commit_timeout_ms="500", engine_kafka_session_timeout_ms="60000")
    member: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200, "group_membership": "poll"}
    with (
        running_node(tmp_path / "node", settings) as node,
        Admin(bootstrap_servers=node.address, default_api_timeout_ms=1_000) as admin,
    ):
        worker = Worker(bootstrap_servers=node.address, group_id="slow", **member)
        worker.join(topics=["slow-orders"])

        def owns() -> bool:
            worker.poll(0.02)
            return len(worker.owned()) == 2

        def refusal(offset: int) -> str:
            assert owns(), node.log_tail()
            try:
                admin.alter_offsets("by-hand", {TopicPartition("slow-orders", 0): offset})
            except ClientError as error:
                return str(error)
            return ""

        try:
            until(owns, node.log_tail)
            until(lambda: refusal(1) == "", node.log_tail)
            before = worker.group_metadata()
            ways.cuts.cut(1, UPSTREAM)
            until(lambda: "COORDINATOR_NOT_AVAILABLE" in refusal(2), node.log_tail)
            cut_s = time.monotonic()
            until(lambda: refusal(2) != "" and "upstream-slow" in node.log_tail(), node.log_tail)
            until(lambda: refusal(2) != "" and time.monotonic() - cut_s > 8, node.log_tail)
            ways.cuts.mend()
            until(lambda: refusal(3) == "", node.log_tail)
            assert [at.offset for at in admin.group_offsets("by-hand").values()] == [3]
            assert worker.group_metadata() == before
        finally:
            ways.cuts.mend()
            worker.close()
