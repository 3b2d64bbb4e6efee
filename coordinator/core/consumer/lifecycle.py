"""KIP-848 groups over time: load from the log, commits, timers, and members that leave, are removed or expire.

A removal makes one epoch for the whole batch, or a classic generation where only classic members are left.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from muster.coordinator.core.consumer import epoch_ledger, handoff, members, target
from muster.coordinator.core.consumer.group import AWAY, ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.consumer.members import delete_records, forget_member
from muster.coordinator.core.consumer.migration import DOWNGRADE, LeavingMembers
from muster.coordinator.core.groups.bookkeeping import forget_unread, is_held
from muster.coordinator.core.groups.kind import Positions, RefusedPositions
from muster.coordinator.core.groups.member_causes import cause_from_reason, departure_of_expired, trigger_of_expiry
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply, LeaveReply, MemberReply
from muster.coordinator.core.model.events import ClaimFence, ConsumerHeartbeat, LeaveGroup, OffsetCommit, OffsetFetch
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.records import GroupEpochStored, TargetDeleted, TargetEpochStored, TopicId
from muster.coordinator.core.model.types import Cause, MemberIdentity, TimerKey, WaitEnd
from muster.coordinator.core.settings.setting import SESSION_TIMEOUT
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Members go
# ----------


def handle_leave_heartbeat(
    group: ConsumerGroup, member: ConsumerMember, request: ConsumerHeartbeat, step: Step
) -> None:
    """For good (-1), or for a while (-2, static members); the answer repeats the epoch that was sent."""
    if request.member_epoch == AWAY:
        members.leave_for_a_while(group, member, step)
    else:
        trigger = trigger_by_member(Cause.MEMBER_LEFT, member, "left")
        remove_members(group, [(member, Departure("its owner left the group", step.now_ms))], trigger, step)
    step.reply(
        request.request_id, ConsumerHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
    )


def expire_session(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """Nothing was heard of the member: it is out, static or not."""
    seen_ms = group.progress.last_seen_ms.setdefault(member.id, step.now_ms)
    trigger = trigger_of_expiry(group, group.seen(member, session_timeout_of(group, member, step)), step)
    step.lost_member(group.id, trigger.detail)
    departure = departure_of_expired(group, member.id, seen_ms)
    remove_members(group, [(member, departure)], trigger, step)


def session_timeout_of(group: ConsumerGroup, member: ConsumerMember, step: Step) -> int:
    return SESSION_TIMEOUT.of(step.state, group.id) if member.classic is None else member.classic.session_timeout_ms


def expire_rebalance_timeout(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """It did not give up what it was told to in time."""
    if member.state is not ConsumerMemberState.UNREVOKED:
        return
    seen_ms = group.progress.last_seen_ms.get(member.id, step.now_ms)
    what = f"did not give up its revoked partitions within {member.rebalance_timeout_ms} ms"
    trigger = trigger_by_member(Cause.REBALANCE_TIMEOUT, member, what)
    departure = Departure("its owner did not give it up within the rebalance timeout", seen_ms, WaitEnd.EXPIRED)
    remove_members(group, [(member, departure)], trigger, step)


def expire_rejoin(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """A classic member was called back and did not join again in time."""
    drop_late_member(group, member, Cause.REBALANCE_TIMEOUT, "rejoin", step)


def expire_fetch(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """A classic member joined and never asked for its share."""
    drop_late_member(group, member, Cause.SYNC_TIMEOUT, "sync", step)


def drop_late_member(group: ConsumerGroup, member: ConsumerMember, cause: Cause, verb: str, step: Step) -> None:
    seen_ms = group.progress.last_seen_ms.get(member.id, step.now_ms)
    trigger = trigger_by_member(cause, member, f"did not {verb} within {member.rebalance_timeout_ms} ms")
    departure = Departure(f"its owner did not {verb} within the rebalance timeout", seen_ms, WaitEnd.EXPIRED)
    remove_members(group, [(member, departure)], trigger, step)


def fence_everyone(group: ConsumerGroup, why: str, step: Step) -> None:
    """The group cannot go on from its epoch: all members are fenced. Where no epoch is left, the count starts again.

    Nobody is given a partition before those who worked on it must have noticed, as after a session that ended.
    """
    pause_ms = max(session_timeout_of(group, member, step) for member in group.members.values())
    departure = Departure(why, step.now_ms)
    trigger = RebalanceTrigger(Cause.MEMBER_FENCED, f"{why}: all members have to join again")
    remove_members(group, [(member, departure) for member in group.members.values()], trigger, step)
    group.progress.fenced_until_ms = step.now_ms + pause_ms


def remove_members(
    group: ConsumerGroup, leavers: Sequence[tuple[ConsumerMember, Departure]], trigger: RebalanceTrigger, step: Step
) -> None:
    """Take the members out; one new epoch for all of them, or a generation where only classic members are left."""
    if DOWNGRADE.made(group, LeavingMembers(trigger, leavers), step):
        return
    step.out.rows += len(group.members) * len(leavers)
    epoch_ledger.begin_epoch(group, trigger, step)
    for member, departure in leavers:
        remove_member(group, member, departure, step)
    target.raise_epoch(group, step)
    if group.members:
        target.compute_target(group, step)
        return
    # Whoever comes next gets its assignment at once.
    step.disarm(group.assign_timer)
    step.keep(TargetEpochStored(group.id, group.epoch, 0))
    epoch_ledger.record_emptied(group, step)


def remove_member(group: ConsumerGroup, member: ConsumerMember, departure: Departure, step: Step) -> None:
    epoch_ledger.leave_share(group, member, step)
    epoch_ledger.note_departure(group, member, departure, step)
    forget_member(group, member.id, step)
    target.forget_unused_regex(group, member.topic_regex, step)


def load_group(group: ConsumerGroup, step: Step) -> None:
    """The log has been replayed: watch every member afresh, and go on where a target was still to be made."""
    epoch_ledger.restore_epoch(group, step)
    group.progress.unsure.update(group.members)
    group.progress.gave = None
    for member in group.members.values():
        group.progress.last_seen_ms[member.id] = step.now_ms
        step.arm(group.session_timer(member.id), session_timeout_of(group, member, step))
        if member.state is ConsumerMemberState.UNREVOKED and member.classic is None:
            handoff.watch_draining(group, member, step)
    target.compute_target(group, step)


def recover_damaged_group(group: ConsumerGroup, step: Step) -> None:
    """Epochs, targets and shares need not fit together: with what is left the group might never come to rest.

    Its members join again, under epochs that nobody has had.
    """
    for member_id in sorted(group.targets.keys() - group.members.keys()):
        group.progress.before[member_id] = group.targets[member_id]
        group.progress.fenced_until_ms = step.now_ms + SESSION_TIMEOUT.of(step.state, group.id)
        step.keep(TargetDeleted(group.id, member_id))
    seen = max(group.epoch, group.target_epoch, *(member.epoch for member in group.members.values()))
    if seen > group.epoch:
        step.keep(GroupEpochStored(group.id, seen, group.metadata_hash))
    if group.members:
        fence_everyone(group, "a record of the group in the log is damaged", step)
    elif group.epoch > group.target_epoch:
        step.keep(TargetEpochStored(group.id, group.epoch, 0))


def fire_timer(group: ConsumerGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("assign", _) if target.are_epochs_used_up(group):
            fence_everyone(group, f"epoch {group.epoch} is the last there is", step)
        case ("assign", _):
            target.compute_target(group, step)
        case ("session", _, member_id):
            expire_session(group, group.members[member_id], step)
        case ("rebalance", _, member_id):
            expire_rebalance_timeout(group, group.members[member_id], step)
        case ("handoff", _, member_id):
            handoff.take_from_draining_member(group, group.members[member_id], step)
        case ("rejoin", _, member_id):
            expire_rejoin(group, group.members[member_id], step)
        case ("fetch", _, member_id):
            expire_fetch(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")


# LeaveGroup
# ----------


def leave_group(group: ConsumerGroup, request: LeaveGroup, step: Step) -> None:
    """Take the listed members out; each gets an answer of its own."""
    leavers = [MemberIdentity(member_id) for member_id in group.members] if request.everyone else request.members
    gone: dict[str, tuple[ConsumerMember, Departure]] = {}
    triggers: list[RebalanceTrigger] = []
    replies = []
    for who in leavers:
        try:
            member = find_listed_member(group, who)
            if member.id in gone:
                raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id!r} is named twice")
        except CoordinatorError as refusal:
            replies.append(MemberReply(who.member_id, who.group_instance_id, refusal.code, refusal.message))
            continue
        gone[member.id] = (member, departure_of_member(group, member, request.operator, step))
        triggers.append(trigger_of_leave(member, who.reason, request.operator))
        if cause_from_reason(who.reason, Cause.MEMBER_LEFT) is Cause.POLL_TIMEOUT and not request.operator:
            step.lost_member(group.id, triggers[-1].detail)
        replies.append(MemberReply(who.member_id, who.group_instance_id, ErrorCode.NONE))
    step.reply(request.request_id, LeaveReply(members=tuple(replies)))
    if gone:
        remove_members(group, list(gone.values()), combine_triggers(triggers), step)


def find_listed_member(group: ConsumerGroup, who: MemberIdentity) -> ConsumerMember:
    """The member meant, of either protocol, as in Kafka, whose admin clients remove them by LeaveGroup."""
    member_id = who.member_id
    if who.group_instance_id is not None:
        holder = group.static.get(who.group_instance_id)
        if holder is None:
            raise unknown_member(group, f"group.instance.id {who.group_instance_id!r}")
        if member_id and member_id != holder:
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"group.instance.id {who.group_instance_id!r} belongs to member {holder!r}, not to {member_id!r}",
            )
        return group.members[holder]
    if member_id not in group.members:
        raise unknown_member(group, repr(member_id))
    return group.members[member_id]


def unknown_member(group: ConsumerGroup, what: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has no member {what}")


def departure_of_member(group: ConsumerGroup, member: ConsumerMember, operator: str, step: Step) -> Departure:
    if operator:
        # Operators mostly remove the dead: it owned its partitions until it was last heard of.
        seen_ms = group.progress.last_seen_ms.get(member.id, step.now_ms)
        return Departure("its owner was removed by an operator", seen_ms)
    return Departure("its owner left the group", step.now_ms)


def trigger_of_leave(member: ConsumerMember, reason: str, operator: str) -> RebalanceTrigger:
    if operator:
        return trigger_by_member(Cause.OPERATOR, member, f"was removed by {operator}")
    return trigger_by_member(Cause.MEMBER_LEFT, member, "left", reason)


def combine_triggers(triggers: list[RebalanceTrigger]) -> RebalanceTrigger:
    others = ", ".join(trigger.culprit for trigger in triggers[1:6])
    more = f" and {len(triggers) - 6} more" if len(triggers) > 6 else ""
    detail = triggers[0].detail + (f"; with it {others}{more}" if others else "")
    return dataclasses.replace(triggers[0], detail=detail)


# Committed offsets
# -----------------

NO_OWNERS: Mapping[int, str] = {}


def check_may_commit(group: ConsumerGroup, request: OffsetCommit, step: Step) -> RefusedPositions:
    """Partitions for which the epoch is too old. One that the member has had since then may still be committed."""
    epoch = request.generation
    if epoch < 0 and not group.members:
        return {}
    member = committing_member(group, request.member_id)
    if member.classic is None and request.missing_group_code_is_illegal_generation:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"member {member.id!r} speaks the consumer protocol; it has to commit with OffsetCommit v9 or newer",
        )
    if epoch > member.epoch:
        raise is_stale(member, epoch)
    if epoch == member.epoch:
        return partitions_given_on(group, member, request, step)
    # KIP-1251: the epoch went on while the commit was under way; that alone is no reason to refuse it.
    ids = step.state.topic_ids
    asked = request.offsets
    refused = [tp for tp in asked if not has_had_since(member, ids.get(tp[0]), tp[1], epoch)]
    if len(refused) == len(asked):
        raise is_stale(member, epoch)
    return dict.fromkeys(refused, is_stale(member, epoch).code)


def partitions_given_on(
    group: ConsumerGroup, member: ConsumerMember, request: OffsetCommit, step: Step
) -> RefusedPositions:
    """Partitions that are another member's by now, though the epoch is right: what was done since belongs to it.

    Of classic members the generation says enough: they are given a new one before anything of theirs is given on.
    """
    if not group.may_have_given(member.id):
        return {}
    owners, ids, own = group.owners, step.state.topic_ids, member.id
    refused: RefusedPositions = {}
    of_topic, row = "", NO_OWNERS
    for place in request.offsets:
        if place[0] is not of_topic:
            of_topic = place[0]
            row = owners.get(ids.get(of_topic, b""), NO_OWNERS)
        if row.get(place[1], own) != own:
            refused[place] = ErrorCode.STALE_MEMBER_EPOCH
    if group.progress.taken:
        refused |= partitions_taken_from(group, member, request, step)
    if not refused or member.classic is not None:
        return {}
    if len(refused) == len(request.offsets):
        topic, partition = next(iter(refused))
        owner = group.owner(ids[topic], partition)
        whose = "is taken from it" if owner is None else f"belongs to member {owner!r}"
        raise CoordinatorError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"{topic}-{partition} was given on by member {member.id!r}, and {whose}; commit only what is owned",
        )
    return refused


def partitions_taken_from(
    group: ConsumerGroup, member: ConsumerMember, request: OffsetCommit, step: Step
) -> RefusedPositions:
    """What the member was too slow to let go of, and nobody has yet."""
    taken, ids = group.progress.taken, step.state.topic_ids
    return {
        (topic, partition): ErrorCode.STALE_MEMBER_EPOCH
        for topic, partition in request.offsets
        if taken.get((ids.get(topic, b""), partition)) == member.id
    }


def committing_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        what = f"no member {member_id!r}" if member_id else "active members: only they may commit while it is not empty"
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has {what}")
    return member


def has_had_since(member: ConsumerMember, topic: TopicId | None, partition: int, epoch: int) -> bool:
    """The partition has been this member's without a break since that epoch, pending revocation included."""
    if topic is None:
        return False
    for held in (member.assigned, member.revoking):
        assigned_at = held.get(topic, {}).get(partition)
        if assigned_at is not None:
            return assigned_at <= epoch
    return False


