"""`muster engine init --again`: an operator has looked at a state topic that was lost, cut or made anew, and says that
it counts as it is."""

import time
from typing import Final
from uuid import uuid4

from muster.coordinator.kafka_backend.marks import TopicMarks
from muster.coordinator.kafka_backend.shard_ownership.losses import AcceptedLoss, encode_accepted_loss
from muster.coordinator.kafka_backend.starting import (
    StateTopicSpec,
    check_partitions_and_configs,
    check_upstream,
    create_state_topic,
    state_topic_of,
    topic_exists,
    wait_for_leaders,
)
from muster.coordinator.kafka_backend.upstream import records
from muster.coordinator.kafka_backend.upstream.errors import UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.storage.records.batch import encode_turn

WRITE_MS: Final = 30_000


async def accept_state_topic(upstream: Upstream, wanted: StateTopicSpec) -> int:
    """As `usable`, of a topic that need not be the one it was: it is made where there is none, and what its logs lack
    is given up. Nodes that run hear of it within seconds. Raises Unusable, and UpstreamError."""
    await check_upstream(upstream, wanted)
    if not topic_exists(upstream, wanted):
        await create_state_topic(upstream, wanted)
    await wait_for_leaders(upstream, wanted)
    most = await check_partitions_and_configs(upstream, wanted, grown=True)
    await write_acceptance(upstream, wanted)
    await TopicMarks(upstream, wanted.cluster, wanted.topic).write(state_topic_of(upstream, wanted))
    return most


async def write_acceptance(upstream: Upstream, wanted: StateTopicSpec) -> None:
    """Write into each shard's log that it counts as it is."""
    token = uuid4().hex
    for shard in range(wanted.partitions):
        place = wanted.topic, shard
        leader = upstream.leader(*place)
        start = (await records.list_offsets(upstream, leader, [place], records.EARLIEST))[place]
        word = [encode_accepted_loss(AcceptedLoss(start.offset, token))]
        said = start
        if not said.code:
            batch = encode_turn(word, int(time.time() * 1000))
            said = (await records.produce(upstream, leader, {place: batch}, WRITE_MS))[place]
        if said.code:
            raise UpstreamRefused(f"saying that {wanted.topic}-{shard} counts as it is", said.code, said.detail)
