"""What is looked at before a node serves anything: whether this upstream, and its state topic, will do (1.2)."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from muster.coordinator.engine.upstream.errors import Refused, UpstreamError
from muster.coordinator.engine.upstream.records import again
from muster.coordinator.engine.upstream.topics import create_topic, topic_configs
from muster.coordinator.engine.upstream.upstream import Upstream

UNKNOWN_TOPIC: Final = 3
INVALID_REPLICATION_FACTOR: Final = 38
LEADERS_S: Final = 30.0
MAX_MESSAGE_BYTES: Final = 8_388_608
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    "segment.bytes": "104857600",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
"""Of a state topic that is made; min.insync.replicas depends on how many copies there are (S7: the lag). A broker
forgets producers by the time stamps of what they wrote: by its own clock, not by that of a node."""

LOOKED_AT: Final = ("cleanup.policy", "min.insync.replicas", "max.message.bytes")


class Unusable(Exception):
    """The node cannot be started over this upstream. The text says what was found, and what to do."""


class Wanted(NamedTuple):
    """topic, partitions: `engine.kafka.state.topic`, `offsets.topic.num.partitions`. replication:
    `engine.kafka.state.replication.factor`. id_base: `engine.kafka.node.id.base`."""

    topic: str
    partitions: int
    replication: int
    id_base: int


async def usable(upstream: Upstream, wanted: Wanted) -> int:
    """How many bytes a batch of the state topic may have, less a tenth (S1); makes the topic where there is none.

    Raises Unusable, and UpstreamError where nobody answers.
    """
    if lacks := await upstream.lacks():
        raise Unusable(
            f"the upstream does not speak {', '.join(lacks)}, which is needed; expected Apache Kafka 2.8 or later"
        )
    view = await upstream.refresh([wanted.topic])
    for broker in sorted(view.brokers):
        if broker >= wanted.id_base:
            raise Unusable(
                f"the upstream has a broker of id {broker}, and Muster's nodes are told to clients as "
                f"{wanted.id_base} and above; raise engine.kafka.node.id.base above all ids of brokers"
            )
    topic = view.topics.get(wanted.topic)
    if topic is None or topic.code == UNKNOWN_TOPIC:
        await make(upstream, wanted)
    elif topic.code:
        raise Refused(f"asking for the topic {wanted.topic}", topic.code)
    await has_leaders(upstream, wanted)
    return check(wanted, await topic_configs(upstream, wanted.topic, LOOKED_AT))


async def make(upstream: Upstream, wanted: Wanted) -> None:
    configs = {**CONFIGS, "min.insync.replicas": str(min(2, wanted.replication))}
    try:
        await create_topic(upstream, wanted.topic, wanted.partitions, wanted.replication, configs)
    except Refused as error:
        if error.code != INVALID_REPLICATION_FACTOR:
            raise
        raise Unusable(
            f"the topic {wanted.topic} cannot have {wanted.replication} copies, the upstream has "
            f"{len(upstream.view.brokers)} brokers; add brokers, or set engine.kafka.state.replication.factor to less "
            "and know that groups are lost with so many brokers"
        ) from error


async def has_leaders(upstream: Upstream, wanted: Wanted) -> None:
    """A topic that was just made has none for a moment. Raises Unusable for another number of partitions."""
    deadline_s = asyncio.get_running_loop().time() + LEADERS_S
    while True:
        view = upstream.view
        topic = view.topics.get(wanted.topic)
        parts = () if topic is None or topic.code else topic.parts
        if parts and len(parts) != wanted.partitions:
            raise Unusable(
                f"offsets.topic.num.partitions is {wanted.partitions}, but the upstream's {wanted.topic} has "
                f"{len(parts)} partitions and every group's place depends on it; set it to {len(parts)}, or name "
                "another topic by engine.kafka.state.topic"
            )
        if parts and all(view.leader(wanted.topic, part) >= 0 for part in parts):
            return
        if asyncio.get_running_loop().time() > deadline_s:
            # What has a leader is served; the rest is taken when it has one.
            if parts:
                return
            raise UpstreamError(f"the upstream tells of no partitions of {wanted.topic}; look at it with Kafka's tools")
        await again(upstream, wanted.topic)


def check(wanted: Wanted, configs: Mapping[str, str]) -> int:
    """Raises Unusable for settings under which the topic would lose groups."""
    topic = wanted.topic
    policy = configs.get("cleanup.policy", "")
    if policy != "compact":
        raise Unusable(
            f"cleanup.policy of the upstream's {topic} is {policy!r}: groups would be deleted with old segments; "
            "expected compact, set it with Kafka's tools"
        )
    least = configs.get("min.insync.replicas", "1")
    if least == "1" and wanted.replication > 1:
        raise Unusable(
            f"min.insync.replicas of the upstream's {topic} is 1: what is acknowledged may be lost with one broker; "
            "set it to 2 with Kafka's tools, or engine.kafka.state.replication.factor to 1 and know that"
        )
    most = int(configs.get("max.message.bytes") or MAX_MESSAGE_BYTES)
    return most - most // 10
