"""ConsumerGroupHeartbeat: join, stay, leave, and one member's way to its target.

A member gives up first, then takes what is free (KIP-848).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from muster.coordinator.core.consumer import (
    epoch_ledger,
    handoff,
    lifecycle,
    members,
    migration,
    target,
)
from muster.coordinator.core.consumer.group import JOINING, ConsumerGroup, ConsumerMember, ConsumerMemberState, shares
from muster.coordinator.core.consumer.members import (
    check_epoch,
    check_heartbeat_form,
    check_room_for,
    check_state_known,
    is_leaving,
    require_consumer_member,
)
from muster.coordinator.core.groups.member_causes import (
    amend_closed,
    amend_late_fetch,
    describe_refused,
    describe_subscription,
    evidence_of_refused,
    record_calm_restart,
    record_contested_instance_id,
    trigger_of_newcomer,
)
from muster.coordinator.core.groups.member_history import NO_CONNECTION, connection_after
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply
from muster.coordinator.core.model.events import ConnectionClosed, ConsumerHeartbeat, FetchedAfterLeaving, LedgerFact
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import canonical_name
from muster.coordinator.core.model.records import ConsumerMemberStored, CurrentStored, Epochs, Shares, TopicId
from muster.coordinator.core.model.types import HEARTBEATS_IN_SESSION, Cause, Incarnation, Limits, MemberPlan
from muster.coordinator.core.settings.setting import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Reconciliation
# --------------


@dataclass(frozen=True, slots=True)
class ReconciliationGoal:
    """What the member is to have, and what it says it has (None: it did not say)."""

    target: Shares
    owned: Shares | None


def reconciled(group: ConsumerGroup, member: ConsumerMember, wish: ReconciliationGoal) -> CurrentStored | None:
    """The member's next current assignment, or None when nothing changes."""
    match member.state:
        case ConsumerMemberState.STABLE:
            if member.epoch == group.target_epoch and not dropped_topics(member, wish.target):
                return None
            following = next_assignment(group, member, wish, group.target_epoch)

        case ConsumerMemberState.UNREVOKED:
            if wish.owned is None or overlaps(wish.owned, member.revoking):
                return None
            following = next_assignment(group, member, wish, group.target_epoch)

        case ConsumerMemberState.UNRELEASED:
            following = next_assignment(group, member, wish, group.target_epoch)

        case ConsumerMemberState.UNKNOWN:
            # A newer coordinator wrote this state; only a member that holds nothing gets here.
            following = next_assignment(group, member, wish, group.target_epoch)

        case _:
            assert_never(member.state)
    return following if is_changed(member, following) else None


def dropped_topics(member: ConsumerMember, target: Shares) -> bool:
    return any(topic not in target for topic in member.assigned)


def next_assignment(
    group: ConsumerGroup, member: ConsumerMember, wish: ReconciliationGoal, target_epoch: int
) -> CurrentStored:
    """Keep what is in both, revoke the rest; take what nobody else holds."""
    keep, revoke = split_assigned(member.assigned, wish.target)
    if revoke and not (wish.owned is not None and not overlaps(wish.owned, revoke)):
        # The member must acknowledge first; until then it stays at its epoch.
        return CurrentStored(
            group.id, member.id, member.epoch, member.previous_epoch, ConsumerMemberState.UNREVOKED, keep, revoke
        )
    free, blocked = available_partitions(group, member, wish.target, keep)
    assigned = merge_shares(keep, free, target_epoch)
    state = ConsumerMemberState.UNRELEASED if blocked else ConsumerMemberState.STABLE
    # A static member that was away comes back without an epoch of its own.
    previous = max(member.epoch, 0) if member.epoch != target_epoch else member.previous_epoch
    return CurrentStored(group.id, member.id, target_epoch, previous, state, assigned, {})


def split_assigned(assigned: Epochs, target: Shares) -> tuple[Epochs, Epochs]:
    """What stays and what must go."""
    keep: dict[TopicId, Mapping[int, int]] = {}
    revoke: dict[TopicId, Mapping[int, int]] = {}
    for topic, partitions in assigned.items():
        wanted = target.get(topic, frozenset())
        if stays := {p: epoch for p, epoch in partitions.items() if p in wanted}:
            keep[topic] = stays
        if goes := {p: epoch for p, epoch in partitions.items() if p not in wanted}:
            revoke[topic] = goes
    return keep, revoke


