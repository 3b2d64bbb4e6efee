"""Why a KIP-848 group that another broker coordinates rebalanced, from the records that it keeps of the group.

Each step is on record: what a member wants, the group epoch that it raised, the target of each member, and what each
member has and has yet to give up. So who had to let go, when it had, and when its heir got it is recorded; only how a
member went, left or expired, is inferred from its commits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.assignors.api import Member, Snapshot, TopicPartition
from muster.coordinator.core.groups.member_causes import describe_subscription, name_few
from muster.coordinator.core.groups.member_history import (
    HOW_GONE,
    NO_CONNECTION,
    MemberHistory,
    SeenMember,
    describe_ms,
)
from muster.coordinator.core.model.ledger import (
    TOPIC_DELETED,
    OngoingRebalance,
    RebalanceChange,
    RebalanceTrigger,
    trigger_by_member,
    why_vanished,
)
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    CurrentDeleted,
    CurrentStored,
    GroupEpochDeleted,
    GroupEpochStored,
    RegexDeleted,
    RegexStored,
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
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)
from muster.coordinator.core.watched.classic_history import why_free
from muster.coordinator.core.watched.endings import CommitTimes, Ending, LastSigns, MemberTimeouts, conclude_ending

CLOSED_FOR_A_WHILE = -2
"""The epoch of a member with a `group.instance.id` that has closed, and may come back (KIP-848)."""

TARGET_RECORDS = "target records"
"""The source of a snapshot that was rebuilt from the records of a KIP-848 group of another broker."""

DEFAULT_ASSIGNOR = "uniform"
"""What brokers run where no member asks for another, unless group.consumer.assignors says otherwise."""

Cell = tuple[TopicId, int]


@dataclass(slots=True)
class EpochRound:
    """The rebalance to one group epoch, while members still move to it."""

    epoch: int
    rebalance: OngoingRebalance
    before: dict[Cell, str]
    planned_ms: int = -1
    planned: dict[Cell, str] = field(default_factory=dict)
    plans: tuple[MemberPlan, ...] = ()
    """What the target gives to each member."""
    snapshot_json: str = ""
    """What the target was made from, as far as records tell."""
    freed: dict[Cell, int] = field(default_factory=dict)
    """When its former owner no longer had it, at the earliest."""
    surely_free: dict[Cell, int] = field(default_factory=dict)
    """And at the latest, where that is not the same."""
    taken: dict[Cell, int] = field(default_factory=dict)
    """When its new owner had it."""


@dataclass(slots=True)
class ConsumerHistory:
    """One group as its records tell of it.

    names: topic id -> name, as far as is known. session_ms: the broker's `group.consumer.session.timeout.ms`, or the
    group's own; None: it is not known, for no record says it. number: of the last entry.
    """

    group_id: str
    names: Mapping[TopicId, str] = field(default_factory=dict)
    session_ms: int | None = None
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
    _targeted: frozenset[str] = frozenset()
    """Members that had a target when the last one was made."""
    _regexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The topics that regular expressions stand for."""
    _epoch: int | None = None
    _hash: int = 0
    _triggers: list[RebalanceTrigger] = field(default_factory=list)
    _incarnations: list[Incarnation] = field(default_factory=list)
    _gone: dict[str, Ending] = field(default_factory=dict)
    _free_since: dict[Cell, int] = field(default_factory=dict)
    """Of members that are gone: since when nobody has read what they had, at the earliest."""
    _surely_free: dict[Cell, int] = field(default_factory=dict)
    """And at the latest, where that is not the same."""
    _learned: dict[TopicId, str] = field(default_factory=dict)
    _round: EpochRound | None = None
    _last_owners: dict[Cell, str] = field(default_factory=dict)
    """Before somebody went, whose epoch is still to come."""
    _away_since: dict[str, int] = field(default_factory=dict)
    """Static members that have closed, to come back."""
    _replacing: dict[str, Incarnation] = field(default_factory=dict)
    """By new id, of static members that are back, while no epoch says that more has changed."""
    _why_free: dict[str, str] = field(default_factory=dict)
    """Of members that went since all partitions had the owner that they were to have."""

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
                self._learn_names(record.partitions)
            case TargetDeleted():
                self._targets.pop(record.member_id, None)
            case TargetEpochStored():
                return self._take_plan(record.epoch, written_ms)
            case CurrentStored():
                self._take_current(record, written_ms)
                return [*self._take_replacement(record, written_ms), *self._finish(written_ms)]
            case RegexStored():
                self._regexes[record.regex] = record.topics
            case RegexDeleted():
                self._regexes.pop(record.regex, None)
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
            if not self._replace_static(now, seen, written_ms):
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
        ending = self._gone.get(former.id)
        how = HOW_GONE[former.end] if ending is None or ending.known else "gone"
        self._incarnations.append(Incarnation(now.member_id, former.id, away_ms, how))
        was = f" (was {former.id})" if former.id != now.member_id else ""
        trigger = trigger_by_member(
            Cause.MEMBER_RESTARTED, seen, f"is back, {describe_ms(away_ms)} after its last sign of life{was}"
        )
        same = "same group.instance.id" if former.instance_id else "same client id and host"
        return replace(trigger, certainty=Certainty.INFERRED, evidence="same id" if not was else same)

    def _take_gone_member(self, member_id: str, written_ms: int) -> None:
        member = self._members.pop(member_id, None)
        if member is None:
            return
        mine = [cell for cell, owner in self._owners_before().items() if owner == member_id]
        joined_ms = self._joined_ms.pop(member_id, 0)
        silence = self.commits.silence(map(self._name, mine), joined_ms)
        signs = LastSigns(silence, joined_ms, written_ms, written_ms)
        closed_ms = self._away_since.pop(member_id, None)
        if closed_ms is None:
            static = bool(member.instance_id)
            timeouts = MemberTimeouts(self.session_ms, member.rebalance_timeout_ms, static, commits_count=False)
            ending = conclude_ending(timeouts, signs)
        else:
            signs = signs._replace(silence=silence._replace(last_ms=closed_ms))
            later = describe_ms(written_ms - closed_ms)
            what = f"closed, and did not come back within its session: it was taken out {later} later"
            ending = Ending(Cause.SESSION_EXPIRED, WaitEnd.EXPIRED, Certainty.RECORDED, what, "")
        self._gone[member_id] = ending
        if closed_ms is not None:  # nobody has read what it had since
            self._free_since.update(dict.fromkeys(mine, closed_ms))
        elif ending.end is WaitEnd.EXPIRED or not ending.known:
            self._note_last_signs(mine, signs.heard_ms, written_ms, expired=ending.known)
        seen = seen_member(member, signs.heard_ms)
        self.members.note_gone(seen, ending.end, written_ms)
        trigger = trigger_by_member(ending.cause, seen, ending.what)
        self._triggers.append(replace(trigger, certainty=ending.certainty, evidence=ending.evidence))

    def _note_last_signs(self, mine: list[Cell], heard_ms: int, written_ms: int, *, expired: bool) -> None:
        """Of a member whose session expired, or may have: it was heard of a session before, or it has just left."""
        session_began_ms = max(heard_ms, written_ms - (written_ms if self.session_ms is None else self.session_ms))
        earliest_ms, latest_ms = (heard_ms, session_began_ms) if expired else (session_began_ms, written_ms)
        self._free_since.update(dict.fromkeys(mine, earliest_ms))
        if earliest_ms < latest_ms:
            self._surely_free.update(dict.fromkeys(mine, latest_ms))

    # Static members that are back
    # ----------------------------

    def _replace_static(self, now: ConsumerMemberStored, seen: SeenMember, written_ms: int) -> bool:
        """Whether it takes the place of one that has just been deleted with the same `group.instance.id`."""
        former = self.members.former
        old_id = next((each for each in self._gone if former[each].instance_id == (now.instance_id or None)), None)
        if old_id is None:
            return False
        self._triggers = [each for each in self._triggers if each.culprit != old_id]
        del self._gone[old_id]
        away_ms = max(0, written_ms - former[old_id].heard_ms)
        self.members.succeed(old_id, now.member_id)
        self._replacing[now.member_id] = Incarnation(now.member_id, old_id, away_ms, HOW_GONE[WaitEnd.REPLACED])
        for owners in (self._planned, self._owners, self._last_owners):
            owners.update((cell, now.member_id) for cell, owner in owners.items() if owner == old_id)
        what = f"restarted in {describe_ms(away_ms)}, under its group.instance.id {now.instance_id}"
        self._triggers.append(trigger_by_member(Cause.STATIC_MEMBER_REPLACED, seen, what))
        self._incarnations.append(self._replacing[now.member_id])
        return True

    def _take_replacement(self, now: CurrentStored, written_ms: int) -> list[RebalanceEntry]:
        """The entry of a static member that has what it had before, without a new epoch."""
        if now.member_id not in self._replacing or now.epoch != self._epoch:
            return []
        incarnation = self._replacing.pop(now.member_id)
        trigger = next(each for each in self._triggers if each.culprit == now.member_id)
        self._triggers.remove(trigger)
        self._incarnations.remove(incarnation)
        self._last_owners = {}
        kept = sum(map(len, now.assigned.values()))
        detail = f"{trigger.detail}, and kept its {kept} {'partition' if kept == 1 else 'partitions'}"
        self.number += 1
        began_ms = written_ms - incarnation.away_ms
        rebalance = OngoingRebalance(self.number, replace(trigger, detail=detail), now.epoch, began_ms)
        rebalance.returned(incarnation)
        plan = tuple(each for each in self._plans(self._owners) if each.member_id == now.member_id)
        entry = rebalance.entry(Outcome.MEMBER_CHANGED, written_ms, RebalanceChange(now.epoch, CONSUMER, "", (), plan))
        return [replace(entry, source=RebalanceSource.WATCHED)]

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
        self._replacing = {}
        overtaken = self._round.freed if self._round is not None else {}
        surely_free = self._round.surely_free if self._round is not None else {}
        ended = self._end(Outcome.SUPERSEDED, written_ms)
        if not triggers:
            triggers = [trigger_of_epoch(hash_before, now.metadata_hash)]
        self.number += 1
        rebalance = OngoingRebalance(self.number, triggers[0], before, written_ms)
        rebalance.incarnations = incarnations
        for trigger in triggers[1:]:
            rebalance.note(trigger, written_ms)
        self._why_free.update((member_id, why_free(ending)) for member_id, ending in gone.items())
        rebalance.gone = self._why_free
        self._round = EpochRound(now.epoch, rebalance, dict(self._planned or owners_before))
        free_since, self._free_since = self._free_since, {}
        self._round.freed = {cell: since for cell, since in overtaken.items() if cell not in self._owners} | {
            cell: free_since.get(cell, written_ms)
            for cell, owner in owners_before.items()
            if self._owners.get(cell) != owner
        }
        self._round.surely_free = {cell: since for cell, since in surely_free.items() if cell in self._round.freed}
        self._round.surely_free |= self._surely_free
        self._surely_free = {}
        if not self._members:
            return [*ended, *self._end(Outcome.EMPTIED, written_ms)]
        return ended

    def _take_plan(self, epoch: int, written_ms: int) -> list[RebalanceEntry]:
        """The target is whole: its moves are those from the target before."""
        before, targeted = self._planned, self._targeted
        self._targeted = frozenset(self._targets)
        self._planned = {cell: member_id for member_id, target in self._targets.items() for cell in cells(target)}
        if self._round is None or epoch != self._round.epoch:
            return []
        self._round.planned_ms, self._round.planned = written_ms, self._planned
        self._round.plans = tuple(self._plans(self._planned))
        self._round.snapshot_json = self._snapshot_json(before, targeted)
        return self._finish(written_ms)

    def _snapshot_json(self, before: Mapping[Cell, str], targeted: frozenset[str]) -> str:
        """What the assignor was asked, as far as records tell: a target gives out every partition of what members read.

        "": not all of it is known, such as a topic's name. before: the target before, which is what members
        own; targeted: who had one.
        """
        counts: dict[str, int] = {}
        owned: dict[str, dict[str, list[int]]] = {}
        for cell in sorted(before.keys() | self._planned.keys()):
            topic, partition = self._name(cell)
            if topic == cell[0].hex():
                return ""
            if cell in self._planned:
                counts[topic] = max(counts.get(topic, 0), partition + 1)
            if cell in before:
                owned.setdefault(before[cell], {}).setdefault(topic, []).append(partition)
        members = []
        for each in self._members.values():
            if each.topic_regex and each.topic_regex not in self._regexes:
                return ""
            matched = self._regexes.get(each.topic_regex or "", ())
            topics = tuple(sorted({*each.topic_names, *matched}))
            kept = {topic: share for topic, share in owned.get(each.member_id, {}).items() if topic in topics}
            had = each.member_id in targeted or bool(kept)
            share, generation = (kept, 1) if had else (None, -1)
            members.append(Member(each.member_id, topics, share, generation, each.instance_id, each.rack_id))
        return Snapshot(counts, members, assignor=preferred_assignor(self._members.values())).to_json()

    def _take_current(self, now: CurrentStored, written_ms: int) -> None:
        held = frozenset(cells(now.assigned)) | frozenset(cells(now.revoking))
        self._let_go(now.member_id, held, written_ms)
        self._current[now.member_id] = now
        if now.epoch == CLOSED_FOR_A_WHILE:
            self._away_since[now.member_id] = written_ms
        else:
            self._away_since.pop(now.member_id, None)
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
        if rebalance.trigger.cause is Cause.PARTITIONS_CHANGED and ended.planned_ms >= 0:
            rebalance.trigger = with_topics(rebalance.trigger, tuple(self._topic_changes(ended)))
        moves = tuple(self._moves(ended)) if ended.planned_ms >= 0 or outcome is Outcome.EMPTIED else ()
        plans = ended.plans if outcome is Outcome.COMPLETED else tuple(self._plans(self._owners))
        source = TARGET_RECORDS if ended.snapshot_json else ""
        change = RebalanceChange(ended.epoch, CONSUMER, "", moves, plans, ended.snapshot_json, source)
        entry = rebalance.entry(outcome, written_ms, change)
        total = sum(max(0, move.unowned_ms) for move in moves)
        bounded = any(move.unowned_at_least_ms is not None for move in moves)
        least = sum(
            max(0, move.unowned_ms if move.unowned_at_least_ms is None else move.unowned_at_least_ms) for move in moves
        )
        if settled or outcome is Outcome.EMPTIED:
            self._why_free = {}
        return [
            replace(
                entry,
                source=RebalanceSource.WATCHED,
                unowned_partition_ms=total if settled else -1,
                unowned_at_least_partition_ms=least if settled and bounded else None,
            )
        ]

    def _moves(self, ended: EpochRound) -> Iterable[PartitionMove]:
        after, trigger = ended.planned, ended.rebalance.trigger
        left = {topic_id for topic_id, _ in after} if trigger.cause is Cause.PARTITIONS_CHANGED else None
        for cell in sorted(ended.before.keys() | after.keys(), key=self._name):
            source, target = ended.before.get(cell, ""), after.get(cell, "")
            if source == target:
                continue
            unowned_ms, at_least_ms = -1, None
            if target and cell in ended.taken:
                taken_ms = ended.taken[cell]
                unowned_ms = max(0, taken_ms - ended.freed.get(cell, taken_ms))
                if cell in ended.surely_free:
                    at_least_ms = min(unowned_ms, max(0, taken_ms - ended.surely_free[cell]))
            place, why = self._name(cell), ""
            if not target:
                why = why_vanished(place, trigger.topics)
                if not why and left is not None and cell[0] not in left:
                    why = TOPIC_DELETED  # nobody knows its name any more
            why = why or self._why(source, target, ended)
            yield PartitionMove(*place, source, target, unowned_ms, why, at_least_ms)

    def _topic_changes(self, ended: EpochRound) -> Iterable[TopicChange]:
        """Topics of which the plan gives out more partitions, or fewer, than the one before."""
        before, after = (self._named_counts(owners) for owners in (ended.before, ended.planned))
        for topic in sorted(before.keys() | after.keys()):
            was, now = before.get(topic, 0), after.get(topic, 0)
            if was == now:
                continue
            kind = TopicChangeKind.GREW if now > was else TopicChangeKind.REMADE
            if not was or not now:
                kind = TopicChangeKind.MADE if now else TopicChangeKind.DELETED
            yield TopicChange(topic, kind, was, now, ended.rebalance.started_at_ms)

    def _named_counts(self, owners: Iterable[Cell]) -> dict[str, int]:
        """Topic -> partitions that are given out, of the topics whose names are known."""
        counts: dict[str, int] = {}
        for cell in owners:
            topic, partition = self._name(cell)
            if topic != cell[0].hex():
                counts[topic] = max(counts.get(topic, 0), partition + 1)
        return counts

    def _why(self, source: str, target: str, ended: EpochRound) -> str:
        if source in ended.rebalance.gone:
            return ended.rebalance.gone[source]
        if not target:
            return "the plan gives it to nobody"
        if not source:
            return "nobody owned it"
        return "balance" if target in ended.before.values() else "balance: its new owner joined"

    def _plans(self, owners: Mapping[Cell, str]) -> Iterable[MemberPlan]:
        shares: dict[str, dict[str, list[int]]] = {}
        for cell, owner in owners.items():
            topic, partition = self._name(cell)
            shares.setdefault(owner, {}).setdefault(topic, []).append(partition)
        for member_id, member in self._members.items():
            share = shares.get(member_id, {})
            assigned = tuple((topic, tuple(sorted(share[topic]))) for topic in sorted(share))
            yield MemberPlan(member_id, member.client_id, member.client_host, member.instance_id, assigned)

    def _name(self, cell: Cell) -> TopicPartition:
        topic_id, partition = cell
        return self.names.get(topic_id) or self._learned.get(topic_id) or topic_id.hex(), partition

    def _learn_names(self, topic_ids: Iterable[TopicId]) -> None:
        """Where all members subscribe to one topic by its name, any id is of that."""
        members = self._members.values()
        topics = {topic for member in members for topic in member.topic_names}
        if len(topics) == 1 and not any(member.topic_regex for member in members):
            self._learned.update(dict.fromkeys(topic_ids, topics.pop()))


