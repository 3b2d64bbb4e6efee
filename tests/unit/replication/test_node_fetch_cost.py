"""What a fetch costs that waits and finds nothing: as much for 2,000 partitions as for one (F1)."""

import asyncio
import sys
from typing import Any

from muster.coordinator.kafka.codec.codec import decode_frame, encode
from muster.coordinator.kafka.dispatch import KafkaCall, Peer
from muster.coordinator.replication.door import Handlers
from muster.coordinator.replication.sessions import Asked, Following
from muster.coordinator.replication.translate import fetch_request
from tests.support.replication import CLUSTER, TOPIC, HeldDesk


async def calls_of_a_fetch(partitions: int) -> int:
    """How many functions of Python are called, from the follower's wish to the leader's answer in bytes."""
    following, handlers = Following(), Handlers(HeldDesk(), CLUSTER)
    call = KafkaCall(15, "", Peer("", asyncio.get_running_loop().create_future()))
    for partition in range(partitions):
        following.want((TOPIC, partition), Asked(3, 5, 2, 0, 1 << 20))

    async def fetch() -> None:
        asked = fetch_request(CLUSTER, 2, 77, following.next(), max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
        request = decode_frame("FetchRequest", 15, b"".join(encode("FetchRequest", 15, asked)))
        response = await handlers.fetch(request, call)
        told = decode_frame("FetchResponse", 15, b"".join(encode("FetchResponse", 15, response)))
        assert following.answered(told.error_code, told.session_id)

    for _ in range(3):
        await fetch()
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await fetch()
    finally:
        sys.setprofile(None)
    return calls


def test_a_fetch_of_nothing_costs_the_same_whatever_the_session_has() -> None:
    few, many = (asyncio.run(calls_of_a_fetch(partitions)) for partitions in (1, 2_000))
    assert few == many < 100
