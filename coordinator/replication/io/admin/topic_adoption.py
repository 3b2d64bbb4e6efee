"""From one node to many (CL-A10): what a node had by itself becomes the cluster's, with itself as the only replica."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
)
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_writes import MultiStep
from muster.coordinator.zookeeper.errors import ForeignTopics, MalformedZnode, NodeExists
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.broker.broker import Broker
from muster.storage.types import Topic as Own

ADOPTING: Final = "/muster/cluster/adopting"
"""Who is about to publish what it had: a crash half-way goes on with the next start, and nobody else begins."""
MOST_STEPS: Final = 1_000
"""In one multi, which ZooKeeper takes up to 1 MiB of."""
MOST_NAMED: Final = 10
CAUSE: Final = "adopted"

log = structlog.get_logger("muster.replication")


class AdoptionPlan(NamedTuple):
    """Which topics are to be published, by name; begins: nobody has said yet that it does that."""

    names: Sequence[str]
    begins: bool = False


def plan_adoption(
    own: Mapping[str, bytes], there: Mapping[str, bytes | None], adopts: str | None, me: str
) -> AdoptionPlan:
    """own, there: ids of the topics that are this node's alone, and of those in ZooKeeper (None: it cannot be read).
    adopts: whose topics are being published, by data directory; me: this one. Raises ForeignTopics.

    >>> plan_adoption({"a": b"1"}, {}, None, "me")
    AdoptionPlan(names=['a'], begins=True)
    >>> plan_adoption({"a": b"1", "b": b"2"}, {"a": b"1"}, "me", "me")
    AdoptionPlan(names=['b'], begins=False)
    """
    missing = sorted(name for name, topic_id in own.items() if there.get(name) != topic_id)
    if not own:
        return AdoptionPlan(())
    taken = [name for name in missing if name in there]
    if missing and ((adopts or me) != me or (adopts is None and there) or taken):
        named = ", ".join((taken or missing)[:MOST_NAMED]) + (" and others" if len(missing) > MOST_NAMED else "")
        raise ForeignTopics(
            f"this node has topics of its own that the cluster does not know: {named}; and the cluster has topics "
            "already. Start the node with a new log.dirs and copy the records, or begin the cluster with this node, in "
            "a chroot of zookeeper.connect where there is none"
        )
    return AdoptionPlan(missing, begins=bool(missing) and adopts is None)


async def adopt_topics(session: ZooKeeperSession, broker: Broker, node_id: int) -> list[str]:
    """Publish what this node had by itself, if nothing is in ZooKeeper yet; the names. To be called before the node
    registers: from then on the controller may make internal topics of its own.

    Raises ForeignTopics (exit code 5), and ZooKeeper's weather.
    """
    own = {name: topic for name, topic in broker.topics().items() if topic.held is None}
    if not own:
        return []
    me = broker.identity.directory_id
    await session.ensure(paths.BROKER_TOPICS)
    await session.ensure(ADOPTING.rpartition("/")[0])
    ids = {name: topic.id for name, topic in own.items()}
    adopts = await read_adopting_node(session)
    plan = plan_adoption(ids, await read_topic_ids(session), adopts, me)
    if adopts == me:
        await complete_adoption(session, broker, [own[name] for name in sorted(own.keys() - set(plan.names))], node_id)
    if plan.begins:
        try:
            await session.create(ADOPTING, paths.config_json({"directory": me}))
        except NodeExists:
            plan = plan_adoption(ids, await read_topic_ids(session), await read_adopting_node(session), me)
    for names in pair_group_topics(plan.names):
        await publish_topics(session, broker, [own[name] for name in names], node_id)
    if plan.names:
        log.info("topics of this node now belong to the cluster", topics=len(plan.names))
    if await read_adopting_node(session) == me:
        await session.delete(ADOPTING)
    return list(plan.names)


def pair_group_topics(names: Sequence[str]) -> list[list[str]]:
    """The two of the groups at once: the controller makes the other half of one that it sees alone.

    >>> pair_group_topics(["__consumer_offsets", "__rebalances", "a"])
    [['__consumer_offsets', '__rebalances'], ['a']]
    """
    shards = [name for name in names if name in (OFFSETS, LEDGER)]
    return [each for each in (shards, *([name] for name in names if name not in shards)) if each]


async def read_topic_ids(session: ZooKeeperSession) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in await session.children(paths.BROKER_TOPICS) or ():
        path = paths.topic_path(name)
        znode = await session.get(path)
        if znode is not None:
            try:
                found[name] = cluster_layout.read_topic(path, znode.data).topic_id
            except MalformedZnode:
                found[name] = None
    return found


async def read_adopting_node(session: ZooKeeperSession) -> str | None:
    found = await session.get(ADOPTING)
    return None if found is None else paths.read_config(ADOPTING, found.data).get("directory", "")


async def publish_topics(session: ZooKeeperSession, broker: Broker, topics: Sequence[Own], node_id: int) -> None:
    """These topics, their settings, and the states of their partitions, whose epochs go on from those of the logs."""
    steps: list[MultiStep] = []
    for own in topics:
        topic = ClusterTopic(own.name, own.id, (ReplicaAssignment((node_id,)),) * own.partitions, own.configs)
        steps.append(MultiStep("create", paths.topic_path(own.name), cluster_layout.topic_json(topic)))
        config = paths.topic_config_path(own.name)
        if own.configs:
            left = await session.exists(config)
            steps.append(MultiStep("set" if left else "create", config, paths.config_json(own.configs)))
        steps.append(MultiStep("create", paths.topic_partitions_path(own.name)))
    await put_partition_states(session, broker, topics, node_id, steps)


async def complete_adoption(session: ZooKeeperSession, broker: Broker, topics: Sequence[Own], node_id: int) -> None:
    """What a former life of this node began to publish, and did not end: a large topic's states are written in several
    multis. Left to the controller they would begin at epoch 0, below those of the logs."""
    for own in topics:
        there = frozenset(await session.children(paths.topic_partitions_path(own.name)) or ())
        await put_partition_states(session, broker, [own], node_id, there=there)


async def put_partition_states(
    session: ZooKeeperSession,
    broker: Broker,
    topics: Sequence[Own],
    node_id: int,
    steps: Sequence[MultiStep] = (),
    there: Collection[str] = (),
) -> None:
    """The states of all partitions but those that are there, behind these steps."""
    together = list(steps)
    for own in topics:
        for number in range(own.partitions):
            if str(number) in there:
                continue
            if len(together) >= MOST_STEPS:
                await commit_steps(session, together)
                together = []
            state = cluster_layout.state_json(adopted_state(broker, own.name, number, node_id))
            together.append(MultiStep("create", paths.partition_path(own.name, number)))
            together.append(MultiStep("create", paths.partition_state_path(own.name, number), state))
    if together:
        await commit_steps(session, together)


def adopted_state(broker: Broker, name: str, number: int, node_id: int) -> PartitionState:
    """Nobody leads before the node is there; in sync is what it has."""
    directories = {node_id: broker.identity.directory_id}
    return PartitionState(
        NO_NODE_ID, leader_epoch_of(broker, name, number), (node_id,), directories=directories, cause=CAUSE
    )


def leader_epoch_of(broker: Broker, name: str, number: int) -> int:
    """That of the log; of a shard, the higher of its halves."""
    names = (OFFSETS, LEDGER) if name in (OFFSETS, LEDGER) else (name,)
    found = [
        broker.log(each, number).leader_epoch
        for each in names
        if each in broker.topics() and number < broker.topics()[each].partitions
    ]
    return max(found, default=NO_EPOCH)


async def commit_steps(session: ZooKeeperSession, steps: Sequence[MultiStep]) -> None:
    def build(together: Any) -> None:
        for step in steps:
            step.put_on(together)

    await session.commit(build)
