"""A classic group and its members: state, the legal moves between states, checks of requests, and who makes its plans.

Hard state is `stored` (what the log says) and the offsets; everything else is soft and may be lost with the process.
Checks come first and refuse by raising, so that a refusal leaves no trace. Counts by protocol keep a join cheap in a
group of thousands.

`choose_classic_planner` applies the settings `assignor`, `assignor.protocols` and `cooperative.only`. Client
libraries lead a group only if the leader's id in the answer to JoinGroup is their own. Where it is no member's id,
they fetch their share like any follower, as Kafka's coordinator does for classic members of KIP-848 groups. So the
coordinator can plan for clients that never heard of it, unless they need more than partitions in their share.

A static member that missed rounds of a group planned by the coordinator keeps its place (KIP-345) and its
subscription: what it reported to own is older than the last plan. Cooperative clients work on with what that plan
gave them until they receive another one. Eager ones are left out: what they report is what they remember.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice

from muster.assignors.api import JsonValue, RebalanceProtocol, TopicPartition
from muster.assignors.api import Member as AssignorMember
from muster.assignors.data.values import TOLD_BESIDE, raw_claims
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.groups.extensions import GroupView
from muster.coordinator.core.groups.member_history import MAX_SCANNED, MemberHistory, SeenMember
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.events import JoinGroup
from muster.coordinator.core.model.ledger import Departure, OngoingRebalance, RebalanceSettling, WithheldPartition
from muster.coordinator.core.model.plan import (
    CONSUMER,
    FIXED_BYTES,
    Plan,
    PlanRequest,
    assignment_of,
    owned_of,
    text_bytes,
    topics_of,
)
from muster.coordinator.core.model.records import GroupStored, MemberIdentifiers, MemberRecord
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import GroupState, Incarnation, Protocol, RequestId, StoredOffset, TimerKey
from muster.coordinator.core.settings.assignor_choice import (
    ASSIGNOR,
    COOPERATIVE_ONLY,
    PROTOCOLS,
    chosen_assignor,
    chosen_options,
)
from muster.coordinator.core.settings.setting import HANDOFF_TIMEOUT
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Members
# -------


@dataclass(slots=True)
class ClassicMember:
    """A member while it lives in the group. `join_request` and `sync_request` are its parked requests.

    What a group counts about its members (`protocols`, `join_request`) is changed through `ClassicMembers` only.
    """

    id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_request: RequestId | None = None
    sync_request: RequestId | None = None
    last_seen_ms: int = 0
    remote_assignor: str = ""
    """The assignor that it asks the coordinator to run; empty: it is ready to lead."""
    client_software: str = field(default="", compare=False)
    """What its client runs, by its own words. Soft: it is told again with the next join."""
    rights: Rights = field(default=None, compare=False)
    """Soft: each join says it anew."""
    connection: int = field(default=0, compare=False)
    """By which connection it joined last. Soft: 0 after a reload, and where the door does not say."""
    noticed_ms: int = field(default=0, compare=False)
    """When it came, or last joined again because topics had changed. Soft."""
    generation: int = 0
    """The last generation it was told to join. Soft: after a reload, that of the record."""

    @property
    def joining(self) -> bool:
        return self.join_request is not None

    @property
    def syncing(self) -> bool:
        return self.sync_request is not None

    @property
    def offer(self) -> frozenset[str]:
        """The names it offers, whatever their order."""
        return frozenset(protocol.name for protocol in self.protocols)

    @property
    def seen(self) -> SeenMember:
        return SeenMember(
            self.id,
            self.client_id,
            self.client_host,
            self.client_software,
            self.group_instance_id or "",
            self.connection,
            self.last_seen_ms,
            self.session_timeout_ms,
            tuple(protocol.name for protocol in self.protocols),
        )

    @property
    def identifiers(self) -> MemberIdentifiers:
        return MemberIdentifiers(self.id, self.group_instance_id, self.client_id, self.client_host)

    def metadata(self, protocol: str | None) -> bytes:
        """The subscription that belongs to `protocol`, empty when the member does not offer it."""
        for offered in self.protocols:
            if offered.name == protocol:
                return offered.metadata
        return b""

    @property
    def client(self) -> str:
        """Who it is, whichever id it comes under: its instance, else its client id and host."""
        return self.group_instance_id or f"{self.client_id} at {self.client_host}"


@dataclass(frozen=True, slots=True)
class UnexplainedRejoin:
    """A member joined again, and no fact told why: by then. topics_added, topics_removed: of its subscription."""

    member: ClassicMember
    topics_added: frozenset[str]
    topics_removed: frozenset[str]
    reason: str
    at_ms: int


class ClassicMembers(dict[str, ClassicMember]):
    """Member id -> member, in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.joining_count = 0
        self._supporters: Counter[str] = Counter()
        self._said: tuple[str | None, list[bytes]] = (None, [])
        """A protocol, and what each member says of it; an empty list is not known."""

    def add(self, member: ClassicMember) -> None:
        assert member.id not in self, f"member {member.id!r} is there already"
        self[member.id] = member
        self.joining_count += member.joining
        self._supporters.update(member.offer)
        self._said = (None, [])

    def remove(self, member: ClassicMember) -> None:
        del self[member.id]
        self.joining_count -= member.joining
        self._withdraw(member)

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """The same member under a new id, in the same place of the order."""
        renamed = [(new_id if key == member.id else key, each) for key, each in self.items()]
        member.id = new_id
        self.clear()
        self.update(renamed)

    def park(self, member: ClassicMember, request_id: RequestId) -> None:
        """The member waits for the join phase to end."""
        self.joining_count += member.join_request is None
        member.join_request = request_id

    def unpark(self, member: ClassicMember) -> RequestId | None:
        """The request to answer, if there is one; the member waits no longer."""
        request_id, member.join_request = member.join_request, None
        self.joining_count -= request_id is not None
        return request_id

    def offer(self, member: ClassicMember, protocols: tuple[Protocol, ...]) -> None:
        """The member offers these from now on; as a rule they are what it offered before."""
        if protocols == member.protocols:
            return
        self._withdraw(member)  # forgets what it said
        member.protocols = protocols
        self._supporters.update(member.offer)

    @property
    def common_protocols(self) -> set[str]:
        """The names that every member offers."""
        everyone = len(self)
        return {name for name, count in self._supporters.items() if count == everyone}

    def agrees_to(self, protocols: tuple[Protocol, ...]) -> bool:
        """Whether every member offers one of these."""
        for protocol in protocols:  # noqa: SIM110  # every join asks: a generator would be felt
            if self._supporters.get(protocol.name, 0) == len(self):
                return True
        return False

    def subscriptions(self, protocol: str | None) -> list[bytes]:
        """What each says of what it reads, in order (`ClassicMember.metadata`). Nobody may change the list.

        Nearly all offer one protocol, and a generation asks five times.
        """
        known, said = self._said
        if known != protocol or not said:
            said = [
                member.protocols[0].metadata
                if member.protocols and member.protocols[0].name == protocol
                else member.metadata(protocol)
                for member in self.values()
            ]
            self._said = protocol, said
        return said

    def _withdraw(self, member: ClassicMember) -> None:
        self._said = (None, [])
        for name in member.offer:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]


