"""Why a classic group that another broker coordinates rebalanced, from the records that it keeps of the group.

The broker writes one record for each generation, when the leader has handed in the plan: members with their timeouts,
subscriptions and shares. It writes no cause. What differs between two generations is recorded; how a member went is
inferred from when its partitions were committed last. What neither tells is unknown, which is better than wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.assignors.api import TopicPartition
from muster.coordinator.core.classic.group import cooperative_names
from muster.coordinator.core.classic.rebalance_ledger import JoinDifference, compare_joins
from muster.coordinator.core.groups.member_causes import describe_subscription, name_few
from muster.coordinator.core.groups.member_history import (
    HOW_GONE,
    NO_CONNECTION,
    MemberHistory,
    SeenMember,
    describe_ms,
)
from muster.coordinator.core.model.ledger import (
    Departure,
    OngoingRebalance,
    PlanBefore,
    RebalanceChange,
    RebalanceTrigger,
    WithheldPartition,
    diff_plans,
    trigger_by_member,
    with_unowned_time,
)
from muster.coordinator.core.model.plan import (
    CONSUMER,
    Plan,
    assignment_of,
    owned_of,
    rebuilt_snapshot,
    subscription_of,
    topics_of,
)
from muster.coordinator.core.model.records import GroupStored, MemberRecord
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    MemberPlan,
    Outcome,
    Protocol,
    RebalanceEntry,
    RebalanceSource,
    TopicChange,
    TopicChangeKind,
)
from muster.coordinator.core.watched.endings import (
    CommitTimes,
    Ending,
    MemberTimeouts,
    conclude_ending,
    describe_partitions,
)


@dataclass(slots=True)
class ClassicHistory:
    """One group as its records tell of it. number: of the last entry."""

    group_id: str
    number: int = 0
    commits: CommitTimes = field(default_factory=CommitTimes)
    members: MemberHistory = field(default_factory=MemberHistory)
    _stored: GroupStored | None = None
    _written_ms: int = 0
    _coordinator_epoch: int = -1
    _carried: dict[TopicPartition, WithheldPartition] = field(default_factory=dict)
    _partitions: dict[str, int] = field(default_factory=dict)
    """Topic -> partitions, as far as plans and claims have named them."""

    @property
    def stored(self) -> GroupStored | None:
        """The last generation on record."""
        return self._stored

    def take_group(self, now: GroupStored, written_ms: int, coordinator_epoch: int) -> RebalanceEntry | None:
        """The entry of the rebalance that led to this record; None: none did, or the history begins with it.

        written_ms: when the broker wrote the record. coordinator_epoch: the leader epoch of the record's partition,
        which rises when another broker became the group's coordinator.
        """
        before, before_ms, moved_from = self._stored, self._written_ms, self._coordinator_epoch
        known = dict(self._partitions)
        self._stored, self._written_ms, self._coordinator_epoch = now, written_ms, coordinator_epoch
        for topic, count in named_partitions(now).items():
            self._partitions[topic] = max(count, self._partitions.get(topic, 0))
        if before is None or now.generation < before.generation:
            self._carried = {}
            return None
        if now.generation == before.generation:
            return self._take_same_generation(before, now, written_ms)
        step = GenerationStep(before, now, before_ms, written_ms, known)
        coordinator_moved = -1 < moved_from < coordinator_epoch
        return self._conclude(step, coordinator_moved)

    def take_deletion(self) -> None:
        """The broker forgot the group."""
        self._stored, self._carried, self._partitions = None, {}, {}

    # A rebalance
    # -----------

    def _conclude(self, step: "GenerationStep", coordinator_moved: bool) -> RebalanceEntry:
        gone = {member_id: self._ending(step, member_id) for member_id in step.gone}
        for member_id, ending in gone.items():
            self.members.note_gone(
                seen_member(step.old[member_id], step.heard_ms(self.commits, member_id)), ending.end, step.written_ms
            )
        triggers, incarnations = self._triggers(step, gone, coordinator_moved)
        self.number += 1
        rebalance = OngoingRebalance(self.number, triggers[0], step.before.generation, step.began_ms(self.commits))
        rebalance.incarnations = incarnations
        rebalance.topics = step.topic_changes()
        for trigger in triggers[1:]:
            rebalance.note(trigger, step.written_ms)
        for member_id, ending in gone.items():
            heard_ms = step.heard_ms(self.commits, member_id)
            rebalance.left(member_id, Departure(WHY_FREE[ending.cause], heard_ms, ending.end), step.written_ms)
        if not step.cooperative:
            for member_id in step.stayed:
                rebalance.released[member_id] = step.heard_ms(self.commits, member_id)
        for member_id in step.new:
            rebalance.arrivals[member_id] = step.written_ms
        return self._entry(step, rebalance)

    def _entry(self, step: "GenerationStep", rebalance: OngoingRebalance) -> RebalanceEntry:
        still_held = {member_id: owned_of(member.subscription) for member_id, member in step.new.items()}
        diff = diff_plans(PlanBefore(step.plan_before, still_held, self._carried), step.plan, rebalance)
        self._carried = diff.withheld
        free_ms = {tp: gap.length_ms(step.written_ms) for gap in diff.gaps for tp in gap.moved}
        moves = tuple(
            with_unowned_time(move, free_ms[move.topic, move.partition])
            if (move.topic, move.partition) in free_ms
            else move
            for move in diff.moves
        )
        change = RebalanceChange(
            generation=step.now.generation,
            protocol_type=step.now.protocol_type,
            protocol_name=step.now.protocol or "",
            moves=moves,
            members=step.member_plans(),
            snapshot_json=step.snapshot_json(),
            snapshot_source="records",
        )
        outcome = Outcome.COMPLETED if step.new else Outcome.EMPTIED
        entry = rebalance.entry(outcome, step.written_ms, change)
        total = sum(gap.length_ms(step.written_ms) * gap.count for gap in diff.gaps)
        return replace(entry, source=RebalanceSource.WATCHED, unowned_partition_ms=total if step.new else -1)

    # Causes
    # ------

    def _ending(self, step: "GenerationStep", member_id: str) -> Ending:
        silence = self.commits.silence(step.cells_before(member_id), step.before_ms)
        member = step.old[member_id]
        timeouts = MemberTimeouts(member.session_timeout_ms, member.rebalance_timeout_ms)
        return conclude_ending(timeouts, silence, step.written_ms)

    def _triggers(
        self, step: "GenerationStep", gone: Mapping[str, Ending], coordinator_moved: bool
    ) -> tuple[list[RebalanceTrigger], list[Incarnation]]:
        """What differs between the generations: the first is the cause."""
        incarnations: list[Incarnation] = []
        triggers = []
        returned: set[str] = set()
        for member_id in step.came:
            trigger, incarnation = self._trigger_of_newcomer(step, member_id, gone)
            if incarnation is not None:
                incarnations.append(incarnation)
                returned.add(incarnation.previous_id)
            triggers.append(trigger)
        triggers = [
            trigger_of_ending(step.old[member_id], ending)
            for member_id, ending in gone.items()
            if member_id not in returned
        ] + triggers
        if coordinator_moved and set(step.gone) == set(step.old):
            triggers.insert(0, trigger_of_move())
        triggers += self._triggers_of_those_who_stayed(step)
        if not triggers:
            triggers = [trigger_of_repetition(step)]
        if len(triggers) > 1 and triggers[0].certainty is Certainty.RECORDED:
            several = "several things changed between the two generations, and no record says which came first"
            triggers[0] = replace(triggers[0], certainty=Certainty.INFERRED, evidence=several)
        return triggers, incarnations

    def _trigger_of_newcomer(
        self, step: "GenerationStep", member_id: str, gone: Mapping[str, Ending]
    ) -> tuple[RebalanceTrigger, Incarnation | None]:
        member = step.new[member_id]
        newcomer = seen_member(member, step.written_ms)
        returned = self.members.find_return(newcomer, (), step.written_ms)
        if returned is None:
            return trigger_by_member(Cause.MEMBER_JOINED, newcomer, "joined"), None
        former = returned.former
        self.members.succeed(former.id, member_id)
        away_ms = max(0, step.written_ms - former.heard_ms)
        incarnation = Incarnation(member_id, former.id, away_ms, HOW_GONE[former.end])
        same = "same group.instance.id" if former.instance_id else "same client id and host"
        before = step.old.get(former.id)
        claims = claimed_generation(member.subscription)
        if before is not None and former.id in gone and claims == step.before.generation:
            silence = self.commits.silence(step.cells_before(former.id), step.before_ms)
            silent_ms = step.written_ms - silence.last_ms if silence.last_ms is not None else -1
            if silent_ms >= before.rebalance_timeout_ms:
                what = (
                    f"came back under a new id {describe_ms(silent_ms)} after its last commit (was {former.id}); it "
                    f"did not poll within max.poll.interval.ms, {describe_ms(before.rebalance_timeout_ms)}"
                )
                evidence = (
                    f"{same}, it names generation {claims}, in which it was, and nothing was committed on its "
                    f"{describe_partitions(silence.partitions)} for {describe_ms(silent_ms)}"
                )
                trigger = trigger_by_member(Cause.POLL_TIMEOUT, newcomer, what)
                return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence), incarnation
        what = f"is back under a new id, {describe_ms(away_ms)} after it was last heard (was {former.id})"
        trigger = trigger_by_member(Cause.MEMBER_RESTARTED, newcomer, what)
        return replace(trigger, certainty=Certainty.INFERRED, evidence=same), incarnation

    def _triggers_of_those_who_stayed(self, step: "GenerationStep") -> list[RebalanceTrigger]:
        triggers = []
        for member_id in step.stayed:
            said = step.difference(member_id)
            seen = seen_member(step.new[member_id], step.written_ms)
            if said.topics_added or said.topics_removed:
                topics = topics_of(step.old[member_id].subscription) or frozenset()
                now = topics_of(step.new[member_id].subscription) or frozenset()
                triggers.append(trigger_by_member(Cause.SUBSCRIPTION_CHANGED, seen, describe_subscription(topics, now)))
        if step.before.protocol and step.now.protocol and step.before.protocol != step.now.protocol:
            what = f"the members chose {step.now.protocol} instead of {step.before.protocol}"
            triggers.append(RebalanceTrigger(Cause.ASSIGNOR_CHANGED, what))
        changes = step.topic_changes()
        if changes and not triggers:
            grown = name_few(f"{each.topic} ({each.before} -> {each.after})" for each in changes)
            triggers.append(
                RebalanceTrigger(
                    Cause.PARTITIONS_CHANGED, f"topics have partitions that they did not have: {grown}", topics=changes
                )
            )
        return triggers or self._triggers_of_release(step)

    def _triggers_of_release(self, step: "GenerationStep") -> list[RebalanceTrigger]:
        """The second round of a cooperative rebalance: what the last plan withheld was let go of."""
        triggers = []
        if step.came or step.gone:
            return []
        for member_id in step.stayed:
            asked = {tp for tp, withheld in self._carried.items() if withheld.holder == member_id}
            held = {(t, p) for t, ps in owned_of(step.new[member_id].subscription).items() for p in ps}
            if gave_up := sorted(asked - held):
                names = name_few(f"{topic}-{partition}" for topic, partition in gave_up)
                seen = seen_member(step.new[member_id], step.written_ms)
                triggers.append(
                    trigger_by_member(
                        Cause.REVOCATION_FOLLOW_UP, seen, f"gave up {names}, as the last plan asked it to"
                    )
                )
        return triggers

    # The same generation
    # -------------------

    def _take_same_generation(self, before: GroupStored, now: GroupStored, written_ms: int) -> RebalanceEntry | None:
        """A static member that is back keeps its share, under a new id (KIP-345); anything else tells nothing."""
        old = {member.group_instance_id: member for member in before.members if member.group_instance_id}
        for member in now.members:
            known = old.get(member.group_instance_id or "")
            if known is None or known.member_id == member.member_id:
                continue
            step = GenerationStep(before, now, written_ms, written_ms, self._partitions)
            self.number += 1
            share = assignment_of(member.assignment)
            kept = sum(len(partitions) for partitions in share.values())
            detail = f"restarted and kept its {kept} {'partition' if kept == 1 else 'partitions'}"
            trigger = trigger_by_member(Cause.STATIC_MEMBER_REPLACED, seen_member(member, written_ms), detail)
            rebalance = OngoingRebalance(self.number, trigger, before.generation, written_ms)
            change = RebalanceChange(
                now.generation, now.protocol_type, now.protocol or "", (), step.member_plans(member.member_id)
            )
            entry = rebalance.entry(Outcome.MEMBER_CHANGED, written_ms, change)
            return replace(entry, source=RebalanceSource.WATCHED)
        return None


WHY_FREE = {
    Cause.MEMBER_LEFT: "its owner left the group",
    Cause.SESSION_EXPIRED: "its owner's session expired",
}


def trigger_of_ending(member: MemberRecord, ending: Ending) -> RebalanceTrigger:
    trigger = trigger_by_member(ending.cause, seen_member(member, 0), ending.what)
    return replace(trigger, certainty=ending.certainty, evidence=ending.evidence)


def trigger_of_move() -> RebalanceTrigger:
    return RebalanceTrigger(
        Cause.COORDINATOR_FAILOVER,
        "another broker became the group's coordinator, and all members joined anew",
        certainty=Certainty.INFERRED,
        evidence="the leader epoch of the group's partition rose, and no member kept its id",
    )


def trigger_of_repetition(step: "GenerationStep") -> RebalanceTrigger:
    """Nothing differs: the leader joined again, or a member whose answer was lost."""
    rounds = step.now.generation - step.before.generation
    between = f" ({rounds - 1} rounds before it got no plan)" if rounds > 1 else ""
    return RebalanceTrigger(
        Cause.UNSPECIFIED,
        f"members joined again, and their records say nothing new{between}: the leader asked for another plan, or a "
        "member did not get its answer",
        certainty=Certainty.UNKNOWN,
    )


def seen_member(member: MemberRecord, heard_ms: int) -> SeenMember:
    return SeenMember(
        member.member_id,
        member.client_id,
        member.client_host,
        "",
        member.group_instance_id or "",
        NO_CONNECTION,
        heard_ms,
        member.session_timeout_ms,
    )


def claimed_generation(subscription: bytes) -> int:
    """The generation that a member says its partitions are of; -1: it says none, or cannot be read."""
    try:
        generation = subscription_of(subscription).generation
    except ValueError:
        return -1
    return generation


# Two generations
# ---------------


class GenerationStep:
    """A group's record, and the one before it."""

    def __init__(
        self, before: GroupStored, now: GroupStored, before_ms: int, written_ms: int, partitions: Mapping[str, int]
    ) -> None:
        self.before, self.now, self.before_ms, self.written_ms = before, now, before_ms, written_ms
        self._partitions = partitions
        self.old = {member.member_id: member for member in before.members}
        self.new = {member.member_id: member for member in now.members}
        self.gone = [member_id for member_id in self.old if member_id not in self.new]
        self.came = [member_id for member_id in self.new if member_id not in self.old]
        self.stayed = [member_id for member_id in self.new if member_id in self.old]
        self.plan_before: Plan = {each.member_id: assignment_of(each.assignment) for each in before.members}
        self.plan: Plan = {each.member_id: assignment_of(each.assignment) for each in now.members}

    @property
    def cooperative(self) -> bool:
        return (self.now.protocol or "") in cooperative_names()

    def cells_before(self, member_id: str) -> list[TopicPartition]:
        """What the member had in the generation before."""
        return [(topic, each) for topic, partitions in self.plan_before[member_id].items() for each in partitions]

    def heard_ms(self, commits: CommitTimes, member_id: str) -> int:
        """The last sign of life of a member of the generation before."""
        last_ms = commits.silence(self.cells_before(member_id), self.before_ms).last_ms
        return self.written_ms if last_ms is None else min(last_ms, self.written_ms)

    def began_ms(self, commits: CommitTimes) -> int:
        """The latest moment at which the rebalance can have begun, as far as commits tell: nobody commits later."""
        heard = [commits.silence(self.cells_before(member_id), self.before_ms).last_ms for member_id in self.old]
        known = [each for each in heard if each is not None]
        return min(max(known), self.written_ms) if known and not self.cooperative else self.written_ms

    def difference(self, member_id: str) -> JoinDifference:
        name = self.now.protocol or ""
        old, new = self.old[member_id].subscription, self.new[member_id].subscription
        return compare_joins((Protocol(name, old),), (Protocol(name, new),), name)

    def topic_changes(self) -> tuple[TopicChange, ...]:
        """Topics of which the plan names partitions that nobody had named before."""
        return tuple(
            TopicChange(topic, TopicChangeKind.GREW, before, count, self.written_ms)
            for topic, count in named_partitions(self.now).items()
            if 0 < (before := self._partitions.get(topic, 0)) < count
        )

    def member_plans(self, only: str = "") -> tuple[MemberPlan, ...]:
        return tuple(
            MemberPlan(
                member.member_id,
                member.client_id,
                member.client_host,
                member.group_instance_id,
                tuple(sorted(self.plan[member.member_id].items())),
            )
            for member in self.now.members
            if not only or member.member_id == only
        )

    def snapshot_json(self) -> str:
        """The assignor's input, with the partitions that shares and claims name; "": it cannot be read.

        A cooperative plan gives nobody what it withholds, and its owner still claims it.
        """
        if self.now.protocol_type != CONSUMER or not self.new:
            return ""
        subscriptions = {each.member_id: (each.group_instance_id, each.subscription) for each in self.now.members}
        rebuilt = rebuilt_snapshot(self.now.protocol or "", subscriptions, named_partitions(self.now))
        return "" if rebuilt is None else rebuilt.to_json()


def named_partitions(stored: GroupStored) -> dict[str, int]:
    """Topic -> partitions, as far as members' shares and claims name them."""
    counts = partition_counts({member.member_id: assignment_of(member.assignment) for member in stored.members})
    for member in stored.members:
        for topic, partitions in owned_of(member.subscription).items():
            counts[topic] = max(counts.get(topic, 0), max(partitions, default=-1) + 1)
    return counts


def partition_counts(plan: Plan) -> dict[str, int]:
    """Topic -> partitions, as far as the plan gives them out."""
    counts: dict[str, int] = {}
    for share in plan.values():
        for topic, partitions in share.items():
            counts[topic] = max(counts.get(topic, 0), max(partitions, default=-1) + 1)
    return counts
