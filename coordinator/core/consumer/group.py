"""A KIP-848 group and its members."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import islice

from muster.coordinator.core.groups.member_history import MAX_SCANNED, MemberHistory, SeenMember
from muster.coordinator.core.model.ledger import OngoingRebalance
from muster.coordinator.core.model.records import (
    ClassicSide,
    ConsumerMemberStored,
    Epochs,
    MemberIdentifiers,
    RegexStored,
    Shares,
    TopicId,
)
from muster.coordinator.core.model.rights import Rights, readable_topics
from muster.coordinator.core.model.types import Incarnation, TimerKey

MOST_GAVE = 10_000
"""So many ids are remembered of those who let go of something: ids of members that are gone may come again."""
FIRST_EPOCH = 1
"""A group begins here; its first member raises it."""
JOINING = 0
LEAVING = -1
AWAY = -2
"""The epoch of a static member that left for a while."""


class ConsumerMemberState(IntEnum):
    """Kafka's state byte."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ConsumerGroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    client_software: str = field(default="", compare=False)
    """What its client runs, by its own words. Soft: no record has it."""
    rights: Rights = field(default=None, compare=False)
    """Soft: each heartbeat says it anew."""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    connection: int = field(default=0, compare=False)
    """By which connection it was heard last. Soft."""
    epoch: int = 0
    previous_epoch: int = 0
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)

    @property
    def identifiers(self) -> MemberIdentifiers:
        return MemberIdentifiers(self.id, self.instance_id, self.client_id, self.client_host)

    @property
    def holds(self) -> dict[TopicId, frozenset[int]]:
        """What it may be working on: assigned, or not yet known to be given up."""
        return union(self.assigned, self.revoking)

    def stored(self, group_id: str) -> ConsumerMemberStored:
        """Who it is and what it wants, as a fact to keep."""
        return ConsumerMemberStored(
            group_id=group_id,
            member_id=self.id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topic_names=tuple(sorted(self.topic_names)),
            topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic=self.classic,
        )


@dataclass(slots=True)
class Handover:
    """From a new target until everyone has what it says: which moved partitions are still on their way."""

    number: int
    started_at_ms: int
    waiting: dict[tuple[TopicId, int], str]
    """partition -> its new owner"""
    unowned: dict[tuple[TopicId, int], int] = field(default_factory=dict)
    """partition -> how long nobody held it"""
    arrived: dict[str, int] = field(default_factory=dict)
    """member -> when it had its whole target, in that order"""
    let_go: dict[str, int] = field(default_factory=dict)
    """member -> when it last gave up a partition that another waited for"""


@dataclass(slots=True)
class ReconciliationProgress:
    """What is going on. Soft: it may die with the process."""

    planning: bool = False
    """A target is being computed off the loop."""
    asked_for: int = 0
    """The group epoch for which a target was last asked for."""
    asked: int = 0
    """The number of that question. One that failed is asked again under it: it has been answered."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Static members that came back under another id meanwhile."""
    retry_at_ms: int = 0
    """After a failed assignor: when it may be tried again."""
    fenced_until_ms: int = 0
    """After everybody was fenced, or targets were lost: until then, who worked on partitions may not have noticed."""
    rebalance: OngoingRebalance | None = None
    before: dict[str, Shares] = field(default_factory=dict)
    """The targets of members that went since the last target was made."""
    handover: Handover | None = None
    free_since: dict[tuple[TopicId, int], int] = field(default_factory=dict)
    """Partitions that were let go and that nobody holds since then."""
    gave: set[str] | None = field(default_factory=set)
    """Who let go of something, gone or not: what they commit is looked at. None: anybody may have."""
    taken: dict[tuple[TopicId, int], str] = field(default_factory=dict)
    """Partitions that a member was too slow to let go of, until they are given on: it may not commit them any more."""
    ready: dict[tuple[TopicId, int], str] = field(default_factory=dict)
    """Partitions that a member waits for, and has prepared for."""
    told: dict[tuple[TopicId, int], str] = field(default_factory=dict)
    """Of these, whom they were told as the one who holds them."""
    unsure: set[str] = field(default_factory=set)
    """Of whom it is not known whether they heard of the share that is on record: it may have come to be in a step whose
    answers were lost with this coordinator's former life."""
    last_seen_ms: dict[str, int] = field(default_factory=dict)
    resolving: dict[str, int] = field(default_factory=dict)
    """Regular expressions that are being resolved off the loop, and the version that was asked for."""
    resolved: dict[str, int] = field(default_factory=dict)
    """Those that this process has resolved, and as of which version of the topics."""
    regex_refreshed_ms: int | None = None


