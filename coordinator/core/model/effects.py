"""What a step asks of the runtime: records to keep, replies to release, timers to set. Nothing here acts.

`REPLY_TYPES` gives each request's type of reply. A refusal is a reply of that type with an error code.

Orders to members of central groups are numbered along a member's stream.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from muster.assignors.api import JsonValue
from muster.coordinator.core.model import events
from muster.coordinator.core.model import events as central
from muster.coordinator.core.model import events as control
from muster.coordinator.core.model import events as trial
from muster.coordinator.core.model.events import (
    ClaimFence,
    DescribeGroup,
    Event,
    JoinGroup,
    Request,
    TxnEnded,
    TxnOffsetCommit,
    TxnWriteOver,
)
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.records import (
    CanaryStored,
    Epochs,
    FenceStored,
    HoldsStored,
    Record,
    Shares,
    TopicId,
)
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.model.types import (
    Cause,
    ListedGroup,
    PartitionMove,
    RebalanceEntry,
    RequestId,
    Stall,
    StoredOffset,
    Takeover,
    TimerKey,
)
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.values import frozen_value

# Orders to members of central groups
# -----------------------------------

NOTHING_COMMITTED = -1


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer at once, with the consumed offsets."""

    number: int


@dataclass(frozen=True, slots=True)
class StopFetcher:
    """Stop fetching, let the application know, then answer with the offsets."""

    number: int
    cause: Cause
    cause_detail: str
    rebalance_number: int


@dataclass(frozen=True, slots=True)
class StartFetcher:
    """Fetch exactly this: (topic, partition, offset), with NOTHING_COMMITTED where the member has to know better."""

    number: int
    generation: int
    partitions: tuple[tuple[str, int, int], ...]
    cause: Cause
    cause_detail: str
    rebalance_number: int


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """All attempts failed, and everybody goes on with what is stored; or a topic is not to be had. Needs no answer."""

    number: int
    detail: str


Order: TypeAlias = Ping | StopFetcher | StartFetcher | RebalanceFailed


# Canaries
# --------


@frozen_value
class CanaryReply:
    """The canary as it is, or would be; None: the group never had one. `idle`: guards that do not count, and why.

    `moves`: what changes hands for its start; `moves_unknown`: why nothing is known of that.
    """

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    canary: CanaryStored | None = None
    idle: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[PartitionMove, ...] = ()
    moves_unknown: str = ""


# What operators have going on in a group
# ---------------------------------------


@frozen_value
class BalanceView:
    """`heaviest`: the member that carried most when the group was judged last, `ratio` times the mean (None: it has
    not been). `paid`: evaluations in a row in which moves would have paid, `rounds`: how many it takes. `resting`:
    partitions that moved too recently to move again. `idle`: why nothing is measured, judged or done, in a sentence.
    """

    mode: str
    idle: str
    heaviest: str
    ratio: float | None
    paid: int
    rounds: int
    resting: int


@frozen_value
class Controls:
    """None and nothing where a group has no such thing. `canary`: only while it runs. `fences`: how many there are, and
    `newest_fences` some of them, those first that were claimed last.
    """

    canary: CanaryReply | None = None
    balance: BalanceView | None = None
    fences: int = 0
    newest_fences: tuple[FenceStored, ...] = ()


NO_CONTROLS: Final = Controls()


# Transactions
# ------------


@frozen_value
class TxnOffsetCommitReply:
    """`code` stands for every partition that `partitions` does not name. `kept`: what is to be written now, under the
    producer's own numbers, where the request named no producer."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: Mapping[tuple[str, int], ErrorCode] = field(default_factory=dict)
    kept: Mapping[tuple[str, int], StoredOffset] = field(default_factory=dict)


@frozen_value
class TxnWriteOverReply:
    """All that was decided before is in the log."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen_value
