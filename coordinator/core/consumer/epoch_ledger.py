"""Writes the ledger of KIP-848 groups: one entry for each group epoch, whatever becomes of it.

A partition is released when its owner has acknowledged the revocation (or is gone), and owned again when the new
owner's assignment contains it. An entry is settled when every member has its target, or when the next epoch begins.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from muster.assignors.api import Snapshot
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState, Handover, cells
from muster.coordinator.core.groups.bookkeeping import (
    keep_entry,
    keep_settlement,
    ledger_entry_begun,
    newest_plan_entry,
    snapshot_within_limit,
)
from muster.coordinator.core.groups.extensions import GroupView
from muster.coordinator.core.groups.member_causes import changes_since, leave_sentence, take_incarnations
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import (
    Departure,
    OngoingRebalance,
    PlanBefore,
    RebalanceChange,
    RebalanceTrigger,
    WithheldPartition,
    diff_plans,
    last_few,
    waits_of,
)
from muster.coordinator.core.model.plan import CONSUMER, Plan, canonical_name, next_generation
from muster.coordinator.core.model.records import CurrentStored, Shares, TopicId
from muster.coordinator.core.model.types import (
    Cause,
    MemberPlan,
    Outcome,
    PartitionMove,
    PhaseWait,
    RebalancePhase,
    Settlement,
    WaitEnd,
)
from muster.coordinator.core.settings.setting import HEARTBEAT_INTERVAL

TARGET = "target"
"""Where the ledger's snapshot comes from when the coordinator made a target of it."""

CELLS_IN_A_ROW: Final = 4
"""So many partitions on their way to their owners take a step as long as a row of a long reply (`Effects.rows`)."""


