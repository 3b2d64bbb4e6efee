"""Reads a group's positions and the ends of its logs in slices, and measures its load for the balance (`MeasureLoad`).

The end of a log and what is committed there are read in the same slice, so that both are of one moment. A node
measures so many partitions; past that the largest groups are refused, which the log and the group say.

Imported when the first group asks for its load, or a setting samples groups.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import NamedTuple, Protocol, TypeAlias

import structlog

from muster.assignors.api import AssignorError, TopicPartition
from muster.assignors.data.values import reading_position
from muster.assignors.registry import resolve
from muster.coordinator.core.control.balance.group_balance import LAG_STICKY, accepts_loads
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.events import LoadMeasured
from muster.coordinator.core.model.plan import plugins, wants_lags
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.group_history import MAX_GROUPS, MAX_PARTITIONS, admit_groups
from muster.coordinator.runtime.shards import ShardCore, ShardStatus, partition_for
from muster.long_work import LoopSlice

# Positions and ends
# ------------------

PARTITIONS_PER_SLICE = 500
"""Partitions that are looked at in one piece."""


class ObservedShards(Protocol):
    """What is looked at of the engine."""

    @property
    def shards(self) -> int: ...

    def status(self, shard: int, /) -> ShardStatus: ...

    def core(self, shard: int, /) -> ShardCore | None: ...


class PositionSlice(NamedTuple):
    places: list[TopicPartition]
    stored: list[StoredOffset | None]
    """None: nothing is committed there."""
    positions: list[int]
    """Where the group goes on reading (`reading_position`); -1 where nothing is committed and the log is away."""
    ends: list[int]
    """-1: there is no such log, or it is away."""


AwaitEnds: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[None]]


class LogExtents(Protocol):
    """Where the node's logs begin and end, as a `RecordLog` answers it: -1 where that is not known."""

    @property
    def ahead(self) -> AwaitEnds | None:
        """Waits until both are known, where other nodes have them."""

    def ends(self, places: Iterable[TopicPartition], /) -> list[int]: ...

    def starts(self, places: Iterable[TopicPartition], /) -> list[int]: ...


