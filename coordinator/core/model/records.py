"""The facts that hard state is made of. Replaying them gives the state that was live.

The runtime's record formats give them their bytes: group and offset records as Kafka lays them out in
`__consumer_offsets`, next to them facts of our own; ledger records as JSON in `__rebalances`. Each tombstone is a
class of its own, so that replay is one match.

- KIP-848 groups: one class for each record type (key types 3 to 8 and 16).
- Central groups: the whole ownership in one record, so that a crash leaves all of the old one or all of the new one.
- Operator overrides, canaries and balance: one record for each group, rewritten with every change.
- Fences: one record for each partition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.types import (
    Partitions,
    Protocol,
    RebalanceEntry,
    Score,
    Settlement,
    Stall,
    StoredOffset,
    Takeover,
)
from muster.coordinator.values import frozen_value

# Central groups
# --------------


@dataclass(frozen=True, slots=True)
class CentralOwner:
    """A member of the last assignment, with the share it was given: enough to wait for it after a failover."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    regex: str
    share: tuple[tuple[str, Partitions], ...]


@dataclass(frozen=True, slots=True)
class CentralStored:
    """The ownership that holds from this generation on. Without owners: the group is there, and nobody is in it."""

    group_id: str
    generation: int
    assignor: str
    timestamp_ms: int
    owners: tuple[CentralOwner, ...] = ()


@dataclass(frozen=True, slots=True)
class CentralDeleted:
    """The group is gone, or is one of another kind from here on."""

    group_id: str


CentralRecord: TypeAlias = CentralStored | CentralDeleted


# KIP-848 groups
# --------------

TopicId: TypeAlias = bytes
"""16 bytes of the catalog; a topic that is deleted and made again has another one."""

Shares: TypeAlias = Mapping[TopicId, frozenset[int]]
"""topic -> partitions"""

Epochs: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""topic -> partition -> the member epoch at which it was assigned (KIP-1251)"""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member that speaks the classic protocol brings into a KIP-848 group."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberStored:
    """Who the member is and what it wants (key type 5)."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicSide | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class GroupEpochStored:
    """The group epoch, and a hash of the topics it was raised for (key type 3)."""

    group_id: str
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class GroupEpochDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochStored:
    """The epoch the target belongs to, and when it was made (key type 6); time 0 lets the next one come at once."""

    group_id: str
    epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TargetEpochDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetStored:
    """What one member is to have (key type 7)."""

    group_id: str
    member_id: str
    partitions: Shares


@dataclass(frozen=True, slots=True)
class TargetDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentStored:
    """What one member has, and what it must give up first (key type 8)."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Epochs
    revoking: Epochs


@dataclass(frozen=True, slots=True)
class CurrentDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexStored:
    """The topics a regular expression stands for (key type 16)."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RegexDeleted:
    group_id: str
    regex: str


OF_ONE_MEMBER = ConsumerMemberDeleted | TargetDeleted | CurrentDeleted | RegexDeleted
"""Tombstones without which a record may stay for good: a group writes its epochs anew, and no member that is gone."""

ConsumerRecord: TypeAlias = (
    ConsumerMemberStored
    | ConsumerMemberDeleted
    | GroupEpochStored
    | GroupEpochDeleted
    | TargetEpochStored
    | TargetEpochDeleted
    | TargetStored
    | TargetDeleted
    | CurrentStored
    | CurrentDeleted
    | RegexStored
    | RegexDeleted
)


# Fences
# ------


@frozen_value
class FenceStored:
    """Who may write on behalf of a partition: the newest ownership, a producer id and its epoch.

    `former` are the producer ids of this fence whose epochs were used up. `member_id` has claimed it last, under
    `generation`, at `claimed_at_ms`.
    """

    group_id: str
    topic: str
    partition: int
    producer_id: int
    epoch: int
    former: tuple[int, ...]
    member_id: str
    generation: int
    claimed_at_ms: int


@frozen_value
class FenceForgotten:
    """The tombstone of a fence: its group is gone."""

    group_id: str
    topic: str
    partition: int


FenceRecord: TypeAlias = FenceStored | FenceForgotten


# Balance
# -------

