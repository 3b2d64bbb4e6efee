"""Why a KIP-848 group that another broker coordinates rebalanced, from the records that it keeps of the group.

Each step is on record: what a member wants, the group epoch that it raised, the target of each member, and what each
member has and has yet to give up. So who had to let go, when it had, and when its heir got it is recorded; only how a
member went, left or expired, is inferred from its commits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.assignors.api import TopicPartition
from muster.coordinator.core.groups.member_causes import describe_subscription
from muster.coordinator.core.groups.member_history import (
    HOW_GONE,
    NO_CONNECTION,
    MemberHistory,
    SeenMember,
    describe_ms,
)
from muster.coordinator.core.model.ledger import OngoingRebalance, RebalanceChange, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    CurrentDeleted,
    CurrentStored,
    GroupEpochDeleted,
    GroupEpochStored,
    Shares,
    TargetDeleted,
    TargetEpochStored,
    TargetStored,
    TopicId,
)
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    RebalancePhase,
    RebalanceSource,
    WaitEnd,
)
from muster.coordinator.core.watched.endings import CommitTimes, Ending, MemberTimeouts, conclude_ending

SESSION_MS = 45_000
"""`group.consumer.session.timeout.ms` by default: no record says what the broker has."""

Cell = tuple[TopicId, int]


@dataclass(slots=True)
class EpochRound:
    """The rebalance to one group epoch, while members still move to it."""

    epoch: int
    rebalance: OngoingRebalance
    before: dict[Cell, str]
    planned_ms: int = -1
    planned: dict[Cell, str] = field(default_factory=dict)
    freed: dict[Cell, int] = field(default_factory=dict)
    """When its former owner no longer had it."""
    taken: dict[Cell, int] = field(default_factory=dict)
    """When its new owner had it."""


@dataclass(slots=True)
class ConsumerHistory:
    """One group as its records tell of it. number: of the last entry. names: topic id -> name, as far as is known."""

    group_id: str
    names: Mapping[TopicId, str] = field(default_factory=dict)
    number: int = 0
    commits: CommitTimes = field(default_factory=CommitTimes)
    members: MemberHistory = field(default_factory=MemberHistory)
    _members: dict[str, ConsumerMemberStored] = field(default_factory=dict)
    _joined_ms: dict[str, int] = field(default_factory=dict)
    _targets: dict[str, Shares] = field(default_factory=dict)
    _current: dict[str, CurrentStored] = field(default_factory=dict)
    _owners: dict[Cell, str] = field(default_factory=dict)
    """Who has what."""
    _planned: dict[Cell, str] = field(default_factory=dict)
    """Who was to have what, by the last target."""
    _epoch: int | None = None
    _hash: int = 0
    _triggers: list[RebalanceTrigger] = field(default_factory=list)
    _incarnations: list[Incarnation] = field(default_factory=list)
    _gone: dict[str, Ending] = field(default_factory=dict)
    _round: EpochRound | None = None
    _last_owners: dict[Cell, str] = field(default_factory=dict)
    """Before somebody went, whose epoch is still to come."""

    def take_record(self, record: ConsumerRecord, written_ms: int) -> list[RebalanceEntry]:
        """The entries that this record ends, oldest first. written_ms: when the broker wrote it."""
        match record:
            case ConsumerMemberStored():
                self._take_member(record, written_ms)
            case ConsumerMemberDeleted():
                self._take_gone_member(record.member_id, written_ms)
            case GroupEpochStored():
                return self._take_epoch(record, written_ms)
            case TargetStored():
                self._targets[record.member_id] = record.partitions
            case TargetDeleted():
                self._targets.pop(record.member_id, None)
            case TargetEpochStored():
                return self._take_plan(record.epoch, written_ms)
            case CurrentStored():
                self._take_current(record, written_ms)
                return self._finish(written_ms)
            case CurrentDeleted():
                self._let_go(record.member_id, frozenset(), written_ms)
                self._current.pop(record.member_id, None)
            case GroupEpochDeleted():
                return self._end(Outcome.SUPERSEDED, written_ms)
        return []

    # Members
    # -------

    def _take_member(self, now: ConsumerMemberStored, written_ms: int) -> None:
        before = self._members.get(now.member_id)
        self._members[now.member_id] = now
        seen = seen_member(now, written_ms)
        if before is None:
            self._joined_ms[now.member_id] = written_ms
            self._triggers.append(self._trigger_of_newcomer(now, seen, written_ms))
        elif before.topic_names != now.topic_names or before.topic_regex != now.topic_regex:
            patterns = before.topic_regex or "", now.topic_regex or ""
            what = describe_subscription(frozenset(before.topic_names), frozenset(now.topic_names), patterns)
            self._triggers.append(trigger_by_member(Cause.SUBSCRIPTION_CHANGED, seen, what))
        elif before.server_assignor != now.server_assignor:
            what = f"asks for the assignor {now.server_assignor or 'of the group'} now"
            self._triggers.append(trigger_by_member(Cause.ASSIGNOR_CHANGED, seen, what))
        elif before.rack_id != now.rack_id:
            self._triggers.append(
                trigger_by_member(Cause.MEMBER_METADATA_CHANGED, seen, f"is in rack {now.rack_id or 'none'} now")
            )

    def _trigger_of_newcomer(self, now: ConsumerMemberStored, seen: SeenMember, written_ms: int) -> RebalanceTrigger:
        returned = self.members.find_return(seen, (), written_ms)
        if returned is None:
            return trigger_by_member(Cause.MEMBER_JOINED, seen, "joined")
        former = returned.former
        self.members.succeed(former.id, now.member_id)
        away_ms = max(0, written_ms - former.heard_ms)
        self._incarnations.append(Incarnation(now.member_id, former.id, away_ms, HOW_GONE[former.end]))
        was = f" (was {former.id})" if former.id != now.member_id else ""
        trigger = trigger_by_member(
            Cause.MEMBER_RESTARTED, seen, f"is back, {describe_ms(away_ms)} after it was last heard{was}"
        )
        same = "same group.instance.id" if former.instance_id else "same client id and host"
        return replace(trigger, certainty=Certainty.INFERRED, evidence="same id" if not was else same)

    def _take_gone_member(self, member_id: str, written_ms: int) -> None:
        member = self._members.pop(member_id, None)
        if member is None:
            return
        owned = [self._name(cell) for cell, owner in self._owners_before().items() if owner == member_id]
        silence = self.commits.silence(owned, self._joined_ms.pop(member_id, 0))
        ending = conclude_ending(MemberTimeouts(SESSION_MS, member.rebalance_timeout_ms), silence, written_ms)
        self._gone[member_id] = ending
        seen = seen_member(member, silence.last_ms if silence.last_ms is not None else written_ms)
        self.members.note_gone(seen, ending.end, written_ms)
        trigger = trigger_by_member(ending.cause, seen, ending.what)
        self._triggers.append(replace(trigger, certainty=ending.certainty, evidence=ending.evidence))

    def _owners_before(self) -> dict[Cell, str]:
        """Owners as they stood before the records of this moment took anything from anybody."""
        return self._last_owners or self._owners

    # Epochs
    # ------

    def _take_epoch(self, now: GroupEpochStored, written_ms: int) -> list[RebalanceEntry]:
        before, hash_before = self._epoch, self._hash
        self._epoch, self._hash = now.epoch, now.metadata_hash
        triggers, self._triggers = self._triggers, []
        incarnations, self._incarnations = self._incarnations, []
        gone, self._gone = self._gone, {}
        owners_before, self._last_owners = self._owners_before(), {}
        if before is None or now.epoch <= before:
            return []  # the history begins, or the group was made anew
        ended = self._end(Outcome.SUPERSEDED, written_ms)
        if not triggers:
            triggers = [trigger_of_epoch(now.metadata_hash != hash_before)]
        self.number += 1
        rebalance = OngoingRebalance(self.number, triggers[0], before, written_ms)
        rebalance.incarnations = incarnations
        for trigger in triggers[1:]:
            rebalance.note(trigger, written_ms)
        for member_id, ending in gone.items():
            rebalance.gone[member_id] = WHY_FREE[ending.end]
        self._round = EpochRound(now.epoch, rebalance, dict(self._planned or owners_before))
        self._round.freed = {
            cell: written_ms for cell, owner in owners_before.items() if self._owners.get(cell) != owner
        }
        if not self._members:
            return [*ended, *self._end(Outcome.EMPTIED, written_ms)]
        return ended

    def _take_plan(self, epoch: int, written_ms: int) -> list[RebalanceEntry]:
        """The target is whole: its moves are those from the target before."""
        self._planned = {cell: member_id for member_id, target in self._targets.items() for cell in cells(target)}
        if self._round is None or epoch != self._round.epoch:
            return []
        self._round.planned_ms, self._round.planned = written_ms, self._planned
        return self._finish(written_ms)

    def _take_current(self, now: CurrentStored, written_ms: int) -> None:
        held = frozenset(cells(now.assigned)) | frozenset(cells(now.revoking))
        self._let_go(now.member_id, held, written_ms)
        self._current[now.member_id] = now
        for cell in cells(now.assigned):
            if self._owners.get(cell) != now.member_id:
                self._owners[cell] = now.member_id
                if self._round is not None:
                    self._round.taken.setdefault(cell, written_ms)

    def _let_go(self, member_id: str, held: frozenset[Cell], written_ms: int) -> None:
        """The member has only these from now on."""
        lost = [cell for cell, owner in self._owners.items() if owner == member_id and cell not in held]
        if lost and not held and not self._last_owners:
            self._last_owners = dict(self._owners)  # it goes: the epoch that follows is compared with this
        for cell in lost:
            del self._owners[cell]
            if self._round is not None:
                self._round.freed.setdefault(cell, written_ms)

    def _finish(self, written_ms: int) -> list[RebalanceEntry]:
        """The entry, once every member has what the target of this epoch gives it."""
        current = self._round
        if current is None or current.planned_ms < 0:
            return []
        for member_id in self._members:
            mine = self._current.get(member_id)
            if mine is None or mine.epoch < current.epoch or any(mine.revoking.values()):
                return []
            if frozenset(cells(mine.assigned)) != frozenset(cells(self._targets.get(member_id, {}))):
                return []
        return self._end(Outcome.COMPLETED, written_ms)

    def _end(self, outcome: Outcome, written_ms: int) -> list[RebalanceEntry]:
        ended, self._round = self._round, None
        if ended is None:
            return []
        rebalance = ended.rebalance
        planned_ms = ended.planned_ms if ended.planned_ms >= 0 else written_ms
        settled = outcome is Outcome.COMPLETED
        if outcome is Outcome.SUPERSEDED and ended.planned_ms >= 0:
            outcome = Outcome.COMPLETED  # its plan took effect, though not all of it had before the next epoch
        rebalance.phases.append(RebalancePhase("assign", max(0, planned_ms - rebalance.started_at_ms)))
        if settled:
            rebalance.phases.append(RebalancePhase("reconcile", max(0, written_ms - planned_ms)))
        moves = tuple(self._moves(ended))
        change = RebalanceChange(ended.epoch, CONSUMER, "", moves, tuple(self._plans()))
        entry = rebalance.entry(outcome, written_ms, change)
        total = sum(max(0, move.unowned_ms) for move in moves)
        return [replace(entry, source=RebalanceSource.WATCHED, unowned_partition_ms=total if settled else -1)]

    def _moves(self, ended: EpochRound) -> Iterable[PartitionMove]:
        after = ended.planned
        for cell in sorted(ended.before.keys() | after.keys(), key=self._name):
            source, target = ended.before.get(cell, ""), after.get(cell, "")
            if source == target:
                continue
            unowned_ms = -1
            if target and cell in ended.taken:
                unowned_ms = max(0, ended.taken[cell] - ended.freed.get(cell, ended.taken[cell]))
            yield PartitionMove(*self._name(cell), source, target, unowned_ms, self._why(source, target, ended))

    def _why(self, source: str, target: str, ended: EpochRound) -> str:
        if source in ended.rebalance.gone:
            return ended.rebalance.gone[source]
        if not target:
            return "the plan gives it to nobody"
        if not source:
            return "nobody owned it"
        return "balance" if target in ended.before.values() else "balance: its new owner joined"

    def _plans(self) -> Iterable[MemberPlan]:
        for member_id, member in self._members.items():
            share: dict[str, list[int]] = {}
            for cell, owner in self._owners.items():
                if owner == member_id:
                    topic, partition = self._name(cell)
                    share.setdefault(topic, []).append(partition)
            assigned = tuple((topic, tuple(sorted(share[topic]))) for topic in sorted(share))
            yield MemberPlan(member_id, member.client_id, member.client_host, member.instance_id, assigned)

    def _name(self, cell: Cell) -> TopicPartition:
        return self.names.get(cell[0]) or cell[0].hex(), cell[1]


WHY_FREE = {WaitEnd.LEFT: "its owner left the group", WaitEnd.EXPIRED: "its owner's session expired"}


def trigger_of_epoch(topics_changed: bool) -> RebalanceTrigger:
    if topics_changed:
        what = "topics that members read have changed (their metadata hash is another one)"
        return RebalanceTrigger(Cause.PARTITIONS_CHANGED, what)
    what = "the group epoch rose, and no record says why"
    return RebalanceTrigger(Cause.UNSPECIFIED, what, certainty=Certainty.UNKNOWN)


def cells(shares: Mapping[TopicId, Iterable[int]]) -> Iterable[Cell]:
    return ((topic, partition) for topic, partitions in shares.items() for partition in partitions)


def seen_member(member: ConsumerMemberStored, heard_ms: int) -> SeenMember:
    return SeenMember(
        member.member_id,
        member.client_id,
        member.client_host,
        "",
        member.instance_id or "",
        NO_CONNECTION,
        heard_ms,
        SESSION_MS,
    )