def available_partitions(
    group: ConsumerGroup, member: ConsumerMember, target: Shares, keep: Epochs
) -> tuple[dict[TopicId, frozenset[int]], bool]:
    """The new partitions that nobody else holds, and whether any is still held; its own revocations do not block."""
    free: dict[TopicId, frozenset[int]] = {}
    blocked = False
    for topic, partitions in target.items():
        new = partitions - keep.get(topic, {}).keys()
        taken = {p for p in new if group.owner(topic, p) not in (None, member.id)}
        blocked = blocked or bool(taken)
        if new - taken:
            free[topic] = frozenset(new - taken)
    return free, blocked


def merge_shares(keep: Epochs, free: Shares, epoch: int) -> dict[TopicId, Mapping[int, int]]:
    return {
        topic: {**keep.get(topic, {}), **dict.fromkeys(sorted(free.get(topic, ())), epoch)}
        for topic in sorted(keep.keys() | free.keys())
    }


def overlaps(owned: Shares, held: Epochs) -> bool:
    return any(not partitions.isdisjoint(held.get(topic, {})) for topic, partitions in owned.items())


def is_changed(member: ConsumerMember, following: CurrentStored) -> bool:
    now = (member.epoch, member.previous_epoch, int(member.state), dict(member.assigned), dict(member.revoking))
    then = (
        following.epoch,
        following.previous_epoch,
        following.state,
        dict(following.assigned),
        dict(following.revoking),
    )
    return now != then


def consumer_heartbeat(group: ConsumerGroup, request: ConsumerHeartbeat, step: Step) -> None:
    """Keep the member alive, take in what it says, and tell it what it may work on."""
    check_heartbeat_form(request, step.limits)
    if is_leaving(request):
        lifecycle.handle_leave_heartbeat(
            group, require_consumer_member(group, request.member_id, request.group_instance_id), request, step
        )
        return
    handle_heartbeat(group, request, step)


def open_group(request: ConsumerHeartbeat, step: Step) -> None:
    """The first member of a new group joins."""
    check_may_open(request, step.limits)
    was_there_before = request.group_id in step.state.ledgers
    handle_heartbeat(ConsumerGroup(request.group_id), request, step)
    if was_there_before:
        # Members of the group that was deleted may come with what they did in it still to be committed.
        step.state.get(ConsumerGroup, request.group_id).progress.gave = None


def check_may_open(request: ConsumerHeartbeat, limits: Limits) -> None:
    """Refuse what could not join an empty group of this kind."""
    check_heartbeat_form(request, limits)
    if request.member_epoch != JOINING:
        raise CoordinatorError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id!r}; join with epoch 0"
        )


def handle_heartbeat(group: ConsumerGroup, request: ConsumerHeartbeat, step: Step) -> None:
    joining = request.member_epoch == JOINING
    if joining:
        check_room_for(group, request, step.limits)
        members.check_may_take_over(group, request)
    else:
        member = require_consumer_member(group, request.member_id, request.group_instance_id)
        check_epoch(member, request)
        check_state_known(member, request.owned)
    triggers = take_in_member(group, request, step)
    if not joining:
        member.connection = connection_after(member.connection, request.connection)
    if joining:
        group = step.state.get(ConsumerGroup, request.group_id)  # its first member has made it
    if joining and not triggers and migration.left_topics_out(group, step):
        triggers = [
            RebalanceTrigger(
                Cause.PARTITIONS_CHANGED, "the last plan of the classic group does not reach all partitions"
            )
        ]
    member = group.members[request.member_id]
    had = shares(member.assigned)
    if triggers:
        target.raise_group_epoch(group, triggers[0], step)
    target.compute_target(group, step)
    reconcile_member(group, member, request.owned, step)
    if request.ready:
        handoff.note_readiness(group, member, request.ready, step)
    renew_session(group, member, step)
    tell_all = joining or request.full or shares(member.assigned) != had or is_first_heartbeat(group, member, step)
    step.reply(request.request_id, answer_heartbeat(group, member, tell_all, step))