# Which planner makes the plans
# -----------------------------

PLAIN = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "RoundRobinAssigner"})
"""Names whose members read only partitions in their share: the first four of Kafka's client in Java, librdkafka,
kafka-python, aiokafka, Sarama and franz-go, the last of kafkajs. Never `stream`: Kafka Streams dies of a share without
its user data."""


@dataclass(frozen=True, slots=True)
class ClassicPlanner:
    """Who makes the plans of a generation."""

    assignor: str = ""
    """What the coordinator runs, by its own name; empty: a member leads."""
    by_setting: bool = False
    """An operator wants it so, by the setting or a canary; else the members ask for it."""
    kept_out: str = ""
    """Why the setting does not count, and because of whom; empty: it does, or there is none."""

    def same(self, other: "ClassicPlanner") -> bool:
        """Whether plans are made by the same, whatever is told of it."""
        return (self.assignor, self.by_setting) == (other.assignor, other.by_setting)


A_MEMBER = ClassicPlanner()


def handoff_timeout_ms(state: ShardState, group_id: str) -> int:
    """How long whoever has to let go may take; 0: as long as a rebalance may take."""
    return HANDOFF_TIMEOUT.of(state, group_id)


def choose_classic_planner(
    state: ShardState,
    group_id: str,
    protocol_type: str | None,
    protocol: str,
    members: Sequence[ClassicMember],
    asked: str,
) -> ClassicPlanner:
    """Who plans for classic members that voted for this protocol. `asked`: the assignor that all of them ask for.

    Members that ask have said themselves that a share of partitions is all they need.
    """
    word = chosen_assignor(state, group_id)
    if not word:
        return ClassicPlanner(asked) if asked else A_MEMBER
    why = suspension_reason(state, group_id)
    if not why and not asked:
        why = unfit_reason(state, group_id, protocol_type, protocol, members)
    return (
        ClassicPlanner(asked, kept_out=f"{ASSIGNOR.name}={word} does not count: {why}")
        if why
        else ClassicPlanner(word, True)
    )


