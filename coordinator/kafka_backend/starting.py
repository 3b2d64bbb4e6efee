"""What is looked at before a node serves anything: whether this upstream, and its state topic, will do (KB-N2)."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from muster.coordinator.kafka_backend.marks import TopicMarks, id_text
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import UpstreamTopic
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.records import pause_and_refresh
from muster.coordinator.kafka_backend.upstream.topics import create_topic, topic_configs
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

UNKNOWN_TOPIC: Final = 3
INVALID_REPLICATION_FACTOR: Final = 38
LEADERS_S: Final = 30.0
FIRST_S: Final = 30.0
"""So long a new upstream may take to make the topic of transactions, which the first question of its kind has it do."""
PATIENCE_S: Final = 5.0
"""So long anything else of it may take."""
LOOKS: Final = 5
"""Before it is said that a topic is gone: a broker may be behind."""
MAX_MESSAGE_BYTES: Final = 8_388_608
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    "segment.bytes": "104857600",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
"""Of a state topic that is made; min.insync.replicas depends on how many copies there are (KB-S7: the lag). A broker
forgets producers by the time stamps of what they wrote: by its own clock, not by that of a node."""

LOOKED_AT: Final = ("cleanup.policy", "min.insync.replicas", "max.message.bytes")


class UnusableUpstream(Exception):
    """The node cannot be started over this upstream. The text says what was found, and what to do."""


class StateTopicSpec(NamedTuple):
    """topic, partitions: `engine.kafka.state.topic`, `offsets.topic.num.partitions`. replication:
    `engine.kafka.state.replication.factor`. id_base, cluster: `engine.kafka.node.id.base`, `engine.kafka.cluster`."""

    topic: str
    partitions: int
    replication: int
    id_base: int
    cluster: str = "muster"


async def prepare_state_topic(upstream: Upstream, wanted: StateTopicSpec) -> int:
    """How many bytes a batch of the state topic may have, less a tenth (KB-S1); makes the topic where there is none,
    and none was before.

    Raises Unusable, and UpstreamError where nobody answers.
    """
    await check_upstream(upstream, wanted)
    if not topic_exists(upstream, wanted):
        first = TopicMarks(upstream, wanted.cluster, wanted.topic, FIRST_S)
        if await first.remembers() and not await topic_appears(upstream, wanted):
            raise UnusableUpstream(
                f"the state topic {wanted.topic} is not there, and it was: groups and positions went with it. Nothing "
                "is made anew by itself: look at what became of it; `muster engine init --again` makes it, empty"
            )
        await create_state_topic(upstream, wanted)
    await wait_for_leaders(upstream, wanted)
    marks, topic = TopicMarks(upstream, wanted.cluster, wanted.topic, PATIENCE_S), state_topic_of(upstream, wanted)
    if topic.partitions == wanted.partitions and not await is_same_topic(marks, topic):
        raise UnusableUpstream(
            f"the state topic {wanted.topic} (id {id_text(topic.id)}) is not the one it was: that is deleted, and "
            "another was made. Look at it; `muster engine init --again` says that it counts from now on"
        )
    grown = topic.partitions > wanted.partitions and await marks.knows(topic)
    return await check_partitions_and_configs(upstream, wanted, grown=grown)


async def is_same_topic(marks: TopicMarks, topic: UpstreamTopic) -> bool:
    """Whether it is the topic of before, or there was none. While transactional ids have no coordinator nobody is told;
    no shard can be taken then, either, and it is looked at again (`kafka_backend/watching.py`)."""
    try:
        return await marks.knows(topic) or not await marks.remembers()
    except UpstreamError:
        return True


async def check_upstream(upstream: Upstream, wanted: StateTopicSpec) -> None:
    """Raises Unusable where nodes cannot be over this upstream at all."""
    if lacks := await upstream.lacks():
        raise UnusableUpstream(
            f"the upstream does not speak {', '.join(lacks)}, which is needed; expected Apache Kafka 2.8 or later"
        )
    view = await upstream.refresh([wanted.topic])
    for broker in sorted(view.brokers):
        if broker >= wanted.id_base:
            raise UnusableUpstream(
                f"the upstream has a broker of id {broker}, and Muster's nodes are told to clients as "
                f"{wanted.id_base} and above; raise engine.kafka.node.id.base above all ids of brokers"
            )


def topic_exists(upstream: Upstream, wanted: StateTopicSpec) -> bool:
    """As the last answer has it."""
    topic = upstream.view.topics.get(wanted.topic)
    if topic is not None and topic.code not in (0, UNKNOWN_TOPIC):
        raise UpstreamRefused(f"asking for the topic {wanted.topic}", topic.code)
    return topic is not None and not topic.code


async def topic_appears(upstream: Upstream, wanted: StateTopicSpec) -> bool:
    """A broker may be behind: whether it is there by another answer, a while later."""
    for _ in range(LOOKS):
        await pause_and_refresh(upstream, wanted.topic)
        if topic_exists(upstream, wanted):
            return True
    return False


async def check_partitions_and_configs(upstream: Upstream, wanted: StateTopicSpec, *, grown: bool) -> int:
    """As `prepare_state_topic`, of a topic that is there. grown: it may have more partitions than there are shards."""
    parts = state_topic_of(upstream, wanted).partitions
    if parts < wanted.partitions or (parts > wanted.partitions and not grown):
        more = ""
        if parts > wanted.partitions:
            more = "; where partitions were added to it since, `muster engine init --again` leaves those unused"
        raise UnusableUpstream(
            f"offsets.topic.num.partitions is {wanted.partitions}, but the upstream's {wanted.topic} has "
            f"{parts} partitions and every group's place depends on it; set it to {parts}, or name "
            f"another topic by engine.kafka.state.topic{more}"
        )
    return check_configs(wanted, await topic_configs(upstream, wanted.topic, LOOKED_AT))


def state_topic_of(upstream: Upstream, wanted: StateTopicSpec) -> UpstreamTopic:
    seen = upstream.view.topics[wanted.topic]
    return UpstreamTopic(seen.topic_id, len(seen.parts))


async def create_state_topic(upstream: Upstream, wanted: StateTopicSpec) -> None:
    await create_checked_topic(upstream, wanted, CONFIGS)


async def create_checked_topic(upstream: Upstream, wanted: StateTopicSpec, configs: Mapping[str, str]) -> None:
    """Raises Unusable, UpstreamError."""
    configs = {**configs, "min.insync.replicas": str(min(2, wanted.replication))}
    try:
        await create_topic(upstream, wanted.topic, wanted.partitions, wanted.replication, configs)
    except UpstreamRefused as error:
        if error.code != INVALID_REPLICATION_FACTOR:
            raise
        raise UnusableUpstream(
            f"the topic {wanted.topic} cannot have {wanted.replication} copies, the upstream has "
            f"{len(upstream.view.brokers)} brokers; add brokers, or set engine.kafka.state.replication.factor to less "
            "and know that groups are lost with so many brokers"
        ) from error


async def wait_for_leaders(upstream: Upstream, wanted: StateTopicSpec) -> None:
    """A topic that was just made has none for a moment."""
    deadline_s = asyncio.get_running_loop().time() + LEADERS_S
    while True:
        view = upstream.view
        topic = view.topics.get(wanted.topic)
        parts = () if topic is None or topic.code else topic.parts
        if parts and all(view.leader(wanted.topic, part) >= 0 for part in parts):
            return
        if asyncio.get_running_loop().time() > deadline_s:
            # What has a leader is served; the rest is taken when it has one.
            if parts:
                return
            raise UpstreamError(f"the upstream tells of no partitions of {wanted.topic}; look at it with Kafka's tools")
        await pause_and_refresh(upstream, wanted.topic)


def check_configs(wanted: StateTopicSpec, configs: Mapping[str, str]) -> int:
    """Raises Unusable for settings under which the topic would lose groups."""
    topic = wanted.topic
    policy = configs.get("cleanup.policy", "")
    if policy != "compact":
        raise UnusableUpstream(
            f"cleanup.policy of the upstream's {topic} is {policy!r}: groups would be deleted with old segments; "
            "expected compact, set it with Kafka's tools"
        )
    least = configs.get("min.insync.replicas", "1")
    if least == "1" and wanted.replication > 1:
        raise UnusableUpstream(
            f"min.insync.replicas of the upstream's {topic} is 1: what is acknowledged may be lost with one broker; "
            "set it to 2 with Kafka's tools, or engine.kafka.state.replication.factor to 1 and know that"
        )
    most = int(configs.get("max.message.bytes") or MAX_MESSAGE_BYTES)
    return most - most // 10