def begin_epoch(group: ConsumerGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """The epoch is about to be raised. One that got no target yet ends here and leaves its own entry."""
    close_handover(group, step, trigger)
    restore_epoch(group, step)
    progress = group.progress
    unfinished = progress.rebalance
    if unfinished is not None:
        write_entry(group, unfinished, Outcome.SUPERSEDED, (), None, step)
    progress.rebalance = ledger_entry_begun(group.id, trigger, group.epoch, step)
    take_incarnations(group)
    if unfinished is not None:
        progress.rebalance.gone.update(unfinished.gone)


def note_departure(group: ConsumerGroup, member: ConsumerMember, departure: Departure, step: Step) -> None:
    """A member is about to be taken out; the rebalance that this sets off has begun."""
    progress = group.progress
    assert progress.rebalance is not None
    progress.rebalance.left(member.id, departure, step.now_ms)
    group.history.note_gone(group.seen(member), departure.end, step.now_ms)
    progress.last_seen_ms.pop(member.id, None)
    if member.holds:
        group.note_given(member.id)
    if target := group.target_of(member):
        progress.before[member.id] = target
    for cell in cells(member.holds):
        if group.owner(*cell) == member.id:
            progress.free_since[cell] = departure.last_owned_ms


def rename_member(group: ConsumerGroup, old_id: str, new_id: str) -> None:
    """A static member goes on under a new id, its partitions with it."""
    progress = group.progress
    if progress.planning:
        progress.renamed[old_id] = new_id
    if group.may_have_given(old_id):
        group.note_given(new_id)
    if old_id in progress.before:
        progress.before[new_id] = progress.before.pop(old_id)
    if progress.handover is not None:
        waiting = progress.handover.waiting
        waiting.update({cell: new_id for cell, owner in waiting.items() if owner == old_id})


def record_emptied(group: ConsumerGroup, step: Step) -> None:
    """Nobody is left: the epoch ends with an entry of its own."""
    rebalance = group.progress.rebalance
    assert rebalance is not None
    diff = diff_plans(PlanBefore(targets_before(group, step), {}, {}), {}, rebalance)
    write_entry(group, rebalance, Outcome.EMPTIED, diff.moves, None, step)
    group.progress.rebalance = None
    group.planned_at_ms = 0
    group.progress.before.clear()
    group.progress.free_since.clear()


def record_downgrade(group: ConsumerGroup, step: Step) -> None:
    """The group turns classic: an epoch that got no target leaves its entry, what follows is a generation."""
    close_handover(group, step)
    rebalance = group.progress.rebalance
    if rebalance is not None:
        rebalance.also.append("only members of the classic protocol are left: the group speaks it again")
        write_entry(group, rebalance, Outcome.SUPERSEDED, (), None, step)
        group.progress.rebalance = None


def partitions_adrift(
    group: ConsumerGroup, staying: Sequence[ConsumerMember], step: Step
) -> dict[tuple[str, int], WithheldPartition]:
    """Partitions that those who stay when the group turns classic are not to have: who held them last."""
    given = {cell for member in staying for cell in cells(group.target_of(member))}
    progress = group.progress
    holders = {cell: member_id for member_id, share in progress.before.items() for cell in cells(share)}
    holders |= {(topic, p): owner for topic, row in group.owners.items() for p, owner in row.items()}
    return {
        (topic_name(topic, step), partition): WithheldPartition(holder, progress.free_since.get((topic, partition)))
        for (topic, partition), holder in holders.items()
        if (topic, partition) not in given
    }


def record_assignor_failure(group: ConsumerGroup, why: str, step: Step) -> None:
    """An entry that names the assignor, until a later try succeeds and takes its place."""
    rebalance = group.progress.rebalance
    if rebalance is None or why in rebalance.also:
        return
    rebalance.also.append(why)
    trigger = replace(
        rebalance.trigger,
        cause=Cause.ASSIGNOR_FAILED,
        detail=f"{why}; the group keeps its last good assignment (epoch {group.target_epoch})",
    )
    provisional = replace(rebalance, trigger=trigger, also=[rebalance.trigger.detail])
    write_entry(group, provisional, Outcome.SUPERSEDED, (), None, step)


def record_target(group: ConsumerGroup, before: Plan, snapshot: Snapshot, step: Step) -> None:
    """There is a new target; `before` is the one it replaces."""
    progress = group.progress
    rebalance = progress.rebalance
    assert rebalance is not None
    rebalance.phases.append(RebalancePhase("assign", step.now_ms - rebalance.started_at_ms))
    note_topic_changes(group, before, step)
    diff = diff_plans(PlanBefore(before, {}, partitions_let_go(group, step)), current_plan(group, step), rebalance)
    write_entry(group, rebalance, Outcome.COMPLETED, diff.moves, snapshot, step)
    step.out.rows += len(diff.moves) // CELLS_IN_A_ROW
    progress.rebalance = None
    group.planned_at_ms = step.now_ms
    progress.before.clear()
    progress.handover = Handover(
        rebalance.number,
        rebalance.started_at_ms,
        {
            cell: member.id
            for member in group.members.values()
            for cell in cells(group.target_of(member))
            if group.owner(*cell) != member.id
        },
    )
    settle_when_stable(group, step)


def note_topic_changes(group: ConsumerGroup, before: Plan, step: Step) -> None:
    """What happened since the last target to topics that are, or were, read."""
    rebalance = group.progress.rebalance
    assert rebalance is not None
    read = group.subscribed_topics() | {topic for share in before.values() for topic in share}
    changes = changes_since(step.state, read, group.planned_at_ms or rebalance.started_at_ms)
    rebalance.topics = (*rebalance.topics, *(each for each in changes if each not in rebalance.topics))


def partitions_let_go(group: ConsumerGroup, step: Step) -> dict[tuple[str, int], WithheldPartition]:
    """What the last plan took from members and gave to nobody yet: a classic group turned into this one between the
    rounds of a cooperative rebalance. The ledger remembers whose it was, after a crash as well."""
    last = newest_plan_entry(group, step)
    return {
        (move.topic, move.partition): WithheldPartition(move.source)
        for move in (last.moves if last is not None else ())
        if not move.target and move.source in group.members
    }


def restore_epoch(group: ConsumerGroup, step: Step) -> None:
    """The process may have died between an epoch and its target: what set it off is forgotten, the epoch is not."""
    if group.progress.rebalance is not None or not group.members or group.epoch <= group.target_epoch:
        return
    trigger = RebalanceTrigger(
        Cause.COORDINATOR_FAILOVER, "the coordinator was reloaded before this epoch had its target"
    )
    group.progress.rebalance = ledger_entry_begun(group.id, trigger, group.epoch - 1, step)


def keep_current(group: ConsumerGroup, member: ConsumerMember, record: CurrentStored, step: Step) -> None:
    """Keep the member's new share, and note what changed hands by it."""
    held, assigned = set(cells(member.holds)), set(cells(member.assigned))
    step.keep(record)
    progress = group.progress
    if gone := held - set(cells(member.holds)):
        group.note_given(member.id)
    handover = progress.handover
    for cell in sorted(gone):
        if group.owner(*cell) is None:
            progress.free_since[cell] = step.now_ms
        if handover is not None and handover.waiting.get(cell, member.id) != member.id:
            handover.let_go[member.id] = step.now_ms
    for cell in sorted(set(cells(member.assigned)) - assigned):
        free_since_ms = progress.free_since.pop(cell, None)
        progress.taken.pop(cell, None)
        progress.ready.pop(cell, None)
        progress.told.pop(cell, None)
        if handover is not None and handover.waiting.get(cell) == member.id:
            del handover.waiting[cell]
            since_ms = handover.started_at_ms if free_since_ms is None else free_since_ms
            handover.unowned[cell] = max(0, step.now_ms - since_ms)
    if handover is not None and member.state is ConsumerMemberState.STABLE and member.epoch == group.target_epoch:
        handover.arrived.setdefault(member.id, step.now_ms)
    settle_when_stable(group, step)
    step.announce(group)


def settle_when_stable(group: ConsumerGroup, step: Step) -> None:
    if not group.at_rest:
        return
    if group.progress.handover is not None:
        close_handover(group, step)
    else:  # of what was on its way before a crash, or who waits for it would wait for ever
        step.state.extensions.plan_settled(group.id, step)


def close_handover(group: ConsumerGroup, step: Step, ending: RebalanceTrigger | None = None) -> None:
    """Complete the last entry. What is still on its way is counted up to now, and afresh from here on.

    `ending`: what begins the next epoch, if that is what ends the hand-over.
    """
    handover = group.progress.handover
    if handover is None:
        return
    group.progress.handover = None
    step.out.rows += len(handover.waiting) // CELLS_IN_A_ROW
    free = group.progress.free_since
    open_ms = 0
    for cell in handover.waiting:
        if group.owner(*cell) is None:
            open_ms += max(0, step.now_ms - free.get(cell, handover.started_at_ms))
            free[cell] = step.now_ms
    settlement = Settlement(
        number=handover.number,
        waits=handover_waits(group, handover, ending, step),
        settled_at_ms=step.now_ms,
        waited_for=last_few(handover.arrived),
        unowned=tuple(sorted((topic_name(topic, step), p, ms) for (topic, p), ms in handover.unowned.items())),
        unowned_partition_ms=sum(handover.unowned.values()) + open_ms,
        synced=tuple(handover.arrived.items()),
    )
    keep_settlement(group, settlement, step)


def handover_waits(
    group: ConsumerGroup, handover: Handover, ending: RebalanceTrigger | None, step: Step
) -> tuple[PhaseWait, ...]:
    """The members that a hand-over waited for: owners that gave up late or not at all, new owners that came late.

    Members act at their heartbeats: one that the next epoch left no time for two of them was not late.
    """
    began_ms = group.planned_at_ms
    in_time = step.now_ms - began_ms < 2 * HEARTBEAT_INTERVAL.of(step.state, group.id)
    ended = {member_id: (WaitEnd.JOINED, at_ms) for member_id, at_ms in (handover.let_go | handover.arrived).items()}
    for cell, next_owner in handover.waiting.items():
        owner = group.owner(*cell)
        blocker = next_owner if owner in (None, next_owner) else owner or next_owner
        end = WaitEnd.NEVER
        if ending is not None and ending.culprit == blocker:
            end = WAITS_ENDED_BY.get(ending.cause, WaitEnd.NEVER)
        if end is not WaitEnd.NEVER or not in_time:
            ended[blocker] = (end, step.now_ms)
    clients = {member_id: group.members[member_id].client_id for member_id in ended if member_id in group.members}
    known = {member_id: ended[member_id] for member_id in clients}
    return waits_of(clients, known, began_ms, step.now_ms)


WAITS_ENDED_BY = {
    Cause.SESSION_EXPIRED: WaitEnd.EXPIRED,
    Cause.REBALANCE_TIMEOUT: WaitEnd.EXPIRED,
    Cause.HANDOFF_TIMEOUT: WaitEnd.EXPIRED,
    Cause.MEMBER_LEFT: WaitEnd.LEFT,
    Cause.POLL_TIMEOUT: WaitEnd.LEFT,
}
"""How the wait for a member ended whose going begins the next epoch."""


def write_entry(
    group: ConsumerGroup,
    rebalance: OngoingRebalance,
    outcome: Outcome,
    moves: tuple[PartitionMove, ...],
    snapshot: Snapshot | None,
    step: Step,
) -> None:
    """Keep the entry."""
    # The input of the target itself, not a reconstruction: a replay must come to the same plan.
    snapshot_json, source = snapshot_within_limit(snapshot.to_json(), TARGET, step) if snapshot else ("", "")
    rebalance.trigger = leave_sentence(group, rebalance.trigger)
    change = RebalanceChange(
        generation=next_generation(rebalance.previous_generation),
        protocol_type=CONSUMER,
        protocol_name=canonical_name(snapshot.assignor, step.limits) if snapshot else "",
        moves=moves,
        members=member_plans(group, step) if outcome is Outcome.COMPLETED else (),
        snapshot_json=snapshot_json,
        snapshot_source=source,
    )
    entry = rebalance.entry(outcome, step.now_ms, change)
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)


