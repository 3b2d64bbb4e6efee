"""The facts that hard state is made of. Replaying them gives the state that was live.

`muster.coordinator.runtime.codec_init` gives them their bytes: group and offset records as Kafka lays them out in
`__consumer_offsets`, beside them hard facts of our own, ledger records as JSON in `__rebalances`.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.balance_records import BalanceRecord
from muster.coordinator.core.model.consumer_records import ConsumerRecord
from muster.coordinator.core.model.fences_records import FenceRecord
from muster.coordinator.core.model.records import CentralRecord
from muster.coordinator.core.model.trial_records import CanaryForgotten, CanaryRecord
from muster.coordinator.core.model.types import RebalanceEntry, Score, Settlement, Stall, StoredOffset, Takeover
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.core.model.values import HoldsEnded, HoldsRecord


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
class OffsetDeleted:
    """The tombstone of a committed offset."""

    group_id: str
    topic: str
    partition: int


@frozen_value
class RebalanceDecided:
    """A ledger entry, written in the turn that ends the rebalance."""

    group_id: str
    entry: RebalanceEntry


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
class StallNoted:
    """The shard's diary of its node: when it stood still, and for how long."""

    stall: Stall


@frozen_value
class StallForgotten:
    """The tombstone of a stall: the diary is bounded."""

    number: int


@frozen_value
class TakeoverNoted:
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
GroupRecord: TypeAlias = (
    GroupStored
    | GroupDeleted
    | OffsetStored
    | OffsetsStored
    | OffsetDeleted
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
    | StallNoted
    | StallForgotten
    | TakeoverNoted
    | TakeoverForgotten
    | NumbersPassed
)
"""Explanations: nothing is decided by them, and a node without them serves as well."""
Record: TypeAlias = GroupRecord | LedgerRecord
