"""Fills a `GroupHistory` from the node's own logs and groups, every `observe.sample.ms`, a slice for a turn of the
loop.

A lag is of one moment (`looking`), and never below none. Spacing is by the node's clock, which is monotonic: a clock
that is set back changes nothing, and a stall makes one interval longer, as it was. Samples that were missed are not
made up for.

A shard that failed is loaded again soon, and its groups keep their history meanwhile; it goes with one that is
unloaded.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from muster.coordinator.observability.history.history import GroupHistory, Sample, admit_groups
from muster.coordinator.runtime.slot import ShardStatus
from muster.coordinator.server.driver.breath import LoopSlice
from muster.coordinator.server.monitoring.looking import PositionReader

log = structlog.get_logger("muster.node")


class GroupSampler:
    """`topic_ids` gives the topics there are."""

    def __init__(
        self,
        history: GroupHistory,
        looking: PositionReader,
        clock_ms: Callable[[], int],
        topic_ids: Callable[[], Mapping[str, bytes]],
        on_lag: Callable[[str], None] = lambda group_id: None,
        on_look: Callable[[str], None] = lambda group_id: None,
    ) -> None:
        """`on_lag` gets each group whose lag is not what it was at the sample before, `on_look` each that was seen."""
        self.history = history
        self._looking = looking
        self._clock_ms = clock_ms
        self._topic_ids = topic_ids
        self._on_lag = on_lag
        self._on_look = on_look
        self._notice = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sample on the running loop from now on, until `stop`."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        period_ms = self.history.sample_ms
        due_ms = self._clock_ms()
        while True:
            try:
                await self.sample()
            except Exception as error:  # The next sample may go well: no group has to do without it for good.
                log.error("a sample of the groups' lags failed", exc_info=error)
            missed = (self._clock_ms() - due_ms) // period_ms
            due_ms += (missed + 1) * period_ms
            await asyncio.sleep((due_ms - self._clock_ms()) / 1000)

    async def sample(self) -> None:
        """Look at every group once."""
        breath = LoopSlice()
        self.history.topics(self._topic_ids())
        sizes: dict[str, int] = {}
        for number in range(self._looking.shards):
            if (shard := self._looking.active(number)) is not None:
                sizes.update((group_id, len(stored)) for group_id, stored in shard.state.offsets.items() if stored)
            await breath.take()
        room = admit_groups(list(sizes.values()))
        kept = {group_id for group_id, has in zip(sizes, room, strict=True) if has}
        self._tell(len(sizes) - len(kept), sum(sizes.values()) - sum(sizes[group_id] for group_id in kept))
        self.history.forget([group_id for group_id in self.history.groups if self._gone(group_id, kept, sizes)])
        for group_id in kept:
            await self._look_at(group_id, breath)

    def _gone(self, group_id: str, kept: set[str], there: Mapping[str, int]) -> bool:
        if group_id in there:
            return group_id not in kept
        return self._looking.status(group_id) in (ShardStatus.ACTIVE, ShardStatus.UNLOADED)

    async def _look_at(self, group_id: str, breath: LoopSlice) -> None:
        before = self.history.lag(group_id)
        if stored := self._looking.stored(group_id):
            self.history.expect(group_id, len(stored))
        async for piece in self._looking.pieces(group_id, breath):
            found = [each for each in piece.stored if each is not None]
            offsets, times = [each.offset for each in found], [each.commit_timestamp_ms for each in found]
            self.history.take(group_id, Sample(piece.places, piece.ends, offsets, times), self._clock_ms())
        if self._looking.stored(group_id):
            self.history.settle(group_id, self._clock_ms())
            if self.history.lag(group_id) != before:
                self._on_lag(group_id)
            self._on_look(group_id)

    def _tell(self, groups: int, partitions: int) -> None:
        self.history.refused(groups, partitions)
        if self.history.notice != self._notice:
            self._notice = self.history.notice
            log.warning("history of groups", notice=self._notice or "there is room for all groups again")