def suspension_reason(state: ShardState, group_id: str) -> str:
    """Why the setting has no effect until it is set again; empty: it has."""
    stored = state.settings.get(group_id)
    return stored.suspended if stored else ""


def unfit_reason(
    state: ShardState, group_id: str, protocol_type: str | None, protocol: str, members: Sequence[ClassicMember]
) -> str:
    """Why these members need a leader of their own, and which of them is the first; empty: they do not."""
    if protocol_type != CONSUMER:
        return f"the members' protocol type is {protocol_type!r}, and only {CONSUMER!r} can be planned for here"
    plain = PLAIN.union(PROTOCOLS.of(state, group_id))
    if protocol not in plain:
        # All of them offer it; whoever offers nothing else that would do is why it was chosen.
        culprit = next((member for member in members if not member.offer & plain), members[0])
        return (
            f"the members voted for {protocol!r}, which may need more than partitions in a share: "
            f"{describe_client(culprit)} "
            f"offers {', '.join(sorted(culprit.offer))}. If it reads partitions only, name it in {PROTOCOLS.name}"
        )
    unread = next((member for member in members if topics_of(member.metadata(protocol)) is None), None)
    return f"the subscription of {describe_client(unread)} cannot be read" if unread else ""


def describe_client(member: ClassicMember) -> str:
    """The member as an operator knows it: its id, client, and what that says it runs."""
    software = f", {member.client_software}" if member.client_software else ""
    return f"member {member.id} ({member.client_id} at {member.client_host}{software})"


@cache
def cooperative_names() -> frozenset[str]:
    """Names of built-in assignors whose members keep what they have while a rebalance goes on."""
    return frozenset(name for name in BUILT_IN if resolve(name).protocol is RebalanceProtocol.COOPERATIVE)


def check_cooperative_only(request: JoinGroup, state: ShardState) -> None:
    """With `cooperative.only`, refuse whoever would behave eagerly: one eager name among its offers makes it so."""
    if request.protocol_type != CONSUMER:
        return
    if not COOPERATIVE_ONLY.of(state, request.group_id):
        return
    eager = [protocol.name for protocol in request.protocols if protocol.name not in cooperative_names()]
    if eager:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {request.group_id!r} takes cooperative members only ({COOPERATIVE_ONLY.name}), and one that offers "
            f"{', '.join(eager)} gives up all it has in each rebalance; let it offer cooperative names alone: "
            f"{', '.join(sorted(cooperative_names()))}",
        )


def have_options_changed(planned: Mapping[str, JsonValue], group_id: str, state: ShardState) -> bool:
    """Whether a plan was made with other options than the assignor has now; what is only told beside them is none."""
    before = {name: value for name, value in planned.items() if name not in TOLD_BESIDE}
    return before != dict(chosen_options(state, group_id))


