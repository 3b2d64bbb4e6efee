"""What can happen to a shard. Requests carry the edge's token; ids and times come in, they are never made here."""

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from muster.assignors.api import JsonValue, Snapshot
from muster.coordinator.core.model.balance_events import BalanceGoesOn
from muster.coordinator.core.model.consumer_records import ConsumerRecord, Shares
from muster.coordinator.core.model.control_events import ControlRequest
from muster.coordinator.core.model.core_records import OfOperators
from muster.coordinator.core.model.events import CentralRequest, StreamClosed
from muster.coordinator.core.model.fences_events import ClaimFence
from muster.coordinator.core.model.observed_events import GroupObserved, GroupUnseen
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.rights import Rights, RightsAnew
from muster.coordinator.core.model.streams import CutFound as CutFound
from muster.coordinator.core.model.streams import HeldBack as HeldBack
from muster.coordinator.core.model.streams import Hello as Hello
from muster.coordinator.core.model.streams import Listen as Listen
from muster.coordinator.core.model.streams import StreamLost as StreamLost
from muster.coordinator.core.model.streams import TookOver as TookOver
from muster.coordinator.core.model.trial_events import CanaryRequest, TrialEvent
from muster.coordinator.core.model.txn_events import TxnEvent, TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.model.types import MemberIdentity, Position, Protocol, RequestId, TimerKey
from muster.coordinator.core.model.value import frozen_value


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
    """One shard's groups; filters are compared without case, empty means all."""

    request_id: RequestId
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


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
    """`expected_version` None: whatever it is. `operator` is who asks, and from where."""

    request_id: RequestId
    group_id: str
    set: Mapping[str, JsonValue]
    unset: tuple[str, ...]
    expected_version: int | None
    validate_only: bool
    operator: str


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
    names: dict[bytes, str] = field(init=False, repr=False, compare=False)
    """The same from id to name: worked out once for all shards."""

    def __post_init__(self) -> None:
        self.names = {topic_id: name for name, topic_id in self.ids.items()}  # type: ignore[misc]


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
class Planned:
    """What came of a `PlanRequest` that the planner put off, under its epoch: the plan, or why there is none."""

    group_id: str
    epoch: int
    plan: Plan | None = None
    error: str = ""
    snapshot: Snapshot | None = None
    """What the assignor saw, where that is more than the request had: the lags of that moment."""


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

    A row is (topic, first partition, log ends, committed positions) of partitions that follow one another; -1 where
    the log is away, or nothing is committed.
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
    | RightsAnew
    | ExpireOffsets
    | ForgetOffsets
    | Planned
    | TrialEvent
    | TxnEvent
    | RegexResolved
    | LoadMeasured
    | BalanceGoesOn
    | GroupObserved
    | GroupUnseen
    | Loaded
    | Unload
)
