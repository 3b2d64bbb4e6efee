"""A classic group: its members, its state, and the legal moves between states.

Hard state is `stored` (what the log says) and the offsets; everything else is soft and may die with the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.assignors.api import JsonValue
from muster.coordinator.core.classic.assigning import A_MEMBER, ClassicPlanner
from muster.coordinator.core.classic.members import ClassicMember, ClassicMembers
from muster.coordinator.core.model.bounds import FIXED_BYTES, text_bytes
from muster.coordinator.core.model.core_events import JoinGroup
from muster.coordinator.core.model.core_records import GroupStored, MemberRecord
from muster.coordinator.core.model.ledger import Departure, OngoingRebalance, RebalanceSettling
from muster.coordinator.core.model.moves import WithheldPartition
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.types import GroupState, RequestId, StoredOffset, TimerKey

MOVES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}
"""From each state to those it may become. The docs' diagram is drawn from this table."""


@dataclass(slots=True)
class ClassicGroup:
    """One group. `offsets` are keyed by (topic, partition)."""

    id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: ClassicMembers = field(default_factory=ClassicMembers)
    static: dict[str, str] = field(default_factory=dict)
    """group instance id -> member id"""
    pending_joins: set[str] = field(default_factory=set)
    """Ids handed out with MEMBER_ID_REQUIRED that have not come back yet."""
    pending_syncs: set[str] = field(default_factory=set)
    door: dict[RequestId, JoinGroup] = field(default_factory=dict)
    """Newcomers that wait until the group is frozen no longer."""
    new_member_added: bool = False
    initial_remaining_ms: int | None = None
    """While the initial delay runs: how much longer it may still be extended."""
    subscribed_topics: frozenset[str] | None = None
    """None: unknown, so nothing of the group may expire."""
    trailing: dict[str, int] = field(default_factory=dict)
    """Since a downgrade, until they join: members that were still on their way to its epoch, and at which they are."""
    restored: bool = False
    """Loaded from the log, and no generation has been completed since."""

    planner: ClassicPlanner = A_MEMBER
    """Who makes the plan of this generation."""
    plan_request: PlanRequest | None = None
    """What the coordinator waits for while it makes a plan."""
    plan_failures: int = 0
    plan_error: str = ""
    planned_topics: dict[str, int] = field(default_factory=dict)
    """The partition counts of the last plan that the coordinator made."""
    planned_options: Mapping[str, JsonValue] = field(default_factory=dict)
    """The options that its assignor had."""
    insisting: frozenset[str] = frozenset()
    """Clients that did not fetch their share of the last generation, of those that a setting had planned here and they
    were in."""

    stored: GroupStored | None = None
    offsets: dict[tuple[str, int], StoredOffset] = field(default_factory=dict)

    rebalance: OngoingRebalance | None = None
    departures: dict[str, Departure] = field(default_factory=dict)
    """Members that went since the last plan, for the ledger's next entry."""
    settling: RebalanceSettling | None = None
    carried: dict[tuple[str, int], WithheldPartition] = field(default_factory=dict)
    """Partitions that cooperative rounds withheld and nobody was given since."""

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def under_way(self) -> int:
        return self.rebalance.number if self.rebalance is not None else 0

    @property
    def logged(self) -> "ClassicGroup":
        return self

    @property
    def can_rebalance(self) -> bool:
        return self.state in (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)

    @property
    def everyone_joined(self) -> bool:
        return not self.pending_joins and self.members.joining_count == len(self.members)

    @property
    def max_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def join_timer(self) -> TimerKey:
        return ("join", self.id)

    @property
    def sync_timer(self) -> TimerKey:
        return ("sync", self.id)

    @property
    def assign_timer(self) -> TimerKey:
        return ("assign", self.id)

    @property
    def handoff_timer(self) -> TimerKey:
        return ("handoff", self.id)

    @property
    def follow_timer(self) -> TimerKey:
        return ("follow", self.id)

    @property
    def remote(self) -> str:
        """The assignor that the coordinator runs for this generation; empty: the leader makes the plan."""
        return self.planner.assignor

    @property
    def acting_leader(self) -> str:
        """Who makes the plans, as members are told: nobody when the coordinator does."""
        return "" if self.planner.assignor else self.leader or ""

    def session_timer(self, member_id: str) -> TimerKey:
        return ("session", self.id, member_id)

    def become(self, state: GroupState, now_ms: int) -> None:
        """Move to `state`; a move that MOVES does not list is a bug."""
        assert state in MOVES[self.state], f"group {self.id!r}: {self.state.value} -> {state.value} is not a legal move"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    def stored_bytes(self, shares: Mapping[str, bytes] | None = None, without: str = "") -> int:
        """What the log would keep of it, never estimated too low: with these shares, without that member."""
        return sum(
            len(member.metadata(self.protocol_name))
            + len(member.assignment if shares is None else shares.get(member.id, b""))
            + text_bytes(member.id, member.group_instance_id, member.client_id, member.client_host)
            + FIXED_BYTES
            for member in self.members.values()
            if member.id != without
        )

    def record(self, now_ms: int) -> GroupStored:
        """The group as it stands, as a fact to keep."""
        return GroupStored(
            group_id=self.id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=now_ms,
            members=tuple(stored_member(member, self.protocol_name) for member in self.members.values()),
        )


def stored_member(member: ClassicMember, protocol: str | None) -> MemberRecord:
    return MemberRecord(
        member_id=member.id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )
