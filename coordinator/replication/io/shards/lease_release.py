"""How a new leader learns early that a former one has let go of its lease (CL-G5a, CL-G5b).

A new leader asks the nodes whose leases may still hold, one question at a time to each, for all units that wait for
it. A node that stops waits until the new leaders of its shards have asked. By refused connections they would learn
it, too (CL-G5b), but only after several: a fifth of a second in which no member hears from its coordinator.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import EpochEnd, EpochQuery
from muster.coordinator.replication.io.wire.node_links import (
    LinkError,
    LinkRefused,
    LinkSettings,
    NodeLinks,
    probe_refusals,
)
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, ClusterImage, TopicPartition

# A new leader asks former ones
# -----------------------------

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
            self._tasks.start(self._ask_node(node))

    async def stop(self) -> None:
        self._tasks.stop()
        await self._tasks.ended()
        self._links.close()

    async def _ask_node(self, node: int) -> None:
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


# A node that stops waits to be asked
# -----------------------------------

WITHIN_S: Final = 0.5


class ShutdownRelease:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._untold: set[TopicPartition] = set()
        self._given = asyncio.Event()

    def owes(self, units: Iterable[TopicPartition]) -> None:
        """It leads these, and is about to stop."""
        self._untold.update(units)

    def confirm_release(self, unit: TopicPartition) -> None:
        """Somebody heard that this node leads the unit no more."""
        if unit in self._untold:
            self._untold.discard(unit)
            self._given.set()

    async def given(self, within_s: float = WITHIN_S) -> bool:
        """Whether all who lead a shard that was led here have asked by then; somebody leads each, or nobody can."""
        try:
            async with asyncio.timeout(within_s):
                while any(map(self._is_waited_for, self._untold)):
                    self._given.clear()
                    await self._given.wait()
        except TimeoutError:
            return False
        return True

    def _is_waited_for(self, unit: TopicPartition) -> bool:
        """By who leads it, or will as soon as this node has heard of it, too."""
        view = self._image.partition(unit)
        return view is not None and view.leader != NO_NODE_ID
