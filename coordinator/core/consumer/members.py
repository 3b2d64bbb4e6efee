"""Checks of a KIP-848 heartbeat and its sender, static members, and how groups and members leave the log.

Checks refuse by raising. A static member is one identity and one process after the other. A group leaves the log when
it is deleted, expires, or turns into a classic one.
"""

from muster.coordinator.core.consumer import epoch_ledger
from muster.coordinator.core.consumer.group import (
    AWAY,
    JOINING,
    LEAVING,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
)
from muster.coordinator.core.consumer.target import check_regex
from muster.coordinator.core.groups.bookkeeping import check_nobody_in, forget_belongings
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import DeleteReply
from muster.coordinator.core.model.events import ConsumerHeartbeat, DeleteGroup
from muster.coordinator.core.model.plan import canonical_name, text_bytes
from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    GroupEpochDeleted,
    RegexDeleted,
    Shares,
    TargetDeleted,
    TargetEpochDeleted,
    TargetStored,
)
from muster.coordinator.core.model.types import Limits, WaitEnd
from muster.coordinator.errors import CoordinatorError, ErrorCode


def check_heartbeat_form(request: ConsumerHeartbeat, limits: Limits) -> None:
    """The request makes sense by itself, whatever the group's state."""
    if not request.group_id:
        raise invalid_heartbeat("group_id is empty; give the group a name")
    if not request.member_id:
        raise invalid_heartbeat("member_id is empty; make one (a uuid) and keep it for the life of the process")
    if request.group_instance_id == "":
        raise invalid_heartbeat(
            "group_instance_id is set but empty; leave it out for a dynamic member, or give it a name"
        )
    if request.rack_id == "":
        raise invalid_heartbeat("rack_id is set but empty; leave it out or name the rack")
    if request.rebalance_timeout_ms < -1:
        raise invalid_heartbeat(f"rebalance_timeout_ms is {request.rebalance_timeout_ms}; expected 0 or more, or none")
    match request.member_epoch:
        case 0:
            check_join_form(request)
        case -1:
            return
        case -2:
            if request.group_instance_id is None:
                raise invalid_heartbeat(
                    "member_epoch -2 is for members with a group_instance_id; leave with -1 instead"
                )
            return
        case epoch if epoch < AWAY:
            raise invalid_heartbeat(f"member_epoch is {epoch}; expected -2 or more")
    size = text_bytes(*(request.topic_names or ()))
    if size > limits.max_group_bytes:
        raise invalid_heartbeat(f"topic_names have {size} bytes; at most {limits.max_group_bytes} are kept")
    if request.server_assignor is not None:
        check_assignor_known(request.server_assignor, limits)
    if request.topic_regex:
        check_regex(request.topic_regex)


def check_join_form(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid_heartbeat("rebalance_timeout_ms is missing; a member that joins (epoch 0) has to say it")
    if request.owned is None or any(request.owned.values()):
        raise invalid_heartbeat(
            "topic_partitions must be there and empty when a member joins (epoch 0): it owns nothing yet"
        )
    if request.topic_names is None and request.topic_regex is None:
        raise invalid_heartbeat("a member that joins (epoch 0) has to give topic names or a regular expression")


def check_assignor_known(word: str, limits: Limits) -> None:
    if canonical_name(word, limits) not in limits.consumer_assignors:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"server assignor {word!r} is not offered here; known: {', '.join(limits.consumer_assignors)} "
            f"(group.consumer.assignors)",
        )


def require_consumer_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member, if the identity holds."""
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group.id!r} has no member with group.instance.id {instance_id!r}; join with epoch 0",
            )
        if holder != member_id:
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"group.instance.id {instance_id!r} of group {group.id!r} now belongs to member {holder!r}; "
                f"give each running process an instance id of its own",
            )
    member = group.members.get(member_id)
    if member is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has no member {member_id!r}; join with epoch 0"
        )
    return member


def check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Its own epoch, 0 to start over, or the one before when the answer to that was lost."""
    epoch = request.member_epoch
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and is_within(request.owned, member):
        return
    raise CoordinatorError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"epoch {epoch} is not epoch {member.epoch} of member {member.id!r}; give up all partitions and join with 0",
    )