NEVER_MS = -1

Moved: TypeAlias = tuple[tuple[int, tuple[tuple[str, Partitions], ...]], ...]
"""(when in ms, (topic, partitions)...), oldest first; a partition stands where it moved last."""


@frozen_value
class BalanceStored:
    """When partitions of the group moved last, as far back as its cooldown goes."""

    group_id: str
    watched_at_ms: int = NEVER_MS
    """When the ledger was told last what would have been moved."""
    moved: Moved = ()


@frozen_value
class BalanceForgotten:
    """The tombstone of what a balanced group remembered."""

    group_id: str


BalanceRecord: TypeAlias = BalanceStored | BalanceForgotten


# Canaries
# --------


class CanaryState(Enum):
    """Where a canary is. A group that never had one, or was deleted since, is idle."""

    CANARY = "canary"
    """The candidate plans the group, and its time runs."""
    WAITING = "waiting"
    """The candidate still plans the group: its time is over, and an operator has to say what becomes of it."""
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"


RUNNING = frozenset({CanaryState.CANARY, CanaryState.WAITING})


@frozen_value
class CanaryGuardRule:
    """Trips when `figure` is over `limit`; with `relative`, over so many times its baseline."""

    figure: str
    limit: float
    relative: bool = False


@frozen_value
class CanaryBaseline:
    """How the group did before the canary: means over its own last hour, or as much of it as there is."""

    rebalances: int = 0
    """How many rebalances, with members at their end, `moves` is the mean of."""
    span_ms: int = 0
    """How long before the canary the first rebalance that is on record began, at most an hour."""
    moves: float = 0.0
    settled: int = 0
    """How many of them had their time without an owner on record: `unowned_ms` is the mean of these."""
    unowned_ms: float = 0.0
    lag: float = 0.0
    """The mean of the group's total lag."""
    lag_span_ms: int = 0
    """How long before the canary its first sample was taken; 0: there is none."""


@frozen_value
class CanaryTally:
    """What the group did since the canary began. The round that the canary itself started counts for none of it but
    failures and lost members."""

    rebalances: int = 0
    moves: int = 0
    settled: int = 0
    unowned_ms: int = 0
    plan_failures: int = 0
    expired: int = 0
    own_round: int = 0
    """The number of the last rebalance of the canary's own round; 0: it has no plan yet."""


@frozen_value
class CanaryStored:
    """A canary, running or over. Times are wall time, ms; `for_ms` bounds what is left when the clock was set back."""

    group_id: str
    state: CanaryState
    assignor: str
    options: Mapping[str, Any]
    """JSON, as all options of assignors."""
    former: str
    """Who planned before, and plans again after a roll-back."""
    operator: str
    began_at_ms: int
    for_ms: int
    until_ms: int
    promotes: bool
    """What becomes of it at the end of its time: it is the setting, or it waits."""
    guards: tuple[CanaryGuardRule, ...]
    lag_floor: int
    baseline: CanaryBaseline = field(default_factory=CanaryBaseline)
    tally: CanaryTally = field(default_factory=CanaryTally)
    ended: str = ""
    """Why it is over, in one sentence."""

    @property
    def runs(self) -> bool:
        return self.state in RUNNING


@frozen_value
class CanaryForgotten:
    """The tombstone of a group's canary."""

    group_id: str


CanaryRecord: TypeAlias = CanaryStored | CanaryForgotten


# Operator overrides
# ------------------

Share: TypeAlias = tuple[tuple[str, Partitions], ...]
"""Topic and partitions, by topic."""

MeasuredRates: TypeAlias = Mapping[str, tuple[Sequence[float], Sequence[int]]]
"""Topic -> of each partition: records a second, written or read, whichever is more; and records that wait."""


class Orphans(Enum):
    """What becomes of partitions without a living owner while a group is frozen."""

    GIVE = "give"
    """They go to whoever has least."""
    KEEP = "keep"
    """They stay without one."""


class By(Enum):
    """How an operator names members."""

    MEMBER_ID = "member-id"
    CLIENT_ID = "client-id"
    INSTANCE = "instance"
    HOST = "host"
    ANY = "any"
    """Its instance id, its client id or its member id."""


