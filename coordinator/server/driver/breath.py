"""Long work on the event loop, in slices: after a millisecond others have their turn."""

import asyncio
from time import perf_counter

SLICE_S = 0.001
"""How long one goes on before others have their turn; what is under way then comes on top."""


class LoopSlice:
    """Of one piece of work. It begins now."""

    def __init__(self) -> None:
        self._began_s = perf_counter()

    async def take(self) -> None:
        """Give others their turn where this one has had its time."""
        if perf_counter() - self._began_s >= SLICE_S:
            await asyncio.sleep(0)
            self._began_s = perf_counter()
