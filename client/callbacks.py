"""What programs hand to the clients to be called back, as types: any callable whose parameters fit is one.

Names of parameters are free. What a callback of `muster.aio` returns is awaited where it can be; otherwise what is
returned is not looked at. Errors are raised by the call in which the callback ran.
"""

from typing import Protocol, TypeAlias, TypeVar

from muster.client.types import RebalanceEvent, RecordMetadata, TopicPartition

Owner = TypeVar("Owner")
Client_contra = TypeVar("Client_contra", contravariant=True)
Changed_contra = TypeVar("Changed_contra", contravariant=True)


class CallbackWithEvent(Protocol[Client_contra, Changed_contra]):
    """Takes the client, what changes, and the `RebalanceEvent` that says why."""

    def __call__(self, client: Client_contra, changed: Changed_contra, event: RebalanceEvent, /) -> object: ...


class CallbackWithoutEvent(Protocol[Client_contra, Changed_contra]):
    """Takes the client and what changes, as callbacks of confluent-kafka do."""

    def __call__(self, client: Client_contra, changed: Changed_contra, /) -> object: ...


OnPartitions: TypeAlias = (
    CallbackWithEvent[Owner, list[TopicPartition]] | CallbackWithoutEvent[Owner, list[TopicPartition]]
)
"""`on_assign`, `on_revoke` and `on_lost` of a consumer: `(consumer, partitions, event)` or `(consumer, partitions)`."""

OnPartition: TypeAlias = CallbackWithEvent[Owner, TopicPartition] | CallbackWithoutEvent[Owner, TopicPartition]
"""`on_gain` and `on_lose` of a worker, once a partition: `(worker, partition, event)` or `(worker, partition)`."""


class OnDelivery(Protocol):
    """Hears where a record went, or what kept it from getting there: one of the two is None."""

    def __call__(self, error: Exception | None, metadata: RecordMetadata | None, /) -> object: ...
