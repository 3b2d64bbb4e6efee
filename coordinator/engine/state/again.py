"""`muster engine init --again`: an operator has looked at a state topic that was lost, cut or made anew, and says that
it counts as it is."""

import time
from typing import Final
from uuid import uuid4

from muster.coordinator.engine.starting import Wanted, checked, has_leaders, is_there, make, met, topic_of
from muster.coordinator.engine.state.marks import Marks
from muster.coordinator.engine.upstream import records
from muster.coordinator.engine.upstream.errors import Refused
from muster.coordinator.engine.upstream.upstream import Upstream
from muster.coordinator.ownership.losses import Accepted, accepted_record
from muster.storage.records.batch import encode_turn

WRITE_MS: Final = 30_000


async def init_again(upstream: Upstream, wanted: Wanted) -> int:
    """As `usable`, of a topic that need not be the one it was: it is made where there is none, and what its logs lack
    is given up. Nodes that run hear of it within seconds. Raises Unusable, and UpstreamError."""
    await met(upstream, wanted)
    if not is_there(upstream, wanted):
        await make(upstream, wanted)
    await has_leaders(upstream, wanted)
    most = await checked(upstream, wanted, grown=True)
    await accept(upstream, wanted)
    await Marks(upstream, wanted.cluster, wanted.topic).write(topic_of(upstream, wanted))
    return most


async def accept(upstream: Upstream, wanted: Wanted) -> None:
    """Write into each shard's log that it counts as it is."""
    token = uuid4().hex
    for shard in range(wanted.partitions):
        place = wanted.topic, shard
        leader = upstream.leader(*place)
        start = (await records.ends(upstream, leader, [place], records.EARLIEST))[place]
        word = [accepted_record(Accepted(start.offset, token))]
        said = start
        if not said.code:
            batch = encode_turn(word, int(time.time() * 1000))
            said = (await records.produce(upstream, leader, {place: batch}, WRITE_MS))[place]
        if said.code:
            raise Refused(f"saying that {wanted.topic}-{shard} counts as it is", said.code, said.detail)
