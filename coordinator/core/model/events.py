"""What can happen to a shard. Requests carry the edge's token; ids and times come in and are never made here.

Sections: central groups, transactions, groups observed in ZooKeeper, groups of another broker, session streams,
fences, balance, canaries and shadow assignors, operator overrides, and at last what all groups share with the unions
`Request` and `Event`.

Central groups: each message is answered, so a stream carries one at a time. `stream` is the request id of the
registration that opened the stream; messages of an older stream are refused.

Transactions: over Muster's own log a `TxnOffsetCommit` names its producer, and its positions are kept with the step,
pending until `TxnEnded` commits or drops them; the runtime asks the log beforehand whether it takes them. Over a Kafka
a commit has two parts, since that log refuses only when it is written to. `TxnOffsetCommit`, without a producer, asks
whether the commit is allowed; the writer reports by `TxnOffsetsWritten` what it wrote, and ends the write by
`TxnWriteOver` in any case, whose answer precedes the producer's. A marker that was read there is a `TxnMarkerRead`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.assignors.api import JsonValue, Snapshot, TopicPartition
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.records import (
    By,
    ConsumerRecord,
    MeasuredRates,
    OfOperators,
    Orphans,
    Record,
    Shares,
)
from muster.coordinator.core.model.rights import Rights, RightsAnew
from muster.coordinator.core.model.types import (
    CommittedOffset,
    ListedGroup,
    MemberIdentity,
    Position,
    Protocol,
    RequestId,
    Score,
    StoredOffset,
    TimerKey,
    TopicChange,
    TopicChangeKind,
)
from muster.coordinator.values import frozen_value

# Central groups
# --------------

Offsets: TypeAlias = tuple[tuple[str, int, CommittedOffset], ...]
NEW_STREAM = 0


@dataclass(frozen=True, slots=True)
class RegisterConsumer:
    """Join, come back, or (on an open stream) change the subscription.

    `generation` and `owned` say what the member is still fetching, -1 and nothing when it is not; `offsets` how far.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    regex: str
    assignor: str
    generation: int = -1
    owned: tuple[tuple[str, int], ...] = ()
    offsets: Offsets = ()
    stream: int = NEW_STREAM
    client_software: str = ""
    rack_id: str | None = None
    rights: Rights = None


@dataclass(frozen=True, slots=True)
class AwaitOrders:
    """The stream is ready to carry the next orders; answered when there are any."""

    request_id: RequestId
    group_id: str
    member_id: str
    stream: int


@dataclass(frozen=True, slots=True)
class PingAnswered:
    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    number: int
    offsets: Offsets = ()


@dataclass(frozen=True, slots=True)
class FetcherStopped:
    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    number: int
    offsets: Offsets = ()


@dataclass(frozen=True, slots=True)
class FetcherStarted:
    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    number: int


@dataclass(frozen=True, slots=True)
class Deregister:
    """The member leaves for good; it has stopped fetching."""

    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    offsets: Offsets = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The stream is gone, and its member has not deregistered: it may be dead, or on its way back."""

    group_id: str
    member_id: str
    stream: int


CentralRequest: TypeAlias = RegisterConsumer | AwaitOrders | PingAnswered | FetcherStopped | FetcherStarted | Deregister


# Transactions
# ------------

END = 1 << 62
"""An offset behind all others."""

Key: TypeAlias = tuple[str, str, int]
"""Group, topic, partition: what a record of the log is about."""

NO_PRODUCER = -1


@frozen_value
class TxnOffsetCommit:
    """Positions that a transaction is to commit. From here on they are unstable (KIP-98, KIP-447).

    With a producer they are kept, pending until its `TxnEnded`. Without one (over a Kafka) the question is whether they
    may be committed; they are unstable until `TxnWriteOver`, or pending from `TxnOffsetsWritten` on.

    `generation` -1, no member id and no instance id: who says nothing of himself (before TxnOffsetCommit v3).
    `guard` is for the log (TX-L3): leave to begin a transaction in the shard's partition; None: it has begun there.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    offsets: Mapping[TopicPartition, Position]
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    guard: object | None = field(default=None, repr=False, compare=False)


@frozen_value
class TxnEnded:
    """The coordinator of transactions has decided: the shard's part of the producer's transaction ends so (KIP-98).

    A request, answered once the marker is durable. The log's rules for markers may refuse it (TX-L5):
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED. `coordinator_epoch`: the leader epoch of the transactional
    id's partition. `level`: how the transaction ends (`transaction.version`).
    """

    request_id: RequestId
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    level: int = 0


