"""What nodes say to each other about replicas. Values; on the wire they are Kafka's Fetch 15 (KIP-227 sessions)."""

from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.facts import NO_EPOCH, NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.ports import Records

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