def owns_partition(group: ConsumerGroup, request: ClaimFence, step: Step) -> bool:
    """Pending revocation included: until it has let go, nobody else has it. The epochs of a classic member's partitions
    may be those of its group's conversion.
    """
    member = group.members.get(request.member_id)
    topic = step.state.topic_ids.get(request.topic)
    if member is None or topic is None:
        return False
    generation = member.epoch if member.classic is not None else request.generation
    return has_had_since(member, topic, request.partition, generation)


def is_stale(member: ConsumerMember, epoch: int) -> CoordinatorError:
    if member.classic is not None:
        return CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {epoch} is not generation {member.epoch} of member {member.id!r}"
        )
    return CoordinatorError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"epoch {epoch} is not epoch {member.epoch} of member {member.id!r}; heartbeat, then commit with the new epoch",
    )


def fetch_positions(group: ConsumerGroup, request: OffsetFetch, step: Step) -> Positions:
    """A member that says who it is must say so rightly; everybody else may read."""
    if request.member_id or request.member_epoch >= 0:
        member = committing_member(group, request.member_id or "")
        if member.epoch != request.member_epoch:
            raise is_stale(member, request.member_epoch)
    return step.state.offsets.get(group.id, {})


def expire_positions(group: ConsumerGroup, step: Step) -> None:
    """Drop what nobody reads and nobody has committed for the retention time, then the group if it has nothing left."""
    forget_unread(group.id, group.subscribed_topics(), step)
    if not group.members and not step.state.offsets.get(group.id) and not is_held(group.id, step):
        delete_records(group, step)
