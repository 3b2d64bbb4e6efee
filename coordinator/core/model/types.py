"""Small values that events, records and state share."""

from enum import Enum, IntEnum
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

from muster.coordinator.errors import ErrorCode
from muster.coordinator.values import frozen_value

E = TypeVar("E", bound=Enum)


def quick_enum(kind: type[E]) -> type[E]:
    """Names and values of the members are read without a call of Python: JSON of the ledger asks each field for one."""
    for word in ("name", "value"):
        setattr(kind, word, property(attrgetter(f"_{word}_")))
    return kind


DELAYED = "delayed"
"""The protocol by which workers share named resources (KIP-415, docs/protocol/delayed.md)."""

RequestId: TypeAlias = int
"""An opaque token of the edge for one request; the edge keeps the future that belongs to it."""

TimerKey: TypeAlias = tuple[str, ...]
"""("join", group), ("sync", group), ("follow", group), ("session", group, member), ("retention",); in KIP-848 groups
("assign", group), ("rebalance", group, member), and for their classic members ("rejoin", group, member), ("fetch",
group, member); in central groups ("retry", group), ("lease", group, member), ("ping", group, member),
("order", group, member). What an operator holds of a group, of whatever kind, ends by ("hold", group), and is looked at
again by ("look", group); whoever waits at the door of a frozen group does so until ("door", group, request), and a
canary's time is over by ("canary", group)."""

Partitions: TypeAlias = tuple[int, ...]
"""Partition numbers of one topic, ascending."""


@quick_enum
class Cause(IntEnum):
    """Why a rebalance began. Numbers are those of `coordinator.rpc.v1.RebalanceCause`."""

    UNSPECIFIED = 0
    MEMBER_JOINED = 1
    MEMBER_METADATA_CHANGED = 2
    STATIC_MEMBER_METADATA_CHANGED = 3
    SESSION_EXPIRED = 4
    MEMBER_LEFT = 5
    STATIC_MEMBER_REPLACED = 6
    PROTOCOL_CHANGED = 7
    LEADER_REJOINED = 8
    POLL_TIMEOUT = 9
    SYNC_TIMEOUT = 10
    REBALANCE_TIMEOUT = 11
    GROUP_OVER_SIZE = 12
    REVOCATION_FOLLOW_UP = 13
    SUBSCRIPTION_CHANGED = 14
    PARTITIONS_CHANGED = 32
    ASSIGNOR_CHANGED = 33
    LAG_IMBALANCE = 34
    OPERATOR = 35
    THAW = 36
    COORDINATOR_FAILOVER = 37
    HANDOFF_TIMEOUT = 38
    MEMBER_FENCED = 39
    WEIGHT_CHANGED = 40
    ASSIGNOR_FAILED = 41
    DELAY_OVER = 42
    BROKERS_CHANGED = 43
    CANARY = 44
    DEPLOY_OVER = 45
    PIN_CHANGED = 46
    DRAINED = 47
    NODE_STALLED = 48
    PROTOCOLS_CHANGED = 49
    MEMBER_RESTARTED = 50
    INSTANCE_ID_SHARED = 51


@quick_enum
class Certainty(IntEnum):
    """How the ledger knows a cause. Numbers are those of `coordinator.rpc.v1.Certainty`."""

    UNSPECIFIED = 0
    RECORDED = 1
    INFERRED = 2
    UNKNOWN = 3
    SAID = 4
    """By the log of the broker that coordinates the group."""


@quick_enum
class RebalanceSource(IntEnum):
    """Whose facts an entry was made from. Numbers are those of `coordinator.rpc.v1.RebalanceSource`."""

    COORDINATOR = 0
    """Muster's own."""
    WATCHED = 1
    """The records that another broker keeps of a group that it coordinates."""