def is_first_heartbeat(group: ConsumerGroup, member: ConsumerMember, step: Step) -> bool:
    """Whether this is the first word of a member with a stream since the group was loaded.

    Who polls says everything after a request that failed. Who listens on a stream does not know that there was
    something to hear: what was pushed to him may have died with its step.
    """
    if not step.pushed or member.id not in group.progress.unsure:
        return False
    group.progress.unsure.discard(member.id)
    return True


def take_in_member(group: ConsumerGroup, request: ConsumerHeartbeat, step: Step) -> list[RebalanceTrigger]:
    """Take in who the member is and what it wants. Returns what calls for a new epoch."""
    replaced = members.away_member(group, request)
    live = replaced or group.members.get(request.member_id)
    record = member_after(live, request, step.limits)
    may = live.rights if live is not None and step.on_behalf else request.rights
    if live is not None and replaced is None and live.stored(group.id) == record:
        target.request_resolution(group, record.topic_regex, step)
        return target.take_rights(group, live, may, step)
    before = None if live is None else dataclasses.replace(live)
    preferred = target.preferred_assignor(group, step)
    if replaced is not None:
        members.replace_static_member(group, replaced, record, step)
    else:
        step.keep(record)
    group = step.state.get(ConsumerGroup, record.group_id)
    member = group.members[record.member_id]
    known = NO_CONNECTION if replaced is not None else member.connection
    member.connection = connection_after(known, request.connection)
    member.client_software = request.client_software or member.client_software
    member.rights = may if before is None else before.rights
    triggers = subscription_triggers(group, member, before, replaced is not None, step)
    if replaced is not None and not triggers:
        note_calm_restart(group, member, replaced, step)
    triggers += target.take_rights(group, member, may, step)
    if before is not None and target.preferred_assignor(group, step) != preferred:
        chosen = target.preferred_assignor(group, step)
        triggers.append(trigger_by_member(Cause.ASSIGNOR_CHANGED, member, f"changed the group's assignor to {chosen}"))
    if before is not None and before.topic_regex != member.topic_regex:
        target.forget_unused_regex(group, before.topic_regex, step)
    target.request_resolution(group, record.topic_regex, step)
    return triggers


def member_after(before: ConsumerMember | None, request: ConsumerHeartbeat, limits: Limits) -> ConsumerMemberStored:
    """The member as this request leaves it; what the request does not say stays as it was."""
    known = before or ConsumerMember(request.member_id)
    expression = known.topic_regex if request.topic_regex is None else request.topic_regex or None
    names = known.topic_names if request.topic_names is None else frozenset(request.topic_names)
    assignor = request.server_assignor
    return ConsumerMemberStored(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id or known.instance_id,
        rack_id=request.rack_id or known.rack_id,
        client_id=request.client_id or known.client_id,
        client_host=request.client_host or known.client_host,
        topic_names=tuple(sorted(names)),
        topic_regex=expression,
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=known.server_assignor if assignor is None else canonical_name(assignor, limits),
    )


def note_calm_restart(group: ConsumerGroup, member: ConsumerMember, old: ConsumerMember, step: Step) -> None:
    """A static member is back under another id, and nothing moves for it."""
    gone = group.history.former.get(old.id)
    away_ms = max(0, step.now_ms - gone.heard_ms) if gone is not None and gone.heard_ms else 0
    plan = MemberPlan(
        member.id,
        member.client_id,
        member.client_host,
        member.instance_id,
        tuple(sorted(epoch_ledger.share_by_name(group.target_of(member), step).items())),
    )
    record_calm_restart(group, group.seen(member), plan, Incarnation(member.id, old.id, away_ms, "replaced"), step)


def explain(group: ConsumerGroup, event: LedgerFact, step: Step) -> None:
    """Write down what only the ledger has to know."""
    if isinstance(event, ConnectionClosed):
        amend_closed(group, event.connection, step)
        return
    if isinstance(event, FetchedAfterLeaving):
        amend_late_fetch(group, event, step)
        return
    holder = group.members.get(group.static.get(event.group_instance_id or "", ""))
    if holder is not None:
        plan = MemberPlan(holder.id, holder.client_id, holder.client_host, holder.instance_id, ())
        other, evidence = describe_refused(group, event), evidence_of_refused(event)
        record_contested_instance_id(group, group.seen(holder), plan, other, step, evidence)


