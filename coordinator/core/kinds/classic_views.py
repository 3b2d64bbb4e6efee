"""Read-only views of classic groups."""

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.groups.owners import OwnedPartitions, owners_by_partition
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import DescribedMember, DescribeReply, ListedGroup, PlannedBy
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.types import GroupState

CLASSIC = "classic"


def describe_group(group: ClassicGroup, group_id: str, step: Step) -> DescribeReply:
    """The group as it is; subscriptions only while it is stable, for they are in flux otherwise.

    Assignments are those of the last generation while a rebalance runs: its members still own by them, as in Kafka.
    """
    stable = group.state is GroupState.STABLE
    waiting_for, until_ms = describe_wait(group, step)
    return DescribeReply(
        group_id=group.id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        generation=group.generation,
        leader=group.acting_leader,
        members=tuple(
            DescribedMember(
                member.id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if stable else b"",
                member.assignment,
                member.client_software,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                offers=tuple(protocol.name for protocol in member.protocols),
                last_heard_ms=member.last_seen_ms or None,
            )
            for member in group.members.values()
        ),
        waiting_for=waiting_for,
        waiting_until_ms=until_ms,
        planned_by=planned_by(group),
    )


def planned_by(group: ClassicGroup) -> PlannedBy:
    planner = group.planner
    return PlannedBy(planner.assignor, planner.by_setting, planner.kept_out)


def describe_wait(group: ClassicGroup, step: Step) -> tuple[tuple[str, ...], int]:
    """Whom a running rebalance waits for, and until when at most (0: for nobody)."""
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            late = [member.id for member in group.members.values() if not member.joining]
            late += sorted(group.pending_joins)
            return tuple(late), step.state.deadlines.get(group.join_timer, 0)
        case GroupState.COMPLETING_REBALANCE:
            return tuple(sorted(group.pending_syncs)), step.state.deadlines.get(group.sync_timer, 0)
        case GroupState.EMPTY | GroupState.STABLE | GroupState.DEAD:
            return (), 0


def list_group(group: ClassicGroup) -> tuple[ListedGroup, ...]:
    return (ListedGroup(group.id, group.protocol_type or "", group.state.value, CLASSIC),)


def partition_owners(group: ClassicGroup, state: ShardState, former: OwnedPartitions) -> OwnedPartitions:
    """What its members were given last, read from their blobs once a generation.

    While a rebalance runs that is what the last plan gave them, as in Kafka's descriptions.
    """
    stamp = (group, group.generation, group.state, tuple(group.members))
    if stamp == former.stamp:
        return former
    return OwnedPartitions(
        owners_by_partition({member.id: assignment_of(member.assignment) for member in group.members.values()}), stamp
    )
