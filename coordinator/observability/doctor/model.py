"""What the doctor's rules look at and what they find: facts of a node and its groups, rules, and findings.

Times are epoch milliseconds of the node. Overrides of operators are part of the facts, so that an intended state is
reported as intended. The module also has the words by which rules write figures.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from muster.coordinator.observability.read_model.commit_history import CommitHistory
from muster.coordinator.observability.read_model.groups import (
    GroupDescription,
    GroupHolds,
    HeldDrain,
    MemberDescription,
    PartitionLag,
    TopicPartition,
)
from muster.coordinator.observability.views.controls import override_words
from muster.coordinator.observability.views.incidents import (
    MEMBERS,
    GroupIncident,
    OpenIncident,
    group_entries,
    name_identities,
    tell_incident,
)
from muster.coordinator.observability.views.ledger import is_rebalance
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.rpc.v1.ledger_pb2 import (
    CoordinatorMove,
    NodeStall,
    Rebalance,
    RebalanceCause,
    RebalanceOutcome,
)

# Facts
# -----

ASKED_LATER_MS = 60_000
"""A ledger may be read so long after the clock was."""


Positions = Mapping[TopicPartition, PartitionLag]


@dataclass(frozen=True, slots=True)
class ExaminedGroup:
    """One group as it was described, with its positions and its last rebalances, newest first."""

    description: GroupDescription
    type: str = "classic"
    positions: Positions = field(default_factory=dict)
    beats: Mapping[str, int] = field(default_factory=dict)
    """Of members that keep their heartbeat interval to themselves: the longest that was seen between two heartbeats,
    in milliseconds, by member id. Empty where nobody looked for it."""
    earlier: Positions = field(default_factory=dict)
    """The same a moment before; empty when there was one look only."""
    apart_ms: int = 0
    """How far apart both looks were."""
    ledger: tuple[Rebalance, ...] = ()
    stalls: tuple[NodeStall, ...] = ()
    """When the group's node stood still; asked where the group rebalanced often."""
    moves: tuple[CoordinatorMove, ...] = ()
    """Which nodes took the group over; asked likewise."""
    held: tuple[str, ...] = ()
    """What operators hold of it, a line each; asked where a partition or a member has been left out."""
    drained: frozenset[str] = frozenset()
    """Ids of members that an operator lets have nothing."""
    commits: CommitHistory = field(default_factory=CommitHistory)
    """How positions moved; empty where nobody asked, or nobody knows."""

    @property
    def id(self) -> str:
        return self.description.group_id

    @property
    def state(self) -> str:
        return self.description.state

    @property
    def stable(self) -> bool:
        return self.state == "Stable"

    @property
    def assignor(self) -> str:
        return self.description.assignor

    @property
    def generation(self) -> int:
        return self.description.generation

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        return self.description.members

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The ledger without what operators did beside, newest first."""
        return tuple(filter(is_rebalance, self.ledger))

    def lately(self, now_ms: int, window_ms: int) -> tuple[Rebalance, ...]:
        """Rebalances that began so long ago or later, newest first."""
        return tuple(entry for entry in self.rebalances if is_recent(entry, now_ms, window_ms))

    @property
    def working(self) -> tuple[MemberDescription, ...]:
        """The members that are to have something."""
        return tuple(member for member in self.members if member.member_id not in self.drained)

    def free(self, partitions: Mapping[str, int]) -> list[TopicPartition]:
        """Partitions of the topics that members read which nobody owns; `partitions`: how many each topic has."""
        owned = self.owners()
        wanted = (TopicPartition(topic, at) for topic in self.by_topic() for at in range(partitions.get(topic, 0)))
        return [tp for tp in wanted if tp not in owned]

    def owners(self) -> dict[TopicPartition, str]:
        return self.description.owners()

    def lag_of(self, member: MemberDescription) -> int:
        return sum(self.positions[tp].lag for tp in member.assignment if tp in self.positions)

    def by_topic(self) -> dict[str, list[MemberDescription]]:
        """Topic -> the members that subscribe to it, or own some of it."""
        readers: dict[str, list[MemberDescription]] = defaultdict(list)
        for member in self.members:
            for topic in sorted({*member.topics, *(tp.topic for tp in member.assignment)}):
                readers[topic].append(member)
        return readers


def is_recent(entry: Rebalance, now_ms: int, window_ms: int) -> bool:
    """Whether it began so long ago or later. One of hours from now is of a time when the node's clock was ahead."""
    return now_ms - window_ms <= entry.started_at_ms <= now_ms + ASKED_LATER_MS


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """Something that the node itself says is wrong, or would be (`warning`), by its name there."""

    name: str
    sentence: str
    since_ms: int
    count: int = 1
    warning: bool = False


