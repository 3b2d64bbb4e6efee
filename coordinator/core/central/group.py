"""A central group, its members, its states and the legal moves between them.

Hard state is `stored`, the ownership that holds; everything else is soft and may die with the process.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TypeAlias, TypeVar

from muster.assignors.api import Snapshot
from muster.coordinator.core.groups.extensions import GroupView
from muster.coordinator.core.groups.member_history import MAX_SCANNED, NO_CONNECTION, MemberHistory, SeenMember
from muster.coordinator.core.model.effects import Order
from muster.coordinator.core.model.ledger import OngoingRebalance, PlanDiff, RebalanceSettling, RebalanceTrigger
from muster.coordinator.core.model.plan import Plan, PlanRequest
from muster.coordinator.core.model.plan_correction import CorrectedPlan
from muster.coordinator.core.model.records import CentralOwner, CentralStored, HeldShare, MemberIdentifiers
from muster.coordinator.core.model.rights import Rights, readable_topics
from muster.coordinator.core.model.types import (
    Incarnation,
    MemberPlan,
    Partitions,
    RebalanceEntry,
    RequestId,
    Settlement,
    TimerKey,
)

NOT_FETCHING = -1
CLOCKS_APART = 20
"""A member's clock may run slower than ours by a twentieth."""


class CentralState(Enum):
    """What the one task of a group is doing."""

    EMPTY = "Empty"
    WAITING = "Waiting"
    ASSIGNING = "Assigning"
    STOPPING = "Stopping"
    STARTING = "Starting"
    BACKING_OFF = "BackingOff"
    STABLE = "Stable"


EMPTY, WAITING, ASSIGNING = CentralState.EMPTY, CentralState.WAITING, CentralState.ASSIGNING
STOPPING, STARTING = CentralState.STOPPING, CentralState.STARTING
BACKING_OFF, STABLE = CentralState.BACKING_OFF, CentralState.STABLE

MOVES: dict[CentralState, frozenset[CentralState]] = {
    EMPTY: frozenset({WAITING, ASSIGNING}),
    WAITING: frozenset({ASSIGNING, EMPTY}),
    ASSIGNING: frozenset({WAITING, STOPPING, STARTING, BACKING_OFF, STABLE, EMPTY}),
    STOPPING: frozenset({STARTING, ASSIGNING, WAITING, BACKING_OFF, EMPTY}),
    STARTING: frozenset({STABLE, ASSIGNING, WAITING, BACKING_OFF, EMPTY}),
    BACKING_OFF: frozenset({ASSIGNING, WAITING, EMPTY}),
    STABLE: frozenset({ASSIGNING, WAITING, EMPTY}),
}
"""From each state to those it may become. The table of docs/protocol/central.md is drawn from this one."""


class OrderedAction(Enum):
    """What a member was ordered to do and has not done yet."""

    STOP = "stop"
    START = "start"


T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]
"""Work that pauses after each slice, and returns its result: a step does one slice, and later turns do the rest."""


class TaskPart(Enum):
    """What a large group's task does in turns of its own, between two turns of others."""

    LOOK = "look whether another rebalance is due"
    ASK = "make the snapshot, and ask the assignor"
    CHECK = "look whether the plan is another than the ownership, and what it takes"
    DESCRIBE = "write down what the assignor saw"
    COMPARE = "compare the plan with the ownership before"
    STORE = "store the plan as the ownership, and begin to start members"
    SETTLE = "write down when each partition was fetched again"


@dataclass(frozen=True, slots=True)
class OutstandingOrder:
    """`number` is that of the order; answers to others are late."""

    want: OrderedAction
    number: int