@quick_enum
class WaitEnd(IntEnum):
    """How the wait for a member ended. Numbers are those of `coordinator.rpc.v1.WaitEnd`."""

    NEVER = 0
    JOINED = 1
    EXPIRED = 2
    LEFT = 3
    REPLACED = 4


@quick_enum
class TopicChangeKind(IntEnum):
    """What happened to a topic. Numbers are those of `coordinator.rpc.v1.TopicChangeKind`."""

    MADE = 1
    GREW = 2
    DELETED = 3
    REMADE = 4


@quick_enum
class Outcome(IntEnum):
    """How a rebalance ended. Numbers are those of `coordinator.rpc.v1.RebalanceOutcome`."""

    COMPLETED = 1
    EMPTIED = 2
    SUPERSEDED = 3
    FAILED = 4
    SETTINGS_CHANGED = 5
    TRIAL = 6
    HELD = 7
    WATCHED = 8
    POSITIONS_CHANGED = 9
    GROUP_DELETED = 10
    MEMBER_CHANGED = 11


AUDIT_OUTCOMES = frozenset(
    {
        Outcome.SETTINGS_CHANGED,
        Outcome.TRIAL,
        Outcome.HELD,
        Outcome.WATCHED,
        Outcome.POSITIONS_CHANGED,
        Outcome.GROUP_DELETED,
        Outcome.MEMBER_CHANGED,
    }
)
"""Entries beside those of rebalances (what operators did, static members that restarted): not plans, and not counted as
rebalances."""


class GroupState(Enum):
    """The state of a classic group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    __hash__ = object.__hash__  # each is there once; an enum's own hash is a call, for each look into a table of states


@frozen_value
class Protocol:
    """One assignor that a member offers, with its subscription blob."""

    name: str
    metadata: bytes


@frozen_value
class Limits:
    """The settings that the rules depend on, handed in by the runtime. Times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    max_group_size: int = 2**31 - 1
    max_group_bytes: int = 25 << 20
    """What members tell each other in one group (subscriptions, shares): the log has to take it as one record."""
    group_bytes_of: str = "offsets.topic.segment.bytes, of which a quarter is for one group"
    """The setting that says how many, for people."""
    too_large: ErrorCode = ErrorCode.INVALID_REQUEST
    """What they hear who would need more."""
    max_offset_metadata: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_ms: int = 600_000
    slice_positions: int = 500
    """How many positions one step looks at, or lets go of, where it could be any number: about 3 ms."""
    remote_assignors: tuple[str, ...] = ()
    """Beyond the built-in ones and installed plugins: what classic members may ask the coordinator to run."""
    installed: tuple[str, ...] = ()
    """Names of installed plugins, looked up before the rules run: they ask for nothing outside of their state."""
    ledger_max_entries: int = 100
    ledger_max_bytes: int = 32 << 20
    ledger_max_snapshot_bytes: int = 1 << 20
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_group_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is for groups whose members do not ask for any."""
    plugins: tuple[tuple[str, str], ...] = ()
    """Of assignors that are offered by the place of their class: their own name, and that place (module:Class)."""
    consumer_migration_policy: str = "bidirectional"
    """Also: upgrade, downgrade, disabled."""
    consumer_assignment_interval_ms: int = 1_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_regex_refresh_ms: int = 600_000
    central_max_retries: int = 4
    """How often a failed attempt to rebalance a central group is repeated."""
    central_backoff_ms: int = 2_000
    central_newcomers_delay_ms: int = 1_000
    """How long newcomers of a large, stable central group wait for those behind the last of them."""
    central_max_timed_out: int = 3
    """Pings in a row that a member of a central group may leave unanswered."""


@frozen_value
class MemberIdentity:
    """How a request names a member: by id, by group instance id, or by both."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


Position: TypeAlias = tuple[int, int, str]
"""A position to commit, as events carry it: a `CommittedOffset`, or a plain tuple of its fields, which takes a quarter
of the time to make. Commits bring them by the dozen."""


