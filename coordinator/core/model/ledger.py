"""The rebalance ledger: cause, culprit, phases, snapshot and moves of each rebalance, and the difference between plans.

`OngoingRebalance` collects while a rebalance runs and may be lost with the process; what it becomes, a
`RebalanceEntry`, is a record. A partition's time without an owner runs from the moment its owner let go of it
(rejoined without it, left, or was last heard of) until the coordinator answered the new owner's SyncGroup.

`diff_plans` compares two plans: which partitions change their owner and why, how long each has been free, and which
ones a cooperative plan withholds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Protocol, TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.records import DelayStored, RebalanceDecided, Record
from muster.coordinator.core.model.types import (
    AUDIT_OUTCOMES,
    Cause,
    Certainty,
    FurtherTrigger,
    Incarnation,
    MemberPlan,
    Outcome,
    PartitionMove,
    PhaseWait,
    PositionChange,
    RebalanceEntry,
    RebalancePhase,
    Score,
    Settlement,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)
from muster.coordinator.values import frozen_value

MAX_WAITED_FOR = 10
MAX_ALSO = 20

ENTRY_BYTES, MEMBER_BYTES, MOVE_BYTES = 2_000, 1_000, 500
"""What an entry takes besides its snapshot: measured, with the names that clients give themselves."""

WITHOUT_MEMBERS = (Outcome.EMPTIED, Outcome.GROUP_DELETED)

LAST_PHASES = {"assign": "reconcile", "stop": "start"}
"""What follows a plan, by a phase that led to it: KIP-848 groups hand over one by one, central groups start everybody.
Otherwise shares are fetched."""


@frozen_value
class RebalanceTrigger:
    """What set a rebalance off. `culprit` is a member id, or the operator's name for himself."""

    cause: Cause
    detail: str
    culprit: str = ""
    client_id: str = ""
    client_host: str = ""
    client_reason: str = ""
    certainty: Certainty = Certainty.RECORDED
    evidence: str = ""
    topics: tuple[TopicChange, ...] = ()


def further_trigger(trigger: RebalanceTrigger, now_ms: int) -> FurtherTrigger:
    """As it stands beside the cause of a rebalance that was under way."""
    return FurtherTrigger(
        cause=trigger.cause,
        detail=trigger.detail,
        at_ms=now_ms,
        culprit=trigger.culprit,
        culprit_client_id=trigger.client_id,
        culprit_client_host=trigger.client_host,
        certainty=trigger.certainty,
    )


class NamedClient(Protocol):
    """The sender of a request, as far as its words are kept."""

    @property
    def id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def client_software(self) -> str: ...


def describe_member(member: NamedClient) -> str:
    """A member as the ledger's sentences name it."""
    software = f", {member.client_software}" if member.client_software else ""
    where = f"{member.client_id or 'no client id'}{software} at {member.client_host or 'unknown host'}"
    return f"member {member.id} ({where})"


def trigger_by_member(
    cause: Cause, member: NamedClient, what: str, reason: str = "", certainty: Certainty = Certainty.RECORDED
) -> RebalanceTrigger:
    """A trigger whose culprit is a member."""
    says = f'; it says "{reason}"' if reason else ""
    return RebalanceTrigger(
        cause=cause,
        detail=f"{describe_member(member)} {what}{says}",
        culprit=member.id,
        client_id=member.client_id,
        client_host=member.client_host,
        client_reason=reason,
        certainty=certainty,
    )


@frozen_value
class Departure:
    """Why a member went, and until when it may have worked on its partitions."""

    why: str
    last_owned_ms: int
    end: WaitEnd = WaitEnd.LEFT


@frozen_value
class LostPositions:
    """The positions of a group that is deleted: those that are told, and how many more."""

    positions: tuple[PositionChange, ...]
    more: int


@frozen_value
class RebalanceChange:
    """What a rebalance has made of its group, or would have."""

    generation: int
    protocol_type: str
    protocol_name: str
    moves: tuple[PartitionMove, ...]
    members: tuple[MemberPlan, ...] = ()
    snapshot_json: str = ""
    snapshot_source: str = ""


