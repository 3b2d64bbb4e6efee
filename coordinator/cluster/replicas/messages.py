"""What nodes say to each other about replicas. Values; on the wire they are Kafka's Fetch 15 (KIP-227 sessions)."""

from typing import NamedTuple

from muster.coordinator.cluster.facts import NO_EPOCH, NOBODY, TopicPartition
from muster.coordinator.cluster.replicas.ports import Records
from muster.coordinator.errors import ErrorCode

STORAGE_ERROR = 56
"""The log cannot be read (KAFKA_STORAGE_ERROR)."""

NO_SUCH_SESSION = 70
WRONG_SESSION_EPOCH = 71
"""Kafka's numbers (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH): begin a session anew."""


class FetchItem(NamedTuple):
    """What a follower asks for one partition: from its kept end on, in the leader epoch it believes in."""

    place: TopicPartition
    topic_id: bytes
    epoch: int
    offset: int
    last_epoch: int
    start: int


class FetchRequest(NamedTuple):
    """session_epoch 0: `items` is everything, and begins a session. Else: what is new or changed in it, and what is
    `forgotten`."""

    node: int
    node_epoch: int
    session: int
    session_epoch: int
    items: tuple[FetchItem, ...]
    forgotten: tuple[TopicPartition, ...] = ()


class FetchedPart(NamedTuple):
    """A partition's part of the answer. leader, leader_epoch: who leads, with code 6, 74 and 75, as far as known."""

    place: TopicPartition
    code: int = ErrorCode.NONE
    high_watermark: int = -1
    start: int = 0
    diverging: tuple[int, int] | None = None
    records: Records = b""
    leader: int = NOBODY
    leader_epoch: int = NO_EPOCH


class FetchAnswer(NamedTuple):
    """code: of the whole answer; 0 if there are parts to look at."""

    code: int = 0
    session: int = 0
    parts: tuple[FetchedPart, ...] = ()
