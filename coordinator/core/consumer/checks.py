"""What a KIP-848 heartbeat must look like, and who may send it. Refuses by raising."""

from muster.coordinator.core.consumer.group import (
    AWAY,
    JOINING,
    LEAVING,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
)
from muster.coordinator.core.consumer.regex import check_regex
from muster.coordinator.core.model.bounds import text_bytes
from muster.coordinator.core.model.consumer_records import Shares
from muster.coordinator.core.model.core_events import ConsumerHeartbeat
from muster.coordinator.core.model.plan import canonical_name
from muster.coordinator.core.model.types import Limits
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
