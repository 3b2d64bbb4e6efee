"""`{cluster}.security` before a node reads it: made with its first records where all of a cluster is new, never later.

An empty one would say that nobody has a right, and with allow.everyone.if.no.acl.found that everybody has any. So a
topic that is gone, or has no beginning, is for an operator to look at (`muster engine init --security`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from muster.coordinator.engine.starting import (
    FIRST_S,
    UNKNOWN_TOPIC,
    Unusable,
    Wanted,
    check,
    comes,
    has_leaders,
    make_topic,
)
from muster.coordinator.engine.state.marks import Marks
from muster.coordinator.engine.upstream import producers, records
from muster.coordinator.engine.upstream.errors import FENCED, WAIT_FOR_COORDINATOR, Refused, UpstreamError, named_code
from muster.coordinator.engine.upstream.records import again, span
from muster.coordinator.engine.upstream.topics import topic_configs
from muster.coordinator.engine.upstream.upstream import PAUSE_S, Upstream
from muster.coordinator.ownership.facts import NewRecord, Owner, Producer, owner_record
from muster.storage.records.batch import encode_written

PARTITION: Final = 0
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": "8388608",
    "segment.bytes": "16777216",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
LOOKED_AT: Final = ("cleanup.policy", "min.insync.replicas", "max.message.bytes")
WRITE_MS: Final = 10_000
TRIES: Final = 100
"""Of what a new Kafka is not ready for yet, a pause between them."""

CURE: Final = (
    "look what became of it; `muster engine init --security` makes it anew, empty: nobody but super.users has a right "
    "then"
)


async def is_new(upstream: Upstream, state_topic: str, cluster: str) -> bool:
    """Whether nothing of the cluster is there yet, or was. Raises UpstreamError."""
    topic = (await upstream.refresh([state_topic])).topics.get(state_topic)
    missing = topic is None or topic.code == UNKNOWN_TOPIC
    return missing and not await Marks(upstream, cluster, state_topic, FIRST_S).remembers()


async def prepared(
    upstream: Upstream, topic: str, *, replication: int, id_base: int, new: bool, mark: Sequence[NewRecord], now_ms: int
) -> None:
    """Look whether the topic will do. new: it may be made, or begun, which is to have these records in it (`mark`).

    Raises Unusable, UpstreamError.
    """
    wanted = Wanted(topic, 1, replication, id_base)
    seen = (await upstream.refresh([topic])).topics.get(topic)
    missing = seen is None or seen.code == UNKNOWN_TOPIC
    if missing and not new and not await comes(upstream, wanted):
        raise Unusable(
            f"the upstream has no topic {topic}, where it is kept who may do what, though its groups are there; {CURE}"
        )
    if missing and new:
        await make_topic(upstream, wanted, CONFIGS)
    elif not missing and seen is not None and seen.code:
        raise Refused(f"asking for the topic {topic}", seen.code)
    await has_leaders(upstream, wanted)
    if (parts := len(upstream.view.topics[topic].parts)) != 1:
        raise Unusable(f"the upstream's {topic}, where it is kept who may do what, has {parts} partitions; expected 1")
    check(wanted, await topic_configs(upstream, topic, LOOKED_AT))
    if await is_empty(upstream, topic):
        if not new:
            raise Unusable(f"the upstream's {topic}, where it is kept who may do what, has nothing in it; {CURE}")
        await begin(upstream, topic, mark, now_ms)


async def is_there(upstream: Upstream, topic: str) -> bool:
    """Whether nodes of this cluster ask who may do what, as far as this login may see. Raises UpstreamError."""
    seen = (await upstream.refresh([topic])).topics.get(topic)
    return seen is not None and not seen.code


async def is_empty(upstream: Upstream, topic: str) -> bool:
    start, end = await span(upstream, topic, PARTITION)
    return end <= start


async def begin(upstream: Upstream, topic: str, mark: Sequence[NewRecord], now_ms: int) -> None:
    """The first batch: its first owner, and what says that it was begun. Two nodes that do it at once both may."""
    place = (topic, PARTITION)
    producer = await given(upstream, topic)
    wire = encode_written([owner_record(Owner(1, -1, producer)), *mark], now_ms, producer=(*producer, 0))
    for _ in range(TRIES):
        written = (await records.produce(upstream, upstream.leader(*place), {place: wire}, WRITE_MS))[place]
        if written.code == 0 or written.code in FENCED:
            return
        await again(upstream, topic)
    raise UpstreamError(f"{topic} cannot be written: the upstream says {named_code(written.code)}")


async def given(upstream: Upstream, transactional_id: str) -> Producer:
    """A producer that fences those before. Raises UpstreamError."""
    code = 0
    for _ in range(TRIES):
        try:
            answer = await producers.init_producer(upstream, transactional_id)
        except Refused as error:  # nobody coordinates it yet
            code = error.code
        else:
            if not answer.code:
                return Producer(answer.producer_id, answer.epoch)
            code = answer.code
        if code not in WAIT_FOR_COORDINATOR:
            break
        await asyncio.sleep(PAUSE_S)
    raise Refused(f"asking for the producer {transactional_id}", code)