@dataclass(slots=True)
class OngoingRebalance:
    """What is known of the rebalance that is under way."""

    number: int
    trigger: RebalanceTrigger
    previous_generation: int
    started_at_ms: int
    also: list[str] = field(default_factory=list)
    arrivals: dict[str, int] = field(default_factory=dict)
    """member -> when it (re)joined, in order of arrival"""
    released: dict[str, int] = field(default_factory=dict)
    """member -> since when its partitions are without an owner"""
    gone: dict[str, str] = field(default_factory=dict)
    """member -> why it is no longer there"""
    phases: list[RebalancePhase] = field(default_factory=list)
    joined_at_ms: int = -1
    awaited: dict[str, str] = field(default_factory=dict)
    """member -> client id, of those that have to come, or go, before the join phase ends"""
    ends: dict[str, tuple[WaitEnd, int]] = field(default_factory=dict)
    """member -> how the wait for it ended, and when"""
    triggers: list[FurtherTrigger] = field(default_factory=list)
    topics: tuple[TopicChange, ...] = ()
    incarnations: list[Incarnation] = field(default_factory=list)

    def note(self, trigger: RebalanceTrigger, now_ms: int) -> None:
        """A further trigger while the rebalance is already under way."""
        if len(self.triggers) < MAX_ALSO:
            self.also.append(trigger.detail)
            self.triggers.append(further_trigger(trigger, now_ms))
            self.topics = (*self.topics, *(change for change in trigger.topics if change not in self.topics))

    def arrived(self, member_id: str, now_ms: int) -> None:
        self.arrivals[member_id] = now_ms
        self.released.setdefault(member_id, now_ms)
        self.ends.setdefault(member_id, (WaitEnd.JOINED, now_ms))

    def left(self, member_id: str, departure: Departure, now_ms: int) -> None:
        self.gone[member_id] = departure.why
        self.released.setdefault(member_id, departure.last_owned_ms)
        self.ends[member_id] = (departure.end, now_ms)

    @property
    def topic_changes(self) -> tuple[TopicChange, ...]:
        """Those that set it off, and those that came while it was under way."""
        first = self.trigger.topics
        if not self.topics:
            return first
        return (*first, *(change for change in self.topics if change not in first))

    def returned(self, incarnation: Incarnation) -> None:
        if len(self.incarnations) < MAX_ALSO:
            self.incarnations.append(incarnation)

    def waits(self, began_ms: int, ended_ms: int) -> tuple[PhaseWait, ...]:
        """Those of `awaited` that the phase went on, or was about to end, for."""
        if nobody_was_late(began_ms, ended_ms):
            return ()
        ended = {member: self.ends.get(member, (WaitEnd.NEVER, ended_ms)) for member in self.awaited}
        return waits_of(self.awaited, ended, began_ms, ended_ms)

    def entry(self, outcome: Outcome, ended_at_ms: int, change: RebalanceChange) -> RebalanceEntry:
        """What it has become."""
        trigger = self.trigger
        return RebalanceEntry(
            number=self.number,
            previous_generation=self.previous_generation,
            generation=change.generation,
            protocol_type=change.protocol_type,
            protocol_name=change.protocol_name,
            cause=trigger.cause,
            culprit=trigger.culprit,
            culprit_client_id=trigger.client_id,
            culprit_client_host=trigger.client_host,
            detail=trigger.detail,
            client_reason=trigger.client_reason,
            outcome=outcome,
            started_at_ms=self.started_at_ms,
            ended_at_ms=ended_at_ms,
            phases=tuple(self.phases),
            members=change.members,
            moves=change.moves,
            snapshot_json=change.snapshot_json,
            snapshot_source=change.snapshot_source,
            also=tuple(self.also),
            certainty=trigger.certainty,
            evidence=trigger.evidence,
            triggers=tuple(self.triggers),
            topics=self.topic_changes,
            incarnations=tuple(self.incarnations),
        )


AT_ONCE_MS = 100
"""A member that comes this soon was not waited for."""


def nobody_was_late(began_ms: int, ended_ms: int) -> bool:
    """Whether the phase was too short for anybody to be waited for."""
    return ended_ms - began_ms <= AT_ONCE_MS


