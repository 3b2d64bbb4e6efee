"""What a cluster consists of: nodes, topics, and the state of each unit, as ZooKeeper keeps it.

A unit is what is led as one: a partition of a topic; or a shard, which is partition i of `__consumer_offsets` and of
`__rebalances` together. A shard goes by the name of its first half.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NO_NODE_ID = -1
"""The leader of a unit that nobody leads."""

NO_EPOCH = -1

OFFSETS = "__consumer_offsets"
LEDGER = "__rebalances"
ELECTIONS = "__elections"
SECURITY = "__security"
INTERNAL = frozenset({OFFSETS, LEDGER, ELECTIONS, SECURITY})
"""Topics that only nodes write to. Others with such names are clients': monitors and connectors call theirs so."""


MIN_ISR: Final = "min.insync.replicas"
"""A setting of topics."""


def parse_number(text: str) -> int | None:
    """A number that is set for something, by the same words that the doors take; None for what is none, or takes more
    digits than Python reads: who writes to ZooKeeper writes what he likes.

    >>> parse_number("2"), parse_number(" +2"), parse_number("x"), parse_number(""), parse_number("0" * 5_000 + "1")
    (2, 2, None, None, None)
    """
    try:
        return int(text)
    except ValueError:
        return None


def parse_min_isr(configs: Mapping[str, str], default: int) -> int:
    """min.insync.replicas of a topic; default: where it says nothing, or nothing that is understood.

    >>> parse_min_isr({"min.insync.replicas": "1"}, 2), parse_min_isr({"min.insync.replicas": "?"}, 2),
    ... parse_min_isr({}, 2)
    (1, 2, 2)
    """
    text = configs.get(MIN_ISR)
    found = None if text is None else parse_number(text)
    return default if found is None else max(1, found)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def unit_of(place: TopicPartition) -> TopicPartition:
    """The unit that a partition belongs to: itself, but for the second half of a shard.

    >>> unit_of(TopicPartition("__rebalances", 7))
    TopicPartition(topic='__consumer_offsets', partition=7)
    """
    return TopicPartition(OFFSETS, place.partition) if place.topic == LEDGER else place


def halves_of(unit: TopicPartition) -> tuple[TopicPartition, ...]:
    """The partitions that a unit consists of, the one that names it first.

    >>> [str(half) for half in halves_of(TopicPartition("__consumer_offsets", 7))]
    ['__consumer_offsets-7', '__rebalances-7']
    """
    return (unit, TopicPartition(LEDGER, unit.partition)) if unit.topic == OFFSETS else (unit,)


class NodeEndpoint(NamedTuple):
    """Where a node listens: the listener's name (`PLAINTEXT`, `REPLICATION`, ...), host and port."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as it registered itself.

    epoch: the czxid of its registration; one that registers anew has a higher one. directory: 22 characters, drawn when
    its data directory was made: a new disk has another. unclean: it lost power, and holds a log that was not flushed
    record by record. session_ms: by which it leads, see `lease`; 0 where it has not said.
    """

    id: int
    epoch: int
    directory: str
    unclean: bool = False
    endpoints: tuple[NodeEndpoint, ...] = ()
    rack: str | None = None
    session_ms: int = 0


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a unit.

    leader: a node id, or NOBODY. leader_epoch: raised by one with each election, be it the same node again, and not
    when only the in-sync replicas change. partition_epoch: the version of its znode; NO_EPOCH before it is written.
    isr: in-sync replicas, in order of assignment. elr: eligible leader replicas (KIP-966): in sync no more, but with
    all that was committed. directories: by node id, the data directory a replica was in sync with; absent = unknown.
    unclean_epoch: the leader epoch of the last unclean election; NO_EPOCH if there was none. cause: what led to this.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    directories: Mapping[int, str] = field(default_factory=dict)
    controller_epoch: int = 0
    partition_epoch: int = NO_EPOCH
    unclean_epoch: int = NO_EPOCH
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Who has copies of a partition: replicas in order of preference, and who comes and goes while that changes
    (KIP-455). `replicas` has those that come, and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic as ZooKeeper has it: assignments by partition number, and what is set for it (strings, as written).

    version: of its znode when it was read; NO_EPOCH where that is not known."""

    name: str
    topic_id: bytes
    partitions: tuple[ReplicaAssignment, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = NO_EPOCH

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL
