"""Whether a long request lets others have their turn."""

import asyncio
from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

from muster import long_work


async def turns_of_others(request: Awaitable[Any]) -> int:
    """How often somebody else had a turn while the request was worked on, each slice of which is one piece."""
    turns = 0

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(somebody_else())
    with patch.object(long_work, "SLICE_S", 0.0):
        await request
    other.cancel()
    return turns
