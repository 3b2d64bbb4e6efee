"""Every background task of every kind of node, killed: one that is needed is begun again, and health names it; where
another ends, health names it, too, and the node ends if it cannot keep its promises without it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from muster.coordinator.server.node.node import CoordinatorNode
from tests.fakes.upstream_broker import UpstreamBroker
from tests.fakes.watched_kafka import WatchedKafka, watching
from tests.support.grpc_node import serving
from tests.support.kafka_backend.faked import fake_kafka, node_over
from tests.support.task_killer import TaskKiller

pytestmark = pytest.mark.integration

PATIENCE_S: Final = 120.0
DOORS: Final = {"http_listeners": "127.0.0.1:0", "kafka_listeners": "127.0.0.1:0"}
SECURED: Final = {"authorizer": "acl", "super_users": "User:admin", "scaler_enable": "true"}
REGISTERED: Final = {"node_id": "1", "zookeeper_session_timeout_ms": "4000"}
ALONE: Final = {
    "inter_broker_listeners": "127.0.0.1:0",
    "offsets_topic_replication_factor": "1",
    "default_replication_factor": "1",
    "min_insync_replicas": "1",
}

Begin = Callable[[Path, str], AbstractAsyncContextManager[CoordinatorNode]]
"""Of a data directory and ZooKeeper's connect string."""


def standalone(data: Path, zookeeper: str) -> AbstractAsyncContextManager[CoordinatorNode]:
    return serving(data, **DOORS, **SECURED)


def registered(data: Path, zookeeper: str) -> AbstractAsyncContextManager[CoordinatorNode]:
    return serving(data, zookeeper_connect=zookeeper, **REGISTERED)


def of_a_cluster(data: Path, zookeeper: str) -> AbstractAsyncContextManager[CoordinatorNode]:
    return serving(data, zookeeper_connect=zookeeper, **REGISTERED, **ALONE)


@asynccontextmanager
async def over_a_kafka(data: Path, zookeeper: str) -> AsyncIterator[CoordinatorNode]:
    async with fake_kafka() as kafka, node_over(kafka) as node:
        yield node


@asynccontextmanager
async def watching_a_kafka(data: Path, zookeeper: str) -> AsyncIterator[CoordinatorNode]:
    log = data.with_name("server.log")
    log.touch()
    async with UpstreamBroker() as broker:
        kafka = WatchedKafka(broker, partitions=2)
        kafka.write("orders")
        async with watching(kafka, watch_poll_ms=500, watch_broker_log=str(log)) as watched:
            yield watched.node


STANDALONE: Final = {"compaction", "log upkeep", "staged records"}
OF_ZOOKEEPER: Final = {
    "election at /controller",
    "groups in ZooKeeper",
    "look whether ZooKeeper has lost its data",
    "proofs of being elected at /controller",
    "registration in ZooKeeper",
}
RESTARTED: Final[dict[Begin, set[str]]] = {
    standalone: {*STANDALONE, "audit log", "clock of credentials", "idle connections", "samples of groups"},
    registered: {
        *STANDALONE,
        *OF_ZOOKEEPER,
        "central groups in ZooKeeper",
        "election at /muster/central/coordinator",
        "partition states in ZooKeeper",
        "positions of central groups",
        "proofs of being elected at /muster/central/coordinator",
    },
    of_a_cluster: {*STANDALONE, *OF_ZOOKEEPER, "look at topics that are left out", "replication rates"},
    over_a_kafka: {
        "conditions of the upstream",
        "idle connections",
        "look for members past this node",
        "samples of groups",
        "topics of the Kafka",
    },
    watching_a_kafka: {
        "brokers to look at",
        "conditions of the watched Kafka",
        "leaders of watched partitions",
        "logs of the watched brokers",
        "looks at broker 1",
        "positions of watched groups",
        "reading __consumer_offsets of broker 1",
        "topics of the Kafka",
    },
}
"""What runs as long as the node does, and is begun again after any end."""

OTHERS: Final[dict[Begin, set[str]]] = {
    of_a_cluster: {
        "ElectionLedger._send",
        "ImagePolling.run",
        "RemoteLogEnds._run",
        "ReplicaManager._check_replicas",
        "ReplicaManager._checkpoint",
        "ShardCoordination._look_on",
        "ShardLosses.run",
        "WarmShards.run",
    },
    over_a_kafka: {
        "NodesGroup._watch_generation",
        "ShardOwner._look_on",
        "StateTopicWatch._run",
    },
}
"""What runs as long, and is not begun again: its unexpected end ends the node, which then is begun anew."""


def told(node: CoordinatorNode) -> set[str]:
    return {condition.name for condition in node.condition_reporter.conditions.current()}


async def running(killer: TaskKiller, names: set[str], alive: Callable[[], set[str]]) -> None:
    while not names <= alive():
        await killer.next_change()


@pytest.mark.parametrize("begin", list(RESTARTED), ids=lambda begin: begin.__name__)
def test_what_a_node_needs_is_begun_again_and_health_names_it(
    begin: Begin, zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        killer, names = TaskKiller(monkeypatch), RESTARTED[begin]
        async with asyncio.timeout(PATIENCE_S), begin(tmp_path / "data", zookeeper) as node:
            await running(killer, names, lambda: killer.restarted)
            for name in sorted(names):
                before = killer.begun[name]
                killer.kill(name)
                await killer.begun_again(name, before)
                assert f"task-ended:{name}" in told(node)
            assert not node.failed.done()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("begin", "name"),
    [(begin, name) for begin, names in OTHERS.items() for name in sorted(names)],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_what_is_not_begun_again_ends_the_node(
    begin: Begin, name: str, zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        killer = TaskKiller(monkeypatch)
        async with asyncio.timeout(PATIENCE_S), begin(tmp_path / "data", zookeeper) as node:
            await running(killer, {name}, lambda: killer.others)
            killer.kill(name)
            assert isinstance(await asyncio.shield(node.failed), ZeroDivisionError)
            assert f"task-ended:{name}" in told(node)

    asyncio.run(story())