@frozen_value
class MemberIdentifiers:
    """A member, by all its names."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str

    def is_named(self, by: By, name: str) -> bool:
        """
        >>> web = MemberIdentifiers("web-1-7f", None, "web-1", "10.0.0.7")
        >>> web.is_named(By.HOST, "10.0.0.7"), web.is_named(By.ANY, "10.0.0.7"), web.is_named(By.ANY, "web-1")
        (True, False, True)
        """
        match by:
            case By.MEMBER_ID:
                return name == self.member_id
            case By.CLIENT_ID:
                return name == self.client_id
            case By.INSTANCE:
                return name == self.instance_id
            case By.HOST:
                # Kafka's door shows hosts with a slash before them, as Kafka does.
                return name.lstrip("/") == self.client_host.lstrip("/")
            case By.ANY:
                return name in (self.member_id, self.client_id, self.instance_id)


@frozen_value
class Until:
    """An end by itself: when, on the coordinator's clock, and how long it was from the moment it was asked for.

    The clock may have been set back since; then it is so long from the time of loading.
    """

    at_ms: int
    after_ms: int


@frozen_value
class Freeze:
    """Nobody who lives loses a partition, and new members get none."""

    orphans: Orphans = Orphans.GIVE
    until: Until | None = None


@frozen_value
class Deploy:
    """Members are started anew one by one: what one leaves waits for the next that comes."""

    expect: int
    hold_ms: int
    back: int = 0
    """How many heirs have come."""
    until: Until | None = None


@frozen_value
class Drain:
    """Whoever is named so has no capacity: its partitions move away, and it stays."""

    by: By
    name: str
    until: Until | None = None


@frozen_value
class Pin:
    """This partition belongs to whoever is named so, as long as he lives."""

    topic: str
    partition: int
    name: str
    until: Until | None = None


@frozen_value
class HeldShare:
    """What a member left, waiting for an heir."""

    member_id: str
    client_id: str
    share: Share
    until: Until

    @property
    def size(self) -> int:
        return sum(len(partitions) for _, partitions in self.share)


@frozen_value
class HoldsStored:
    """All that is held of one group. `version` is the ledger's number of the last change by hand or by time."""

    group_id: str
    version: int = 0
    freeze: Freeze | None = None
    deploy: Deploy | None = None
    drains: tuple[Drain, ...] = ()
    pins: tuple[Pin, ...] = ()
    shares: tuple[HeldShare, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.freeze or self.deploy or self.drains or self.pins or self.shares)

    @property
    def calm(self) -> bool:
        """Nobody who lives may lose a partition for now."""
        return bool(self.freeze or self.deploy or self.shares)


@frozen_value
class HoldsEnded:
    """The tombstone: nothing of the group is held any more."""

    group_id: str


HoldsRecord: TypeAlias = HoldsStored | HoldsEnded


# Classic groups, offsets, ledger, settings
# -----------------------------------------


@frozen_value
class MemberRecord:
    """A classic member as stored: only the selected protocol's subscription survives."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@frozen_value
class GroupStored:
    """A classic group after a completed generation (Kafka: GroupMetadataValue, key type 2)."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...]


@frozen_value
class GroupDeleted:
    """The tombstone of a group."""

    group_id: str


class OffsetStored(NamedTuple):
    """A committed offset (Kafka: OffsetCommitValue, key type 1)."""

    group_id: str
    topic: str
    partition: int
    value: StoredOffset


@frozen_value
class OffsetsStored:
    """What one commit brings: in the log an `OffsetStored` for each, and that is how it is read again."""

    group_id: str
    offsets: Mapping[tuple[str, int], StoredOffset]


@frozen_value
class TxnOffsetsStored:
    """Positions of a producer's transaction, which count if its marker commits it: in the log an `OffsetStored` for
    each, in a batch that bears the producer's id and epoch."""

    producer_id: int
    epoch: int
    group_id: str
    offsets: Mapping[tuple[str, int], StoredOffset]


@frozen_value
class TxnMarked:
    """The producer's transaction ends here. In the log a control batch."""

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int = -1
    level: int = 0
    """Of the transaction's end (`transaction.version`). The log's bytes do not tell it."""


