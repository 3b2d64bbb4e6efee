"""The state of one shard, and the one way to change its hard part.

`apply` is the only writer of hard state, live and in replay; `Step.keep` applies a fact now and lists it to be
persisted with the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.effects import Effects, GroupChanged, Reply
from coordinator.core.events import Listen
from coordinator.core.ledger import Ledger
from coordinator.core.records import (
    DelayForgotten,
    DelayStored,
    GroupDeleted,
    GroupStored,
    OffsetDeleted,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    Record,
)
from coordinator.core.types import Limits, RebalanceEntry, RequestId, TimerKey


@dataclass(slots=True)
class ShardState:
    """The groups of one offsets partition. `partitions` are the catalog's counts by topic."""

    limits: Limits
    groups: dict[str, ClassicGroup] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    catalog_known: bool = False
    """Whether `partitions` has been told: without it, no topic can be called deleted."""
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    listeners: dict[str, dict[str, Listen]] = field(default_factory=dict)
    """group -> member -> its session stream's question"""


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

    def reply(self, request_id: RequestId, reply: Reply) -> None:
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

    def announce(self, group: ClassicGroup, entry: RebalanceEntry | None = None) -> None:
        """Tell the group's watchers."""
        self.out.notices.append(GroupChanged(group.id, group.state.value, group.generation, entry))


def apply(state: ShardState, record: Record) -> None:
    """Make a fact true. Tombstones for unknown things are harmless (compaction leaves them behind)."""
    match record:
        case GroupStored():
            group_of(state, record.group_id).stored = record
        case GroupDeleted():
            state.groups.pop(record.group_id, None)
        case OffsetStored():
            group_of(state, record.group_id).offsets[record.topic, record.partition] = record.value
        case OffsetDeleted():
            if group := state.groups.get(record.group_id):
                group.offsets.pop((record.topic, record.partition), None)
        case RebalanceDecided():
            ledger = state.ledgers.setdefault(record.group_id, Ledger())
            ledger.entries[record.entry.number] = record.entry
            ledger.settlements.pop(record.entry.number, None)
        case RebalanceSettled():
            ledger = state.ledgers.setdefault(record.group_id, Ledger())
            ledger.settlements[record.settlement.number] = record.settlement
        case RebalanceForgotten():
            forget_entry(state, record)
        case DelayStored():
            state.ledgers.setdefault(record.group_id, Ledger()).delay = record
        case DelayForgotten():
            if kept := state.ledgers.get(record.group_id):
                kept.delay = None
                drop_if_empty(state, record.group_id, kept)


def group_of(state: ShardState, group_id: str) -> ClassicGroup:
    """The group, made when missing. An offset alone makes a simple group."""
    group = state.groups.get(group_id)
    if group is None:
        group = state.groups[group_id] = ClassicGroup(group_id)
    return group


def forget_entry(state: ShardState, record: RebalanceForgotten) -> None:
    ledger = state.ledgers.get(record.group_id)
    if ledger is None:
        return
    ledger.entries.pop(record.number, None)
    ledger.settlements.pop(record.number, None)
    drop_if_empty(state, record.group_id, ledger)


def drop_if_empty(state: ShardState, group_id: str, ledger: Ledger) -> None:
    if not ledger.entries and not ledger.settlements and ledger.delay is None:
        del state.ledgers[group_id]
