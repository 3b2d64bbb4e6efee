"""Long requests about many topics, a piece at a time: whoever else the node serves has turns in between."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 500
"""What takes microseconds each is done so often before others have their turn."""

TURN = 10
"""What is done of one request before others have their turn: each may be a file that is made or removed."""


async def map_off_loop(each: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The same in a thread, for what waits for the disk."""
    todo, results = list(items), list[Result]()
    for start in range(0, len(todo), TURN):
        results += await asyncio.to_thread(lambda some: [each(item) for item in some], todo[start : start + TURN])
    return results


async def map_here_or_off_loop(
    each: Callable[[Item], Result], items: Iterable[Item], takes_no_time: Callable[[Item], bool]
) -> list[Result]:
    """What `each` makes of every item, in order: here where that takes no time, in a thread where it may."""
    todo = list(items)
    off = iter(await map_off_loop(each, [item for item in todo if not takes_no_time(item)]))
    results = []
    for number, item in enumerate(todo, 1):
        results.append(each(item) if takes_no_time(item) else next(off))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return results


async def map_in_turns(each: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `each` makes of every item, in order."""
    results = []
    for number, item in enumerate(items, 1):
        results.append(each(item))
        if number % TURN == 0:
            await asyncio.sleep(0)
    return results


class RowPacer:
    """Of one long answer: after every few hundred rows others have their turn."""

    def __init__(self) -> None:
        self.made = 0

    async def of(self, rows: Iterable[Item]) -> list[Item]:
        """All of them, in order; they are made as they are taken."""
        found = []
        for row in rows:
            found.append(row)
            self.made += 1
            if self.made % AT_ONCE == 0:
                await asyncio.sleep(0)
        return found