class TxnEndedReply:
    """The marker is durable, and its positions count or are dropped."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""


# Replies and effects
# -------------------


@frozen_value
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen_value
class JoinReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""
    rebalance_number: int = 0
    leader_state: str = ""
    """For the leader of a delayed group: what the leader before it knew."""
    scheduled_delay_ms: int | None = None
    """For the leader of a delayed group: how much of the delay is left; None when none runs."""


@frozen_value
class SyncReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@frozen_value
class HeartbeatReply:
    """With REBALANCE_IN_PROGRESS: why, so that whoever has to let go can be told."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""


@frozen_value
class ConsumerHeartbeatReply:
    """`assignment` None means: as before. An empty one takes everything away; the two differ.

    `names` names the topics of the assignment, as far as they still exist.
    """

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Shares | None = None
    names: Mapping[TopicId, str] = field(default_factory=dict)
    cause: Cause = Cause.UNSPECIFIED
    """With an assignment: why the group was assigned anew."""
    cause_detail: str = ""
    revoke_within_ms: int = 0
    """With an assignment that takes partitions away: when they are taken."""
    coming: Shares | None = None
    """What the member is to have as soon as others let go of it."""
    heirs_ready: Shares = field(default_factory=dict)
    """Of what the member is to let go of, that whose next owner has prepared for it."""
    session_timeout_ms: int = 0
    """How long it is waited for without a word."""


@frozen_value
class ConsumerMemberView:
    """One member of a KIP-848 group. `state` is Kafka's word; `classic`: it speaks the classic protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    epoch: int
    state: str
    assigned: Epochs
    revoking: Epochs
    target: Shares
    classic: bool


@frozen_value
class DescribeConsumerReply:
    """ConsumerGroupDescribe: epochs, and per member what it has and what it is to have. `names` names the topics."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    group_id: str = ""
    state: str = "Dead"
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMemberView, ...] = ()
    names: Mapping[TopicId, str] = field(default_factory=dict)
    waiting_for: tuple[str, ...] = ()
    waiting_until_ms: int = 0


@frozen_value
class PushReply:
    """What a heartbeat would hear. Code NONE without `consumer` means: nothing after all."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    consumer: ConsumerHeartbeatReply | None = None
    crossed: bool = False
    """The heartbeat was left aside: what it did not know yet is on its way, and will be acknowledged by another."""
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""


@frozen_value
class HelloReply:
    """To a member with a session stream. An interval of 0 says nothing: it is no member, or nobody can tell now."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    heartbeat_interval_ms: int = 0


@frozen_value
class CentralReply:
    """To everything that a member of a central group says. `answered`: the highest order number heard back from it."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    orders: tuple[Order, ...] = ()
    answered: int = 0


@frozen_value
class MemberReply:
    member_id: str
    group_instance_id: str | None
    code: ErrorCode
    message: str = ""


@frozen_value
class LeaveReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    members: tuple[MemberReply, ...] = ()


@frozen_value
class OffsetCommitReply:
    """`code` stands for every partition that `partitions` does not name."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: Mapping[tuple[str, int], ErrorCode] = field(default_factory=dict)


@frozen_value
class OffsetFetchReply:
    """Asked partitions map to their offset, to None when nothing is committed, or are in `refused`.

    In the order asked; where everything was asked for, in none.
    """

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    offsets: Mapping[tuple[str, int], StoredOffset | None] = field(default_factory=dict)
    refused: Mapping[tuple[str, int], ErrorCode] = field(default_factory=dict)


@frozen_value
class OffsetDeleteReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: Mapping[tuple[str, int], ErrorCode] = field(default_factory=dict)


@frozen_value
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    client_software: str = ""
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    offers: tuple[str, ...] = ()
    """Assignors, in its order of preference."""
    last_heard_ms: int | None = None
    topics: tuple[str, ...] = ()
    """Where `metadata` does not say it."""


@frozen_value
class PlannedBy:
    """Who makes the group's plans. `kept_out`: why an assignor that is set does not, and because of whom."""

    assignor: str = ""
    """What the coordinator runs; empty: a member leads, or nobody is there."""
    by_setting: bool = False
    """An operator wants it, by a setting or a canary; else the members ask for it."""
    kept_out: str = ""