class PositionReader:
    """Reads positions of groups, and the extents of `logs`, in slices."""

    def __init__(self, engine: ObservedShards, logs: LogExtents) -> None:
        self._engine = engine
        self._logs = logs

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

    def stored(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        """What the group has committed; nothing while its shard is away."""
        shard = self.of_group(group_id)
        return {} if shard is None else shard.state.offsets.get(group_id, {})

    def commits(self, group_id: str) -> int:
        """How many positions of the group were committed since its shard was loaded."""
        shard = self.of_group(group_id)
        return 0 if shard is None else shard.state.commit_counts.get(group_id, 0)

    def has_members(self, group_id: str) -> bool:
        """Whether the group has members now, wherever these meet."""
        shard = self.of_group(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        return group is not None and bool(group.members)

    async def pieces(
        self, group_id: str, breath: LoopSlice, places: Iterable[TopicPartition] | None = None
    ) -> AsyncIterator[PositionSlice]:
        """These places, or all where the group has committed. Others have their turns between the pieces."""
        wanted = iter(list(self.stored(group_id)) if places is None else places)
        while piece := list(islice(wanted, PARTITIONS_PER_SLICE)):
            if (ahead := self._logs.ahead) is not None:
                await ahead(piece)
            # What is committed is looked up anew: the group may have gone meanwhile, and its shard, too.
            stored = self.stored(group_id)
            if places is None:
                piece = [place for place in piece if place in stored]
            found = [stored.get(place) for place in piece]
            positions = [
                reading_position(None if each is None else each.offset, start)
                for each, start in zip(found, self._logs.starts(piece), strict=True)
            ]
            yield PositionSlice(piece, found, positions, self._logs.ends(piece))
            await breath.yield_if_used()


# Loads
# -----

UNKNOWN = -1

Weighing: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Plugins, and the options of each."""

log = structlog.get_logger("muster.balance")


class LoadMeter:
    """Measures groups by the extents of `logs`."""

    def __init__(self, engine: ObservedShards, logs: LogExtents, clock_ms: Callable[[], int]) -> None:
        self._looking = PositionReader(engine, logs)
        self._clock_ms = clock_ms
        self._refused: frozenset[str] = frozenset()
        self._weighing: Weighing | None = None

    async def pieces(self, asked: MeasureLoad) -> AsyncIterator[LoadMeasured]:
        """The answer, a piece for a turn of the loop."""
        group_id, serial = asked.group_id, asked.serial
        if group_id in self._without_room():
            why = (
                f"a node measures the load of {MAX_GROUPS} groups and {MAX_PARTITIONS} partitions for their balance, "
                "and this is one of the largest of more"
            )
            yield LoadMeasured(group_id, serial, at_ms=self._clock_ms(), last=True, refused=why)
            return
        if self._weighing is None:
            words = dict.fromkeys(word for core in self._cores() for word in plugins(core.state.limits))
            self._weighing = await asyncio.to_thread(find_load_plugins, words)
        places = ((topic, partition) for topic, count in asked.topics.items() for partition in range(count))
        async for piece in self._looking.pieces(group_id, LoopSlice(), places):
            yield LoadMeasured(group_id, serial, tuple(consecutive_rows(piece)), self._clock_ms())
        yield LoadMeasured(group_id, serial, at_ms=self._clock_ms(), last=True, weighing=self._weighing)

    def _without_room(self) -> frozenset[str]:
        """Groups that are not measured; the log is told when there are others than before."""
        sizes = self._sizes()
        room = admit_groups(list(sizes.values()))
        refused = frozenset(group_id for group_id, has in zip(sizes, room.tolist(), strict=True) if not has)
        if refused != self._refused:
            self._refused = refused
            partitions = sum(sizes[group_id] for group_id in refused)
            notice = (
                f"{len(refused)} of the largest groups with {partitions} partitions are not balanced: a node measures "
                f"{MAX_GROUPS} groups and {MAX_PARTITIONS} partitions"
                if refused
                else "there is room for all groups again"
            )
            log.warning("balance of groups", notice=notice, groups=sorted(refused)[:10])
        return refused

    def _sizes(self) -> dict[str, int]:
        """How many partitions each group reads whose balance is on, refused or not."""
        return {group_id: size for shard in self._cores() for group_id, size in count_read_partitions(shard)}

    def _cores(self) -> Iterator[Shard]:
        for number in range(self._looking.shards):
            if (shard := self._looking.active(number)) is not None and shard.state.balancing:
                yield shard


def find_load_plugins(words: Iterable[str]) -> Weighing:
    """Which of these plugins take loads. For a thread: what is looked up is imported. So is what plans instead of those
    that take none, or the first plan would import it in the middle of a turn."""
    resolve(LAG_STICKY)
    found: list[tuple[str, tuple[str, ...]]] = []
    for word in words:
        try:
            options = tuple(getattr(resolve(word), "options", ()))
        except AssignorError:
            continue  # Whoever has it plan is told.
        if accepts_loads(wants_lags(word), options):
            found.append((word, options))
    return tuple(found)


def count_read_partitions(shard: Shard) -> Iterable[tuple[str, int]]:
    return [(group_id, balancing.partitions) for group_id, balancing in shard.state.balancing.items()]


def consecutive_rows(piece: PositionSlice) -> Iterator[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
    """Partitions that follow one another, topic by topic."""
    rows = zip(piece.places, piece.ends, piece.stored, piece.positions, strict=True)
    for topic, same in groupby(rows, lambda row: row[0][0]):
        found = list(same)
        positions = tuple(UNKNOWN if stored is None else position for _, _, stored, position in found)
        yield topic, found[0][0][1], tuple(end for _, end, _, _ in found), positions
