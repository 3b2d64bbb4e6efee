"""All shards are one node's: it has them as long as nobody else writes to them.

It stands where the nodes' group of several does. Nobody deals its shards to others, so its lease has no end; who fences
it has the shard. Until it is fenced it does not know of a second process, and what it reads to clients is what it knew.
"""

import asyncio
from contextlib import suppress
from typing import Final

from muster.coordinator.engine.owning import Owning
from muster.coordinator.ownership import events as ev
from muster.coordinator.ownership.deal import Deal, NodeDealt
from muster.coordinator.ownership.ground import Settings

FOR_EVER: Final = 1 << 60
"""A moment behind all others."""

TOKEN: Final = 1
"""Of the one time that shards are given up."""


class Alone:
    def __init__(self, owning: Owning, settings: Settings, shards: int) -> None:
        self._owning = owning
        self._settings = settings
        self._shards = shards
        self._mine = frozenset(range(shards))
        self._let_go = asyncio.Event()
        owning.on_let_go = lambda token: self._let_go.set()

    def start(self) -> None:
        """Take all shards."""
        self._owning.step(ev.Share(self._mine, self._deal()))
        self._owning.step(ev.Synced(FOR_EVER))

    def fenced(self, shard: int) -> None:
        """Somebody else writes this shard: it is his, and not taken again."""
        self._mine -= {shard}
        self._owning.step(ev.Share(self._mine, self._deal()))

    async def drain(self, timeout_ms: int) -> None:
        """F8: no new requests from here on; return once all that was decided is acknowledged, or after so long."""
        self._owning.step(ev.Revoke(TOKEN, self._mine, self._owning.now_ms() + timeout_ms))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1_000 + 1):
                await self._let_go.wait()

    @property
    def mine(self) -> frozenset[int]:
        return self._mine

    def _deal(self) -> Deal:
        given = self._settings
        addresses = {door: at for door, at in (("grpc", given.address), ("kafka", given.kafka)) if at}
        me = NodeDealt(given.node, given.instance, addresses, tuple(sorted(self._mine)))
        return Deal(self._shards, {given.node: me})