@frozen_value
class DescribeReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    group_id: str = ""
    state: str = "Dead"
    protocol_type: str = ""
    protocol_name: str = ""
    generation: int = 0
    leader: str = ""
    members: tuple[DescribedMember, ...] = ()
    waiting_for: tuple[str, ...] = ()
    waiting_until_ms: int = 0
    planned_by: PlannedBy = PlannedBy()
    controls: Controls = NO_CONTROLS


@frozen_value
class ListReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    groups: tuple[ListedGroup, ...] = ()


@frozen_value
class DeleteReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen_value
class SettingsReply:
    """The group's settings, as they are now or would be; version 0: it has none.

    `defaults`: what holds of every setting that there is, as long as the group has no value of its own. `suspended`:
    why `assignor`, though it is set, has no effect, and because of which client.
    """

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    version: int = 0
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    suspended: str = ""


@frozen_value
class ClaimFenceReply:
    """An ownership: who it is for logs to tell apart. `former` are producer ids whose epochs were used up before."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    producer_id: int = -1
    epoch: int = -1
    former: tuple[int, ...] = ()


@frozen_value
class HoldsReply:
    """What is held of the group, as it is now or would be (None: nothing), and in one sentence what was, or would be,
    done. `draining`: how many partitions each drain still has to move, in its order. `moves`: what changes hands;
    `moves_unknown`: why nothing is known of that.
    """

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    holds: HoldsStored | None = None
    sentence: str = ""
    draining: tuple[int, ...] = ()
    moves: tuple[PartitionMove, ...] = ()
    moves_unknown: str = ""


@frozen_value
class ListSettingsReply:
    """The groups that have settings, whether or not there is such a group."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    group_ids: tuple[str, ...] = ()


@frozen_value
class ExplainReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    entries: tuple[RebalanceEntry, ...] = ()
    """Newest first, each with what its settlement added."""
    stalls: tuple[Stall, ...] = ()
    """When the node stood still since the first of these, newest first."""
    takeovers: tuple[Takeover, ...] = ()
    """Which nodes took the group over since then, newest first."""


def refused_join(code: ErrorCode, member_id: str) -> JoinReply:
    """No generation for this member: what a parked JoinGroup hears when it will not be served."""
    return JoinReply(code, code.meaning, member_id=member_id)


def refused_sync(code: ErrorCode) -> SyncReply:
    """No share: what a parked SyncGroup hears when it will not be served."""
    return SyncReply(code, code.meaning)


Reply: TypeAlias = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | PushReply
    | HelloReply
    | LeaveReply
    | OffsetCommitReply
    | OffsetFetchReply
    | OffsetDeleteReply
    | TxnOffsetCommitReply
    | TxnWriteOverReply
    | TxnEndedReply
    | DescribeReply
    | ListReply
    | DeleteReply
    | ExplainReply
    | SettingsReply
    | ListSettingsReply
    | ClaimFenceReply
    | HoldsReply
    | CanaryReply
    | ConsumerHeartbeatReply
    | DescribeConsumerReply
    | CentralReply
)


@frozen_value
class GroupChanged:
    """A notice for watchers, released like a reply: once everything before it is durable.

    `entry` is set when a rebalance has been decided, and once more, with its unowned times, when it has settled.
    """

    group_id: str
    state: str
    generation: int
    entry: RebalanceEntry | None = None


@frozen_value
class ResolveRegex:
    """Find out, off the loop, which of `topics` the regular expression matches as a whole.

    `version` is this request's own number, and greater than that of any change of the topics before it.
    """

    group_id: str
    regex: str
    topics: Collection[str]
    version: int


@frozen_value
class MeasureLoad:
    """Find out where the logs of these topics end and what the group has committed there (topic -> partitions).

    `serial` is this request's own number. `LoadMeasured` brings the answer, in pieces.
    """

    group_id: str
    serial: int
    topics: Mapping[str, int]