@frozen_value
class OffsetDeleted:
    """The tombstone of a committed offset."""

    group_id: str
    topic: str
    partition: int


@frozen_value
class RebalanceDecided:
    """A ledger entry, written in the turn that ends the rebalance.

    `amends`: it stands in place of one that was kept before, and says more; not on record.
    """

    group_id: str
    entry: RebalanceEntry
    amends: bool = False


@frozen_value
class RebalanceSettled:
    """The rest of a ledger entry, written when the last member has fetched its share."""

    group_id: str
    settlement: Settlement


@frozen_value
class RebalanceShadowed:
    """How a ledger entry's plan compares with those of the group's shadow assignors, written when these are made."""

    group_id: str
    number: int
    scores: tuple[Score, ...]


@frozen_value
class ShadowsForgotten:
    """The tombstone of these."""

    group_id: str
    number: int


@frozen_value
class RebalanceForgotten:
    """The tombstone of a ledger entry: the ledger is bounded."""

    group_id: str
    number: int


@frozen_value
class DelayStored:
    """What the leader of a delayed group knows (KIP-415), and until when the group waits; None: for nobody.

    `delay_ms` is how long that was when it was stored: the clock may be another when it is read.
    """

    group_id: str
    leader_state: str
    until_ms: int | None
    delay_ms: int | None = None


@frozen_value
class DelayForgotten:
    """The tombstone of what a leader knew."""

    group_id: str


@frozen_value
class StallRecorded:
    """The shard's diary of its node: when it stood still, and for how long."""

    stall: Stall


@frozen_value
class StallForgotten:
    """The tombstone of a stall: the diary is bounded."""

    number: int


@frozen_value
class TakeoverRecorded:
    """The shard's diary of its coordinators: another node took it over."""

    takeover: Takeover


@frozen_value
class TakeoverForgotten:
    """The tombstone of a takeover."""

    shard: int
    epoch: int


@frozen_value
class SettingsStored:
    """All settings of a group. `version` counts its changes since it had none.

    `suspended`: why its `assignor` has no effect until it is set again; empty: it has.
    """

    group_id: str
    version: int
    values: Mapping[str, JsonValue]
    suspended: str = ""


@frozen_value
class SettingsUnset:
    """The tombstone of a group's settings."""

    group_id: str


@frozen_value
class NumbersPassed:
    """Rebalances up to this number may be told of where nobody can read it any more: no other gets one of them."""

    number: int


@frozen_value
class LossMended:
    """Records of groups were given up (`muster log recover`), the last before this offset of the shard's log: what was
    left of their groups need not have fitted together, and has been mended.
    """

    until: int


OwnRecord: TypeAlias = (
    DelayStored
    | DelayForgotten
    | SettingsStored
    | SettingsUnset
    | HoldsRecord
    | CanaryRecord
    | BalanceRecord
    | CentralRecord
)
"""Hard facts that Kafka has no record for."""
TxnRecord: TypeAlias = TxnOffsetsStored | TxnMarked
"""What has batches of its own in the log."""

GroupRecord: TypeAlias = (
    GroupStored
    | GroupDeleted
    | OffsetStored
    | OffsetsStored
    | OffsetDeleted
    | TxnRecord
    | ConsumerRecord
    | OwnRecord
    | FenceRecord
    | LossMended
)
OfWhoPlans: TypeAlias = SettingsUnset | CanaryForgotten
OF_WHO_PLANS = (SettingsUnset, CanaryForgotten)
"""Tombstones of what an operator had said of who plans for a group."""
OfOperators: TypeAlias = OfWhoPlans | HoldsEnded
"""The same, and of what is held of it."""

LedgerRecord: TypeAlias = (
    RebalanceDecided
    | RebalanceSettled
    | RebalanceShadowed
    | ShadowsForgotten
    | RebalanceForgotten
    | StallRecorded
    | StallForgotten
    | TakeoverRecorded
    | TakeoverForgotten
    | NumbersPassed
)
"""Explanations: nothing is decided by them, and a node without them serves as well."""
Record: TypeAlias = GroupRecord | LedgerRecord
