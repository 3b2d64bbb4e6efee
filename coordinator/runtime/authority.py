"""What the engine asks, and tells, of who decides which node speaks for a shard: a protocol without code."""

from collections.abc import Collection
from typing import Protocol


class LeaseAuthority(Protocol):
    """Who decides, and knows what of a shard's log counts. Called by the engine's thread.

    It calls back (see `LedEngine`) from within `flushed`, and from none of the others.
    """

    def may_answer(self, shard: int) -> bool:
        """Whether an answer of the shard may leave at this very moment. If not, `LedEngine.opened` follows when it
        may."""

    def may_fire(self, shard: int) -> bool:
        """Whether the shard's timers may fire now. If not, `LedEngine.opened` follows when they may."""

    def wrote(self, shard: int, position: int) -> None:
        """The shard's log as it is now has its first `position` appends: `LedEngine.committed` follows once all of that
        counts."""

    def flushed(self, shards: Collection[int]) -> None:
        """What had been appended to these shards' logs when the flush began is on this node's disk."""

    def broke(self, shard: int, why: str) -> None:
        """The shard's log cannot be flushed."""

    def leads(self, shard: int) -> bool:
        """Whether the shard is this node's to answer for, be it that it cannot do so now."""