@dataclass(slots=True)
class Effects:
    """What one step wants. Replies and notices may be released once all `records` up to here are durable.

    `plans`, `regexes` and `measures` may be worked on at once: what they lead to comes back as an event. `chores` are
    what is left of something long: events to be stepped in later turns, one in each.

    `rest` is what is left of this very event, a chore as well. Until nothing is left the shard steps nothing else, and
    what all slices have decided is one append. `rows` are those of replies that may be long (members, and positions by
    the ten), groups and members that were all looked at, and partitions on their way to their owners by the four.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[RequestId, Reply]] = field(default_factory=list)
    timers: dict[TimerKey, int | None] = field(default_factory=dict)
    notices: list[GroupChanged] = field(default_factory=list)
    plans: list[PlanRequest | ShadowRequest] = field(default_factory=list)
    regexes: list[ResolveRegex] = field(default_factory=list)
    measures: list[MeasureLoad] = field(default_factory=list)
    chores: list[Event] = field(default_factory=list)
    rest: Event | None = None
    rows: int = 0

    @property
    def decided(self) -> bool:
        """Whether there is anything to be done, kept or told."""
        wanted = (self.plans, self.regexes, self.measures, self.chores, self.rest)
        return any((self.records, self.replies, self.timers, self.notices, *wanted))

    def reply(self, request_id: RequestId, reply: Reply) -> None:
        self.replies.append((request_id, reply))


# Refusals
# --------

REPLY_TYPES: Mapping[type[Event], type[Reply]] = {
    events.JoinGroup: JoinReply,
    events.SyncGroup: SyncReply,
    events.Heartbeat: HeartbeatReply,
    events.Listen: PushReply,
    events.Hello: HelloReply,
    events.SessionHeartbeat: PushReply,
    events.LeaveGroup: LeaveReply,
    events.OffsetCommit: OffsetCommitReply,
    events.OffsetFetch: OffsetFetchReply,
    events.OffsetDelete: OffsetDeleteReply,
    TxnOffsetCommit: TxnOffsetCommitReply,
    TxnWriteOver: TxnWriteOverReply,
    TxnEnded: TxnEndedReply,
    events.DescribeGroup: DescribeReply,
    events.ListGroups: ListReply,
    events.DeleteGroup: DeleteReply,
    events.ExplainGroup: ExplainReply,
    events.DescribeSettings: SettingsReply,
    events.ListSettings: ListSettingsReply,
    events.AlterSettings: SettingsReply,
    ClaimFence: ClaimFenceReply,
    control.HoldGroup: HoldsReply,
    control.ResumeGroup: HoldsReply,
    control.DescribeHolds: HoldsReply,
    trial.StartCanary: CanaryReply,
    trial.EndCanary: CanaryReply,
    trial.DescribeCanary: CanaryReply,
    events.ConsumerHeartbeat: ConsumerHeartbeatReply,
    events.DescribeConsumerGroup: DescribeConsumerReply,
    central.RegisterConsumer: CentralReply,
    central.AwaitOrders: CentralReply,
    central.PingAnswered: CentralReply,
    central.FetcherStopped: CentralReply,
    central.FetcherStarted: CentralReply,
    central.Deregister: CentralReply,
}
"""An event that is not in here is not a request."""


def add_refusal(request: Any, refusal: CoordinatorError, out: Effects) -> Effects:
    """The request is refused; `out` is what the refusal itself has led to, as a rule nothing."""
    out.reply(request.request_id, refusal_reply(request, refusal.code, refusal.message))
    return out


def refusal_reply(request: Request, code: ErrorCode, message: str) -> Reply:
    """The reply of the right kind that says no."""
    if isinstance(request, JoinGroup):
        return JoinReply(code, message, member_id=request.member_id)
    if isinstance(request, DescribeGroup):
        return DescribeReply(code, message, group_id=request.group_id)
    return refusal_of(type(request), code, message)


ELSEWHERE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""For now this shard takes nothing here."""


def refusal_of(kind: type[Event], code: ErrorCode, why: str = "") -> Reply:
    """A reply that says no to a request of this type, where nothing more is known of it.

    Whoever writes markers knows the log's codes, and tries again at whoever leads the partition (TX-G4).
    """
    if kind is TxnEnded and code in ELSEWHERE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return REPLY_TYPES[kind](code=code, message=why or code.meaning)
