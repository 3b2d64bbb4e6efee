"""`{cluster}.security` before a node reads it: made with its first records where all of a cluster is new, never later.

An empty one would say that nobody has a right, and with allow.everyone.if.no.acl.found that everybody has any. So a
topic that is gone, or has no beginning, is for an operator to look at (`muster engine init --security`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from muster.coordinator.kafka_backend.marks import TopicMarks
from muster.coordinator.kafka_backend.shard_ownership.facts import (
    NewRecord,
    OwnerRecord,
    ProducerEpoch,
    encode_owner_record,
)
from muster.coordinator.kafka_backend.starting import (
    FIRST_S,
    UNKNOWN_TOPIC,
    StateTopicSpec,
    UnusableUpstream,
    check_configs,
    create_checked_topic,
    topic_appears,
    wait_for_leaders,
)
from muster.coordinator.kafka_backend.upstream import producers, records
from muster.coordinator.kafka_backend.upstream.errors import (
    FENCED_CODES,
    WAIT_FOR_COORDINATOR,
    UpstreamError,
    UpstreamRefused,
    describe_code,
)
from muster.coordinator.kafka_backend.upstream.records import log_span, pause_and_refresh
from muster.coordinator.kafka_backend.upstream.topics import topic_configs
from muster.coordinator.kafka_backend.upstream.upstream import PAUSE_S, Upstream
from muster.storage.records.batch import encode_written

PARTITION: Final = 0
SECURITY_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": "8388608",
    "segment.bytes": "16777216",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
SECURITY_CONFIGS_CHECKED: Final = ("cleanup.policy", "min.insync.replicas", "max.message.bytes")
BEGIN_WRITE_MS: Final = 10_000
TRIES: Final = 100
"""Of what a new Kafka is not ready for yet, a pause between them."""

CURE: Final = (
    "look what became of it; `muster engine init --security` makes it anew, empty: nobody but super.users has a right "
    "then"
)


async def is_new_cluster(upstream: Upstream, state_topic: str, cluster: str) -> bool:
    """Whether nothing of the cluster is there yet, or was. Raises UpstreamError."""
    topic = (await upstream.refresh([state_topic])).topics.get(state_topic)
    missing = topic is None or topic.code == UNKNOWN_TOPIC
    return missing and not await TopicMarks(upstream, cluster, state_topic, FIRST_S).remembers()


async def prepare_security_topic(
    upstream: Upstream, topic: str, *, replication: int, id_base: int, new: bool, mark: Sequence[NewRecord], now_ms: int
) -> None:
    """Look whether the topic will do. new: it may be made, or begun, which is to have these records in it (`mark`).

    Raises Unusable, UpstreamError.
    """
    wanted = StateTopicSpec(topic, 1, replication, id_base)
    seen = (await upstream.refresh([topic])).topics.get(topic)
    missing = seen is None or seen.code == UNKNOWN_TOPIC
    if missing and not new and not await topic_appears(upstream, wanted):
        raise UnusableUpstream(
            f"the upstream has no topic {topic}, where it is kept who may do what, though its groups are there; {CURE}"
        )
    if missing and new:
        await create_checked_topic(upstream, wanted, SECURITY_TOPIC_CONFIGS)
    elif not missing and seen is not None and seen.code:
        raise UpstreamRefused(f"asking for the topic {topic}", seen.code)
    await wait_for_leaders(upstream, wanted)
    if (parts := len(upstream.view.topics[topic].parts)) != 1:
        raise UnusableUpstream(
            f"the upstream's {topic}, where it is kept who may do what, has {parts} partitions; expected 1"
        )
    check_configs(wanted, await topic_configs(upstream, topic, SECURITY_CONFIGS_CHECKED))
    if await is_topic_empty(upstream, topic):
        if not new:
            raise UnusableUpstream(
                f"the upstream's {topic}, where it is kept who may do what, has nothing in it; {CURE}"
            )
        await begin_security_topic(upstream, topic, mark, now_ms)


async def security_topic_exists(upstream: Upstream, topic: str) -> bool:
    """Whether nodes of this cluster ask who may do what, as far as this login may see. Raises UpstreamError."""
    seen = (await upstream.refresh([topic])).topics.get(topic)
    return seen is not None and not seen.code


async def is_topic_empty(upstream: Upstream, topic: str) -> bool:
    start, end = await log_span(upstream, topic, PARTITION)
    return end <= start


async def begin_security_topic(upstream: Upstream, topic: str, mark: Sequence[NewRecord], now_ms: int) -> None:
    """The first batch: its first owner, and what says that it was begun. Two nodes that do it at once both may."""
    place = (topic, PARTITION)
    producer = await fencing_producer(upstream, topic)
    wire = encode_written([encode_owner_record(OwnerRecord(1, -1, producer)), *mark], now_ms, producer=(*producer, 0))
    for _ in range(TRIES):
        written = (await records.produce(upstream, upstream.leader(*place), {place: wire}, BEGIN_WRITE_MS))[place]
        if written.code == 0 or written.code in FENCED_CODES:
            return
        await pause_and_refresh(upstream, topic)
    raise UpstreamError(f"{topic} cannot be written: the upstream says {describe_code(written.code)}")


async def fencing_producer(upstream: Upstream, transactional_id: str) -> ProducerEpoch:
    """A producer that fences those before. Raises UpstreamError."""
    code = 0
    for _ in range(TRIES):
        try:
            answer = await producers.init_producer(upstream, transactional_id)
        except UpstreamRefused as error:  # nobody coordinates it yet
            code = error.code
        else:
            if not answer.code:
                return ProducerEpoch(answer.producer_id, answer.epoch)
            code = answer.code
        if code not in WAIT_FOR_COORDINATOR:
            break
        await asyncio.sleep(PAUSE_S)
    raise UpstreamRefused(f"asking for the producer {transactional_id}", code)
