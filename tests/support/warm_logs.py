"""A group log in memory whose halves can be followed as they grow."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.coordinator.runtime.ports import LogDamage, Read
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from tests.fakes.memory_group_log import MemoryGroupLog, MemoryPartition


@dataclass(eq=False)
class MemoryTail:
    """`Tail`: what lies below `committed` counts as committed; `cut` was cut below what it has given."""

    part: MemoryPartition
    portion: int = 3
    committed: int = 0
    at: int = 0
    cut: bool = False
    damage: list[LogDamage] = field(default_factory=list)

    @property
    def behind(self) -> bool:
        return self.at < self.committed

    def more(self, *, committed: bool) -> Iterator[Read | LogDamage] | None:
        items = list(self.part.read())
        some = items[self.at : min(self.at + self.portion, self.committed if committed else len(items))]
        self.at += len(some)
        found, self.damage = [*self.damage, *some], []
        return iter(found) if found else None

    def stands(self) -> bool:
        return not self.cut


class FollowedLog(MemoryGroupLog):
    """`tails`: those of each shard, its groups' first."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.tails: dict[int, list[MemoryTail]] = {}

    def tail(self, topic: str, shard: int) -> MemoryTail:
        part = (self.groups if topic == GROUPS_TOPIC else self.ledger)[shard]
        tail = MemoryTail(part)
        self.tails.setdefault(shard, []).append(tail)
        return tail

    def commit(self, shard: int = 0) -> None:
        for tail in self.tails[shard]:
            tail.committed = tail.part.end_offset