@dataclass(frozen=True, slots=True)
class ExaminedNode:
    """How the node is. `clock_ahead_ms`: its clock against that of whoever asks, None when it is not known."""

    troubles: tuple[NodeTrouble, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    clock_ahead_ms: int | None = None
    open_descriptors: int | None = None
    descriptor_limit: int | None = None
    resident_bytes: int | None = None
    memory_bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    loop_late_ms: int | None = None
    stalls: int | None = None
    stalled_ms: int | None = None
    up_ms: int | None = None
    failed_logins: tuple[tuple[str, str, int, str], ...] = ()
    """(door, address, how many, why the newest failed) of the last ten minutes, most first."""


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """Everything that was looked at. `partitions`: how many each topic has. `untold`: whose groups are not among these,
    and why."""

    now_ms: int
    node: ExaminedNode = field(default_factory=ExaminedNode)
    groups: tuple[ExaminedGroup, ...] = ()
    partitions: Mapping[str, int] = field(default_factory=dict)
    untold: tuple[str, ...] = ()


# Incidents
# ---------

HARMLESS = frozenset(
    (
        "start", "stop", "stop_and_start", "restart", "rolling_restart", "assignor_rollout", "operator",
        "node_stall", "failover",
    )
)  # fmt: skip
"""Kinds of incidents whose rebalances have one cause that ends by itself."""


@dataclass(frozen=True, slots=True)
class RecentIncident:
    """An incident of the group, as `muster groups explain` tells it. `entries`: its rebalances in the
    window, newest first."""

    incident: OpenIncident
    told: GroupIncident
    entries: tuple[Rebalance, ...]

    @property
    def completed(self) -> tuple[Rebalance, ...]:
        """Without those that were overtaken by the next."""
        return tuple(entry for entry in self.entries if entry.outcome != RebalanceOutcome.REBALANCE_OUTCOME_SUPERSEDED)

    @property
    def is_harmless(self) -> bool:
        """Members that only came, or only went, are a group that was made larger or smaller."""
        one_way = self.incident.about == MEMBERS and not (+self.incident.missing and +self.incident.new)
        return self.told.kind in HARMLESS or (self.told.kind != "storm" and one_way and not self.incident.restarts)


def recent_incidents(group: ExaminedGroup, now_ms: int, window_ms: int) -> list[RecentIncident]:
    """The group's incidents with rebalances that began so long ago or later, oldest first."""
    lately = {entry.number for entry in group.lately(now_ms, window_ms)}
    if not lately:
        return []
    names = names_of(group.ledger)
    found, members = group_entries(group.ledger, group.stalls, group.moves)
    called = name_identities(members.identities.values(), names)
    recent = []
    for each in found:
        entries = tuple(entry for entry in reversed(each.entries) if entry.number in lately)
        if entries:
            recent.append(RecentIncident(each, tell_incident(each, names, called), entries))
    return recent


# Rules and findings
# ------------------


class Severity(IntEnum):
    """ADVICE: nothing is wrong yet. From WARNING on something is."""

    ADVICE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class RuleCase:
    """One case of a rule: a sentence, and the figures behind it."""

    what: str
    evidence: tuple[str, ...]
    todo: str = ""
    """In place of the rule's own, where the case says it better."""
    severity: Severity | None = None
    """In place of the rule's own."""


GroupCheck: TypeAlias = Callable[[ExaminedGroup, DoctorFacts], Iterable[RuleCase]]
NodeCheck: TypeAlias = Callable[[DoctorFacts], Iterable[RuleCase]]


@dataclass(frozen=True, slots=True)
class DoctorRule:
    """`why` it matters and `cure` are one or two sentences each; one of the looks is set."""

    name: str
    severity: Severity
    why: str
    cure: str
    group: GroupCheck | None = None
    node: NodeCheck | None = None


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What is told. `group` is empty for the node."""

    rule: str
    severity: Severity
    group: str
    what: str
    evidence: tuple[str, ...]
    why: str
    todo: str


# Operator overrides
# ------------------


def override_lines(holds: GroupHolds) -> tuple[str, ...]:
    """A line for each, as `muster groups describe` says it."""
    return tuple(words for words, _ in override_words(holds))


def drained_ids(members: Iterable[MemberDescription], holds: GroupHolds) -> frozenset[str]:
    """The members that are to have nothing."""
    return frozenset(member.member_id for member in members if any(is_drained(member, drain) for drain in holds.drains))


def is_drained(member: MemberDescription, drain: HeldDrain) -> bool:
    called = {
        "member-id": member.member_id,
        "client-id": member.client_id,
        "instance": member.group_instance_id,
        "host": member.client_host,
    }
    return called.get(drain.by) == drain.name


# Names and figures in words
# --------------------------

MOST_NAMES = 5


def member_name(member: MemberDescription) -> str:
    """As a sentence calls it: by what somebody chose, with where it runs."""
    called = member.group_instance_id or member.client_id or member.member_id
    return f"{called} at {member.client_host}" if member.client_host else called


def partition_name(tp: TopicPartition) -> str:
    """
    >>> partition_name(TopicPartition("orders", 3))
    'orders-3'
    """
    return f"{tp.topic}-{tp.partition}"


def seconds(ms: float) -> str:
    """
    >>> seconds(1500), seconds(721), seconds(45_000), seconds(300_000)
    ('1.5 s', '0.7 s', '45 s', '5 min')
    """
    if ms >= 120_000 and ms % 60_000 == 0:
        return f"{ms // 60_000:.0f} min"
    return f"{round(ms / 1000, 1):g} s" if ms < 10_000 else f"{ms / 1000:.0f} s"


def some(names: Sequence[object]) -> str:
    """A few of them, and how many more there are.

    >>> some(["a", "b"]), some("abcdefg")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    shown = ", ".join(str(name) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def number_entries(entries: Sequence[Rebalance]) -> str:
    """Ledger entries by number, as `muster groups explain` knows them."""
    plural = "s" if len(entries) != 1 else ""
    return f"rebalance{plural} {some([f'#{entry.number}' for entry in entries])}"


def list_culprits(entries: Sequence[Rebalance]) -> list[str]:
    """Clients and hosts, each once, newest first."""
    names = (f"{e.culprit_client_id or e.culprit} at {e.culprit_client_host or 'unknown host'}" for e in entries)
    return list(dict.fromkeys(names))


def cause_name(entry: Rebalance) -> str:
    """`session_expired`, as logs and metrics write it."""
    return RebalanceCause.Name(entry.cause).removeprefix("REBALANCE_CAUSE_").lower()
