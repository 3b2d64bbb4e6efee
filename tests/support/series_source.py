"""A node to be looked at by a scrape: real shards over a log that is only numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.model.records import GroupStored, MemberRecord, OffsetsStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.group_history import PartitionRates


@dataclass
class NumbersOnly:
    """`Sight` over shards. A partition ends at `end`, unless `ended` says otherwise."""

    shards: list[Shard]
    topics: dict[str, int]
    end: int = 100
    ended: dict[tuple[str, int], int] = field(default_factory=dict)
    away: bool = False
    written: dict[str, PartitionRates] = field(default_factory=dict)

    def cores(self) -> Iterable[Shard]:
        return self.shards

    def whole(self) -> bool:
        return not self.away

    def partitions(self) -> Mapping[str, int]:
        return self.topics

    def ends(self, topic: str, partitions: range) -> list[int]:
        return [self.ended.get((topic, partition), self.end) for partition in partitions]

    def starts(self, topic: str, partitions: range) -> list[int]:
        return [0 for _ in partitions]

    def rates(self, group_id: str) -> PartitionRates | None:
        return self.written.get(group_id)

    def sizes(self, topic: str, partitions: range) -> int:
        return 1_000 * len(partitions)


def shard_with(topics: Mapping[str, int]) -> Shard:
    shard = Shard(Limits(), 0)
    shard.step(TopicsChanged(topics), 0)
    return shard


def store_group(shard: Shard, group_id: str, plan: Mapping[str, Mapping[str, tuple[int, ...]]]) -> None:
    """A classic group whose members have this: member -> topic -> partitions."""
    members = tuple(
        MemberRecord(
            member,
            None,
            "client",
            "host",
            60_000,
            10_000,
            encode_subscription(Subscription(version=1, topics=tuple(sorted(share)))),
            encode_assignment(share),
        )
        for member, share in plan.items()
    )
    shard.apply(GroupStored(group_id, "consumer", 1, "range", next(iter(plan), None), 0, members))


def commit(shard: Shard, group_id: str, offsets: Mapping[tuple[str, int], int], at_ms: int = 0) -> None:
    stored = {place: StoredOffset(offset, -1, "", at_ms) for place, offset in offsets.items()}
    shard.apply(OffsetsStored(group_id, stored))