@frozen_value
class TxnOffsetsWritten:
    """These positions are in the shard's log as a transaction's, at this place and the next ones: pending from here on.

    `at`: the offset of the first of their records. Events of one shard come in the order of its log.
    """

    producer_id: int
    epoch: int
    group_id: str
    offsets: Mapping[TopicPartition, StoredOffset]
    at: int


@frozen_value
class TxnWriteOver:
    """What the `TxnOffsetCommit` of that id allowed is written, or never will be.

    A request, for the sake of its answer: as any, it is told once all that was decided before is in the log. Who hears
    it, and ends his transaction then, has his marker behind all that was decided without knowing of his positions; so
    whoever reads the log up to the marker sees which of them something later was written over.
    """

    request_id: RequestId
    group_id: str
    of: RequestId


@frozen_value
class TxnMarkerRead:
    """A producer's transaction has its marker. `counts`: what of it nothing later in the log is written over, as far as
    whoever reads it can tell; None: all. What was decided here since, and is not in the log yet, is known here.

    `at`: the marker's offset. What lies behind it is of the producer's next transaction: who heard that his transaction
    is ended may write into the next one before the marker is read."""

    producer_id: int
    epoch: int
    committed: bool
    counts: frozenset[Key] | None = None
    at: int = END


TxnEvent: TypeAlias = TxnOffsetsWritten | TxnMarkerRead


# Groups observed in ZooKeeper
# ----------------------------


@dataclass(frozen=True, slots=True)
class ObservedMember:
    """One znode in `ids`. `topics` are those it subscribes to, its pattern resolved; `host` is read from its id."""

    id: str
    topics: tuple[str, ...]
    pattern: str = "static"
    host: str = ""


@dataclass(frozen=True, slots=True)
class GroupObserved:
    """The group as it is now. Sent after every change, whole, so that one that was missed does no harm."""

    group_id: str
    members: tuple[ObservedMember, ...]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partition -> the member whose claim stands."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The partition counts of the topics that members subscribe to."""
    brokers: tuple[int, ...] = ()
    renewed: frozenset[TopicPartition] = frozenset()
    """Claims that went and came back since the last event."""
    gone_for_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How long ago a claim was seen to go that stood at the last event, where the watch said so; else it went now."""
    ended: frozenset[str] = frozenset()
    """Of the members that are gone since the last event: those whose claims went with them, as a session's end does."""
    was_there: bool = False
    """It was there when the node began to watch: how it came about was not seen."""


@dataclass(frozen=True, slots=True)
class GroupUnseen:
    """The group is no longer in ZooKeeper, or no longer watched."""

    group_id: str


# Groups that another broker coordinates
# --------------------------------------


@dataclass(frozen=True, slots=True)
class RecordsWatched:
    """What the records of another broker say, in their order: facts of groups, positions, and in between the rebalances
    that they tell of, whose numbers are the ledger's to give."""

    facts: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class WatchStood:
    """Whether the records have been read to where they ended when reading began; why not, as a sentence, or empty."""

    excuse: str


@frozen_value
class GroupSeen:
    """A look at a group has seen this state, by Kafka's name; "": it is none of those in which a group rebalances."""

    group_id: str
    state: str


@frozen_value
class GroupsVanished:
    """The records have been read anew from their begin, and say nothing of these groups any more."""

    group_ids: tuple[str, ...]


# Session streams, takeovers, quotas
# ----------------------------------


@frozen_value
class Listen:
    """A member's session stream asks to be told, once, what a heartbeat of this generation (or epoch) would hear.

    Answered as soon as that is something new; at most one of each member is parked.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    consumer: bool = False
    """Whether the member speaks KIP-848: then `generation` is its member epoch."""


@frozen_value
class Hello:
    """A member opens a session stream: how seldom may it say that it lives, now that it is told of everything?

    `connection` stands for the stream, as a negative number: a connection of Kafka's protocol has a positive one.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    connection: int = 0


@frozen_value
class StreamLost:
    """A member's session stream broke: unless it is heard of again, its session ends after `grace_ms` at the latest."""

    group_id: str
    member_id: str
    grace_ms: int
    connection: int = 0
    """As in its `Hello`."""


