"""How fast replicas that are not in sync are copied (CL-A9), so that those that move leave room for what is served.

Only what a topic lists is held to a rate, by the words of Kafka: `*`, or PARTITION:NODE,... A replica in the in-sync
set never is, nor one that the leader waits for before it commits: a rate would be one for producers then.
"""

from functools import lru_cache
from typing import Final

from muster.coordinator.replication.protocol.facts import TopicPartition, parse_number

NO_LIMIT: Final = 2**63 - 1
LEADER_THROTTLED_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
"""Settings of topics."""

SECOND_MS: Final = 1_000
IDLE_MS: Final = 1_000
"""At a rate of 0: look again whether that is still so."""


class ThrottleBucket:
    """Bytes that may go, as many a second as `rate`, and at most those of one second at once.

    Whole batches go, however large: the bucket may be overdrawn, and then nothing goes until that is made up for.
    """

    __slots__ = ("_at_ms", "_left", "rate")

    def __init__(self) -> None:
        self.rate = NO_LIMIT
        self._left = 0
        """In thousandths of bytes: as many come in a millisecond as `rate` says."""
        self._at_ms = 0

    @property
    def is_limited(self) -> bool:
        return self.rate != NO_LIMIT

    def limit(self, rate: int, now_ms: int) -> None:
        """Bytes a second from now on; what was overdrawn by a higher rate is made up for in a second at most."""
        if rate == self.rate:
            return
        if self.is_limited:
            self._fill(now_ms)
            self._left = max(self._left, -rate * SECOND_MS)
        else:
            self._left = rate * SECOND_MS
        self.rate, self._at_ms = rate, now_ms

    def may(self, now_ms: int) -> bool:
        if self.rate == NO_LIMIT:
            return True
        self._fill(now_ms)
        return self._left > 0

    def take(self, size: int, now_ms: int) -> None:
        self._fill(now_ms)
        self._left -= size * SECOND_MS

    def ready_ms(self, now_ms: int) -> int:
        """The first moment at which something may go; now, if it may."""
        if self.may(now_ms):
            return now_ms
        return now_ms + (-self._left // self.rate + 1 if self.rate else IDLE_MS)

    def _fill(self, now_ms: int) -> None:
        self._left = min(self._left + (now_ms - self._at_ms) * self.rate, self.rate * SECOND_MS)
        self._at_ms = now_ms


@lru_cache(maxsize=1024)
def parse_throttled_replicas(text: str) -> frozenset[tuple[int, int]] | None:
    """(partition, node) pairs; None: all. What is no such pair names none.

    >>> parse_throttled_replicas("*"), parse_throttled_replicas(""), sorted(parse_throttled_replicas("0:1, 3:2,x"))
    (None, frozenset(), [(0, 1), (3, 2)])
    >>> parse_throttled_replicas("1" * 5_000 + ":1,0:1")
    frozenset({(0, 1)})
    """
    if text.strip() == "*":
        return None
    words = (each.partition(":") for each in text.split(","))
    pairs = ((parse_number(left), parse_number(right)) for left, _, right in words)
    return frozenset((left, right) for left, right in pairs if left is not None and right is not None)


def is_throttled_replica(text: str, place: TopicPartition, node: int) -> bool:
    """Whether a topic's setting names this partition's replica on this node."""
    if not text:
        return False
    listed = parse_throttled_replicas(text)
    return listed is None or (place.partition, node) in listed
