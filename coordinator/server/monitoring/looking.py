"""A look at a group's positions and the ends of its logs, of one moment and a slice for a turn of the loop.

The end of a log and what is committed there are read in the same piece: nothing happens in between.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.history import Place
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.runtime.slot import ShardCore, ShardStatus
from muster.coordinator.server.driver.breath import LoopSlice

PARTITIONS_PER_SLICE = 500
"""Partitions that are looked at in one piece."""


class ObservedShards(Protocol):
    """What is looked at of the engine."""

    @property
    def shards(self) -> int: ...

    def status(self, shard: int, /) -> ShardStatus: ...

    def core(self, shard: int, /) -> ShardCore | None: ...


class PositionSlice(NamedTuple):
    places: list[Place]
    stored: list[StoredOffset | None]
    """None: nothing is committed there."""
    ends: list[int]
    """-1: there is no such log, or it is away."""


AwaitEnds: TypeAlias = Callable[[Sequence[Place]], Awaitable[None]]


class PositionReader:
    """`ends` gives the log ends of partitions (-1: none to be had); `ahead` waits until they are known, where
    others are to say."""

    def __init__(
        self, engine: ObservedShards, ends: Callable[[Sequence[Place]], list[int]], ahead: AwaitEnds | None = None
    ) -> None:
        self._engine = engine
        self._ends = ends
        self._ahead = ahead

    @property
    def shards(self) -> int:
        return self._engine.shards

    def status(self, group_id: str) -> ShardStatus:
        """Of the group's shard."""
        return self._engine.status(partition_for(group_id, self._engine.shards))

    def of_group(self, group_id: str) -> Shard | None:
        return self.active(partition_for(group_id, self._engine.shards))

    def active(self, shard: int) -> Shard | None:
        """The shard, if it is served."""
        core = self._engine.core(shard) if self._engine.status(shard) is ShardStatus.ACTIVE else None
        return core if isinstance(core, Shard) else None

    def stored(self, group_id: str) -> Mapping[Place, StoredOffset]:
        """What the group has committed; nothing while its shard is away."""
        shard = self.of_group(group_id)
        return {} if shard is None else shard.state.offsets.get(group_id, {})

    async def pieces(
        self, group_id: str, breath: LoopSlice, places: Iterable[Place] | None = None
    ) -> AsyncIterator[PositionSlice]:
        """These places, or all where the group has committed. Others have their turns between the pieces."""
        wanted = iter(list(self.stored(group_id)) if places is None else places)
        while piece := list(islice(wanted, PARTITIONS_PER_SLICE)):
            if self._ahead is not None:
                await self._ahead(piece)
            # What is committed is looked up anew: the group may have gone meanwhile, and its shard, too.
            stored = self.stored(group_id)
            if places is None:
                piece = [place for place in piece if place in stored]
            yield PositionSlice(piece, [stored.get(place) for place in piece], self._ends(piece))
            await breath.take()
