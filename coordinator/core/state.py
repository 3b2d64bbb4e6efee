"""The state of one shard, and the one way to change its hard part.

`apply` is the only writer of hard state, live and in replay; `Step.keep` applies a fact now and lists it to be
persisted with the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from assignors.api import JsonValue
from coordinator.core.central.group import CentralGroup
from coordinator.core.central.records import CentralDeleted, CentralRecord, CentralStored
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.consumer.apply import apply_to
from coordinator.core.consumer.group import ConsumerGroup
from coordinator.core.consumer.records import TOMBSTONES, TopicId
from coordinator.core.effects import Effects, GroupChanged, Reply
from coordinator.core.events import Listen
from coordinator.core.ledger import Ledger
from coordinator.core.observed.group import ObservedGroup
from coordinator.core.plan import Planner, plan_at_once
from coordinator.core.records import (
    DelayForgotten,
    DelayStored,
    GroupDeleted,
    GroupStored,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    Record,
    SettingsStored,
    SettingsUnset,
    StallForgotten,
    StallNoted,
)
from coordinator.core.types import Limits, RebalanceEntry, RequestId, Stall, StoredOffset, TimerKey

ASSIGNOR_OPTIONS = "assignor.options"


@dataclass(slots=True)
class ShardState:
    """The groups of one offsets partition. A group id is in one of the three kinds only.

    `offsets` belong to the group id, so they stay when a group changes its kind. `partitions` are the catalog's counts
    by topic, `topic_ids` and `topic_names` its ids, `topics_version` the tick at which topics were last created.
    """

    limits: Limits
    planner: Planner = plan_at_once
    groups: dict[str, ClassicGroup] = field(default_factory=dict)
    consumer_groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    central_groups: dict[str, CentralGroup] = field(default_factory=dict)
    observed: dict[str, ObservedGroup] = field(default_factory=dict)
    """Groups that ZooKeeper holds; the log may have a group of the same id, which is on its way between the two."""
    offsets: dict[str, dict[tuple[str, int], StoredOffset]] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    settings: dict[str, SettingsStored] = field(default_factory=dict)
    """By group id: an operator's word, whether or not there is such a group."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    topics_version: int = 0
    ticks: int = 0
    """The logical clock of this life of the shard: topics made and patterns asked about have a tick each."""
    asked: int = 0
    """The last epoch under which a plan was asked for, of whatever group."""
    loaded_at_ms: int = 0
    catalog_known: bool = False
    """Whether `partitions` has been told: without it, no topic can be called deleted."""
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    stalls: dict[int, Stall] = field(default_factory=dict)
    """When the node stood still, by number, oldest first. Hard state."""
    listeners: dict[str, dict[str, Listen]] = field(default_factory=dict)
    """group -> member -> its session stream's question"""
    parked: dict[RequestId, str] = field(default_factory=dict)
    """Who waits: request -> member, of SyncGroup requests and what streams ask. A forgotten JoinGroup still counts."""

    def assignor_options(self, group_id: str) -> Mapping[str, JsonValue]:
        """What an operator tells the group's assignor beside the group."""
        stored = self.settings.get(group_id)
        options = stored.values.get(ASSIGNOR_OPTIONS) if stored else None
        return options if isinstance(options, Mapping) else {}


@dataclass(slots=True)
class Step:
    """One step under way: the state, the time, and what it wants of the runtime."""

    state: ShardState
    now_ms: int
    out: Effects = field(default_factory=Effects)
    on_behalf: bool = False
    """The coordinator asks itself what a heartbeat would be told: nobody has proved to be alive."""

    @property
    def limits(self) -> Limits:
        return self.state.limits

    def keep(self, record: Record) -> None:
        apply(self.state, record)
        self.out.records.append(record)

    def past(self, stored_ms: int) -> int:
        """A time that the log tells of. One still to come is of a clock that was set back since: it counts as the time
        of loading, or whatever waits for it would wait as much longer.
        """
        return stored_ms if stored_ms <= self.now_ms else self.state.loaded_at_ms

    def tick(self) -> int:
        self.state.ticks += 1
        return self.state.ticks

    def fresh_epoch(self, of_group: int) -> int:
        """For a plan request: one that no other has had, the group's own if it can be."""
        self.state.asked = max(self.state.asked + 1, of_group)
        return self.state.asked

    def reply(self, request_id: RequestId, reply: Reply) -> None:
        self.state.parked.pop(request_id, None)
        self.out.reply(request_id, reply)

    def arm(self, key: TimerKey, after_ms: int) -> None:
        """Fire `key` that many milliseconds from now; arming again replaces."""
        if self.on_behalf and key[0] == "session" and key in self.state.deadlines:
            return
        at_ms = self.now_ms + after_ms
        self.state.deadlines[key] = at_ms
        self.out.set_timer(key, at_ms)

    def disarm(self, key: TimerKey) -> None:
        if self.state.deadlines.pop(key, None) is not None:
            self.out.cancel_timer(key)

    def announce(self, group: ClassicGroup | ConsumerGroup | CentralGroup, entry: RebalanceEntry | None = None) -> None:
        """Tell the group's watchers."""
        generation = group.epoch if isinstance(group, ConsumerGroup) else group.generation
        self.out.notices.append(GroupChanged(group.id, group.state.value, generation, entry))


