"""Answers that grow with the node's state: all groups, all topics, all settings, all entries.

None is made on the event loop in one piece (`muster/long_work.py`). What they are made of is read in slices, by one
reader at a time. Callers who ask for the same at the same time share one answer, so a hundred connections that list all
groups cost the node two lists and not a hundred.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from muster.coordinator.core.model.effects import DescribeConsumerReply, ListReply
from muster.coordinator.core.model.types import ListedGroup
from muster.coordinator.errors import ErrorCode
from muster.long_work import sort_in_runs

# Shared answers
# --------------

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)


class SharedAnswers(Generic[Key, Result]):
    """Makes one answer at a time, once for all callers who ask for the same before it is begun.

    Callers get the same object and must not change it.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._leaving = asyncio.Lock()
        self._asked: dict[Key, asyncio.Future[Result]] = {}

    async def get(self, key: Key, make: Callable[[], Awaitable[Result]]) -> Result:
        """What `make` returns; it is begun after this call, so the answer is no older than the question.

        Raises what `make` raises, to all who share it. When the caller that makes it is cancelled, the next one does.
        """
        while (asked := self._asked.get(key)) is not None:
            await asyncio.wait([asked])
            if not asked.cancelled():
                async with self._leaving:  # one in an iteration of the loop: to send a large answer takes time, too
                    await asyncio.sleep(0)
                return asked.result()
        mine = self._asked[key] = asyncio.get_running_loop().create_future()
        mine.add_done_callback(retrieve_error)
        try:
            async with self._turn:
                del self._asked[key]
                made = await make()
        except BaseException as error:
            if self._asked.get(key) is mine:
                del self._asked[key]
            if isinstance(error, Exception):
                mine.set_exception(error)
            else:
                mine.cancel()
            raise
        mine.set_result(made)
        return made


def retrieve_error(done: "asyncio.Future[object]") -> None:
    """Its first caller raises it; the others may all be gone."""
    if not done.cancelled():
        done.exception()


# Several groups
# --------------

MAX_GROUPS_PER_TURN = 250
"""So many of the groups that a request names are asked in one turn."""


def weigh_consumer_group(reply: DescribeConsumerReply) -> int:
    """What a KIP-848 group's description weighs, in rows: its members, and one for thirty of their partitions."""
    shares = (share for view in reply.members for share in (*view.assigned.values(), *view.target.values()))
    return len(reply.members) + sum(map(len, shares)) // 30


# All groups
# ----------


class GroupFilter(NamedTuple):
    """Which groups are wanted; empty means all (see `ListGroups`)."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class GroupLists:
    """Lists the groups of all shards, once for callers who ask for the same at the same time."""

    def __init__(self, ask: Callable[[int, GroupFilter], Awaitable[ListReply]], shards: int) -> None:
        """ask: gets one shard's groups."""
        self._ask = ask
        self._shards = shards
        self._shared: SharedAnswers[GroupFilter, list[ListReply]] = SharedAnswers()

    async def get(self, wanted: GroupFilter) -> list[ListReply]:
        """Each shard's reply."""
        return await self._shared.get(wanted, lambda: self._of_each_shard(wanted))

    async def _of_each_shard(self, wanted: GroupFilter) -> list[ListReply]:
        """One shard after the other: a shard with many groups looks at a slice of them in each turn."""
        return [await self._ask(shard, wanted) for shard in range(self._shards)]


def merge_group_lists(replies: Sequence[ListReply]) -> tuple[ListReply | None, list[ListedGroup]]:
    """All shards' groups by name. Shards that moved away are left out; the first that failed otherwise is told."""
    failed = next((reply for reply in replies if reply.code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)), None)
    return failed, sort_in_runs((group for reply in replies for group in reply.groups), lambda group: group.group_id)


def count_groups(replies: Sequence[ListReply]) -> int:
    return sum(len(reply.groups) for reply in replies)