class CommittedOffset(NamedTuple):
    """One position to commit. `leader_epoch` is -1 when unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


HEARTBEATS_IN_SESSION = 3
"""Of a member with a session stream: what it has to hear comes by itself, so it says only that it lives."""

NO_TOPIC_ID = b""


class StoredOffset(NamedTuple):
    """A committed position as the log holds it: a `CommittedOffset`'s fields, times, and whose position it is."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: bytes = NO_TOPIC_ID
    """The 16 bytes of the topic that it was committed to; without them it is taken for the present topic's."""


@frozen_value
class PhaseWait:
    """A member that a phase waited for. `after_ms`: since the phase began, when the wait for it ended."""

    member_id: str
    client_id: str
    came: WaitEnd
    after_ms: int


@frozen_value
class RebalancePhase:
    """One stretch of a rebalance: how long, and for which members it waited, last arrival last.

    `waits` says how each of these waits ended; entries of older versions have ids only.
    """

    name: str
    duration_ms: int
    waited_for: tuple[str, ...] = ()
    waits: tuple[PhaseWait, ...] = ()


@frozen_value
class FurtherTrigger:
    """What else asked for a rebalance while it was under way."""

    cause: Cause
    detail: str
    at_ms: int
    culprit: str = ""
    culprit_client_id: str = ""
    culprit_client_host: str = ""
    certainty: Certainty = Certainty.RECORDED


@frozen_value
class TopicChange:
    """What happened to a topic: partitions before and after, when, and by whom if that is known."""

    topic: str
    kind: TopicChangeKind
    before: int
    after: int
    at_ms: int
    by: str = ""


@frozen_value
class Incarnation:
    """A member that came back under a new id. `how`: what became of the old id, as in the contract."""

    member_id: str
    previous_id: str
    away_ms: int
    how: str


@frozen_value
class LateFetch:
    """A client fetched partitions of one topic that a member had lost when it went. A fetch names no member.

    `certainty` RECORDED: it came by the connection by which the member had joined. INFERRED: by another one, with the
    member's client id and host, and nobody else is known to have them.
    """

    member_id: str
    topic: str
    partitions: tuple[int, ...]
    after_ms: int
    certainty: Certainty


