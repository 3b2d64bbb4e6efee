"""The protocol of group kinds: what a shard asks of a group, and every kind answers in its own way.

A kind is a group class (data), the records it is made of, and one class that implements `GroupKind`; one line in
`kinds/registry.py` adds it to the shard. Kinds have no state: the group is passed in. A group id without a group has
a kind, too (`AbsentKind`), so callers never check which kind a group has.

Each call either does its work on `step`, or refuses by raising CoordinatorError before it has changed anything. A
`GroupConversion` is one way from one kind to another; the registry holds the table of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from muster.assignors.api import Snapshot
from muster.coordinator.core.groups.group import GroupData, OwnedPartitions
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import DescribeConsumerReply, DescribeReply
from muster.coordinator.core.model.events import (
    ClaimFence,
    ConnectionClosed,
    ConsumerHeartbeat,
    DeleteGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LedgerFact,
    Listen,
    OffsetCommit,
    OffsetFetch,
    Planned,
    RegexResolved,
    RegisterConsumer,
    StoodStill,
    SyncGroup,
)
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan_correction import GroupSituation
from muster.coordinator.core.model.rights import RightsAnew
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import ListedGroup, RequestId, StoredOffset, TimerKey
from muster.coordinator.errors import ErrorCode

G_contra = TypeVar("G_contra", contravariant=True)

FactApplier: TypeAlias = Callable[[ShardState, Any], None]
"""Makes a fact true, live and in replay. Tombstones of what is not there are harmless."""

NO_FACTS: Mapping[type[Any], FactApplier] = {}

Positions: TypeAlias = Mapping[tuple[str, int], StoredOffset]
RefusedPositions: TypeAlias = dict[tuple[str, int], ErrorCode]


class HeartbeatOutlook(Enum):
    """What a member's next heartbeat would hear, as far as that can be told without asking."""

    UNKNOWN = auto()
    NOTHING_NEW = auto()
    MOVED_ON = auto()
    """The member has heard of a later epoch than the one that it listens under."""