@frozen_value
class TookOver:
    """This node has taken the shard over in that leader epoch, and answers from now on. See `Takeover`.

    lost: whoever coordinated it before is gone without a word, and members may wait for its answers yet.
    """

    shard: int
    epoch: int
    moved_from: int
    moved_to: int
    cause: str
    last_heard_ms: int
    elected_ms: int
    lost: bool = False


@frozen_value
class CutFound:
    """An unclean election, which began that leader epoch, has cost the shard so many records, as is known by now."""

    shard: int
    epoch: int
    records: int


@frozen_value
class HeldBack:
    """For `for_ms` from now nothing that a member says is read, because of a quota: so it is not silent."""

    group_id: str
    member_id: str
    for_ms: int


# Fences
# ------


@frozen_value
class ClaimFence:
    """A member claims the fence of a partition, under the generation in which it gained the partition.

    `producer_id` and `epoch` are what an earlier claim of the same writer got, -1 for a first one. `fresh_id` is a
    producer id that nobody has had, in case the fence needs one.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    topic: str
    partition: int
    generation: int
    producer_id: int
    epoch: int
    fresh_id: int


# Balance
# -------


@frozen_value
class BalanceGoesOn:
    """The next stage of what a measurement led to: a large group's have a turn each. `ticket`: of which evaluation."""

    group_id: str
    ticket: int


# Canaries and shadow assignors
# -----------------------------


@frozen_value
class StartCanary:
    """`assignor` is NAME or NAME{"option": value}; without `guards` the usual ones count.

    `lag_mean` is the mean of the group's total lag in the last hour, of which the sampler knows `lag_span_ms`.
    """

    request_id: RequestId
    group_id: str
    assignor: str
    for_ms: int
    guards: tuple[str, ...]
    lag_floor: int
    promotes: bool
    validate_only: bool
    operator: str
    lag_mean: float = 0.0
    lag_span_ms: int = 0


@frozen_value
class EndCanary:
    """`promote` False: rolled back."""

    request_id: RequestId
    group_id: str
    promote: bool
    operator: str


@frozen_value
class DescribeCanary:
    request_id: RequestId
    group_id: str


@frozen_value
class LagMeasured:
    """A sample of the group's lag, all partitions together. Asked for nothing but running canaries."""

    group_id: str
    lag: int


@frozen_value
class Shadowed:
    """What came of a `ShadowRequest`, under its ticket."""

    group_id: str
    ticket: int
    scores: tuple[Score, ...]


TrialEvent: TypeAlias = LagMeasured | Shadowed
CanaryRequest: TypeAlias = StartCanary | EndCanary | DescribeCanary


# Operator overrides
# ------------------


@frozen_value
class AskFreeze:
    """`orphans` None: as suits the group."""

    orphans: Orphans | None = None


@frozen_value
class AskDeploy:
    expect: int


@frozen_value
class AskDrain:
    by: By
    name: str


@frozen_value
class AskPin:
    topic: str
    partition: int
    name: str


OverrideRequest: TypeAlias = AskFreeze | AskDeploy | AskDrain | AskPin


@frozen_value
class HoldGroup:
    """Something of the group shall be held from now on. `for_ms` None: until it is resumed.

    `expected_version` None: whatever it is. `operator` is who asks, and from where.
    """

    request_id: RequestId
    group_id: str
    ask: OverrideRequest
    for_ms: int | None
    expected_version: int | None
    validate_only: bool
    operator: str
    seen: MeasuredRates | None = None
    """What the group's partitions carry, if the node knows; said of what a drain or a pin moves."""


@frozen_value
class EndFreeze:
    """No freeze any more."""


@frozen_value
class EndDeploy:
    """No deploy any more."""


@frozen_value
class Undrain:
    by: By
    name: str


@frozen_value
class Unpin:
    topic: str
    partition: int


OverrideEnd: TypeAlias = EndFreeze | EndDeploy | Undrain | Unpin


@frozen_value
class ResumeGroup:
    """`end` None: nothing of the group is held any more."""

    request_id: RequestId
    group_id: str
    end: OverrideEnd | None
    expected_version: int | None
    validate_only: bool
    operator: str


@frozen_value
class DescribeHolds:
    """What is held of a group."""

    request_id: RequestId
    group_id: str


ControlRequest: TypeAlias = HoldGroup | ResumeGroup | DescribeHolds


# Requests of every kind of group
# -------------------------------


