"""The load of a group's partitions, measured for its balance (`MeasureLoad`): ends and commits of one moment.

Imported when the first group asks. A node measures so many partitions; where there are more, the largest groups are
refused, which is said in the log and to the group.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import structlog

from muster.assignors.api import AssignorError
from muster.assignors.registry import resolve
from muster.coordinator.core.control.balance.weighing import LAG_STICKY, accepts_loads
from muster.coordinator.core.model.core_events import LoadMeasured
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.plan import plugins, wants_lags
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.history import MAX_GROUPS, MAX_PARTITIONS, Place, admit_groups
from muster.coordinator.server.driver.breath import LoopSlice
from muster.coordinator.server.monitoring.looking import AwaitEnds, ObservedShards, PositionReader, PositionSlice

UNKNOWN = -1

Weighing: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Plugins, and the options of each."""

log = structlog.get_logger("muster.balance")


class LoadMeter:
    """`ends` gives the log ends of partitions (-1: none to be had), `ahead` waits until they are known."""

    def __init__(
        self,
        engine: ObservedShards,
        ends: Callable[[Sequence[Place]], list[int]],
        clock_ms: Callable[[], int],
        ahead: AwaitEnds | None = None,
    ) -> None:
        self._looking = PositionReader(engine, ends, ahead)
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
    rows = zip(piece.places, piece.ends, piece.stored, strict=True)
    for topic, same in groupby(rows, lambda row: row[0][0]):
        found = list(same)
        committed = tuple(UNKNOWN if stored is None else stored.offset for _, _, stored in found)
        yield topic, found[0][0][1], tuple(end for _, end, _ in found), committed