def check_state_known(member: ConsumerMember, owned: Shares | None) -> None:
    """A newer coordinator may have left a member in a state that this one does not know."""
    if member.state is ConsumerMemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise CoordinatorError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.id!r} is in a state that this node does not know; give up all partitions and join with 0",
        )


def is_within(owned: Shares | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(partitions <= member.assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def check_room_for(group: ConsumerGroup, request: ConsumerHeartbeat, limits: Limits) -> None:
    """Known members and known instances keep their place."""
    known = request.member_id in group.members or request.group_instance_id in group.static
    if not known and len(group.members) >= limits.consumer_max_group_size:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} has reached group.consumer.max.size ({limits.consumer_max_group_size}); "
            f"stop a member or raise the limit",
        )


def is_leaving(request: ConsumerHeartbeat) -> bool:
    return request.member_epoch in (LEAVING, AWAY)


def invalid_heartbeat(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


# Groups and members leave the log
# --------------------------------


def delete_group(group: ConsumerGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group with its offsets and its ledger."""
    check_nobody_in(group)
    delete_records(group, step)
    step.reply(request.request_id, DeleteReply())


def delete_records(group: ConsumerGroup, step: Step) -> None:
    """Tombstones for an empty group and all that belongs to it, its ledger included."""
    forget_belongings(group.id, step)
    forget_group(group, step)


def forget_group(group: ConsumerGroup, step: Step) -> None:
    """Whatever kind of group the id stands for next, nothing of this one is left but offsets and ledger."""
    for member_id in list(group.members):
        forget_member(group, member_id, step)
    step.disarm(group.assign_timer)
    for regex in list(group.regexes):
        step.keep(RegexDeleted(group.id, regex))
    step.keep(TargetEpochDeleted(group.id))
    step.keep(GroupEpochDeleted(group.id))


def forget_member(group: ConsumerGroup, member_id: str, step: Step) -> None:
    """Its timers and its records, in Kafka's order."""
    for key in group.timers_of(member_id):
        step.disarm(key)
    step.keep(CurrentDeleted(group.id, member_id))
    step.keep(TargetDeleted(group.id, member_id))
    step.keep(ConsumerMemberDeleted(group.id, member_id))


# Static members
# --------------


def check_may_take_over(group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
    """An instance id is free, or its holder has said that it goes; a live one is not pushed out."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return
    holder = group.static.get(instance_id)
    if holder is None or holder == request.member_id:
        return
    # A classic process has no way to say that it goes: the one that replaces it is its successor (rolling upgrade).
    if group.members[holder].epoch == AWAY or group.members[holder].classic is not None:
        return
    raise CoordinatorError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"group.instance.id {instance_id!r} of group {group.id!r} is in use by member {holder!r}; "
        f"stop that process, or wait for its session to end",
    )


def away_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember | None:
    """The member whose place the one that joins takes."""
    holder = group.static.get(request.group_instance_id or "")
    return None if holder is None or holder == request.member_id else group.members[holder]


def replace_static_member(group: ConsumerGroup, old: ConsumerMember, record: ConsumerMemberStored, step: Step) -> None:
    """The same identity under a new id, with all that the old one had; the group need not move."""
    share, assigned = group.target_of(old), old.assigned
    epoch_ledger.rename_member(group, old.id, record.member_id)
    group.history.note_gone(group.seen(old), WaitEnd.REPLACED, step.now_ms)
    group.history.succeed(old.id, record.member_id)
    group.progress.last_seen_ms.pop(old.id, None)
    forget_member(group, old.id, step)
    step.keep(record)
    step.keep(TargetStored(group.id, record.member_id, share))
    step.keep(CurrentStored(group.id, record.member_id, 0, 0, ConsumerMemberState.STABLE, assigned, {}))


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """It leaves for a while: its partitions stay its own until its session ends, a revocation counts as done."""
    step.disarm(group.rebalance_timer(member.id))
    record = CurrentStored(
        group.id, member.id, AWAY, max(member.epoch, 0), ConsumerMemberState.STABLE, member.assigned, {}
    )
    epoch_ledger.keep_current(group, member, record, step)