def subscription_triggers(
    group: ConsumerGroup, member: ConsumerMember, before: ConsumerMember | None, replaced: bool, step: Step
) -> list[RebalanceTrigger]:
    """A regular expression that nobody has resolved yet changes nothing so far: its result will."""
    unresolved = member.topic_regex is not None and member.topic_regex not in group.regexes
    if before is None:
        joined = trigger_of_newcomer(group, group.seen(member), "", step)
        if unresolved and not member.topic_names:
            return []
        return [joined]
    changed_regex = before.topic_regex != member.topic_regex and not unresolved
    if before.topic_names == member.topic_names and not changed_regex:
        return []
    if replaced:
        what = "came back with another subscription"
        return [trigger_by_member(Cause.STATIC_MEMBER_METADATA_CHANGED, member, what)]
    patterns = before.topic_regex or "", member.topic_regex or ""
    what = describe_subscription(before.topic_names, member.topic_names, patterns)
    return [trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what)]


def reconcile_member(group: ConsumerGroup, member: ConsumerMember, owned: Shares | None, step: Step) -> None:
    """Bring the member one step nearer to its target; while it must give up something, a timer runs."""
    following = reconciled(group, member, ReconciliationGoal(target.readable_target(group, member, step), owned))
    if following is None:
        return
    was = (member.state, member.revoking)
    epoch_ledger.keep_current(group, member, following, step)
    if member.state is not ConsumerMemberState.UNREVOKED or member.classic is not None:
        handoff.stop_watching_draining(group, member, step)
    elif was != (member.state, member.revoking):
        handoff.watch_draining(group, member, step)


def take_sign_of_life(group: ConsumerGroup, sent: ConsumerHeartbeat, step: Step) -> None:
    """Whoever sent this under an epoch that he may have is there.

    That can be older than the one before: what was pushed may have come behind an answer that he had not read either.
    """
    member = group.members.get(sent.member_id)
    if member is None or not JOINING <= sent.member_epoch <= member.epoch:
        return
    if group.session_timer(member.id) in step.state.deadlines:  # a static member that is away has none
        renew_session(group, member, step)


def renew_session(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    if not step.on_behalf:
        group.progress.last_seen_ms[member.id] = step.now_ms
    step.arm(group.session_timer(member.id), SESSION_TIMEOUT.of(step.state, group.id))


def interval_ms(group: ConsumerGroup, step: Step) -> int:
    """Until the next heartbeat: who is told of everything by a stream says only that it lives."""
    interval_ms = HEARTBEAT_INTERVAL.of(step.state, group.id)
    if not (step.pushed or step.on_behalf):
        return interval_ms
    return max(interval_ms, SESSION_TIMEOUT.of(step.state, group.id) // HEARTBEATS_IN_SESSION)


def answer_heartbeat(
    group: ConsumerGroup, member: ConsumerMember, tell_all: bool, step: Step
) -> ConsumerHeartbeatReply:
    assignment = shares(member.assigned) if tell_all else None
    coming, heirs_ready = (
        target.readable_of(group, member, handoff.coming_partitions(group, member), step),
        handoff.report_ready_owners(group, member),
    )
    told = {*(assignment or ()), *(coming or ()), *heirs_ready}
    names = step.state.topic_names
    ledger = step.state.ledgers.get(group.id)
    entry = ledger.newest if tell_all and ledger else None
    return ConsumerHeartbeatReply(
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms(group, step),
        assignment=assignment,
        names={topic: names[topic] for topic in told if topic in names},
        cause=entry.cause if entry else Cause.UNSPECIFIED,
        cause_detail=entry.detail if entry else "",
        coming=coming,
        heirs_ready=heirs_ready,
        revoke_within_ms=handoff.remaining_drain_ms(group, member, step) if tell_all else 0,
        session_timeout_ms=SESSION_TIMEOUT.of(step.state, group.id),
    )