def phase_with_waits(
    name: str, clients: Mapping[str, str], ended: Mapping[str, tuple[WaitEnd, int]], began_ms: int, ended_ms: int
) -> RebalancePhase:
    """A phase and the members that it ended with; see `waits_of`."""
    waits = waits_of(clients, ended, began_ms, ended_ms)
    return RebalancePhase(name, ended_ms - began_ms, tuple(wait.member_id for wait in waits), waits)


def waits_of(
    clients: Mapping[str, str], ended: Mapping[str, tuple[WaitEnd, int]], began_ms: int, ended_ms: int
) -> tuple[PhaseWait, ...]:
    """The members, of those that a phase had to wait for, that it ended with: later than nine tenths of its time.

    Members that came immediately, or long before the phase ended, held nothing up and are not named.
    """
    if nobody_was_late(began_ms, ended_ms):
        return ()
    length_ms = ended_ms - began_ms
    late_ms = began_ms + max(AT_ONCE_MS + 1, length_ms - max(AT_ONCE_MS, length_ms // 10))
    named = [
        PhaseWait(member, clients[member], end, at_ms - began_ms)
        for member, (end, at_ms) in ended.items()
        if at_ms >= late_ms
    ]
    return tuple(sorted(named, key=lambda wait: wait.after_ms)[-MAX_WAITED_FOR:])


@frozen_value
class OwnershipGap:
    """`count` partitions of one new owner, unowned since `since_ms` (None: the old owner still holds them)."""

    target: str
    since_ms: int | None
    count: int
    moved: tuple[TopicPartition, ...] = ()

    def length_ms(self, until_ms: int) -> int:
        return 0 if self.since_ms is None else max(0, until_ms - self.since_ms)


@dataclass(slots=True)
class RebalanceSettling:
    """Between the plan and the last member's SyncGroup: who has fetched its share, and when."""

    number: int
    gaps: tuple[OwnershipGap, ...]
    fetched: dict[str, int] = field(default_factory=dict)

    @property
    def late(self) -> list[str]:
        """Those who were given something that they still have to fetch."""
        return sorted({gap.target for gap in self.gaps} - self.fetched.keys()) if self.gaps else []

    def renamed(self, old_id: str, new_id: str) -> None:
        if old_id not in self.fetched:
            self.gaps = tuple(replace(gap, target=new_id) if gap.target == old_id else gap for gap in self.gaps)

    def settlement(self, now_ms: int) -> Settlement:
        """What can be said now; a member that never fetched its share leaves its partitions out."""
        unowned: list[tuple[str, int, int]] = []
        total = 0
        for gap in self.gaps:
            # As the two methods below say, which would be two calls for each gap.
            total += gap.length_ms(self.fetched.get(gap.target, now_ms)) * gap.count
            if gap.target in self.fetched:
                length_ms = gap.length_ms(self.fetched[gap.target])
                unowned += [(topic, partition, length_ms) for topic, partition in gap.moved]
        return Settlement(
            number=self.number,
            settled_at_ms=now_ms,
            waited_for=tuple(self.fetched)[-MAX_WAITED_FOR:],
            unowned=tuple(unowned),
            unowned_partition_ms=total,
            synced=tuple(self.fetched.items()),
        )

    def waited_ms(self, gap: OwnershipGap, now_ms: int) -> int:
        """All its partitions' time without an owner, added up."""
        return gap.length_ms(self.fetched.get(gap.target, now_ms)) * gap.count

    def unowned_times(self, gap: OwnershipGap, moved: Sequence[TopicPartition]) -> list[tuple[str, int, int]]:
        """How long each of these, of its partitions, had no owner; none where its new owner never fetched its share."""
        if gap.target not in self.fetched:
            return []
        length_ms = gap.length_ms(self.fetched[gap.target])
        return [(topic, partition, length_ms) for topic, partition in moved]


@dataclass(slots=True)
class GroupLedger:
    """The kept entries of one group, oldest first. Hard state."""

    entries: dict[int, RebalanceEntry] = field(default_factory=dict)
    settlements: dict[int, Settlement] = field(default_factory=dict)
    shadows: dict[int, tuple[Score, ...]] = field(default_factory=dict)
    delay: DelayStored | None = None
    kept_bytes: int = 0
    """About how much memory the entries take; see `entry_weight`."""

    def keep(self, entry: RebalanceEntry) -> None:
        """In place of one that has the same number."""
        before = self.entries.get(entry.number)
        self.kept_bytes += entry_weight(entry) - (0 if before is None else entry_weight(before))
        self.entries[entry.number] = entry

    def forget(self, number: int) -> None:
        entry = self.entries.pop(number, None)
        if entry is not None:
            self.kept_bytes -= entry_weight(entry)

    @property
    def next_number(self) -> int:
        return max(self.entries, default=0) + 1

    @property
    def newest(self) -> RebalanceEntry | None:
        """The last rebalance; what operators did beside is none."""
        latest_first = (self.entries[number] for number in sorted(self.entries, reverse=True))
        return next((entry for entry in latest_first if entry.outcome not in AUDIT_OUTCOMES), None)

    @property
    def last(self) -> RebalanceEntry | None:
        """The last entry, of whatever."""
        return self.entries[max(self.entries)] if self.entries else None

    def had_members(self, at_ms: int) -> bool:
        """Whether the group had any then: the last rebalance that had begun did not leave it empty."""
        begun = [entry for entry in self.entries.values() if entry.started_at_ms < at_ms]
        told = [
            entry for entry in begun if entry.outcome not in AUDIT_OUTCOMES or entry.outcome is Outcome.GROUP_DELETED
        ]
        last = max(told, key=lambda entry: entry.number, default=None)
        return last is None or last.outcome not in WITHOUT_MEMBERS or at_ms <= last.ended_at_ms

    def surplus(self, limit: int, most_bytes: int) -> list[int]:
        """The oldest entries beyond `limit`, or beyond so much memory; never the last, nor that of the last rebalance.

        A reload looks for it: what operators do beside must not push it out.
        """
        count, kept_bytes = len(self.entries), self.kept_bytes
        if count <= limit and kept_bytes <= most_bytes:
            return []
        oldest: list[RebalanceEntry] = []
        for number in sorted(self.entries)[:-1]:
            if count <= limit and kept_bytes <= most_bytes:
                break
            oldest.append(self.entries[number])
            count -= 1
            kept_bytes -= entry_weight(self.entries[number])
        newest = self.newest
        return [entry.number for entry in oldest if entry is not newest]


def entry_weight(entry: RebalanceEntry) -> int:
    """About how many bytes of memory it takes."""
    told = MEMBER_BYTES * len(entry.members) + MOVE_BYTES * (len(entry.moves) + len(entry.positions))
    return ENTRY_BYTES + len(entry.snapshot_json) + told


MOST_SHARED_BYTES = 16 << 20
"""Of texts and members that are remembered, so that others may share them."""

SHARED_TEXT_BYTES, SHARED_MEMBER_BYTES = 150, 600
"""What one takes that is remembered; a text besides its length."""


class SharedEntries:
    """Entries that are read share what they have in common: most of one repeats from a rebalance to the next, and what
    is read is made anew each time."""

    def __init__(self, most_bytes: int = MOST_SHARED_BYTES) -> None:
        self._most_bytes = self._left_bytes = most_bytes
        self._texts: dict[str, str] = {}
        self._members: dict[str, MemberPlan] = {}
        """By id, as an entry had it last."""

    def share_decided(self, record: Record) -> Record:
        """The same fact; a rebalance with its entry shared."""
        if not isinstance(record, RebalanceDecided):
            return record
        return RebalanceDecided(record.group_id, self.share(record.entry), record.amends)

    def share(self, entry: RebalanceEntry) -> RebalanceEntry:
        """An equal one, made of parts of those before it."""
        if self._left_bytes < 0:
            self._left_bytes = self._most_bytes
            self._texts.clear()
            self._members.clear()
        text = self._text
        return replace(
            entry,
            detail=text(entry.detail),
            evidence=text(entry.evidence),
            members=tuple(map(self._member, entry.members)),
            moves=tuple(
                PartitionMove(
                    text(move.topic), move.partition, text(move.source), text(move.target), move.unowned_ms,
                    text(move.why), move.unowned_at_least_ms,
                )
                for move in entry.moves
            ),
            snapshot_json=text(entry.snapshot_json),
            also=tuple(map(text, entry.also)),
        )  # fmt: skip

    def _text(self, text: str) -> str:
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = text
            self._left_bytes -= SHARED_TEXT_BYTES + len(text)
        return known

    def _member(self, member: MemberPlan) -> MemberPlan:
        before = self._members.get(member.member_id)
        if member == before:
            return before
        if before is None:
            self._left_bytes -= SHARED_MEMBER_BYTES
        else:
            member = MemberPlan(
                before.member_id,
                before.client_id if member.client_id == before.client_id else member.client_id,
                before.client_host if member.client_host == before.client_host else member.client_host,
                member.group_instance_id,
                before.assigned if member.assigned == before.assigned else member.assigned,
                member.joined_at_ms,
                member.synced_at_ms,
            )
        self._members[member.member_id] = member
        return member


def last_few(members: Iterable[str]) -> tuple[str, ...]:
    """The last arrivals of a phase: those it ended up waiting for."""
    return tuple(members)[-MAX_WAITED_FOR:]


def entry_with_settlement(ledger: GroupLedger, number: int) -> RebalanceEntry:
    """The entry of this number, with all that became known after the plan."""
    entry = settle_entry(ledger.entries[number], ledger.settlements.get(number))
    shadows = ledger.shadows.get(number)
    return replace(entry, shadows=shadows) if shadows else entry


TIME_TO_SYNC_MS = 1_000
"""Who has not synced when a settle phase is cut off sooner has had no time to (EX-W1)."""


def settling_phase(name: str, entry: RebalanceEntry, settlement: Settlement) -> RebalancePhase:
    """The phase after the plan: which members had their share last, or not at all."""
    length_ms = settlement.settled_at_ms - entry.ended_at_ms
    if settlement.waits is None and (not settlement.synced or entry.certainty is Certainty.UNSPECIFIED):
        return RebalancePhase(name, length_ms, settlement.waited_for)
    if settlement.waits is None and nobody_was_late(entry.ended_at_ms, settlement.settled_at_ms):
        return RebalancePhase(name, length_ms)
    clients = {member.member_id: member.client_id for member in entry.members}
    waits = settle_waits(clients, entry.ended_at_ms, settlement)
    return RebalancePhase(name, length_ms, tuple(wait.member_id for wait in waits), waits)


def settle_waits(clients: Mapping[str, str], planned_at_ms: int, settlement: Settlement) -> tuple[PhaseWait, ...]:
    """For whom the phase after the plan waited. clients: the client id of each member of the plan."""
    if settlement.waits is not None:
        return settlement.waits
    if nobody_was_late(planned_at_ms, settlement.settled_at_ms):
        return ()
    synced = dict(settlement.synced)
    in_time = settlement.settled_at_ms - planned_at_ms < TIME_TO_SYNC_MS
    ended = {
        member: (WaitEnd.JOINED, synced[member]) if member in synced else (WaitEnd.NEVER, settlement.settled_at_ms)
        for member in clients
        if member in synced or not in_time
    }
    return waits_of(clients, ended, planned_at_ms, settlement.settled_at_ms)


def name_last_phase(names: Iterable[str]) -> str:
    """What the phase after the plan is called, by those before it."""
    for name in names:
        if name in LAST_PHASES:
            return LAST_PHASES[name]
    return "settle"


SettledRows: TypeAlias = tuple[tuple[PartitionMove, ...], tuple[MemberPlan, ...]]
"""Moves and members with their times."""


def settle_entry(
    entry: RebalanceEntry, settlement: Settlement | None, rows: SettledRows | None = None
) -> RebalanceEntry:
    """The entry with what became known after the plan. rows: its moves and members, where they have that by now."""
    if settlement is None:
        return entry
    if rows is not None:
        moves, members = rows
    else:
        moves = entry.moves
        if settlement.unowned:
            unowned = {(topic, partition): ms for topic, partition, ms in settlement.unowned}
            moves = tuple(settle_moves(moves, unowned))
        members = tuple(settle_members(entry.members, dict(settlement.synced)))
    last = name_last_phase(map(attrgetter("name"), entry.phases))
    return replace(
        entry,
        phases=(*entry.phases, settling_phase(last, entry, settlement)),
        moves=moves,
        members=members,
        unowned_partition_ms=settlement.unowned_partition_ms,
    )


def settle_moves(moves: Iterable[PartitionMove], unowned: Mapping[TopicPartition, int]) -> list[PartitionMove]:
    return [
        move
        if (move.topic, move.partition) not in unowned
        else with_unowned_time(move, unowned[move.topic, move.partition])
        for move in moves
    ]


def settle_members(members: Iterable[MemberPlan], synced: Mapping[str, int]) -> list[MemberPlan]:
    return [
        # `replace` takes four times as long, for each member of every rebalance.
        MemberPlan(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            group_instance_id=member.group_instance_id,
            assigned=member.assigned,
            joined_at_ms=member.joined_at_ms,
            synced_at_ms=synced[member.member_id],
        )
        if member.member_id in synced
        else member
        for member in members
    ]


def with_unowned_time(move: PartitionMove, unowned_ms: int, at_least_ms: int | None = None) -> PartitionMove:
    """The move once its partition was owned again, made quickly as well. at_least_ms: None: the time is exact."""
    return PartitionMove(move.topic, move.partition, move.source, move.target, unowned_ms, move.why, at_least_ms)


# Differences between plans
# -------------------------


@dataclass(frozen=True, slots=True)
class WithheldPartition:
    """A partition that a cooperative plan gave to nobody: who had it, and since when it is free.

    `since_ms` is None while its holder had not let go of it.
    """

    holder: str
    since_ms: int | None = None
    gone: str = ""
    """Why its holder is no longer there, when the group waited for it to come back (KIP-415)."""


NEVER_HELD = WithheldPartition("")


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What a plan changes, and what it withholds for a later round."""

    moves: tuple[PartitionMove, ...]
    gaps: tuple[OwnershipGap, ...]
    withheld: dict[TopicPartition, WithheldPartition]


@dataclass(frozen=True, slots=True)
class PlanBefore:
    """How things stood: the last plan, what members reported to hold, and what an earlier round withheld."""

    plan: Plan
    still_held: Mapping[str, Mapping[str, frozenset[int]]]
    carried: Mapping[TopicPartition, WithheldPartition]
    delayed: bool = False
    """The new plan keeps what lost its owner for it to come back (KIP-415)."""


def diff_plans(before: PlanBefore, target: Plan, rebalance: OngoingRebalance) -> PlanDiff:
    """Compare two plans partition by partition; cells that did not change are only counted."""
    moves: list[PartitionMove] = []
    kept: dict[tuple[str, int | None], int] = {}
    moved: dict[tuple[str, int | None], list[TopicPartition]] = {}
    withheld: dict[TopicPartition, WithheldPartition] = {}

    for member, topic, partitions in unchanged_cells(before.plan, target):
        let_go = partitions - before.still_held.get(member, {}).get(topic, frozenset())
        if let_go:
            key = (member, since_when_let_go(member, rebalance))
            kept[key] = kept.get(key, 0) + len(let_go)

    old_owner, new_owner = owners_of_changed_cells(before.plan, target)
    for tp in sorted(old_owner.keys() | new_owner.keys() | before.carried.keys()):
        source, owner = old_owner.get(tp, ""), new_owner.get(tp, "")
        earlier = before.carried.get(tp, NEVER_HELD)
        holder = source or earlier.holder
        still_held = tp[1] in before.still_held.get(holder, {}).get(tp[0], frozenset())
        free_since = None if still_held else since_when_free(tp, holder, earlier, rebalance)
        if not owner:
            if still_held or (not source and holder in target):
                withheld[tp] = WithheldPartition(holder, free_since)
            elif before.delayed and holder:
                withheld[tp] = WithheldPartition(holder, free_since, rebalance.gone.get(holder, earlier.gone))
            if source:
                why = why_unowned(rebalance.gone.get(source, ""), still_held, not target, before.delayed)
                why = why_vanished(tp, rebalance.topic_changes) or why
                moves.append(PartitionMove(*tp, source, "", -1, why))
            continue
        if source == owner and still_held:
            continue
        if source == owner:
            kept[owner, free_since] = kept.get((owner, free_since), 0) + 1
            continue
        why = (
            "its old owner had not let go"
            if still_held
            else why_moved(earlier, source, owner in before.plan, rebalance)
        )
        moves.append(PartitionMove(*tp, holder, owner, -1, why))
        moved.setdefault((owner, free_since), []).append(tp)
    return PlanDiff(tuple(moves), ownership_gaps(kept, moved), withheld)


def unchanged_cells(before: Plan, target: Plan) -> Iterable[tuple[str, str, frozenset[int]]]:
    for member, topics in before.items():
        for topic, partitions in topics.items():
            if partitions and target.get(member, {}).get(topic) == partitions:
                yield member, topic, frozenset(partitions)


def owners_of_changed_cells(before: Plan, target: Plan) -> tuple[dict[TopicPartition, str], dict[TopicPartition, str]]:
    if before == target:
        return {}, {}

    def owners(plan: Plan, other: Plan) -> dict[TopicPartition, str]:
        return {
            (topic, partition): member
            for member, topics in plan.items()
            for topic, partitions in topics.items()
            if other.get(member, {}).get(topic) != partitions
            for partition in partitions
        }

    return owners(before, target), owners(target, before)


def since_when_free(
    tp: TopicPartition, holder: str, earlier: WithheldPartition, rebalance: OngoingRebalance
) -> int | None:
    """Since when the partition has had no owner that it should have had.

    A partition that was free already when an earlier round withheld it is free since then. One that never had an owner
    misses one from the moment at which its topic came or grew; if that is not known, it misses none.
    """
    if not holder:
        return next((change.at_ms for change in rebalance.topic_changes if brings(change, tp)), None)
    if earlier.since_ms is not None and holder == earlier.holder:
        return earlier.since_ms
    return since_when_let_go(holder, rebalance)


TOPIC_DELETED = "its topic was deleted"


def brings(change: TopicChange, tp: TopicPartition) -> bool:
    """Whether this change made the partition."""
    if change.topic != tp[0] or tp[1] >= change.after:
        return False
    return change.kind is not TopicChangeKind.GREW or tp[1] >= change.before


def why_vanished(tp: TopicPartition, topics: Iterable[TopicChange]) -> str:
    """Why there is no such partition any more; empty: there is, as far as is known."""
    changes = [change for change in topics if change.topic == tp[0]]
    if not changes or tp[1] < changes[-1].after:
        return ""
    if changes[-1].kind is TopicChangeKind.DELETED:
        return TOPIC_DELETED
    return f"its topic was deleted and created again with {changes[-1].after} partitions"


def since_when_let_go(member: str, rebalance: OngoingRebalance) -> int:
    return rebalance.released.get(member, rebalance.started_at_ms)


def why_unowned(gone: str, still_held: bool, nobody_left: bool, delayed: bool) -> str:
    if still_held and not gone:
        return "withheld until its owner has let go (cooperative)"
    if gone and delayed and not nobody_left:
        return f"{gone}; kept for it to come back while the delay runs"
    reasons = [gone] if gone else []
    return "; ".join([*reasons, "nobody is left to own it" if nobody_left else "the plan gives it to nobody"])


def why_moved(earlier: WithheldPartition, source: str, owner_stayed: bool, rebalance: OngoingRebalance) -> str:
    holder = source or earlier.holder
    if not holder:
        return "nobody owned it"
    if not source and earlier.gone:
        return f"{earlier.gone}; it was not waited for any longer"
    if holder in rebalance.gone:
        return rebalance.gone[holder]
    if not source:
        return "released in the round before"
    return "balance" if owner_stayed else "balance: its new owner joined"


def ownership_gaps(
    kept: Mapping[tuple[str, int | None], int], moved: Mapping[tuple[str, int | None], list[TopicPartition]]
) -> tuple[OwnershipGap, ...]:
    if not kept and not moved:
        return ()
    return tuple(
        OwnershipGap(
            target=member,
            since_ms=free_since,
            count=kept.get((member, free_since), 0) + len(moved.get((member, free_since), ())),
            moved=tuple(moved.get((member, free_since), ())),
        )
        for member, free_since in sorted(kept.keys() | moved.keys(), key=lambda key: (key[0], key[1] or 0))
    )
