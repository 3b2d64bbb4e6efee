"""Members of KIP-848 groups go: by themselves, by an operator, or because nothing was heard of them (GC-M8, GC-M9)."""

from collections.abc import Sequence

from muster.coordinator.core.consumer import epoch_ledger, regex, static, target
from muster.coordinator.core.consumer.cleanup import forget_member
from muster.coordinator.core.consumer.downgrade import DOWNGRADE, LeavingMembers
from muster.coordinator.core.consumer.group import AWAY, ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.control.overrides import consumer as held
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import TargetEpochStored
from muster.coordinator.core.model.core_events import ConsumerHeartbeat
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.settings.consumer import SESSION_TIMEOUT


def handle_leave_heartbeat(
    group: ConsumerGroup, member: ConsumerMember, request: ConsumerHeartbeat, step: Step
) -> None:
    """For good (-1), or for a while (-2, static members); the answer repeats the epoch that was sent."""
    if request.member_epoch == AWAY:
        static.leave_for_a_while(group, member, step)
    else:
        trigger = trigger_by_member(Cause.MEMBER_LEFT, member, "left")
        remove_members(group, [(member, Departure("its owner left the group", step.now_ms))], trigger, step)
    step.reply(
        request.request_id, ConsumerHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
    )


def expire_session(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """Nothing was heard of the member: it is out, static or not."""
    seen_ms = group.progress.last_seen_ms.get(member.id, step.now_ms)
    session_ms = session_timeout_of(group, member, step)
    what = f"was not heard of for {step.now_ms - seen_ms} ms (session timeout {session_ms} ms)"
    trigger = trigger_by_member(Cause.SESSION_EXPIRED, member, what)
    step.lost_member(group.id, trigger.detail)
    remove_members(group, [(member, Departure("its owner's session expired", seen_ms))], trigger, step)


def session_timeout_of(group: ConsumerGroup, member: ConsumerMember, step: Step) -> int:
    return SESSION_TIMEOUT.of(step.state, group.id) if member.classic is None else member.classic.session_timeout_ms


def expire_rebalance_timeout(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """It did not give up what it was told to in time."""
    if member.state is not ConsumerMemberState.UNREVOKED:
        return
    seen_ms = group.progress.last_seen_ms.get(member.id, step.now_ms)
    what = f"did not give up its revoked partitions within {member.rebalance_timeout_ms} ms"
    trigger = trigger_by_member(Cause.REBALANCE_TIMEOUT, member, what)
    departure = Departure("its owner did not give it up within the rebalance timeout", seen_ms)
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
    departure = Departure(f"its owner did not {verb} within the rebalance timeout", seen_ms)
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
    held.hold_consumer_share(group, member, step)
    epoch_ledger.note_departure(group, member, departure)
    forget_member(group, member.id, step)
    regex.forget_unused_regex(group, member.topic_regex, step)
