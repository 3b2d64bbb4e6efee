"""What refused requests took goes back to the system: nobody will ask for it again soon."""

import asyncio

from muster.coordinator.edge.allocator import release_free_memory
from muster.coordinator.edge.limits import LARGE_BYTES

PAUSE_S = 1.0
"""A stranger who is refused again and again has it done once in so long."""


class RefusedRequestMemory:
    """Counts the bytes of refused requests; one per node. It belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._due = False

    def refused(self, size: int) -> None:
        """A request of `size` bytes was refused: once its memory is free, the system has it back."""
        if size < LARGE_BYTES or self._due:
            return
        self._due = True
        asyncio.get_running_loop().call_later(PAUSE_S, self._give_back)

    def _give_back(self) -> None:
        self._due = False
        asyncio.get_running_loop().run_in_executor(None, release_free_memory)