# The group
# ---------

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

    history: MemberHistory = field(default_factory=MemberHistory, compare=False)
    """Who went and how, for telling who is back. Soft."""
    arrived_again: list[Incarnation] = field(default_factory=list, compare=False)
    """Newcomers that are former members, for the ledger's next entry."""
    unexplained: list[UnexplainedRejoin] = field(default_factory=list, compare=False)
    """The last ones, for news of topics that come later. Soft."""
    planned_at_ms: int = 0
    """When the last plan took effect, or the group was loaded."""
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
    def ongoing_rebalance(self) -> OngoingRebalance | None:
        return self.rebalance

    def seen_members(self) -> Iterator[SeenMember]:
        return (member.seen for member in self.members.values())

    def unheard_members(self, since_ms: int) -> Iterator[SeenMember]:
        first = islice(self.members.values(), MAX_SCANNED)
        return (member.seen for member in first if member.last_seen_ms <= since_ms)

    @property
    def can_rebalance(self) -> bool:
        return self.state in (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)

    @property
    def everyone_joined(self) -> bool:
        return not self.pending_joins and self.members.joining_count == len(self.members)

    @property
    def max_rebalance_timeout_ms(self) -> int:
        return max([member.rebalance_timeout_ms for member in self.members.values()], default=0)

    @property
    def plan_timers(self) -> tuple[TimerKey, TimerKey, TimerKey]:
        """Those of a plan that is made, fetched or followed by another round."""
        return ("sync", self.id), ("assign", self.id), ("follow", self.id)

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
        size, names = 0, list[str | None]()
        subscriptions = self.members.subscriptions(self.protocol_name)
        for member, subscription in zip(self.members.values(), subscriptions, strict=True):
            if member.id != without:
                share = member.assignment if shares is None else shares.get(member.id, b"")
                names += (member.id, member.group_instance_id, member.client_id, member.client_host)
                size += len(subscription) + len(share) + FIXED_BYTES
        return size + text_bytes(*names)

    def record(self, now_ms: int) -> GroupStored:
        """The group as it stands, as a fact to keep."""
        said = self.members.subscriptions(self.protocol_name)
        return GroupStored(
            group_id=self.id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=now_ms,
            members=tuple(
                [
                    MemberRecord(
                        member_id=member.id,
                        group_instance_id=member.group_instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout_ms=member.rebalance_timeout_ms,
                        session_timeout_ms=member.session_timeout_ms,
                        subscription=subscription,
                        assignment=member.assignment,
                    )
                    for member, subscription in zip(self.members.values(), said, strict=True)
                ]
            ),
        )


# Checks
# ------


def check_not_dead(group: ClassicGroup) -> None:
    if group.state is GroupState.DEAD:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.id!r} is going away here; look up its coordinator again"
        )


def require_member(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ClassicMember:
    """The member, if the identity holds. The order of the checks is part of the protocol."""
    if group_instance_id is not None:
        holder = group.static.get(group_instance_id)
        if holder is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group.id!r} has no member with group.instance.id {group_instance_id!r}; "
                f"join with an empty member id",
            )
        if holder != member_id:
            # KIP-345: the instance id is the identity, the member id its fencing token.
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"group.instance.id {group_instance_id!r} of group {group.id!r} now belongs to member {holder!r}; "
                f"give each running process an instance id of its own",
            )
    member = group.members.get(member_id)
    if member is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.id!r} has no member {member_id!r}; join with an empty member id",
        )
    return member


def check_generation(group: ClassicGroup, member: ClassicMember, generation: int) -> None:
    """The member speaks for the group's generation, and was itself told to join it."""
    if generation == group.trailing.get(member.id):
        return
    if generation != group.generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation} is not generation {group.generation} of group {group.id!r}; join again",
        )
    if generation != member.generation:
        # A generation that never got its plan is not on record: after a crash its number is given again. A static
        # member that was told of the first one keeps its place in the second, and must not pass for one of it.
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.id!r} has not joined this generation {generation} of group {group.id!r}; join again",
        )


def check_protocols(group: ClassicGroup, protocol_type: str, protocols: tuple[Protocol, ...]) -> None:
    """The offer must be one that the group can still agree on."""
    if not protocol_type or not protocols:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "protocol_type and at least one protocol are required to join a group",
        )
    if not group.members:
        return
    if protocol_type != group.protocol_type:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"protocol_type {protocol_type!r} is not {group.protocol_type!r}, the one of group {group.id!r}",
        )
    if not group.members.agrees_to(protocols):
        common, offered = group.members.common_protocols, [protocol.name for protocol in protocols]
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"none of {', '.join(offered)} is supported by every member of group {group.id!r}; "
            f"all of them support: {', '.join(sorted(common)) or 'nothing in common'}",
        )


def check_room(group: ClassicGroup, member_id: str, max_size: int) -> None:
    """KIP-389: while preparing, only those who have already rejoined hold a place."""
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return
        case GroupState.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            accepted = (member is not None and member.joining) or group.members.joining_count < max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            accepted = member_id in group.members or len(group.members) < max_size
    if not accepted:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} has reached group.max.size ({max_size}); stop a member or raise the limit",
        )


