"""The state of one shard, and the only way to change its hard part.

`apply_record` is the only writer of hard state, live and in replay. `Step.keep` applies a fact now and lists it to be
persisted with the step.

`PendingPositions` holds the positions that wait for the end of a producer's transaction, and those that are being
written into one.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from muster.assignors.api import TopicPartition
from muster.coordinator.core.groups.extensions import NO_EXTENSIONS, Extensions
from muster.coordinator.core.groups.group import GroupData, ObservedGroup
from muster.coordinator.core.model.effects import Effects, GroupChanged, Reply
from muster.coordinator.core.model.events import END, LedgerFact, Listen, Request
from muster.coordinator.core.model.ledger import GroupLedger, LostPositions
from muster.coordinator.core.model.plan import Planner, plan_inline
from muster.coordinator.core.model.records import (
    BalanceStored,
    CanaryStored,
    FenceStored,
    HoldsStored,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    Record,
    SettingsStored,
    TopicId,
)
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.model.types import (
    Limits,
    RebalanceEntry,
    RequestId,
    Stall,
    StoredOffset,
    Takeover,
    TimerKey,
    TopicChange,
)

if TYPE_CHECKING:
    from muster.coordinator.core.control.balance.evaluation import OngoingBalance


# Sessions after a takeover
# -------------------------


class FirstSession(NamedTuple):
    """When a session ends by its own timeout, and when it does because a takeover has made it longer."""

    own_ms: int
    lengthened_ms: int


# Pending positions of transactions
# ---------------------------------


class PendingPosition(NamedTuple):
    """at: its record's place in the order of the shard's log, as an offset, or as a number in that order."""

    value: StoredOffset
    at: int


@dataclass(slots=True)
class WaitingPositions:
    """What one producer has said of the positions of one group. There may be very many, which end together: nothing
    goes through them one by one where dictionaries do it as a whole.

    values: the newest of each place. at: where that is in the order of the log.
    """

    values: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    at: dict[TopicPartition, int] = field(default_factory=dict)
    earlier: dict[TopicPartition, tuple[PendingPosition, ...]] = field(default_factory=dict)
    """Of some places those before the newest, in the order of the log: the end of one transaction may be read when the
    next has begun."""
    topics: set[tuple[str, TopicId]] = field(default_factory=set)
    """Of all that has waited here, each topic with its id."""

    def __len__(self) -> int:
        """Positions, the earlier ones as well."""
        return len(self.values) + sum(map(len, self.earlier.values()))

    def of_place(self, place: TopicPartition) -> tuple[PendingPosition, ...]:
        """In the order of the log."""
        return (*self.earlier.get(place, ()), PendingPosition(self.values[place], self.at[place]))

    def keep(self, offsets: Mapping[TopicPartition, StoredOffset], at: int) -> None:
        """All of them are at the same place in the order of the log. What was said of a position before counts no
        more."""
        self.values.update(offsets)
        self.at.update(dict.fromkeys(offsets, at))
        self.topics.update((topic, value.topic_id) for (topic, _), value in offsets.items())

    def add(self, place: TopicPartition, value: StoredOffset, at: int) -> None:
        """What was said of the position before may still count."""
        if place in self.values:
            self.earlier[place] = self.of_place(place)
        self.keep_one(place, value, at)

    def keep_one(self, place: TopicPartition, value: StoredOffset, at: int) -> None:
        self.values[place], self.at[place] = value, at
        self.topics.add((place[0], value.topic_id))

    def drop(self, place: TopicPartition, before: int | None = None) -> None:
        """Something else was said of this position; where `before` is given, only of what is at places before that."""
        if before is not None and self.at.get(place, before) >= before:
            left = tuple(each for each in self.earlier.pop(place, ()) if each.at >= before)
            if left:
                self.earlier[place] = left
            return
        self.values.pop(place, None)
        self.at.pop(place, None)
        self.earlier.pop(place, None)

    def take_first(self, most: int) -> "WaitingPositions":
        """So many of the newest ones. Only of a transaction that is over: what was said before counts no more."""
        taken = WaitingPositions()
        for place in tuple(islice(self.values, most)):
            taken.values[place], taken.at[place] = self.values.pop(place), self.at.pop(place)
        return taken

    def take(self, before: int, places: Iterable[TopicPartition]) -> "tuple[WaitingPositions, int]":
        """Of some places the newest of what is before that in the order of the log, and how much is gone with it. What
        is behind it stays."""
        taken, gone = WaitingPositions(), 0
        for place in places:
            newest = self.at[place]
            if newest < before and place not in self.earlier:  # nearly every one
                taken.keep_one(place, self.values.pop(place), self.at.pop(place))
                gone += 1
                continue
            each = self.of_place(place)
            self.earlier.pop(place, None)
            over = [one for one in each if one.at < before]
            gone += len(over)
            if over:
                taken.keep_one(place, *over[-1])
            if over and newest < before:
                del self.values[place], self.at[place]
            elif left := each[len(over) : -1]:
                self.earlier[place] = left
        return taken, gone


@dataclass(slots=True)
class PendingPositions:
    """Of one shard. of: by producer id and group. writing: by request, what may be in the log any moment.

    There may be many of either at once, and each commit asks: who waits in a group, and how much there is, is kept.
    """

    of: dict[int, dict[str, WaitingPositions]] = field(default_factory=dict)
    placed: int = 0
    """Where this shard writes its log itself: how often something has been placed in it, which is all that is told of
    where."""
    writing: dict[RequestId, tuple[str, Set[TopicPartition]]] = field(default_factory=dict)
    _in_group: dict[str, set[int]] = field(default_factory=dict)
    _count: int = 0

    def __bool__(self) -> bool:
        return bool(self.of or self.writing)

    def __len__(self) -> int:
        """Positions."""
        return self._count + sum(len(places) for _, places in self.writing.values())

    def unstable(self, group_id: str) -> Set[TopicPartition]:
        """Whose committed position may not be the last word."""
        found: list[Set[TopicPartition]] = [self.of_group(group_id)]
        found += [places for group, places in self.writing.values() if group == group_id]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def of_group(self, group_id: str) -> Set[TopicPartition]:
        """What is in the log, and waits."""
        found = [waiting.values.keys() for waiting in self._waiting_in(group_id)]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def _waiting_in(self, group_id: str) -> Iterator[WaitingPositions]:
        for producer_id in self._in_group.get(group_id, ()):
            yield self.of[producer_id][group_id]

    def groups(self) -> Iterable[str]:
        """Those of which something is in the log, and waits or did so until its producer's marker comes."""
        return self._in_group.keys()

    def topics_of(self, producer_id: int) -> set[tuple[str, TopicId]]:
        """What waits for this producer is of these topics, each with its id; and what did so since its last marker."""
        return set().union(*(waiting.topics for waiting in self.of.get(producer_id, {}).values()))

    def topics(self) -> Counter[tuple[str, TopicId]]:
        """Those of all producers, and of how many positions."""
        waiting = [each for groups in self.of.values() for each in groups.values()]
        found = Counter((topic, value.topic_id) for each in waiting for (topic, _), value in each.values.items())
        for each in waiting:
            found.update((topic, one.value.topic_id) for (topic, _), over in each.earlier.items() for one in over)
        return found

    def newest_of_group(self, group_id: str) -> dict[TopicPartition, StoredOffset]:
        """What is in the log, and waits: of each place the last, whoever wrote it."""
        newest: dict[TopicPartition, PendingPosition] = {}
        for waiting in self._waiting_in(group_id):
            for place, at in waiting.at.items():
                if place not in newest or newest[place].at < at:
                    newest[place] = PendingPosition(waiting.values[place], at)
        return {place: each.value for place, each in newest.items()}

    def _begin(self, producer_id: int, group_id: str) -> WaitingPositions:
        self._in_group.setdefault(group_id, set()).add(producer_id)
        return self.of.setdefault(producer_id, {}).setdefault(group_id, WaitingPositions())

    def written(self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, StoredOffset], at: int) -> None:
        waiting = self._begin(producer_id, group_id)
        self._count += len(offsets)
        for number, (place, value) in enumerate(offsets.items(), at):
            waiting.add(place, value, number)

    def stored(self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, StoredOffset]) -> None:
        """They come into the log behind all that is there. A producer has one transaction at a time in it: what it said
        of a position before, it says no longer."""
        waiting = self._begin(producer_id, group_id)
        before = len(waiting)
        waiting.keep(offsets, self.placed)
        self._count += len(waiting) - before
        self.placed += 1

    def ended(self, producer_id: int, before: int) -> dict[str, WaitingPositions]:
        """What waited for this producer, at places before that offset, and does so no longer: by group, the newest of
        each place."""
        ended: dict[str, WaitingPositions] = {}
        for group_id, waiting in self.of.pop(producer_id, {}).items():
            whole = before == END and not waiting.earlier
            taken, gone = (waiting, len(waiting)) if whole else waiting.take(before, list(waiting.at))
            if taken.values:
                ended[group_id] = taken
            self._count -= gone
            if waiting.values and not whole:
                self.of.setdefault(producer_id, {})[group_id] = waiting
            else:
                self._is_out(producer_id, group_id)
        return ended

    def ended_in_slices(self, producer_id: int, before: int, most: int) -> Iterator[tuple[str, WaitingPositions]]:
        """The same, of so many places at a time."""
        for group_id, waiting in tuple(self.of.get(producer_id, {}).items()):
            places = iter(tuple(waiting.at))
            while some := tuple(islice(places, most)):
                taken, gone = waiting.take(before, some)
                self._count -= gone
                yield group_id, taken
            if not waiting.values:
                groups = self.of[producer_id]
                del groups[group_id]
                if not groups:
                    del self.of[producer_id]
                self._is_out(producer_id, group_id)

    def _is_out(self, producer_id: int, group_id: str) -> None:
        there = self._in_group[group_id]
        there.discard(producer_id)
        if not there:
            del self._in_group[group_id]

    def overtaken(self, group_id: str, places: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """These were written anew, behind all that waits; or, where offsets are told, behind what is before those. What
        waits for its marker comes to nothing then: a cleaned log has the later record of a key only."""
        befores = places if isinstance(places, Mapping) else None
        for waiting in self._waiting_in(group_id):
            if not waiting.values:
                continue
            count = len(waiting)
            for place in places:
                waiting.drop(place, None if befores is None else befores[place])
            self._count -= count - len(waiting)

    def overtaken_by(self, record: Record) -> None:
        """A fact is decided, and comes into the log behind all that is there."""
        if isinstance(record, OffsetsStored):
            self.overtaken(record.group_id, record.offsets.keys())
        elif isinstance(record, OffsetStored | OffsetDeleted):
            self.overtaken(record.group_id, [(record.topic, record.partition)])


G = TypeVar("G", bound=GroupData)

MAX_TOPIC_CHANGES = 200
"""Changes of topics that a shard remembers, to explain the rebalances that follow them."""


@dataclass(slots=True)
class ShadowRun:
    """A group's shadow assignors are at work on this entry, for the answer with this ticket."""

    ticket: int
    entry: RebalanceEntry
    waiting: tuple[ShadowRequest, RebalanceEntry] | None = None
    """The newest decision since, and its entry as it is kept."""


@dataclass(slots=True)
class TopicReview:
    """Groups look at topics that have changed. group_ids: those that there were then, of which `begin` have been
    reached; done: those that have looked, some of them before their turn."""

    group_ids: tuple[str, ...]
    begin: int = 0
    done: set[str] = field(default_factory=set)


class LongWork(Protocol):
    """What a step cannot do as a whole. Until it is done its shard steps nothing else: nobody sees half of it, and
    nothing overtakes it."""

    def go_on(self, step: "Step") -> bool:
        """Do a slice; False: it was the last."""


@dataclass(slots=True)
class ShardState:
    """The groups of one offsets partition, whatever their kind: one of each id. `facts` says what makes a record true.

    `offsets` belong to the group id, so they stay when a group changes its kind. `partitions` are the catalog's counts
    by topic, `topic_ids` and `topic_names` its ids, `topics_version` the tick at which topics were last created.
    """

    limits: Limits
    facts: Mapping[type[Any], Callable[["ShardState", Any], None]]
    extensions: Extensions = field(default=NO_EXTENSIONS, compare=False, repr=False)
    planner: Planner = plan_inline
    groups: dict[str, GroupData] = field(default_factory=dict)
    """A group that ZooKeeper holds stands in front of the one of that id that the log has: it is on its way."""
    offsets: dict[str, dict[tuple[str, int], StoredOffset]] = field(default_factory=dict)
    pending: PendingPositions = field(default_factory=PendingPositions)
    """Positions of transactions that have no marker yet."""
    ledgers: dict[str, GroupLedger] = field(default_factory=dict)
    delayed: set[str] = field(default_factory=set)
    """Groups in whose ledger a delay runs. Hard state, made of the ledgers."""
    settings: dict[str, SettingsStored] = field(default_factory=dict)
    """By group id: an operator's word, whether or not there is such a group."""
    canaries: dict[str, CanaryStored] = field(default_factory=dict)
    """By group id: the assignor that is, or was last, on trial."""
    commit_counts: dict[str, int] = field(default_factory=dict)
    """By group id: how many positions were committed in this life of the shard. Soft."""
    lag_over: dict[str, int] = field(default_factory=dict)
    """By group id: how many samples in a row its lag was over what its canary may cost."""
    shadowing: dict[str, ShadowRun] = field(default_factory=dict)
    plan_waits: dict[int, Request] = field(default_factory=dict)
    """By the epoch of a plan that is made for them alone: operators' requests that wait for it. Soft."""
    fences: dict[str, dict[tuple[str, int], FenceStored]] = field(default_factory=dict)
    """group -> partition -> who may write on its behalf. Hard state."""
    fence_ids: set[int] = field(default_factory=set)
    """The producer ids of all these fences."""
    holds: dict[str, HoldsStored] = field(default_factory=dict)
    """By group id: what an operator holds of it."""
    balanced: dict[str, BalanceStored] = field(default_factory=dict)
    """By group id: what it remembers of its moves. Hard state."""
    balancing: "dict[str, OngoingBalance]" = field(default_factory=dict)
    """Groups whose balance is on, and how far that is. Soft."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    topic_changes: deque[TopicChange] = field(default_factory=lambda: deque(maxlen=MAX_TOPIC_CHANGES))
    """What happened to topics in this life of the shard, oldest first."""
    explanations: dict[str, list[LedgerFact]] = field(default_factory=dict)
    """By group: what only its ledger has to know, until a timer writes it down. Soft."""
    disowned_topics: frozenset[str] = frozenset()
    """Topics that a broker does not know any more, as `TopicsChanged` says."""
    topics_late_ms: int = 0
    """How long before it was told the newest change of topics may have happened."""
    former_topics: dict[TopicId, str] = field(default_factory=dict)
    """Names of topics that were deleted in this life of the shard, for the ledger's sentences."""
    topics_version: int = 0
    ticks: int = 0
    """The logical clock of this life of the shard: topics made and patterns asked about have a tick each."""
    asked: int = 0
    """The last epoch under which a plan was asked for, of whatever group."""
    loaded_at_ms: int = 0
    catalog_known: bool = False
    """Whether `partitions` has been told: without it, no topic can be called deleted."""
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    first_sessions: dict[str, dict[TimerKey, FirstSession]] = field(default_factory=dict)
    """By group, the sessions that a takeover from a lost node has made longer."""
    stalls: dict[int, Stall] = field(default_factory=dict)
    """When the node stood still, by number, oldest first. Hard state."""
    takeovers: dict[int, Takeover] = field(default_factory=dict)
    """Which nodes took the shard over, by leader epoch. Hard state."""
    numbers_passed: int = 0
    """No rebalance gets one of the numbers up to this one. Hard state."""
    losses_mended: int = 0
    """Up to this offset of the log it is known that records were given up. Hard state."""
    listeners: dict[str, dict[str, Listen]] = field(default_factory=dict)
    """group -> member -> its session stream's question"""
    farewells: dict[str, int] = field(default_factory=dict)
    """group -> the entry that tells who deleted it, oldest first. Hard state, made of the ledgers."""
    going: dict[str, LostPositions] = field(default_factory=dict)
    """Groups whose deletion goes on in a later turn, and what positions they had."""
    forgetting: Mapping[str, int] = field(default_factory=dict)
    """Deleted topics whose positions are still looked for, and when they were deleted."""
    long_work: LongWork | None = field(default=None, compare=False)
    """What is done a slice at a time, and held by nothing but this. Soft."""
    review: "TopicReview | None" = None
    """Topics have changed, and not every group has looked at them yet."""
    parked: dict[RequestId, str] = field(default_factory=dict)
    """Who waits: request -> member, of SyncGroup requests and what streams ask. A forgotten JoinGroup still counts."""

    def logged(self, group_id: str) -> GroupData | None:
        """What the log has under this id."""
        group = self.groups.get(group_id)
        return None if group is None else group.logged

    def find(self, kind: type[G], group_id: str) -> G | None:
        """The log's group of this id, if it is of this kind."""
        group = self.groups.get(group_id)
        logged = None if group is None else group.logged
        return logged if isinstance(logged, kind) else None

    def get(self, kind: type[G], group_id: str) -> G:
        """The log's group of this id, which is known to be of this kind."""
        group = self.logged(group_id)
        assert isinstance(group, kind), f"group {group_id!r} is no {kind.__name__}"
        return group

    def all_of(self, kind: type[G]) -> Iterator[G]:
        """The groups of this kind, in order of arrival. Take a list of them before any changes its kind or goes."""
        for group in self.groups.values():
            for each in (group,) if group.logged is group else (group, group.logged):
                if isinstance(each, kind):
                    yield each

    def observed(self, group_id: str) -> ObservedGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ObservedGroup) else None

    def observe(self, group: ObservedGroup) -> None:
        """ZooKeeper holds this group: it comes in front of the log's."""
        group.logged = self.groups.get(group.id)
        self.groups[group.id] = group

    def overlook(self, group_id: str) -> ObservedGroup | None:
        """ZooKeeper does not hold it any more: what the log has is left."""
        group = self.observed(group_id)
        if group is not None:
            del self.groups[group_id]
            if group.logged is not None:
                self.groups[group_id] = group.logged
        return group

    def put(self, group: G) -> G:
        """The log has this group from here on, in place of what it had."""
        front = self.observed(group.id)
        if front is not None:
            front.logged = group
        else:
            # One that changes its kind comes last, as if it had just arrived.
            self.groups.pop(group.id, None)
            self.groups[group.id] = group
        return group

    def drop(self, kind: type[GroupData], group_id: str) -> bool:
        """The log does not have it any more. False: there is none of that kind."""
        if not isinstance(self.logged(group_id), kind):
            return False
        front = self.observed(group_id)
        if front is not None:
            front.logged = None
        else:
            del self.groups[group_id]
        return True