@frozen_value
class MemberPlan:
    """One member and its share."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None
    assigned: tuple[tuple[str, Partitions], ...]
    joined_at_ms: int = -1
    """When it joined for this plan; -1 where members do not join anew, or nobody noted it."""
    synced_at_ms: int = -1
    """When it had its share; -1 as long as it has not, or nobody noted it."""


@frozen_value
class PartitionMove:
    """A partition that changed hands. `source` or `target` is empty when nobody had or has it.

    `unowned_ms` is -1 while the partition still waits for its owner, and the longest that it can have been where
    `unowned_at_least_ms` is not None: then only bounds are known (WA-T3).
    """

    topic: str
    partition: int
    source: str
    target: str
    unowned_ms: int
    why: str
    unowned_at_least_ms: int | None = None


@frozen_value
class PositionChange:
    """A committed position that an operator set or deleted. None: there was none, or is none now."""

    topic: str
    partition: int
    before: int | None
    after: int | None


@frozen_value
class Score:
    """How one assignor would have decided, or did: figures of its plan, or why it has none."""

    assignor: str
    """Its word, with options as it was given them."""
    failure: str = ""
    took_ms: int | None = None
    """Not measured for the plan that counts."""
    balance_count: float | None = None
    """The member with most partitions over the mean of all members; 1.0 is even."""
    balance_lag: float | None = None
    """The same of records that wait; None: nobody knew."""
    balance_rate: float | None = None
    """The same of records written a second."""
    members: int = 0
    moves: int = 0
    """Partitions that a member owned and would not own any more."""
    differs: int = 0
    """Partitions whose owner is not that of the plan that counts."""
    unassigned: int = 0


@frozen_value
class ListedGroup:
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@frozen_value
class RebalanceEntry:
    """All that the ledger keeps of one rebalance: enough to make the decision again."""

    number: int
    previous_generation: int
    generation: int
    protocol_type: str
    protocol_name: str
    cause: Cause
    culprit: str
    culprit_client_id: str
    culprit_client_host: str
    detail: str
    client_reason: str
    outcome: Outcome
    started_at_ms: int
    ended_at_ms: int
    phases: tuple[RebalancePhase, ...] = ()
    members: tuple[MemberPlan, ...] = ()
    moves: tuple[PartitionMove, ...] = ()
    snapshot_json: str = ""
    snapshot_source: str = ""
    also: tuple[str, ...] = ()
    """Further triggers that came while the rebalance was under way."""
    unowned_partition_ms: int = -1
    """All partitions' time without an owner, added up; -1 until every member has its share."""
    unowned_at_least_partition_ms: int | None = None
    """The same at the least, where only bounds are known; `unowned_partition_ms` is the most then."""
    herd: int = 0
    """Groups of the ZooKeeper era: how many members let go of what they had and claimed anew."""
    notifications: int = 0
    """Groups of the ZooKeeper era: how many times a member was woken by a watch, all members together."""
    positions: tuple[PositionChange, ...] = ()
    """What an operator did to positions, as far as it is told."""
    more_positions: int = 0
    """How many changes of positions are not told."""
    certainty: Certainty = Certainty.UNSPECIFIED
    """How the cause is known; UNSPECIFIED in entries of older versions."""
    evidence: str = ""
    """The facts that an inferred cause was concluded from, in one sentence."""
    triggers: tuple[FurtherTrigger, ...] = ()
    """What else asked for it, with times; `also` has the sentences."""
    topics: tuple[TopicChange, ...] = ()
    """What happened to topics of the group, and led to it."""
    incarnations: tuple[Incarnation, ...] = ()
    """Members that came back under new ids."""
    source: RebalanceSource = RebalanceSource.COORDINATOR
    late_fetches: tuple[LateFetch, ...] = ()
    """What clients went on fetching after this rebalance had taken it from them, added when it is known."""
    shadows: tuple[Score, ...] = ()
    """The plan's own score, and those of the group's shadow assignors: added when they are told, stored beside it."""


@frozen_value
class Settlement:
    """What became known after the plan: when each moved partition was owned again. Completes a `RebalanceEntry`."""

    number: int
    """The rebalance that it completes."""
    settled_at_ms: int
    """When the last share had been fetched, or the next rebalance put an end to it."""
    waited_for: tuple[str, ...]
    """Those who fetched theirs last."""
    unowned: tuple[tuple[str, int, int], ...]
    """(topic, partition, milliseconds without an owner) of the moved partitions."""
    unowned_partition_ms: int
    """All partitions' time without an owner, added up."""
    synced: tuple[tuple[str, int], ...] = ()
    """(member, when it had its share), in that order; who never had it is missing."""
    waits: tuple[PhaseWait, ...] | None = None
    """KIP-848 groups: the members that the hand-over waited for. None: `synced` tells."""


@frozen_value
class Takeover:
    """A node has taken a shard over as its coordinator. Times in ms since the epoch, by that node's clock.

    moved_from: who coordinated it before; -1: not known. last_heard_ms: when that one was last heard of; 0: not known.
    elected_ms: when the node knew that it leads. serving_ms: when it began to answer. groups, members: those it found.
    cut: records that were given up for it.
    """

    shard: int
    epoch: int
    moved_from: int
    moved_to: int
    cause: str
    last_heard_ms: int
    elected_ms: int
    serving_ms: int
    groups: int = 0
    members: int = 0
    cut: int = 0


@frozen_value
class Stall:
    """The node stood still: for so long it heard nobody, until that moment. No deadline ran meanwhile."""

    number: int
    """Counts the stalls that a shard noted."""
    ended_at_ms: int
    stalled_ms: int
