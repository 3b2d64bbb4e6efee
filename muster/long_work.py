"""Work that grows with what is asked for, or with what there is: never done on the event loop in one piece.

What needs the loop is done in slices, one in each of its turns, however many have long work under way. What does not
need it is done in a thread: one makes large answers, one after the other, and another one works through large requests.
Each further one would keep the loop waiting for the interpreter's lock once more.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from heapq import merge
from itertools import islice
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 500
"""What takes microseconds each is done so often before others have their turn."""

TURN = 10
"""What waits for the disk is done so often before others have the thread."""

FEW = 10
"""What is done so often only waits for nobody else's slice."""

# Slices of long work
# -------------------

SLICE_S = 0.001
"""How long one goes on before others have their turn; what is under way then comes on top."""


class SliceQueue:
    """The pieces of long work that wait for their next slice on one loop.

    Each turn of the loop has one slice: fifty that are under way hold up the rest of the node no longer than one does.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Return in a turn of the loop in which no other one returns."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next, loop)
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its caller may be gone
                turn.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._next, loop)


QUEUES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SliceQueue]] = WeakKeyDictionary()


def slice_queue() -> SliceQueue:
    """The one of the running loop."""
    return QUEUES.setdefault(asyncio.get_running_loop(), SliceQueue())


class LoopSlice:
    """Of one piece of work. It begins now, or where others wait for theirs, when it is its turn."""

    def __init__(self) -> None:
        self._began_s = perf_counter()
        self._first = True

    async def yield_if_used(self) -> None:
        """Give others their turn where this one has had its time."""
        if perf_counter() - self._began_s >= SLICE_S or (self._first and len(slice_queue())):
            await slice_queue().wait()
            self._began_s = perf_counter()
        self._first = False


PIECE_S = 0.002
"""What is read a piece at a time takes about so long for one."""


class PieceSize:
    """How many bytes of what is read are taken in one piece: as many as the last one tells that there is time for.

    >>> size = PieceSize(1_000, 4_000)
    >>> size.note(1_000, PIECE_S / 10), size.bytes      # it took little: twice as many next time, up to the most
    (None, 2000)
    >>> size.note(2_000, 2 * PIECE_S), size.bytes
    (None, 1000)
    """

    def __init__(self, least: int = 4 << 10, most: int = 64 << 10) -> None:
        self._least, self._most = least, most
        self.bytes = least

    def note(self, size: int, took_s: float) -> None:
        fits = self._most if took_s <= 0 else int(size * PIECE_S / took_s)
        self.bytes = max(self._least, min(self._most, 2 * self.bytes, fits))


async def iterate_in_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """The same items; whoever else waits for the loop has his turn in between, unless they are few."""
    breath = LoopSlice()
    for number, item in enumerate(items, 1):
        yield item
        if number > FEW:
            await breath.yield_if_used()


# Long requests, a portion at a time
# ----------------------------------


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
    return await map_in_turns(lambda item: each(item) if takes_no_time(item) else next(off), todo)


async def map_in_turns(each: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `each` makes of every item, in order, a slice at a time."""
    return [each(item) async for item in iterate_in_turns(items)]


# Two threads
# -----------

ANSWER_THREAD = ThreadPoolExecutor(1, thread_name_prefix="muster-answers")
"""At most one request of a connection waits for it: the APIs that use it hold back what follows on their connection."""

REQUEST_THREAD = ThreadPoolExecutor(1, thread_name_prefix="muster-requests")
"""Reads large requests, judges them and answers row by row: whoever sends much does not wait for those who ask for all
that there is. At most one request of a connection waits for it."""


async def make_aside(make: Callable[[], Result], rows: int) -> Result:
    """What `make` makes of so many rows: here if they are few, otherwise in the thread for large answers.

    It may look at nothing that others change meanwhile.
    """
    return make() if rows <= AT_ONCE else await run_in_answer_thread(make)


async def run_in_answer_thread(make: Callable[[], Result]) -> Result:
    """What `make` makes of one large answer."""
    return await asyncio.get_running_loop().run_in_executor(ANSWER_THREAD, make)


async def work_through(make: Callable[[], Result], rows: int) -> Result:
    """What `make` makes of so many rows that a request has: here if they are few, otherwise in the thread for large
    requests.

    It may look at nothing that others change meanwhile.
    """
    return make() if rows <= AT_ONCE else await run_in_request_thread(make)


async def run_in_request_thread(make: Callable[[], Result]) -> Result:
    """What `make` makes of one large request."""
    return await asyncio.get_running_loop().run_in_executor(REQUEST_THREAD, make)


SORTED_AT_ONCE = 1_000
"""Items, in a millisecond: while `sorted` compares, the interpreter lets no other thread run, the loop's neither."""


def sort_in_runs(items: Iterable[Item], key: Callable[[Item], Any] | None = None) -> list[Item]:
    """As `sorted`, but other threads have their turns meanwhile; for the thread for large answers.

    >>> sort_in_runs([3, 1, 2])
    [1, 2, 3]
    """
    left = iter(items)
    runs: list[list[Any]] = []
    while run := sorted(islice(left, SORTED_AT_ONCE), key=key):  # type: ignore[type-var, arg-type]
        runs.append(run)
    return runs[0] if len(runs) == 1 else list(merge(*runs, key=key))
