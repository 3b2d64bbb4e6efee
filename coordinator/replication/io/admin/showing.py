"""Waiting for what a node knows of its cluster to show something."""

import asyncio
from collections.abc import Callable
from typing import Final

from muster.coordinator.replication.protocol.image import ClusterImage, ImageChanges

MOST_WAITING: Final = 10_000
"""Who waits; each is asked anew with each change of the image. The next one is not waited for."""

Shown = Callable[[], bool]


class ImageWaits:
    """learned: takes a listener that hears of each change of the image (`ClusterSide.on_learned`)."""

    def __init__(self, image: ClusterImage, learned: Callable[[Callable[[ImageChanges], None]], None]) -> None:
        self.image = image
        self._waiting: dict[asyncio.Future[None], Shown] = {}
        learned(self._look)

    async def until(self, shown: Shown, deadline_s: float) -> bool:
        """Whether the image shows it by this moment of the loop's clock."""
        if shown():
            return True
        if len(self._waiting) >= MOST_WAITING:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = shown
        try:
            async with asyncio.timeout_at(deadline_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True

    def _look(self, changes: ImageChanges) -> None:
        self.look()

    def look(self) -> None:
        """Look anew, for something beside the image that those who wait go by has changed."""
        for future, shown in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if shown():
                    future.set_result(None)
            except Exception as error:  # a mistake of who waits is not to hold up those who listen after it
                future.set_exception(error)
