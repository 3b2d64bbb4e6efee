"""Looks at a node again and again. What costs calls for each group is asked of those on the screen, and some others."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from muster.cli.gather import AT_ONCE, fetch_positions, make_group
from muster.cli.picture import GroupLine, GroupsPicture, LagTrail, rebalances_in_last_hour
from muster.client.aio import AsyncAdmin
from muster.client.described import GroupDescription
from muster.client.errors import ClientError, Unreachable
from muster.coordinator.observability.doctor.facts import ExaminedGroup

OTHERS = 50
"""Groups off the screen that are looked at each time, so that all have their turn."""
LEDGER_ENTRIES = 100
LEDGER_AGE_S = 30.0
"""A ledger is read again when its group's generation is another, or after so long."""


class NodePoller:
    """Remembers what the last looks saw. All of it lives on one event loop."""

    def __init__(self, admin: AsyncAdmin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._known: dict[str, ExaminedGroup] = {}
        self._trails: dict[str, LagTrail] = {}
        self._ledgers: dict[str, tuple[int, float]] = {}
        """Group -> the generation and the moment at which its ledger was read."""
        self._turn = 0

    async def look(self, wanted: Iterable[str] | None) -> GroupsPicture:
        """`wanted`: the groups on the screen; None: every group is looked at closely. Raises ClientError."""
        status = await self._admin.node_status()
        listings = {listing.group_id: listing.group_type for listing in await self._admin.list_groups()}
        described = await self._admin.describe_groups(list(listings))
        partitions = await self._admin.list_topics(include_internal=True)
        now_ms = status.now_ms or int(time.time() * 1000)
        groups = {each.group_id: make_group(each, listings[each.group_id]) for each in described}
        for name in self._known.keys() - groups.keys():
            self._forget(name)
        close = self._chosen(list(groups), wanted)
        places = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._closely(groups[d.group_id], d, places) for d in described if d.group_id in close))
        lines = (self._line(group, partitions, now_ms) for group in groups.values())
        return GroupsPicture(now_ms, tuple(lines))

    def _chosen(self, names: list[str], wanted: Iterable[str] | None) -> set[str]:
        if wanted is None or len(names) <= OTHERS:
            return set(names)
        start = self._turn % len(names)
        self._turn = start + OTHERS
        return {*wanted, *(names + names)[start : start + OTHERS]}

    async def _closely(self, group: ExaminedGroup, described: GroupDescription, places: asyncio.Semaphore) -> None:
        """Positions, and the ledger where something may have happened. A group that went meanwhile stays as it was."""
        known = self._known.get(group.id, group)
        async with places:
            try:
                positions = await fetch_positions(self._admin, described)
                ledger = known.ledger
                generation, read_s = self._ledgers.get(group.id, (-1, 0.0))
                if generation != group.generation or self._clock() - read_s > LEDGER_AGE_S:
                    ledger = tuple(await self._admin.explain(group.id, limit=LEDGER_ENTRIES))
                    self._ledgers[group.id] = group.generation, self._clock()
            except Unreachable:
                raise
            except ClientError:
                return
        self._known[group.id] = replace(group, positions=positions, ledger=ledger)
        lag = sum(position.lag for position in positions.values())
        self._trails.setdefault(group.id, LagTrail()).add(self._clock(), lag)

    def _line(self, group: ExaminedGroup, partitions: dict[str, int], now_ms: int) -> GroupLine:
        known = self._known.get(group.id)
        if known is None:
            return GroupLine(group, partitions)
        trail = self._trails[group.id]
        merged = replace(group, positions=known.positions, ledger=known.ledger)
        lag = trail.seen[-1][1]
        return GroupLine(merged, partitions, lag, trail.trend(), trail.eta_s(), rebalances_in_last_hour(known, now_ms))

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._trails.pop(name, None)
        self._ledgers.pop(name, None)
