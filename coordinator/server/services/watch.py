"""Who watches which group, and what they have not read yet: the latest state, and every rebalance up to a bound."""

import asyncio
from collections import deque

from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.errors import NodeShuttingDown

MAX_REBALANCES = 100
"""Rebalances kept for a watcher that does not read; older ones are counted as skipped."""


class GroupWatcher:
    """One watcher's unread notices.

    Mere changes of state coalesce: only the latest is kept. Notices of a rebalance (decided or settled) are kept in
    order; when there are too many the oldest go, and the next notice says how many.
    """

    def __init__(self, max_rebalances: int = MAX_REBALANCES) -> None:
        self._unread: deque[GroupChanged] = deque()
        self._max_rebalances = max_rebalances
        self._rebalances = 0
        self._skipped = 0
        self._closed = False
        self._nudged = False
        self._news = asyncio.Event()

    def put(self, notice: GroupChanged) -> None:
        if self._unread and not is_rebalance_notice(self._unread[-1]):
            self._unread.pop()
        self._unread.append(notice)
        if is_rebalance_notice(notice):
            self._rebalances += 1
            if self._rebalances > self._max_rebalances:
                self._drop_oldest()
        self._news.set()

    def nudge(self) -> None:
        """The group was looked at: how it gets on may be different."""
        self._nudged = True
        self._news.set()

    async def get(self) -> tuple[GroupChanged | None, int]:
        """Wait for the next notice; with it comes how many rebalances were skipped before it. None: a nudge.

        Raises Draining when the node shuts down and everything has been read.
        """
        while not self._unread:
            if self._closed:
                raise NodeShuttingDown
            if self._nudged:
                self._nudged = False
                return None, 0
            self._news.clear()
            await self._news.wait()
        notice = self._unread.popleft()
        self._rebalances -= is_rebalance_notice(notice)
        skipped, self._skipped = self._skipped, 0
        return notice, skipped

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def _drop_oldest(self) -> None:
        """The queue's head is a rebalance: only its last entry may be a mere change of state."""
        self._unread.popleft()
        self._rebalances -= 1
        self._skipped += 1


class GroupWatchers:
    """All watchers of a node, by group."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_group: dict[str, set[GroupWatcher]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count >= self._limit

    def add(self, group_id: str) -> GroupWatcher:
        watcher = GroupWatcher()
        self._by_group.setdefault(group_id, set()).add(watcher)
        self._count += 1
        return watcher

    def remove(self, group_id: str, watcher: GroupWatcher) -> None:
        watchers = self._by_group[group_id]
        watchers.remove(watcher)
        self._count -= 1
        if not watchers:
            del self._by_group[group_id]

    def close(self) -> None:
        """End every watch once it has read what is there."""
        for watchers in self._by_group.values():
            for watcher in watchers:
                watcher.close()

    def publish(self, notice: GroupChanged) -> None:
        for watcher in self._by_group.get(notice.group_id, ()):
            watcher.put(notice)

    def looked_at(self, group_id: str) -> None:
        """A sample of the group was taken."""
        for watcher in self._by_group.get(group_id, ()):
            watcher.nudge()


def is_rebalance_notice(notice: GroupChanged) -> bool:
    return notice.entry is not None
