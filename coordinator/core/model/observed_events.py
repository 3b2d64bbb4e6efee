"""What ZooKeeper shows of a group, as the edge saw it at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ObservedMember:
    """One znode in `ids`. `topics` are those it subscribes to, its pattern resolved; `host` is read from its id."""

    id: str
    topics: tuple[str, ...]
    pattern: str = "static"
    host: str = ""


@dataclass(frozen=True, slots=True)
class GroupObserved:
    """The group as it is now. Sent after every change, whole, so that one that was missed does no harm."""

    group_id: str
    members: tuple[ObservedMember, ...]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partition -> the member whose claim stands."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The partition counts of the topics that members subscribe to."""
    brokers: tuple[int, ...] = ()
    renewed: frozenset[TopicPartition] = frozenset()
    """Claims that went and came back since the last event."""
    gone_for_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How long ago a claim was seen to go that stood at the last event, where the watch said so; else it went now."""
    ended: frozenset[str] = frozenset()
    """Of the members that are gone since the last event: those whose claims went with them, as a session's end does."""
    was_there: bool = False
    """It was there when the node began to watch: how it came about was not seen."""


@dataclass(frozen=True, slots=True)
class GroupUnseen:
    """The group is no longer in ZooKeeper, or no longer watched."""

    group_id: str
