"""What an assignor receives and returns: plain values, no clients, clocks or configuration.

A `Snapshot` is everything a decision depends on, so the same snapshot always gives the same
assignment, and a snapshot kept in the ledger can be decided again years later.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from muster.assignors.data import values
from muster.assignors.data.values import JsonValue as JsonValue
from muster.assignors.data.values import Member as Member
from muster.assignors.data.values import TopicPartition as TopicPartition
from muster.assignors.data.values import in_java_order, in_kafka_order

if TYPE_CHECKING:
    from muster.assignors.data.columns import SnapshotColumns

MAX_PARTITIONS = 10_000_000  # of one snapshot, all topics together
MAX_MEMBERS = 100_000

# Below this many partitions plain Python is faster than numpy's fixed cost. Both ways give the same plan:
# tests/property/assignors/test_assignor_properties.py.
FAST_FROM = 400


class RebalanceProtocol(enum.Enum):
    """How members hand partitions over (KIP-429)."""

    EAGER = "eager"
    """All members release all partitions, then all are assigned."""
    COOPERATIVE = "cooperative"
    """Members release only partitions that move, which are assigned in the next round."""


class AssignorError(ValueError):
    """An assignor failed, or returned an invalid plan; names the assignor and the problem.

    `trace` is the traceback of what a plugin raised, as text for a log; empty where there is none.
    """

    def __init__(self, assignor: str, problem: str, trace: str = "") -> None:
        super().__init__(f"assignor {assignor!r}: {problem}")
        self.assignor = assignor
        self.problem = problem
        self.trace = trace


@dataclass(frozen=True)
class Snapshot:
    """Everything that a plan depends on.

    `topics` maps each topic to its number of partitions, `lags` to the lag of each partition, `racks` to the racks of
    each partition's replicas. `stale` has the partitions, by topic, whose log ends did not arrive in time: their lag
    is an older one. `lags` is None where some partitions have none at all. Iterating yields every (topic, partition)
    that some member subscribes to.

    >>> group = Snapshot({"t": 2, "unread": 5}, [Member("a", ("t",))])
    >>> list(group)
    [('t', 0), ('t', 1)]
    >>> group.subscribers("t")
    ['a']
    """

    topics: Mapping[str, int]
    members: Sequence[Member]
    lags: Mapping[str, Sequence[int]] | None = None
    racks: Mapping[str, Sequence[Sequence[str]]] | None = None
    assignor: str = ""
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    stale: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.members) > MAX_MEMBERS:
            raise ValueError(
                f"a snapshot of {len(self.members)} members is too large; at most {MAX_MEMBERS} are allowed"
            )
        partitions = sum(self.topics.values())
        if partitions > MAX_PARTITIONS:
            raise ValueError(
                f"a snapshot of {partitions} partitions is too large; at most {MAX_PARTITIONS} are allowed"
            )

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic in self.subscribed_topics():
            for partition in range(self.topics[topic]):
                yield topic, partition

    def subscribed_topics(self) -> list[str]:
        """Return the topics that exist, have partitions and have a subscriber, in Java's string order."""
        return list(self._subscribed)

    def ordered_members(self) -> list[Member]:
        """Return members in Kafka's order: static ones by instance id, then dynamic ones by member id."""
        return list(self._ordered)

    def subscribers(self, topic: str) -> list[str]:
        """Return the ids of the members that subscribe to `topic`, in Kafka's order."""
        return [member.id for member in self.ordered_members() if topic in member.topics]

    def partitions(self, topic: str) -> range:
        """Return the partition numbers of `topic`; empty when it does not exist."""
        return range(self.topics.get(topic, 0))

    @property
    def size(self) -> int:
        """The number of partitions of all topics."""
        return sum(self.topics.values())

    @property
    def large(self) -> bool:
        """Whether arrays are worth their fixed cost: below some hundred partitions plain Python is faster."""
        return self.size >= FAST_FROM

    @cached_property
    def columns(self) -> SnapshotColumns:
        """The snapshot as integer arrays, for vectorised assignors; computed once."""
        from muster.assignors.data.columns import columns_of

        return columns_of(self)

    @cached_property
    def _subscribed(self) -> list[str]:
        wanted = set().union(*{member.topics for member in self.members})
        return in_java_order(topic for topic in wanted if self.topics.get(topic, 0) > 0)

    @cached_property
    def _ordered(self) -> list[Member]:
        return in_kafka_order(self.members)

    @cached_property
    def held(self) -> Mapping[str, Sequence[int]]:
        """The rightful owner of each partition, {topic: owners}, as indices into `ordered_members()`; -1: unowned.

        Computed once. Topics that no member claims are left out.
        """
        return values.owner_table(self.topics, self._ordered)

    def owners(self) -> dict[TopicPartition, str]:
        """Return the rightful owners: the newest generation wins, and a tie at the top leaves a partition unowned
        (KAFKA-13419).
        """
        return values.rightful_owners(self.topics, self.members)

    def to_json(self) -> str:
        """Encode this snapshot as one JSON object; `from_json` restores an equal one."""
        from muster.assignors.data import snapshot_json

        return snapshot_json.encode_snapshot_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Snapshot:
        """Parse what `to_json` or a person wrote; ValueError names the field that is wrong."""
        from muster.assignors.data import snapshot_json

        return cls(**snapshot_json.decode_snapshot_json(text))


@dataclass(frozen=True)
class Assignment:
    """A plan: which member gets which partitions.

    `members` holds every member, including those without partitions; partitions are sorted. `withheld` partitions
    have a new owner that gets them in the next round, once the old one has released them. `unassigned` partitions
    found no owner within the limits of the options. `note` is the assignor's own one-line reason.
    """

    members: Mapping[str, Mapping[str, Sequence[int]]]
    withheld: Sequence[TopicPartition] = ()
    unassigned: Sequence[TopicPartition] = ()
    note: str = ""

    def to_dict(self) -> dict[str, dict[str, list[int]]]:
        """Return plain dicts and lists, ready for JSON; topics without partitions are left out."""
        return {
            member: {topic: list(partitions) for topic, partitions in share.items() if len(partitions)}
            for member, share in self.members.items()
        }


Plan: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]


@runtime_checkable
class Assignor(Protocol):
    """The contract of a plugin. `assign` is pure: the same snapshot gives the same answer, under any hash seed.

    It returns {member: {topic: partitions}}, where members without partitions may be left out, or an `Assignment`.
    The caller, `muster.assignors.run.run`, checks the answer and withholds what a cooperative member must release
    first.
    """

    @property
    def name(self) -> str:
        """The name by which members ask for it, and which the ledger records."""
        ...

    @property
    def protocol(self) -> RebalanceProtocol:
        """How its plans take effect."""
        ...

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        """Assign every subscribed partition to one of its subscribers."""
        ...