def trigger_of_epoch(hash_before: int, hash_now: int) -> RebalanceTrigger:
    """Of an epoch that no member's record came before. The hashes are of what members read."""
    if hash_now == hash_before:
        what = "the group epoch rose, and no record says why"
        return RebalanceTrigger(Cause.UNSPECIFIED, what, certainty=Certainty.UNKNOWN)
    if not hash_before:
        what = "the broker has looked up what members read, which it had not when the group was made"
        evidence = "the group had no metadata hash, and has one now"
        return RebalanceTrigger(Cause.UNSPECIFIED, what, certainty=Certainty.INFERRED, evidence=evidence)
    what = "topics that members read have changed (their metadata hash is another one)"
    return RebalanceTrigger(Cause.PARTITIONS_CHANGED, what)


def with_topics(trigger: RebalanceTrigger, changes: tuple[TopicChange, ...]) -> RebalanceTrigger:
    """What has changed is seen in what the plan gives out, which is every partition of what members read."""
    if not changes:
        return trigger
    told = name_few(f"{each.topic} ({each.before} -> {each.after})" for each in changes)
    return replace(trigger, detail=f"topics have other partitions: {told}", topics=changes)


def preferred_assignor(members: Iterable[ConsumerMemberStored]) -> str:
    """The one that most members ask for (KIP-848); the broker's own choice where none does."""
    asked = Counter(member.server_assignor for member in members if member.server_assignor)
    return min(asked, key=lambda name: (-asked[name], name), default=DEFAULT_ASSIGNOR)


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
        0,
    )