# Absent static members
# ---------------------


def absent_members(group: ClassicGroup) -> dict[str, ClassicMember]:
    """Those that have not joined since the last plan was made, by member id."""
    if group.stored is None or not group.remote:
        return {}
    last = group.stored.generation
    return {
        member.id: member
        for member in group.members.values()
        if member.generation <= last and member.generation != group.generation and not is_eager(member)
    }


def last_planned_shares(group: ClassicGroup) -> Plan:
    """The last plan, of those who are there; a static member may go by another id by now."""
    if group.stored is None:
        return {}
    shares = {
        group.static.get(record.group_instance_id or "", record.member_id): assignment_of(record.assignment)
        for record in group.stored.members
    }
    return {member_id: share for member_id, share in shares.items() if member_id in group.members}


def is_eager(member: ClassicMember) -> bool:
    """Whether the member lets go of all that it has before it joins: one eager name among its offers makes it so."""
    return not cooperative_names().issuperset(member.offer)


def remembered_shares(group: ClassicGroup) -> Plan:
    """What the last plan gave members that hold nothing while they join. Plans go by it, and nobody waits for it."""
    return {
        member_id: share
        for member_id, share in last_planned_shares(group).items()
        if is_eager(group.members[member_id])
        and not any(owned_of(group.members[member_id].metadata(group.protocol_name)).values())
    }


def classic_view(group: ClassicGroup) -> GroupView:
    """The group as extensions see it: each member has its share of the last plan."""
    return GroupView(
        group.id,
        group.rebalance,
        lambda: {member.id: member.identifiers for member in group.members.values()},
        lambda: last_planned_shares(group),
    )


def shares_of_absent(group: ClassicGroup) -> dict[str, dict[str, frozenset[int]]]:
    """{member id: {topic: partitions}} of the absent members: all that they may be working on.

    That is what they said, what the last plan gave them, and what plans have withheld from others for their sake.
    """
    silent = absent_members(group)
    if not silent:
        return {}
    shares = last_planned_shares(group)
    found: dict[str, dict[str, frozenset[int]]] = {}
    for member in silent.values():
        mine = found[member.id] = dict(owned_of(member.metadata(group.protocol_name)))
        for topic, partitions in shares.get(member.id, {}).items():
            mine[topic] = mine.get(topic, frozenset()).union(partitions)
    for (topic, partition), withheld in group.carried.items():
        if withheld.since_ms is None and withheld.holder in found:
            mine = found[withheld.holder]
            mine[topic] = mine.get(topic, frozenset()) | {partition}
    return found


def absent_with_claims(group: ClassicGroup) -> list[AssignorMember]:
    """The absent members with all that `shares_of_absent` tells: claims that hold up others, whoever owns a partition
    by right.
    """
    return [
        AssignorMember(member_id, (), {topic: sorted(row) for topic, row in owned.items()})
        for member_id, owned in shares_of_absent(group).items()
    ]


def with_last_shares(group: ClassicGroup, members: Sequence[AssignorMember]) -> list[AssignorMember]:
    """The same members, but what the last plan gave the absent is what they own, as of that plan.

    What somebody else may still be working on is not theirs yet, unless they had it before: a group that turns classic
    comes with a target that not everybody has reached.
    """
    silent = absent_with_claims(group)
    if not silent:
        return list(members)
    assert group.stored is not None
    shares, generation = last_planned_shares(group), group.stored.generation
    absent_ids, claimed = {each.id for each in silent}, raw_claims([*members, *silent])
    return [
        replace(each, owned=own_claims(each, shares.get(each.id, {}), claimed), generation=generation)
        if each.id in absent_ids
        else each
        for each in members
    ]


def own_claims(
    member: AssignorMember, share: Mapping[str, Sequence[int]], claimed: Mapping[TopicPartition, set[str]]
) -> dict[str, list[int]]:
    said = member.owned or {}
    owned = {
        topic: [
            partition
            for partition in partitions
            if partition in said.get(topic, ()) or not claimed.get((topic, partition), set()) - {member.id}
        ]
        for topic, partitions in share.items()
    }
    return {topic: partitions for topic, partitions in owned.items() if partitions}
