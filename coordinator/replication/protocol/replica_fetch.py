"""The fetch between replicas: what it needs of a log, its messages, and the throttle that bounds its rate.

`ReplicaLog` and `ReplicaLogs` are protocols without code. The messages are values; on the wire they are Kafka's
Fetch 15 with the sessions of KIP-227.

The throttle (CL-A9) leaves room for clients while replicas move. It holds only what a topic lists, in Kafka's words:
`*`, or PARTITION:NODE,... A replica in the ISR is never throttled, nor one that the leader waits for before it
commits: that would throttle producers.
"""

from collections.abc import Iterable, Sized
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, NO_NODE_ID, TopicPartition, parse_number

# Ports: the logs below
# ---------------------

Records: TypeAlias = Sized
"""Whole batches, as bytes or as a promise of them: nothing here looks inside. Its length is in bytes."""


class DamagedBatches(Exception):
    """The batches that a leader sent are not what was written (CL-F2)."""


class LogBroken(Exception):
    """The log cannot be read or written: its unit goes offline, with this as the reason (CL-F9)."""


class LogCorrupt(LogBroken):
    """Records of the copy of `place` are not on the disk as they were written: only another copy mends that."""

    def __init__(self, why: str, place: TopicPartition) -> None:
        super().__init__(why)
        self.place = place


class ReplicaLog(Protocol):
    """One partition's log. Offsets are of records; all of it may raise LogBroken."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def kept(self) -> int:
        """How far it is flushed, where its topic flushes every record; elsewhere its end."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 where it is empty."""

    def lead(self, epoch: int) -> None:
        """Know (epoch, end) before anything is appended in it; on disk before any of that counts as kept (CL-L1)."""

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the one given; (-1, -1) if there is none."""

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch that has the offset, -1 if none has."""

    def read(self, offset: int, max_bytes: int) -> Records:
        """Batches from `offset` on, up to the end of the log and at least one."""

    def append_as_follower(self, records: Records) -> None:
        """Append as the leader has numbered them. Raises DamagedBatches, and then has appended nothing."""

    def cut(self, to: int) -> None:
        """Give up what is at `to` and above; durable on return."""

    def restart_at(self, at: int) -> None:
        """Give up everything, and begin anew at `at`; durable on return."""

    def advance_start(self, to: int) -> None:
        """Give up what is below `to` (CL-F8)."""

    def tell_high_watermark(self, offset: int) -> None:
        """Readers see what is below, and nothing else."""


class ReplicaLogs(Protocol):
    """The logs that this node has."""

    def held(self) -> Iterable[tuple[TopicPartition, bytes]]:
        """All copies on this disk, with the ids of their topics."""

    def topic_id(self, place: TopicPartition) -> bytes | None:
        """Of which topic the copy on this disk is; None where there is no copy."""

    def open(self, place: TopicPartition, topic_id: bytes) -> ReplicaLog:
        """The copy of a partition, made empty where there is none of this topic id. Raises LogBroken."""

    def reopen(self, place: TopicPartition, topic_id: bytes) -> ReplicaLog:
        """As `open`, for one that has failed: it is read anew, as at a start. What is not known to be flushed is given
        up. Raises LogBroken while it cannot be used."""

    def no_room(self, wanted: int) -> str:
        """Why so many bytes more cannot be written where the logs lie; "" while they can, or nobody can tell."""

    def delete(self, place: TopicPartition, topic_id: bytes) -> None:
        """Delete the copy if it is of this topic id."""


# Messages: Kafka's Fetch 15 as values
# ------------------------------------

STORAGE_ERROR = 56
"""The log cannot be read (KAFKA_STORAGE_ERROR)."""

NO_SUCH_SESSION = 70
WRONG_SESSION_EPOCH = 71
"""Kafka's numbers (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH): begin a session anew."""

LAST_EPOCH = 2**31 - 1
PART_BYTES = 1 << 20
ANSWER_BYTES = 10 << 20


def next_session_epoch(epoch: int) -> int:
    """The epoch of a session's next request; 0 begins one.

    >>> next_session_epoch(0), next_session_epoch(2**31 - 1)
    (1, 1)
    """
    return 1 if epoch == LAST_EPOCH else epoch + 1


class FetchItem(NamedTuple):
    """What a follower asks for one partition: from its kept end on, in the leader epoch it believes in."""

    place: TopicPartition
    topic_id: bytes
    epoch: int
    offset: int
    last_epoch: int
    start: int


class ForgottenPartition(NamedTuple):
    """A partition that a follower's session has no more."""

    place: TopicPartition
    topic_id: bytes


class FetchRequest(NamedTuple):
    """session_epoch 0: `items` is everything, and begins a session. Else: what is new or changed in it, and what is
    `forgotten`. Of one partition at most part_bytes of records are wanted, of all at most answer_bytes; a single batch
    is given however large it is."""

    node: int
    node_epoch: int
    session: int
    session_epoch: int
    items: tuple[FetchItem, ...]
    forgotten: tuple[ForgottenPartition, ...] = ()
    part_bytes: int = PART_BYTES
    answer_bytes: int = ANSWER_BYTES


class FetchedPartition(NamedTuple):
    """A partition's part of the answer. leader, leader_epoch: who leads, with code 6, 74 and 75, as far as known."""

    place: TopicPartition
    topic_id: bytes
    code: int = ErrorCode.NONE
    high_watermark: int = -1
    start: int = 0
    diverging: tuple[int, int] | None = None
    records: Records = b""
    leader: int = NO_NODE_ID
    leader_epoch: int = NO_EPOCH


class FetchAnswer(NamedTuple):
    """code: of the whole answer; 0 if there are parts to look at."""

    code: int = 0
    session: int = 0
    parts: tuple[FetchedPartition, ...] = ()


# The throttle of replicas that are not in sync (CL-A9)
# -----------------------------------------------------

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

    __slots__ = ("_at_ms", "_left", "is_limited", "rate")

    def __init__(self) -> None:
        self.rate = NO_LIMIT
        self.is_limited = False
        self._left = 0
        """In thousandths of bytes: as many come in a millisecond as `rate` says."""
        self._at_ms = 0

    def limit(self, rate: int, now_ms: int) -> None:
        """Bytes a second from now on; what was overdrawn by a higher rate is made up for in a second at most."""
        if rate == self.rate:
            return
        if self.is_limited:
            self._fill(now_ms)
            self._left = max(self._left, -rate * SECOND_MS)
        else:
            self._left = rate * SECOND_MS
        self.rate, self._at_ms, self.is_limited = rate, now_ms, rate != NO_LIMIT

    def may(self, now_ms: int) -> bool:
        if self.rate == NO_LIMIT:
            return True
        self._fill(now_ms)
        return self._left > 0

    def charge_bytes(self, size: int, now_ms: int) -> None:
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
