"""The callbacks of a subscription, and which of them hears what."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from muster.client.membership.seam import Callback
from muster.client.types import TopicPartition

OnChange = Callable[..., Any]
"""Any of those in `muster.client.callbacks`; which shape it has is found out when it is called."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """`on_lost` falls back to `on_revoke`: whoever does not tell them apart gives up in both cases."""

    on_assign: OnChange | None = None
    on_revoke: OnChange | None = None
    on_lost: OnChange | None = None
    on_prepare: OnChange | None = None

    def call(self, consumer: object, callback: Callback) -> Awaitable[Any] | None:
        """Run the callback; what it returns may have to be awaited. Its errors are the application's."""
        return self._call(consumer, list(callback.partitions), callback)

    def call_for(self, worker: object, partition: TopicPartition, callback: Callback) -> Awaitable[Any] | None:
        """The same for a single partition, as workers want it."""
        if callback.kind == "prepare":
            callback = replace(callback, event=replace(callback.event, coming=(partition,)))
        return self._call(worker, partition, callback)

    def _call(self, owner: object, what: object, callback: Callback) -> Awaitable[Any] | None:
        chosen = self._chosen(callback.kind)
        if chosen is None:
            return None
        returned = chosen(owner, what, callback.event) if wants_event(chosen) else chosen(owner, what)
        return returned if isinstance(returned, Awaitable) else None

    def _chosen(self, kind: str) -> OnChange | None:
        match kind:
            case "assigned":
                return self.on_assign
            case "prepare":
                return self.on_prepare
            case "revoked":
                return self.on_revoke
            case _:
                return self.on_lost or self.on_revoke


def wants_event(function: OnChange) -> bool:
    """Whether it takes a third positional argument. What cannot be inspected gets the two of confluent-kafka.

    >>> wants_event(lambda consumer, partitions, event: None), wants_event(lambda consumer, partitions: None)
    (True, False)
    """
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