@frozen_value
class JoinGroup:
    """`fresh_id` is a uuid that the edge draws for a newcomer. Rebalance timeout -1 means: the session timeout (v0)."""

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    fresh_id: str
    reason: str = ""
    require_known_member_id: bool = True
    supports_skip_assignment: bool = True
    remote_assignor: str = ""  # what the coordinator is asked to run; empty: the member is ready to lead
    client_software: str = ""  # what the client runs, by its own words: name and version
    rights: Rights = None
    connection: int = 0  # by which connection it came, a number that this node gives once; 0: not known


@frozen_value
class SyncGroup:
    """`protocol_type` and `protocol_name` None means: not checked (SyncGroup before v5)."""

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    snapshot: bytes = b""
    leader_state: str = ""
    """What the leader of a delayed group knows, for whoever leads next (KIP-415)."""
    scheduled_delay_ms: int = 0
    """How long the group waits for lost workers from now on; 0: it does not."""


@frozen_value
class Heartbeat:
    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    rights: Rights = None


@frozen_value
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat v1 (KIP-848). `member_epoch` 0 joins, -1 leaves, -2 leaves for a while (static members).

    None means "as before" for every optional field, `rebalance_timeout_ms` says so with -1; an empty regex clears it.
    `owned` and `ready` (what is coming, and prepared for) are keyed by topic id. `fresh_id` is for edges that speak v0.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Shares | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""
    client_software: str = ""
    ready: Shares | None = None
    rights: Rights = None
    connection: int = 0

    @property
    def full(self) -> bool:
        """It says everything, so it is answered with everything."""
        subscribed = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribed and self.owned is not None


@frozen_value
class SessionHeartbeat:
    """A KIP-848 heartbeat that came up a session stream on which the Listen `listening` is open, if any.

    When that has been answered, the heartbeat was sent before its sender could know, under an epoch that may be over.
    """

    request_id: RequestId
    heartbeat: ConsumerHeartbeat
    listening: RequestId | None = None

    @property
    def group_id(self) -> str:
        return self.heartbeat.group_id

    @property
    def member_id(self) -> str:
        return self.heartbeat.member_id


@frozen_value
class LeaveGroup:
    request_id: RequestId
    group_id: str
    members: tuple[MemberIdentity, ...]
    operator: str = ""
    """Set when a person or tool removes the members (RemoveMembers): who, and why."""
    everyone: bool = False
    """With `operator`: every member there is; `members` is empty then."""


@frozen_value
class ConnectionClosed:
    """A connection by which members of this group had joined is closed, by whichever end."""

    group_id: str
    connection: int


@frozen_value
class FetchedAfterLeaving:
    """A client that goes by the names of a member that has gone fetched partitions that the member had (EX-F5).

    `number` is the entry that took them away. A fetch names no member: `connection` is the one that it came by.
    """

    group_id: str
    number: int
    member_id: str
    connection: int
    partitions: tuple[tuple[str, int], ...]


@frozen_value
class OffsetCommit:
    """`generation` -1 and no member id: a simple consumer or an operator. Unknown topics were refused before."""

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    offsets: Mapping[tuple[str, int], Position]
    retention_ms: int | None = None
    missing_group_code_is_illegal_generation: bool = False
    """True for OffsetCommit before v9, which does not know GROUP_ID_NOT_FOUND."""
    operator: str = ""
    """Who commits without being a member, and from where; a consumer that assigns itself partitions does, too."""
    by_tool: bool = False
    """The committer says that it is no such consumer."""


@frozen_value
class OffsetFetch:
    """`partitions` None asks for all committed offsets of the group."""

    request_id: RequestId
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1
    """Who asks, and at which epoch, when it is a member that wants to be checked (OffsetFetch v9)."""


@frozen_value
class OffsetDelete:
    """`operator` is who asks, and from where."""

    request_id: RequestId
    group_id: str
    partitions: tuple[tuple[str, int], ...]
    operator: str = ""


@frozen_value
class DescribeGroup:
    request_id: RequestId
    group_id: str


@frozen_value
class DescribeConsumerGroup:
    """ConsumerGroupDescribe for one group."""

    request_id: RequestId
    group_id: str


@frozen_value
class ListGroups:
    """One shard's groups; filters are compared without case, empty means all.

    rest, found: of a shard with many, the names that are still to be looked at, and what passed so far (a slice of it).
    """

    request_id: RequestId
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rest: tuple[str, ...] | None = None
    found: tuple[ListedGroup, ...] = ()