@dataclass(frozen=True, slots=True)
class Incident:
    """Something went wrong in a group that no record tells of: a member was lost, or else a plan failed."""

    group_id: str
    lost_member: bool
    detail: str


@dataclass(slots=True)
class Step:
    """One step under way: the state, the time, and what it wants of the runtime."""

    state: ShardState
    now_ms: int
    out: Effects = field(default_factory=Effects)
    incidents: list[Incident] = field(default_factory=list)
    on_behalf: bool = False
    """The coordinator asks itself what a heartbeat would be told: nobody has proved to be alive."""
    pushed: bool = False
    """The heartbeat came by a session stream: what is told first was not asked for, and nobody misses it."""
    looked_at: tuple[tuple[str, int], ...] = ()
    """The positions of one group that this step may let expire; others have their turn later."""

    @property
    def limits(self) -> Limits:
        return self.state.limits

    def keep(self, record: Record) -> None:
        apply_record(self.state, record)
        self.out.records.append(record)

    def has_kept(self, record: Record) -> None:
        """The fact is true by now: it was made so a slice at a time."""
        self.out.records.append(record)

    def learn(self, record: Record) -> None:
        """The log has this fact already, written under another's name: nothing is appended, and what waits for a marker
        may lie behind it."""
        self.state.facts[type(record)](self.state, record)

    def lost_member(self, group_id: str, why: str) -> None:
        """To session or poll timeout."""
        self.incidents.append(Incident(group_id, True, why))

    def plan_failed(self, group_id: str, why: str) -> None:
        self.incidents.append(Incident(group_id, False, why))

    def past(self, stored_ms: int) -> int:
        """A time that the log tells of. One still to come is of a clock that was set back since: it counts as the time
        of loading, or whatever waits for it would wait as much longer.
        """
        return stored_ms if stored_ms <= self.now_ms else self.state.loaded_at_ms

    def positions(self, group_id: str) -> list[tuple[tuple[str, int], StoredOffset]]:
        """Those of the group that are looked at now."""
        stored = self.state.offsets.get(group_id, {})
        return [(place, stored[place]) for place in self.looked_at if place in stored]

    def tick(self) -> int:
        self.state.ticks += 1
        return self.state.ticks

    def fresh_epoch(self, of_group: int) -> int:
        """For a plan request: one that no other has had, the group's own if it can be."""
        self.state.asked = max(self.state.asked + 1, of_group)
        return self.state.asked

    def reply(self, request_id: RequestId, reply: Reply) -> None:
        self.state.parked.pop(request_id, None)
        self.out.replies.append((request_id, reply))

    def arm(self, key: TimerKey, after_ms: int) -> None:
        """Fire `key` that many milliseconds from now; arming again replaces."""
        if self.on_behalf and key[0] == "session" and key in self.state.deadlines:
            return
        self.state.deadlines[key] = self.out.timers[key] = self.now_ms + after_ms

    def disarm(self, *keys: TimerKey) -> None:
        for key in keys:
            if self.state.deadlines.pop(key, None) is not None:
                self.out.timers[key] = None

    def announce(self, group: GroupData, entry: RebalanceEntry | None = None) -> None:
        """Tell the group's watchers."""
        # `value` is two calls, and every rebalance tells of three states.
        self.out.notices.append(GroupChanged(group.id, group.state._value_, group.generation, entry))


def apply_record(state: ShardState, record: Record) -> None:
    """Make a fact true. Tombstones for unknown things are harmless (compaction leaves them behind)."""
    state.facts[type(record)](state, record)
    if state.pending.of:
        state.pending.overtaken_by(record)