@dataclass(slots=True)
class ConsumerGroup:
    """`progress` apart, all of it is hard state, changed by records only."""

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    target_epoch: int = FIRST_EPOCH
    target_timestamp_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Shares] = field(default_factory=dict)
    regexes: dict[str, RegexStored] = field(default_factory=dict)
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    """topic -> partition -> the member that holds it, pending revocation included"""
    unsettled: set[str] = field(default_factory=set)
    """Members that do not have their target yet."""
    away: set[str] = field(default_factory=set)
    """Static members that left for a while."""
    progress: ReconciliationProgress = field(default_factory=ReconciliationProgress, compare=False)
    history: MemberHistory = field(default_factory=MemberHistory, compare=False)
    """Who went and how, for telling who is back. Soft."""
    arrived_again: list[Incarnation] = field(default_factory=list, compare=False)
    """Newcomers that are former members, for the ledger's next entry."""
    planned_at_ms: int = field(default=0, compare=False)
    """When the last target was made, or the group was loaded."""

    @property
    def ongoing_rebalance(self) -> OngoingRebalance | None:
        return self.progress.rebalance

    def seen(self, member: ConsumerMember, session_timeout_ms: int = 0) -> SeenMember:
        return SeenMember(
            member.id,
            member.client_id,
            member.client_host,
            member.client_software,
            member.instance_id or "",
            member.connection,
            self.progress.last_seen_ms.get(member.id, 0),
            session_timeout_ms,
        )

    def seen_members(self) -> Iterator[SeenMember]:
        return (self.seen(member) for member in self.members.values())

    def unheard_members(self, since_ms: int) -> Iterator[SeenMember]:
        first = islice(self.members.values(), MAX_SCANNED)
        return (self.seen(member) for member in first if self.progress.last_seen_ms.get(member.id, 0) <= since_ms)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self.unsettled or self.away else ConsumerGroupState.STABLE

    @property
    def generation(self) -> int:
        """The group's epoch, as those who know of no other kind of group call it."""
        return self.epoch

    @property
    def under_way(self) -> int:
        return self.progress.rebalance.number if self.progress.rebalance is not None else 0

    @property
    def logged(self) -> "ConsumerGroup":
        return self

    @property
    def at_rest(self) -> bool:
        """Nothing is on its way to anyone; so it may be in a group that waits for a static member: no stable one."""
        if not self.members or self.epoch > self.target_epoch or self.unsettled:
            return False
        return not any(self.is_waited_for(self.members[member_id]) for member_id in self.away)

    def is_waited_for(self, away: ConsumerMember) -> bool:
        """Whether others are to have what it held when it left: it gives that up when it is back."""
        mine = self.target_of(away)
        held = {(topic, each) for topic, each in cells(away.holds) if each not in mine.get(topic, ())}
        return bool(held) and any(not held.isdisjoint(cells(share)) for share in self.targets.values())

    def has_its_target(self, member: ConsumerMember) -> bool:
        return member.state is ConsumerMemberState.STABLE and member.epoch in (self.target_epoch, AWAY)

    def count(self, member: ConsumerMember) -> None:
        """Note whether the member has its target, so that the group's state needs no look at all of them."""
        if self.has_its_target(member):
            self.unsettled.discard(member.id)
        else:
            self.unsettled.add(member.id)
        if member.epoch == AWAY:
            self.away.add(member.id)
        else:
            self.away.discard(member.id)

    def uncount(self, member_id: str) -> None:
        self.unsettled.discard(member_id)
        self.away.discard(member_id)

    def session_timer(self, member_id: str) -> TimerKey:
        return ("session", self.id, member_id)

    def rebalance_timer(self, member_id: str) -> TimerKey:
        return ("rebalance", self.id, member_id)

    def rejoin_timer(self, member_id: str) -> TimerKey:
        return ("rejoin", self.id, member_id)

    def fetch_timer(self, member_id: str) -> TimerKey:
        return ("fetch", self.id, member_id)

    def handoff_timer(self, member_id: str) -> TimerKey:
        return ("handoff", self.id, member_id)

    def timers_of(self, member_id: str) -> tuple[TimerKey, ...]:
        return tuple((kind, self.id, member_id) for kind in ("session", "rebalance", "handoff", "rejoin", "fetch"))

    @property
    def assign_timer(self) -> TimerKey:
        return ("assign", self.id)

    def owner(self, topic: TopicId, partition: int) -> str | None:
        return self.owners.get(topic, {}).get(partition)

    def target_of(self, member: ConsumerMember) -> Shares:
        return self.targets.get(member.id, {})

    def subscribed_names(self, member: ConsumerMember) -> frozenset[str]:
        """What the member names as far as it may read that."""
        return readable_topics(member.rights, self.named_by(member))

    def named_by(self, member: ConsumerMember) -> frozenset[str]:
        """Names, and what the regular expression stands for so far."""
        if not member.topic_regex or member.topic_regex not in self.regexes:
            return member.topic_names
        return member.topic_names.union(self.regexes[member.topic_regex].topics)

    def subscribed_topics(self) -> frozenset[str]:
        """What the members name, all together, whether or not they may read it."""
        return frozenset().union(*(self.named_by(member) for member in self.members.values()))

    def regex_users(self, regex: str) -> list[str]:
        return [member.id for member in self.members.values() if member.topic_regex == regex]

    def may_have_given(self, member_id: str) -> bool:
        """Whether somebody else may have what was this member's."""
        gave = self.progress.gave
        return gave is None or member_id in gave

    def note_given(self, member_id: str) -> None:
        gave = self.progress.gave
        if gave is not None:
            gave.add(member_id)
            if len(gave) > MOST_GAVE:
                self.progress.gave = None

    def hold(self, member_id: str, epochs: Epochs) -> None:
        """The member holds these from now on, whoever held them before (KAFKA-19862)."""
        for topic, partitions in epochs.items():
            row = self.owners.setdefault(topic, {})
            for partition in partitions:
                row[partition] = member_id

    def let_go(self, member_id: str, held: Shares) -> None:
        for topic, partition in cells(held):
            row = self.owners.get(topic, {})
            if row.get(partition) == member_id:
                del row[partition]
            if not row:
                self.owners.pop(topic, None)


def union(one: Epochs, other: Epochs) -> dict[TopicId, frozenset[int]]:
    return {
        topic: frozenset(one.get(topic, {})) | frozenset(other.get(topic, {})) for topic in one.keys() | other.keys()
    }


def cells(shares: Shares | Epochs) -> Iterator[tuple[TopicId, int]]:
    for topic, partitions in shares.items():
        for partition in partitions:
            yield topic, partition


def shares(epochs: Epochs) -> dict[TopicId, frozenset[int]]:
    return {topic: frozenset(partitions) for topic, partitions in epochs.items() if partitions}
