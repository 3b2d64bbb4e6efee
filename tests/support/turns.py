"""Whether a long request lets others have their turn."""

import asyncio
from collections.abc import Awaitable
from typing import Any


async def turns_of_others(request: Awaitable[Any]) -> int:
    """How often somebody else had a turn while the request was worked on."""
    turns = 0

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(somebody_else())
    await request
    other.cancel()
    return turns