@frozen_value
class DeleteGroup:
    """`elsewhere`: whoever asks also deletes what ZooKeeper holds of the group, if it holds anything.

    `operator` is who asks, and from where.
    """

    request_id: RequestId
    group_id: str
    elsewhere: bool = False
    operator: str = ""


@frozen_value
class ExplainGroup:
    """The group's ledger, newest first. `limit` 0 and `generation` 0 mean: all."""

    request_id: RequestId
    group_id: str
    limit: int = 0
    generation: int = 0


@frozen_value
class DescribeSettings:
    """An operator asks for the group's settings."""

    request_id: RequestId
    group_id: str


@frozen_value
class ListSettings:
    """An operator asks which of the shard's groups have settings."""

    request_id: RequestId


@frozen_value
class AlterSettings:
    """`expected_version` None: whatever it is. `operator` is who asks, and from where. `tried`: how many of the plugins
    that it names have been tried on the group."""

    request_id: RequestId
    group_id: str
    set: Mapping[str, JsonValue]
    unset: tuple[str, ...]
    expected_version: int | None
    validate_only: bool
    operator: str
    tried: int = 0


@frozen_value
class Forget:
    """The client of a parked request is gone: answer nobody, change nothing else."""

    group_id: str
    request_id: RequestId


@frozen_value
class TimerFired:
    """`deadline_ms` is the one the timer was set to; a timer that has been set again since is stale and ignored."""

    key: TimerKey
    deadline_ms: int


@frozen_value
class StoodStill:
    """The node heard nobody for `stalled_ms`, until now: every deadline moves by `moved_ms`, for reading takes time."""

    stalled_ms: int
    moved_ms: int


@frozen_value
class TopicsChanged:
    """The catalog's partition counts, after any change and once before the first event.

    `ids` are the 16 bytes of each topic; one without an id is nothing that a KIP-848 group can be given.
    """

    partitions: Mapping[str, int]
    deleted: tuple[str, ...] = ()
    ids: Mapping[str, bytes] = field(default_factory=dict)
    changes: tuple[TopicChange, ...] = ()
    """What is different from the event before; their `at_ms` is left to whom they are told."""
    by: str = ""
    """Who changed the catalog, if that is known."""
    disowned: frozenset[str] = frozenset()
    """Those of `partitions` that a broker knows neither by name nor by id: they count until another one agrees."""
    late_ms: int = 0
    """How long before this event the changes may have happened: members may have noticed them first."""
    names: dict[bytes, str] = field(init=False, repr=False, compare=False)
    """The same from id to name: worked out once for all shards."""

    def __post_init__(self) -> None:
        self.names = {topic_id: name for name, topic_id in self.ids.items()}  # type: ignore[misc]


def compare_topics(before: TopicsChanged, now: TopicsChanged) -> tuple[TopicChange, ...]:
    """What happened to topics between two states of the catalog, by name; without times.

    One that is disowned was deleted, as far as members are concerned, and that is told once.
    """
    found = []
    known = {topic: count for topic, count in before.partitions.items() if topic not in before.disowned}
    for topic, count in now.partitions.items():
        old, old_id = known.get(topic, 0), before.ids.get(topic)
        if topic in now.disowned or (topic in before.disowned and now.ids.get(topic) == old_id):
            continue
        remade = bool(old) and old_id is not None and now.ids.get(topic, old_id) != old_id
        if count == old and not remade:
            continue
        kind = TopicChangeKind.REMADE if remade else TopicChangeKind.GREW if old else TopicChangeKind.MADE
        found.append(TopicChange(topic, kind, old, count, 0, now.by))
    found += [
        TopicChange(topic, TopicChangeKind.DELETED, count, 0, 0, now.by)
        for topic, count in known.items()
        if topic not in now.partitions or topic in now.disowned
    ]
    return tuple(sorted(found, key=lambda change: change.topic))


@frozen_value
class ExpireOffsets:
    """What is left of a look for expired positions: groups, and of the first of them these places; None: all."""

    groups: tuple[str, ...]
    places: tuple[tuple[str, int], ...] | None = None
    begin: int = 0
    """Where in `places` it goes on."""


@frozen_value
class ForgetOffsets:
    """What is left of a look for positions of deleted topics; `topics` says when each was deleted."""

    groups: tuple[str, ...]
    topics: Mapping[str, int]
    places: tuple[tuple[str, int], ...] | None = None
    begin: int = 0
    """Where in `places` it goes on."""


