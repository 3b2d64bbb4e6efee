"""Read-only views of central groups."""

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.central.group import CentralGroup, CentralMember, CentralState, OrderedAction
from muster.coordinator.core.groups.owners import OwnedPartitions, owners_by_partition
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import DescribedMember, DescribeReply, ListedGroup, PlannedBy
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.settings.who import chosen_assignor

CENTRAL = "central"


def describe_group(group: CentralGroup, group_id: str, step: Step) -> DescribeReply:
    """The group as DescribeGroups shows it, with the ownership that is stored."""
    waiting_for, until_ms = describe_wait(group, step)
    plan, wanted = group.owned, chosen_assignor(step.state, group.id)
    assignor = (wanted or group.assignor) if group.members else ""
    return DescribeReply(
        group_id=group.id,
        state=group.state.value,
        protocol_type=CONSUMER,
        protocol_name=assignor,
        generation=group.generation,
        members=tuple(
            DescribedMember(
                member.id,
                None,
                member.client_id,
                member.client_host,
                encode_subscription(Subscription(version=1, topics=tuple(sorted(group.topics_of(member))))),
                encode_assignment(plan.get(member.id, {})),
                member.client_software,
                session_timeout_ms=member.session_timeout_ms,
                heartbeat_interval_ms=member.ping_interval_ms,
                offers=(group.assignor,),
                last_heard_ms=member.heard_ms or None,
            )
            for member in group.members.values()
        ),
        waiting_for=waiting_for,
        waiting_until_ms=until_ms,
        planned_by=PlannedBy(assignor, bool(assignor and wanted)),
    )


def describe_wait(group: CentralGroup, step: Step) -> tuple[tuple[str, ...], int]:
    """Whom the group's task waits for, and until when at most (0: for nobody)."""
    deadlines = step.state.deadlines
    match group.state:
        case CentralState.WAITING:
            late = [member.id for member in group.lost]
            timers = [group.lease_timer(member_id) for member_id in late]
        case CentralState.STOPPING | CentralState.STARTING:
            wanted = OrderedAction.STOP if group.state is CentralState.STOPPING else OrderedAction.START
            late = [member.id for member in group.present if is_ordered(member, wanted)]
            timers = [group.order_timer(member_id) for member_id in late]
        case CentralState.BACKING_OFF:
            late, timers = [], [group.retry_timer]
        case CentralState.EMPTY | CentralState.ASSIGNING | CentralState.STABLE:
            return (), 0
    return tuple(late), max((deadlines.get(key, 0) for key in timers), default=0)


def is_ordered(member: CentralMember, wanted: OrderedAction) -> bool:
    return member.demand is not None and member.demand.want is wanted


def list_group(group: CentralGroup) -> tuple[ListedGroup, ...]:
    return (ListedGroup(group.id, CONSUMER, group.state.value, CENTRAL),)


def partition_owners(group: CentralGroup, state: ShardState, former: OwnedPartitions) -> OwnedPartitions:
    return OwnedPartitions(owners_by_partition(group.owned))