class GroupKind(Protocol[G_contra]):
    """What every kind of group answers."""

    @property
    def facts(self) -> Mapping[type[Any], FactApplier]:
        """The records that are this kind's own."""

    @property
    def counts_from_last_heard(self) -> bool:
        """Whether a group counts, without a timer, from when its members were last heard: a stall moves that, too."""

    # What members say.
    def join(self, group: G_contra, event: JoinGroup, step: Step, /) -> None: ...
    def sync(self, group: G_contra, event: SyncGroup, step: Step, /) -> None: ...
    def heartbeat(self, group: G_contra, event: Heartbeat, step: Step, /) -> None: ...
    def consumer_heartbeat(self, group: G_contra, event: ConsumerHeartbeat, step: Step, /) -> None: ...
    def register(self, group: G_contra, event: RegisterConsumer, step: Step, /) -> None: ...

    def lives(self, group: G_contra, event: ConsumerHeartbeat, step: Step, /) -> None:
        """All that the heartbeat says is that its sender is there."""

    def spoke(self, group: G_contra, member_id: str, step: Step, /) -> None:
        """A classic member has said something that was not read: it is there."""

    def forget(self, group: G_contra, member_id: str, request: RequestId, step: Step, /) -> None:
        """The client that this request of the member was parked for is gone."""

    def session_ms(self, group: G_contra, member_id: str, step: Step, /) -> int:
        """How long the member may be silent; 0: it is none, or says nothing by heartbeats."""

    def stream_opened(self, group: G_contra, member_id: str, connection: int, /) -> None:
        """The member has a session stream from now on, which counts as its connection."""

    # What members and operators say.
    def leave(self, group: G_contra, event: LeaveGroup, step: Step, /) -> None: ...

    def may_commit(self, group: G_contra, event: OffsetCommit, step: Step, /) -> RefusedPositions:
        """The partitions that this committer may not speak for. Refuses when there is none it may."""

    def owns(self, group: G_contra, event: ClaimFence, step: Step, /) -> bool | None:
        """Whether the partition is this member's as of that generation. None: this side cannot read the shares.

        Refuses where it is no member at all.
        """

    def positions(self, group: G_contra, event: OffsetFetch, step: Step, /) -> Positions:
        """All that is committed, if whoever asks may know it."""

    def subscribed(self, group: G_contra, group_id: str, /) -> frozenset[str] | None:
        """The topics that are read, whose positions may not be deleted. None: all, for it cannot be known."""

    # What operators say.
    def delete(self, group: G_contra, event: DeleteGroup, step: Step, /) -> None: ...

    def view(self, group: G_contra, group_id: str, step: Step, /) -> DescribeReply:
        """The group as DescribeGroups shows it."""

    def epochs(self, group: G_contra, group_id: str, step: Step, /) -> DescribeConsumerReply:
        """The group as ConsumerGroupDescribe shows it."""

    def listed(self, group: G_contra, /) -> Iterable[ListedGroup]:
        """Its lines in ListGroups."""

    def owners(self, group: G_contra, state: ShardState, former: OwnedPartitions, /) -> OwnedPartitions:
        """Who has which partition. `former` is what was answered last, and may be the answer again."""

    def assignor(self, group: G_contra, step: Step, /) -> str:
        """Who plans for it on this side; empty when nobody does, or nobody knows yet."""

    def plans_itself(self, group: G_contra, /) -> bool:
        """Whether its members make the plans, so that nothing said to the coordinator's assignor reaches them."""

    def classic_offers(self, group: G_contra, /) -> Iterable[tuple[str, frozenset[str]]]:
        """Its members of the classic protocol, and the names that each offers."""

    def settings_changed(self, group: G_contra, trigger: RebalanceTrigger, step: Step, /) -> None:
        """What was planned without the change is void."""

    def is_planned_by(self, group: G_contra, candidate: AssignorCandidate, step: Step, /) -> bool:
        """Whether the candidate, with its options, made the plan at hand: a change to it is followed by no other."""

    # What is held of it by operators.
    def situation(self, group: G_contra, step: Step, /) -> GroupSituation:
        """Who its members are, what they read, and who has what."""

    def at_rest(self, group: G_contra, /) -> bool:
        """Whether everybody has what it is to have."""

    def replan(self, group: G_contra, trigger: RebalanceTrigger, step: Step, /) -> None:
        """What stands, stands no longer: a rebalance, if it has members, whoever plans for it."""

    def snapshot(self, group: G_contra, step: Step, /) -> Snapshot | None:
        """What an assignor would plan from now: who owns what is what the last plan gave. None: nothing is planned."""

    # What the node says.
    def load(self, group: G_contra, step: Step, /) -> None:
        """The log has been replayed: bring the group to life."""

    def damaged(self, group: G_contra, step: Step, /) -> None:
        """It was brought to life, though one of several records that make it cannot be read: they may not fit.

        Called for each such record.
        """

    def word_lost(self, group: G_contra, step: Step, /) -> None:
        """It was brought to life, though what an operator had said of who plans for it cannot be read."""

    def unload(self, group: G_contra, step: Step, /) -> None:
        """The shard goes away: answer whoever is parked. Nothing hard changes."""

    def timer(self, group: G_contra, key: TimerKey, step: Step, /) -> None: ...

    def stood_still(self, group: G_contra, event: StoodStill, step: Step, /) -> None:
        """Asked of groups that count from when members were last heard, and of those in which a delay runs."""

    def topics_changed(self, group: G_contra, step: Step, /) -> None: ...

    def connection_closed(self, group: G_contra, event: ConnectionClosed, step: Step, /) -> None:
        """A connection by which members had joined is closed."""

    def explain(self, group: G_contra, event: LedgerFact, step: Step, /) -> None:
        """Write down what follows from a closed connection, or from a refusal for the sake of a group instance id."""

    def rights_changed(self, group: G_contra, event: RightsAnew, step: Step, /) -> None: ...
    def planned(self, group: G_contra, event: Planned, step: Step, /) -> None: ...
    def resolved(self, group: G_contra, event: RegexResolved, step: Step, /) -> None: ...

    def expire(self, group: G_contra, step: Step, /) -> None:
        """Drop positions past their retention, and the group when it is empty and has none left."""

    # What can be told without asking.
    def outlook(self, group: G_contra, listener: Listen, /) -> HeartbeatOutlook: ...

    def steady(self, group: G_contra, event: ConsumerHeartbeat, state: ShardState, /) -> bool:
        """Whether the heartbeat would leave no record."""


# Conversions
# -----------

G = TypeVar("G", bound=GroupData)
W = TypeVar("W")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class GroupConversion(Generic[G, W, C]):
    """One way. `why` is the type of what calls for it: a request, or what has become of the members.

    Check comes first, then change: `check` refuses by raising, and a conversion that was refused has changed nothing.
    What `check` has found out on the way is handed to `change`.
    """

    source: type[G]
    target: type[GroupData]
    why: type[W]
    when: Callable[[G, W, Step], bool]
    """Whether it is this group's turn; if not, the group answers as it is."""
    check: Callable[[G, W, Step], C]
    change: Callable[[G, W, C, Step], None]

    def made(self, group: G, why: W, step: Step) -> bool:
        """Convert the group if it is its turn. The group of that id is another one then: look it up again."""
        if not self.when(group, why, step):
            return False
        checked = self.check(group, why, step)
        self.change(group, why, checked, step)
        return True