def apply(state: ShardState, record: Record) -> None:
    """Make a fact true. Tombstones for unknown things are harmless (compaction leaves them behind)."""
    match record:
        case OffsetStored():
            offsets_of(state, record.group_id)[record.topic, record.partition] = record.value
            own_offsets(state, record.group_id)
        case OffsetsStored():
            offsets_of(state, record.group_id).update(record.offsets)
            own_offsets(state, record.group_id)
        case GroupStored():
            state.consumer_groups.pop(record.group_id, None)
            group_of(state, record.group_id).stored = record
        case GroupDeleted():
            state.groups.pop(record.group_id, None)
            if not state.offsets.get(record.group_id):
                state.offsets.pop(record.group_id, None)
        case OffsetDeleted():
            forget_offset(state, record)
        case RebalanceDecided():
            ledger = state.ledgers.setdefault(record.group_id, Ledger())
            ledger.entries[record.entry.number] = record.entry
            ledger.settlements.pop(record.entry.number, None)
        case RebalanceSettled():
            ledger = state.ledgers.setdefault(record.group_id, Ledger())
            ledger.settlements[record.settlement.number] = record.settlement
        case RebalanceForgotten():
            forget_entry(state, record)
        case DelayStored() | DelayForgotten():
            apply_delay(state, record)
        case SettingsStored() | SettingsUnset():
            apply_settings(state, record)
        case StallNoted() | StallForgotten():
            apply_stall(state, record)
        case CentralStored() | CentralDeleted():
            apply_central(state, record)
        case _:
            if not isinstance(record, TOMBSTONES):
                # The group is of this kind from here on: a simple group that only had offsets makes room.
                state.groups.pop(record.group_id, None)
            apply_to(state.consumer_groups, record)


def apply_stall(state: ShardState, record: StallNoted | StallForgotten) -> None:
    if isinstance(record, StallNoted):
        state.stalls[record.stall.number] = record.stall
    else:
        state.stalls.pop(record.number, None)


def apply_settings(state: ShardState, record: SettingsStored | SettingsUnset) -> None:
    if isinstance(record, SettingsStored):
        state.settings[record.group_id] = record
    else:
        state.settings.pop(record.group_id, None)


def apply_central(state: ShardState, record: CentralRecord) -> None:
    if isinstance(record, CentralStored):
        # The group is of this kind from here on, whatever an older record made of it.
        state.groups.pop(record.group_id, None)
        state.consumer_groups.pop(record.group_id, None)
        state.central_groups.setdefault(record.group_id, CentralGroup(record.group_id)).own(record)
    elif state.central_groups.pop(record.group_id, None) is not None and state.offsets.get(record.group_id):
        group_of(state, record.group_id)


def group_of(state: ShardState, group_id: str) -> ClassicGroup:
    """The classic group, made when missing. An offset alone makes a simple group."""
    group = state.groups.get(group_id)
    if group is None:
        group = state.groups[group_id] = ClassicGroup(group_id, offsets=offsets_of(state, group_id))
    return group


def offsets_of(state: ShardState, group_id: str) -> dict[tuple[str, int], StoredOffset]:
    return state.offsets.setdefault(group_id, {})


def own_offsets(state: ShardState, group_id: str) -> None:
    """Offsets belong to a group, of whatever kind."""
    if group_id not in state.consumer_groups and group_id not in state.central_groups:
        group_of(state, group_id)


def forget_offset(state: ShardState, record: OffsetDeleted) -> None:
    offsets = state.offsets.get(record.group_id)
    if offsets is None:
        return
    offsets.pop((record.topic, record.partition), None)
    if not offsets and record.group_id not in state.groups:
        del state.offsets[record.group_id]


def forget_entry(state: ShardState, record: RebalanceForgotten) -> None:
    ledger = state.ledgers.get(record.group_id)
    if ledger is None:
        return
    ledger.entries.pop(record.number, None)
    ledger.settlements.pop(record.number, None)
    drop_if_empty(state, record.group_id, ledger)


def apply_delay(state: ShardState, record: DelayStored | DelayForgotten) -> None:
    if isinstance(record, DelayStored):
        state.ledgers.setdefault(record.group_id, Ledger()).delay = record
    else:
        forget_delay(state, record.group_id)


def forget_delay(state: ShardState, group_id: str) -> None:
    if kept := state.ledgers.get(group_id):
        kept.delay = None
        drop_if_empty(state, group_id, kept)


def drop_if_empty(state: ShardState, group_id: str, ledger: Ledger) -> None:
    if not ledger.entries and not ledger.settlements and ledger.delay is None:
        del state.ledgers[group_id]
