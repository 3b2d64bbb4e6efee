"""What a node that stops waits for: that those who lead its shards now have asked whether it has let go (CL-G5a).

They may answer as soon as they know. By refused connections they would know it, too (CL-G5b), but only after some: it
is a fifth of a second in which nobody hears from the coordinator of a group.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from muster.coordinator.replication.protocol.facts import NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.image import ClusterImage

WITHIN_S: Final = 0.5


class ShutdownRelease:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._untold: set[TopicPartition] = set()
        self._given = asyncio.Event()

    def owes(self, units: Iterable[TopicPartition]) -> None:
        """It leads these, and is about to stop."""
        self._untold.update(units)

    def told(self, unit: TopicPartition) -> None:
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
