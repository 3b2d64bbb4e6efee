"""The lease under which a node answers for its shards, and what else its shards share: settings, queues and stages.

Kafka's coordinator of the nodes' group removes a member a session after the *receipt* of its last request. The
member counts from the *sending* of it, and a tenth less, for clocks that run at different rates. So a successor is
assigned a shard only after the lease on it has ended (KB-F7). REBALANCE_IN_PROGRESS does not renew the lease: a
member that does not rejoin is removed when the rebalance timeout ends; it equals the session timeout and runs from
after the last heartbeat that was answered 0.

A shard that is assigned to this node goes through these stages, in order:

    READ      read the log to its end: only the log knows the last owner, and the next turn follows from it
    INIT      InitProducerId: the next epoch of the shard's producer
    OWN       write the owner record as sequence 0; from then on the previous owner is fenced (KB-F4)
    CATCH     read what arrived until then; the owner record has to be the newest
    WAIT      KB-F6, only where the previous owner is not fenced: for a session, then
    BEHIND    read what arrived since
    TRUTH     KB-S7, only where a fenced record is the newest of its key: a second pass for the values that count
    REPAIR    write these again, and remove the owner records of earlier turns
    FINISH    the engine loads
    SERVE     until the shard is taken away, or LEAVE: no new requests, until all is acknowledged (KB-F8)
    LOST      the log, or the whole topic, has lost something: checked again until an operator has accepted it (KB-H1)
"""

from dataclasses import dataclass, field
from enum import Enum

from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits, AppendQueues
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import ShardEffect
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.shard_log import NEVER, LogLosses


def lease_ms_of(session_ms: int) -> int:
    """How long a node may rest on an answer, in ms of its own clock.

    >>> lease_ms_of(10_000)
    9000
    """
    return session_ms - session_ms // 10


class Lease:
    """One for all shards of a node. Moments are ms of the node's clock.

    base_ms: the sending of what was last answered well; until_ms: the first moment without a lease, as far as is known;
    both NEVER: there is no membership.
    """

    __slots__ = ("_lease_ms", "_since_ms", "base_ms", "until_ms")

    def __init__(self, session_ms: int) -> None:
        self._lease_ms = lease_ms_of(session_ms)
        self.base_ms = self.until_ms = self._since_ms = NEVER

    def heartbeat_answered(self, sent_ms: int, code: int) -> None:
        """sent_ms: before the request's first byte left."""
        if code == 0:
            self.synced(sent_ms)

    def synced(self, sent_ms: int) -> None:
        """A SyncGroup sent then was answered 0."""
        if sent_ms >= self._since_ms:
            self.base_ms = max(self.base_ms, sent_ms)
            self.until_ms = self.base_ms + self._lease_ms

    def lost(self, now_ms: int) -> None:
        """The membership is over; a late answer to something sent before does not bring it back."""
        self.base_ms = self.until_ms = NEVER
        self._since_ms = now_ms

    def is_valid(self, now_ms: int) -> bool:
        return now_ms < self.until_ms


# What all shards of a node share
# -------------------------------


@dataclass(frozen=True, slots=True)
class OwnershipSettings:
    """wall_ms: what the wall's clock shows at moment 0 of the node's; for people, in owner records."""

    node: int
    instance: str
    address: str = ""
    kafka: str = ""
    session_timeout_ms: int = 10_000
    owner_refresh_ms: int = 21_600_000
    wall_ms: int = 0
    limits: AppendLimits = field(default_factory=AppendLimits)


class OwnershipContext:
    """gave_up: why this node stopped serving shards that it may take again. topic_lost: why no shard may be taken; "":
    they may."""

    __slots__ = (
        "_number",
        "appends",
        "assignment",
        "gave_up",
        "lease",
        "losses",
        "now_ms",
        "out",
        "settings",
        "topic_lost",
    )

    def __init__(self, settings: OwnershipSettings) -> None:
        self.settings = settings
        self.lease = Lease(settings.session_timeout_ms)
        self.appends = AppendQueues(settings.limits)
        self.assignment = ShardAssignment()
        self.gave_up: dict[int, str] = {}
        self.losses = LogLosses()
        self.topic_lost = ""
        self.now_ms = 0
        self.out: list[ShardEffect] = []
        self._number = 0

    def number(self) -> int:
        """Of the next request of a shard."""
        self._number += 1
        return self._number

    @property
    def may_write(self) -> bool:
        """KB-F7: whether a producer may be begun, and appends may leave."""
        return self.lease.is_valid(self.now_ms)


# The stages of one shard
# -----------------------


class Stage(Enum):
    READ = "reads its log"
    INIT = "asks for its producer"
    OWN = "writes its owner record"
    CATCH = "reads up to its owner record"
    WAIT = "waits until nobody else can write"
    BEHIND = "reads what was written behind its owner record"
    TRUTH = "looks for what void records hide"
    REPAIR = "writes that again"
    FINISH = "loads"
    SERVE = "serves"
    LEAVE = "lets go"
    LOST = "waits for an operator"


SERVING = (Stage.SERVE, Stage.LEAVE)
"""A tuple: to find a stage in a set takes a call of the interpreter, and it is looked for with each commit."""
READING = frozenset({Stage.READ, Stage.CATCH, Stage.WAIT, Stage.BEHIND, Stage.TRUTH, Stage.LOST})
"""What goes on without a lease."""