def targets_before(group: ConsumerGroup, step: Step) -> Plan:
    """The last target, with the shares of those who have gone since."""
    return {
        member_id: share_by_name(share, step) for member_id, share in {**group.progress.before, **group.targets}.items()
    }


def current_plan(group: ConsumerGroup, step: Step) -> Plan:
    return {member.id: share_by_name(group.target_of(member), step) for member in group.members.values()}


def member_plans(group: ConsumerGroup, step: Step) -> tuple[MemberPlan, ...]:
    return tuple(
        MemberPlan(
            member_id=member.id,
            client_id=member.client_id,
            client_host=member.client_host,
            group_instance_id=member.instance_id,
            assigned=tuple(sorted(share_by_name(group.target_of(member), step).items())),
        )
        for member in group.members.values()
    )


def share_by_name(share: Shares, step: Step) -> dict[str, tuple[int, ...]]:
    return {topic_name(topic, step): tuple(sorted(partitions)) for topic, partitions in share.items() if partitions}


def topic_name(topic: TopicId, step: Step) -> str:
    """Its name; a topic that is gone for longer is called by its id."""
    return step.state.topic_names.get(topic) or step.state.former_topics.get(topic) or topic.hex()


# What extensions see
# -------------------


def consumer_view(group: ConsumerGroup, step: Step) -> GroupView:
    return GroupView(
        group.id,
        group.progress.rebalance,
        lambda: {member.id: member.identifiers for member in group.members.values()},
        lambda: {member.id: share_by_name(consumer_share(group, member), step) for member in group.members.values()},
    )


def consumer_share(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """What it works on and has not been told to give up, and of its target what nobody else works on."""
    mine: dict[TopicId, set[int]] = {topic: set(partitions) for topic, partitions in member.assigned.items()}
    for topic, partition in cells(group.target_of(member)):
        holder = group.members.get(group.owner(topic, partition) or "")
        if holder is None or partition in holder.revoking.get(topic, {}):
            mine.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in mine.items()}


def leave_share(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """The member is about to be taken out, and leaves what it had.

    What it was to have and another still works on stays with that one; what is on its way to another arrives there.
    """
    share = {topic: frozenset(partitions) for topic, partitions in consumer_share(group, member).items()}
    for other, target in group.targets.items():
        if other != member.id:
            share = {topic: left - target.get(topic, frozenset()) for topic, left in share.items()}
    step.state.extensions.member_left(group.id, member.identifiers, share_by_name(share, step), step)
