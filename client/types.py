"""Values and callback types of the clients: plain, immutable and comparable.

Any callable whose parameters fit can be a callback; parameter names are free. With `muster.aio` a callback may be a
coroutine function: its result is awaited. Other results are ignored. An exception is raised by the client call in
which the callback ran.

`ConnectionConfig` holds checked connection properties for processes that check nothing themselves, such as Spark's
tasks; this module therefore imports neither pydantic nor gRPC.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from muster.coordinator.observability.read_model.groups import TopicPartition as TopicPartition

if TYPE_CHECKING:
    from muster.client.membership.member_calls import HandoffReadiness
    from muster.coordinator.core.model.types import Cause


IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
"""Whether records of open and aborted transactions are read."""


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and a note of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, and its own time in epoch milliseconds."""

    offset: int
    timestamp_ms: int


class RecordMetadata(NamedTuple):
    """Where a produced record went. `offset` is -1 with acks=0, which does not wait to learn it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Message(NamedTuple):
    """One record as it was read. `timestamp_ms` is epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp(self) -> int:
        """`timestamp_ms`, by the name that it has in kafka-python."""
        return self.timestamp_ms

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RebalanceEvent:
    """Why a callback is called.

    `kind` is "assigned", "revoked", "lost" or "prepare" (these, `coming`, will be assigned once others have let go of
    them). The partitions handed to the callback are everything (absolute) when `protocol` is "eager", and only what
    changes (delta) when it is "cooperative"; `assignment` is everything owned once the callback returns.
    `rebalance_number` counts the group's rebalances as the ledger does; before a join it is the last one known.
    `deadline_ms` (epoch milliseconds) is when the group stops waiting for this callback.
    """

    kind: str
    cause: "Cause"
    detail: str
    rebalance_number: int
    generation: int
    protocol: str
    deadline_ms: int
    assignment: tuple[TopicPartition, ...] = ()

    coming: tuple[TopicPartition, ...] = ()
    heirs: "HandoffReadiness | None" = field(default=None, compare=False, repr=False)
    on_ready: "Callable[[tuple[TopicPartition, ...]], None] | None" = field(default=None, compare=False, repr=False)

    def ready(self) -> None:
        """In `on_prepare`, or later, from any thread: report to the owner that the preparation is done."""
        if self.on_ready is not None:
            self.on_ready(self.coming)

    @property
    def heirs_ready(self) -> bool:
        """In `on_revoke`: whether the next owners of all these partitions have reported that they are ready."""
        return self.heirs is not None and self.heirs.ready

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """In `on_revoke`: wait for that, at most `timeout` seconds and until the deadline; return whether it came.

        Blocks the thread; code in an event loop checks `heirs_ready` instead.
        """
        if self.heirs is None:
            return False
        left_s = max(0.0, self.deadline - time.time())
        return self.heirs.wait(left_s if timeout is None else min(timeout, left_s))

    @property
    def deadline(self) -> float:
        """`deadline_ms` in seconds, to compare with `time.time()`. Partitions not released by then are taken away."""
        return self.deadline_ms / 1000


class FencingToken(NamedTuple):
    """Proof of ownership for whatever an owner writes to.

    `Producer(..., fence=token)` writes with it, and the log refuses it once a later owner has claimed the partition.
    Anything else can refuse tokens of a generation lower than one seen before: `generation` is the one in which the
    owner gained the partition, and the next owner's is higher. Two things a generation cannot tell apart: a static
    member that came back without a rebalance and its own former process, and a group from one of the same name that
    was deleted before.
    """

    group: str
    topic: str
    partition: int
    generation: int
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who this consumer is to its group right now; generation -1 means: not a member.

    `subscribed`: it is to be a member, so while it is not, it may add no positions to a transaction.
    """

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    subscribed: bool = False


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The first offset still there, and the one the next record will get."""

    low: int
    high: int


# Types of callbacks
# ------------------

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


# Connection values (no pydantic: Spark's tasks import them)
# ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """How a client knows its node, and shows who it is; `config.SecurityProperties` checks it.

    What is secret is in no repr, so in no plan and no log of who prints what holds it.
    """

    tls: bool
    ca_file: str | None = None
    ca_pem: str | None = None
    own_file: str | None = None
    own_pem: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    target_name: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    insecure_token: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """What a transport needs to know. `config.ClientConfig` has the same properties, with their limits and defaults.

    It travels to Spark's processes, which start for each query and would load a tenth of a second of pydantic for it.
    """

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    receive_message_max_bytes: int
    security: SecurityConfig | None = None

    @property
    def servers(self) -> list[str]:
        return split_servers(self.bootstrap_servers)


def split_servers(bootstrap_servers: str) -> list[str]:
    """
    >>> split_servers("a:1, b:2")
    ['a:1', 'b:2']
    """
    return [server.strip() for server in bootstrap_servers.split(",")]
