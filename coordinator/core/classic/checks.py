"""Checks that refuse by raising. They come first, so that a refusal leaves no trace."""

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.model.types import GroupState, Protocol
from muster.coordinator.errors import CoordinatorError, ErrorCode


def check_not_dead(group: ClassicGroup) -> None:
    if group.state is GroupState.DEAD:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.id!r} is going away here; look up its coordinator again"
        )


def require_member(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ClassicMember:
    """The member, if the identity holds. The order of the checks is part of the protocol."""
    if group_instance_id is not None:
        holder = group.static.get(group_instance_id)
        if holder is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group.id!r} has no member with group.instance.id {group_instance_id!r}; "
                f"join with an empty member id",
            )
        if holder != member_id:
            # KIP-345: the instance id is the identity, the member id its fencing token.
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"group.instance.id {group_instance_id!r} of group {group.id!r} now belongs to member {holder!r}; "
                f"give each running process an instance id of its own",
            )
    member = group.members.get(member_id)
    if member is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.id!r} has no member {member_id!r}; join with an empty member id",
        )
    return member


def check_generation(group: ClassicGroup, member: ClassicMember, generation: int) -> None:
    """The member speaks for the group's generation, and was itself told to join it."""
    if generation == group.trailing.get(member.id):
        return
    if generation != group.generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation} is not generation {group.generation} of group {group.id!r}; join again",
        )
    if generation != member.generation:
        # A generation that never got its plan is not on record: after a crash its number is given again. A static
        # member that was told of the first one keeps its place in the second, and must not pass for one of it.
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.id!r} has not joined this generation {generation} of group {group.id!r}; join again",
        )


def check_protocols(group: ClassicGroup, protocol_type: str, protocols: tuple[Protocol, ...]) -> None:
    """The offer must be one that the group can still agree on."""
    if not protocol_type or not protocols:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "protocol_type and at least one protocol are required to join a group",
        )
    if not group.members:
        return
    if protocol_type != group.protocol_type:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"protocol_type {protocol_type!r} is not {group.protocol_type!r}, the one of group {group.id!r}",
        )
    common = group.members.common_protocols
    offered = [protocol.name for protocol in protocols]
    if not common.intersection(offered):
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"none of {', '.join(offered)} is supported by every member of group {group.id!r}; "
            f"all of them support: {', '.join(sorted(common)) or 'nothing in common'}",
        )


def check_room(group: ClassicGroup, member_id: str, max_size: int) -> None:
    """KIP-389: while preparing, only those who have already rejoined hold a place."""
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return
        case GroupState.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            accepted = (member is not None and member.joining) or group.members.joining_count < max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            accepted = member_id in group.members or len(group.members) < max_size
    if not accepted:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} has reached group.max.size ({max_size}); stop a member or raise the limit",
        )
