"""A KIP-848 group. All of it is hard state, changed by records only; timers are the runtime's."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from coordinator.core.consumer.records import ClassicSide, Epochs, RegexStored, Shares, TopicId

LEAVING = -1
AWAY = -2
"""The epoch of a static member that left for a while."""


class MemberState(IntEnum):
    """Kafka's state byte."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ConsumerGroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)

    @property
    def holds(self) -> dict[TopicId, frozenset[int]]:
        """What it may be working on: assigned, or not yet known to be given up."""
        return union(self.assigned, self.revoking)


@dataclass(slots=True)
class ConsumerGroup:
    id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Shares] = field(default_factory=dict)
    regexes: dict[str, RegexStored] = field(default_factory=dict)
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    """topic -> partition -> the member that holds it, pending revocation included"""

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        settled = all(
            member.state is MemberState.STABLE and member.epoch in (self.target_epoch, AWAY)
            for member in self.members.values()
        )
        return ConsumerGroupState.STABLE if settled else ConsumerGroupState.RECONCILING

    def owner(self, topic: TopicId, partition: int) -> str | None:
        return self.owners.get(topic, {}).get(partition)

    def target_of(self, member: ConsumerMember) -> Shares:
        return self.targets.get(member.id, {})

    def subscribed_names(self, member: ConsumerMember) -> frozenset[str]:
        """Names, and what the regular expression stands for so far."""
        if not member.topic_regex or member.topic_regex not in self.regexes:
            return member.topic_names
        return member.topic_names.union(self.regexes[member.topic_regex].topics)

    def hold(self, member_id: str, epochs: Epochs) -> None:
        """The member holds these from now on, whoever held them before (KAFKA-19862)."""
        for topic, partitions in epochs.items():
            row = self.owners.setdefault(topic, {})
            for partition in partitions:
                row[partition] = member_id

    def let_go(self, member_id: str, held: Shares) -> None:
        for topic, partition in cells(held):
            row = self.owners.get(topic, {})
            if row.get(partition) == member_id:
                del row[partition]


def union(one: Epochs, other: Epochs) -> dict[TopicId, frozenset[int]]:
    return {
        topic: frozenset(one.get(topic, {})) | frozenset(other.get(topic, {})) for topic in one.keys() | other.keys()
    }


def cells(shares: Shares) -> Iterator[tuple[TopicId, int]]:
    for topic, partitions in shares.items():
        for partition in partitions:
            yield topic, partition


def shares(epochs: Epochs) -> dict[TopicId, frozenset[int]]:
    return {topic: frozenset(partitions) for topic, partitions in epochs.items() if partitions}
