"""A new leader asks those whose leases may still hold whether they have let go (CL-G5)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.replication.io.wire.links import LinkSettings, NodeLinks
from muster.coordinator.replication.io.wire.reaching import LinkError, LinkRefused, probe_refusals
from muster.coordinator.replication.io.wire.words import EpochEnd, EpochQuery
from muster.coordinator.replication.protocol.facts import TopicPartition

PAUSE_S: Final = 0.1
PATIENCE_S: Final = 1.0

LedUnits: TypeAlias = tuple[TopicPartition, int]
"""A unit that this node leads, and in which epoch."""

UnitsToAsk: TypeAlias = Mapping[int, Sequence[LedUnits]]
"""By node, what it may still believe to lead."""


class LeaseQuestions:
    """One question at a time to each node, for all units that wait for it, until none does any more."""

    def __init__(
        self,
        calling: LinkSettings,
        address_of: Callable[[int], Address | None],
        *,
        wanted: Callable[[], UnitsToAsk],
        let_go: Callable[[int, Iterable[LedUnits]], None],
        on_refusal: bool,
        now_ms: Callable[[], int],
        failed: TaskFailed,
    ) -> None:
        """address_of: where a node's door is, or was last. on_refusal: `broker.eviction.on.refusal`."""
        self._links = NodeLinks(calling, address_of)
        self._address_of = address_of
        self._wanted = wanted
        self._let_go = let_go
        self._on_refusal = on_refusal
        self._now_ms = now_ms
        self._tasks = SupervisedTasks(failed)
        self._asked: set[int] = set()

    def soon(self) -> None:
        """Somebody has to be asked, maybe."""
        for node in self._wanted().keys() - self._asked:
            self._asked.add(node)
            self._tasks.start(self._ask(node))

    async def stop(self) -> None:
        self._tasks.stop()
        await self._tasks.ended()
        self._links.close()

    async def _ask(self, node: int) -> None:
        try:
            while units := self._wanted().get(node):
                try:
                    link = await self._links.to(node)
                    asked = [EpochQuery(*unit, epoch, epoch) for unit, epoch in units]
                    ends = await link.epochs(asked, deadline_s=PATIENCE_S)
                except LinkRefused:
                    if await self._is_gone(node):
                        self._let_go(node, units)
                except LinkError:
                    pass  # silence says nothing
                else:
                    self._let_go(node, released_units(units, ends))
                await asyncio.sleep(PAUSE_S)
        finally:
            self._asked.discard(node)

    async def _is_gone(self, node: int) -> bool:
        address = self._address_of(node)
        return self._on_refusal and address is not None and bool(await probe_refusals(address, self._now_ms))


def released_units(units: Sequence[LedUnits], ends: Iterable[EpochEnd]) -> list[LedUnits]:
    """Who leads no more says so with the epoch it was asked by (CL-L9)."""
    told = {
        (TopicPartition(end.topic, end.partition), end.epoch)
        for end in ends
        if end.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    }
    return [led for led in units if led in told]