@frozen_value
class LongWorkGoesOn:
    """The next slice of what the shard is at (`ShardState.long_work`)."""


@frozen_value
class ContinueTask:
    """A central group's task has more to do than one step may."""

    group_id: str


@frozen_value
class ReviewTopics:
    """Topics have changed, and groups have yet to look at them: so many as one step may."""


@frozen_value
class Planned:
    """What came of a `PlanRequest` that the planner put off, under its epoch: the plan, or why there is none."""

    group_id: str
    epoch: int
    plan: Plan | None = None
    error: str = ""
    snapshot: Snapshot | None = None
    """What the assignor saw, where that is more than the request had: the lags of that moment."""
    trace: str = field(default="", compare=False)
    """The traceback of a plugin that failed, for the node's log."""
    trial: bool = field(default=False, compare=False)
    """As in the request: it says nothing of how the group's own plans go."""


@frozen_value
class RegexResolved:
    """What came of a `ResolveRegex`, under its version: the topics that match as a whole, or why nobody knows."""

    group_id: str
    regex: str
    topics: tuple[str, ...] = ()
    version: int = 0
    error: str = ""


@frozen_value
class LoadMeasured:
    """What came of a `MeasureLoad`, under its serial: partitions as they were at `at_ms`, of one moment in each event.

    A row is (topic, first partition, log ends, reading positions) of partitions that follow one another; -1 where
    the log is away, or nothing is committed. A position is never below the log's start (`reading_position`).
    """

    group_id: str
    serial: int
    rows: tuple[tuple[str, int, tuple[int, ...], tuple[int, ...]], ...] = ()
    at_ms: int = 0
    last: bool = False
    """Nothing more comes of this measurement."""
    refused: str = ""
    """Why there is none."""
    weighing: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """With the last: of the plugins that the coordinator may run those that take loads, and the options of each."""


@frozen_value
class Loaded:
    """The log has been replayed; the shard is active from here on."""

    damaged: tuple[ConsumerRecord | OfOperators, ...] = ()
    """A tombstone for each record of a KIP-848 group, of who plans for any, or of what is held of it, that is there and
    cannot be read."""
    lost_until: int = 0
    """Where the last records end that were given up, of whatever groups; 0: none were."""
    topics: frozenset[tuple[str, bytes]] = frozenset()
    """What the positions speak of that were read (`Shard.committed_to`): names with ids, as far as they have one."""


@frozen_value
class Unload:
    """The shard moves away or failed: park nothing, answer everyone NOT_COORDINATOR."""


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | Listen
    | Hello
    | SessionHeartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | TxnOffsetCommit
    | TxnWriteOver
    | TxnEnded
    | DescribeGroup
    | ListGroups
    | DeleteGroup
    | ExplainGroup
    | ConsumerHeartbeat
    | DescribeConsumerGroup
    | DescribeSettings
    | ListSettings
    | AlterSettings
    | ClaimFence
    | ControlRequest
    | CanaryRequest
    | CentralRequest
)


InstanceIdUser: TypeAlias = JoinGroup | SyncGroup | Heartbeat | OffsetCommit | ConsumerHeartbeat | Listen
"""Requests by which a static member names its group instance id."""

LedgerFact: TypeAlias = ConnectionClosed | FetchedAfterLeaving | InstanceIdUser
"""What changes nothing but what the ledger says."""


@frozen_value
class TurnedAway:
    """A request was refused unread, for the log has no room: all that is known by it is that its sender lives."""

    request: Request

    @property
    def group_id(self) -> str:
        return str(getattr(self.request, "group_id", ""))


Event: TypeAlias = (
    Request
    | TurnedAway
    | Forget
    | StreamLost
    | HeldBack
    | TookOver
    | CutFound
    | StreamClosed
    | TimerFired
    | StoodStill
    | TopicsChanged
    | ConnectionClosed
    | FetchedAfterLeaving
    | RightsAnew
    | ExpireOffsets
    | ForgetOffsets
    | ContinueTask
    | ReviewTopics
    | Planned
    | TrialEvent
    | TxnEvent
    | RegexResolved
    | LoadMeasured
    | BalanceGoesOn
    | LongWorkGoesOn
    | GroupObserved
    | GroupUnseen
    | RecordsWatched
    | WatchStood
    | GroupSeen
    | GroupsVanished
    | Loaded
    | Unload
)