@dataclass(slots=True)
class CentralMember:
    """A registered member, or one whose stream is gone and whose lease still runs (`stream` None)."""

    id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: frozenset[str] = frozenset()
    regex: str = ""
    stream: int | None = None
    fetching: int = NOT_FETCHING
    """The generation whose share it is fetching, as far as it has said."""
    may_fetch: bool = False
    """It has been told to start, and has not said that it stopped."""
    heard_ms: int = 0
    """When it was last heard of: its lease begins here."""
    orders: list[Order] = field(default_factory=list)
    """Not delivered yet: at most a ping, what is wanted of it, and a report."""
    waiting: RequestId | None = None
    """Its stream asks for orders."""
    last_number: int = 0
    answered: int = 0
    """The highest number that it has answered; it hears of that with the next order."""
    ping: int | None = None
    """The number of the ping that is under way."""
    pinged_ms: int = 0
    timed_out: int = 0
    """Pings in a row that were not answered in time."""
    demand: OutstandingOrder | None = None
    gone: RebalanceTrigger | None = None
    """Why its stream is gone: what its removal will be put down to when the lease is over."""
    client_software: str = field(default="", compare=False)
    """What its client runs, by its own words. Soft: it is told again with the next registration."""
    rights: Rights = field(default=None, compare=False)
    """Soft, too."""
    rack_id: str | None = field(default=None, compare=False)
    """Where it runs. Soft, too."""

    @property
    def identifiers(self) -> MemberIdentifiers:
        return MemberIdentifiers(self.id, None, self.client_id, self.client_host)

    @property
    def lost(self) -> bool:
        return self.stream is None

    @property
    def ping_interval_ms(self) -> int:
        return max(1, self.session_timeout_ms // 3)

    @property
    def patience_ms(self) -> int:
        """How long an answer may take."""
        return max(1, 2 * self.session_timeout_ms // 3)

    @property
    def lease_end_ms(self) -> int:
        """Until then it may be fetching: it stops by itself when a session timeout has passed on its own clock."""
        return self.heard_ms + self.session_timeout_ms + self.session_timeout_ms // CLOCKS_APART


@dataclass(slots=True)
class CheckedPlan:
    """The plan that the assignor's answer becomes, and the snapshot with all members. `wanted` and `size_bytes`: it by
    member, and what it takes on record, as far as that is known."""

    corrected: CorrectedPlan
    everybody: Snapshot
    wanted: Plan = field(default_factory=dict)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DecidedOwnership:
    """A plan as it goes on record: its owners, and the ledger's view of them. `listed_bytes`: what that and the moves
    take in the ledger's entry."""

    owners: tuple[CentralOwner, ...]
    members: tuple[MemberPlan, ...]
    listed_bytes: int
    owned: Plan
    """The owners' shares by member."""


@dataclass(frozen=True, slots=True)
class SettledRebalance:
    """What becomes known of a rebalance when all have started, and its entry before and with that, if it is kept."""

    settlement: Settlement
    entry: tuple[RebalanceEntry, RebalanceEntry] | None


@dataclass(slots=True)
class CentralTaskProgress:
    """What the group's task is about. Soft."""

    dirty: bool = False
    """Something happened since the plan was made: look again when this task is done."""
    request: PlanRequest | None = None
    """What the plan was, or is, made from."""
    put_off: bool = False
    """The plan is being made off the loop."""
    plan: Plan = field(default_factory=dict)
    """What is being brought about."""
    inherited: tuple[HeldShare, ...] = ()
    """What had waited for an heir, and has one in it."""
    failures: int = 0
    """Attempts of this rebalance that failed."""
    rebalance: OngoingRebalance | None = None
    settling: RebalanceSettling | None = None
    planning_since_ms: int = 0
    stopping_since_ms: int = 0
    stopped: dict[str, int] = field(default_factory=dict)
    """member -> when it had stopped, in that order"""
    awaited: set[str] = field(default_factory=set)
    """Whose answer the attempt waits for."""
    unordered: deque[str] = field(default_factory=deque)
    """Members that are yet to be ordered to stop, or to start."""
    left: TaskPart | None = None
    """What a later turn does first."""
    slices: Slices[None] | None = None
    """The part that is being done, as far as it is left."""
    continuing: bool = False
    """A later turn goes on with the task."""
    snapshot: Snapshot | None = None
    """What the assignor is to be asked with."""
    checking: CheckedPlan | None = None
    """The assignor's plan, while it is looked at."""
    described: tuple[str, str] = ("", "")
    """What the assignor saw, as the ledger keeps it, and where it is from."""
    compared: PlanDiff | None = None
    """What the plan changes."""
    decided: DecidedOwnership | None = None
    """The plan as it goes on record."""
    settled_at_ms: int | None = None
    """When all had started, until that is written down."""
    settled: SettledRebalance | None = None
    """What is written down of it."""
    newcomers: tuple[int, int] | None = None
    """When the first and the last came of those whom no plan has seen yet."""
    second_look: bool = False
    """The plan was made anew when everybody had stopped."""
    void: bool = False
    """A member that the plan counts on has left in good order."""
    regexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What the regular expressions in use stand for."""
    resolving: dict[str, int] = field(default_factory=dict)
    """Those that are being resolved off the loop, and the version that was asked for."""
    counts: dict[str, int] | None = None
    """The partition counts that the last plan was made from; None: none was made by this process."""


@dataclass(slots=True)
class CentralGroup:
    id: str
    stored: CentralStored | None = None
    owned: Plan = field(default_factory=dict, compare=False)
    """What `stored` says, by member."""
    state: CentralState = field(default=CentralState.EMPTY, compare=False)
    assignor: str = field(default="", compare=False)
    members: dict[str, CentralMember] = field(default_factory=dict, compare=False)
    progress: CentralTaskProgress = field(default_factory=CentralTaskProgress, compare=False)
    history: MemberHistory = field(default_factory=MemberHistory, compare=False)
    arrived_again: list[Incarnation] = field(default_factory=list, compare=False)
    """Newcomers that are former members, until the rebalance that they begin is under way."""

    @property
    def ongoing_rebalance(self) -> OngoingRebalance | None:
        return self.progress.rebalance

    def seen(self, member: CentralMember) -> SeenMember:
        return SeenMember(
            member.id,
            member.client_id,
            member.client_host,
            member.client_software,
            "",
            NO_CONNECTION,
            member.heard_ms,
            member.session_timeout_ms,
        )

    def seen_members(self) -> Iterator[SeenMember]:
        return (self.seen(member) for member in self.members.values())

    def unheard_members(self, since_ms: int) -> Iterator[SeenMember]:
        first = islice(self.members.values(), MAX_SCANNED)
        return (self.seen(member) for member in first if member.heard_ms <= since_ms)

    @property
    def generation(self) -> int:
        return self.stored.generation if self.stored is not None else 0

    @property
    def under_way(self) -> int:
        return self.progress.rebalance.number if self.progress.rebalance is not None else 0

    @property
    def logged(self) -> "CentralGroup":
        return self

    @property
    def lost(self) -> list[CentralMember]:
        return [member for member in self.members.values() if member.lost]

    @property
    def has_lost(self) -> bool:
        return any(member.stream is None for member in self.members.values())

    @property
    def present(self) -> list[CentralMember]:
        return [member for member in self.members.values() if member.stream is not None]

    def own(self, stored: CentralStored) -> None:
        """This ownership holds from here on."""
        self.stored = stored
        decided = self.progress.decided
        if decided is not None and decided.owners is stored.owners:
            self.owned = decided.owned  # made in slices
        else:
            self.owned = shares_of_owners(stored.owners)

    def is_late(self, member: CentralMember) -> bool:
        """It does not fetch what is stored for it, as far as it has said."""
        return not member.lost and member.id in self.owned and member.fetching != self.generation

    def late_members(self) -> list[str]:
        """All that are, in one look: there may be thousands."""
        owned, generation = self.owned, self.generation
        return [
            member.id
            for member in self.members.values()
            if member.fetching != generation and member.stream is not None and member.id in owned
        ]

    def become(self, state: CentralState) -> None:
        assert state is self.state or state in MOVES[self.state], f"{self.id}: {self.state} -> {state}"
        self.state = state

    def topics_of(self, member: CentralMember) -> frozenset[str]:
        """What it names as far as it may read that."""
        return readable_topics(member.rights, self.named_by(member))

    def named_by(self, member: CentralMember) -> frozenset[str]:
        """Names, and what its regular expression stands for so far."""
        return member.topics.union(self.progress.regexes.get(member.regex, ()))

    def subscribed_topics(self) -> frozenset[str]:
        """What the members read, all together, and what is stored for those who are to come back."""
        stored = {topic for share in self.owned.values() for topic in share}
        return self.named_topics().union(stored)

    def named_topics(self) -> frozenset[str]:
        """What the members name, all together. Most subscribe to the same as others do."""
        said = {(member.topics, member.regex) for member in self.members.values()}
        regexes = self.progress.regexes
        return frozenset().union(*(topics.union(regexes.get(regex, ())) for topics, regex in said))

    @property
    def newcomers_timer(self) -> TimerKey:
        return ("newcomers", self.id)

    @property
    def retry_timer(self) -> TimerKey:
        return ("retry", self.id)

    def lease_timer(self, member_id: str) -> TimerKey:
        return ("lease", self.id, member_id)

    def ping_timer(self, member_id: str) -> TimerKey:
        return ("ping", self.id, member_id)

    def order_timer(self, member_id: str) -> TimerKey:
        return ("order", self.id, member_id)

    def timers_of(self, member_id: str) -> tuple[TimerKey, ...]:
        return (self.lease_timer(member_id), self.ping_timer(member_id), self.order_timer(member_id))


def shares_of_owners(owners: Iterable[CentralOwner]) -> dict[str, Mapping[str, Partitions]]:
    return {owner.member_id: dict(owner.share) for owner in owners}


def central_view(group: CentralGroup) -> GroupView:
    """The group as extensions see it: each member has what it owns."""
    return GroupView(
        group.id,
        group.progress.rebalance,
        lambda: {member.id: member.identifiers for member in group.members.values()},
        lambda: {member_id: share for member_id, share in group.owned.items() if member_id in group.members},
    )
