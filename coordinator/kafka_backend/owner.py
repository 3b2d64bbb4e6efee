"""What its parts ask of whoever owns the shards: who reads them, who writes, and clients' transactions."""

from collections.abc import Coroutine
from typing import Any, Protocol

from muster.coordinator.core.model.core_events import Event
from muster.coordinator.kafka_backend.shard_ownership import events as ev


class LogOwner(Protocol):
    """`Owning`, as far as it is asked here."""

    def step(self, event: ev.ShardEvent) -> None: ...

    def heard(self, event: ev.ShardEvent) -> None:
        """The same, in a call of the loop's own: what comes of it waits for nothing else."""

    def takes(self, shard: int) -> bool: ...

    def submit(self, shard: int, event: Event) -> None:
        """To the engine, at once and in order; its turn comes in the loop's next round."""

    async def leader(self, shard: int) -> int:
        """Raises UpstreamError."""

    async def told(self, api: str, code: int) -> None: ...

    async def refresh_leaders(self) -> None: ...

    def ask(self, shard: int, request: int, asking: Coroutine[Any, Any, None]) -> None:
        """Have it run; where it raises, `Failed` is the answer to the request."""

    def begin(self, work: Coroutine[Any, Any, None]) -> None: ...
