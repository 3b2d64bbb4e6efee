"""What central groups answer, and their read-only views.

Members of central groups speak by their streams; all other calls come from operators and views.
"""

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.central import group_task, registration
from muster.coordinator.core.central import registration as lifecycle
from muster.coordinator.core.central import registration as offsets
from muster.coordinator.core.central.group import CentralGroup, CentralMember, CentralState, OrderedAction, central_view
from muster.coordinator.core.classic import membership
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.groups.group import OwnedPartitions, owners_by_partition
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.default_kind import DefaultKind
from muster.coordinator.core.kinds.facts import CENTRAL_FACTS
from muster.coordinator.core.model.effects import DescribedMember, DescribeReply, PlannedBy
from muster.coordinator.core.model.events import ConsumerHeartbeat, JoinGroup
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.plan_correction import GroupSituation
from muster.coordinator.core.model.types import ListedGroup
from muster.coordinator.core.settings.assignor_choice import chosen_assignor, move_budget
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Views
# -----

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


class CentralKind(DefaultKind[CentralGroup]):
    word = CENTRAL
    facts = CENTRAL_FACTS
    counts_from_last_heard = True

    register = staticmethod(registration.register_consumer)
    forget = staticmethod(lifecycle.forget_waiting_stream)
    leave = staticmethod(lifecycle.leave_group)
    may_commit = staticmethod(offsets.check_may_commit)
    owns = staticmethod(offsets.owns_partition)
    expire = staticmethod(offsets.expire_positions)
    delete = staticmethod(lifecycle.delete_group)
    view = staticmethod(describe_group)
    listed = staticmethod(list_group)
    owners = staticmethod(partition_owners)
    settings_changed = staticmethod(lifecycle.replan_after_settings)
    topics_changed = staticmethod(group_task.take_topic_changes)
    rights_changed = staticmethod(group_task.take_rights_change)
    planned = staticmethod(group_task.take_planned)
    snapshot = staticmethod(group_task.snapshot_of)
    resolved = staticmethod(group_task.take_resolved)
    load = staticmethod(lifecycle.load_group)
    unload = staticmethod(lifecycle.unload_group)
    timer = staticmethod(lifecycle.fire_timer)
    stood_still = staticmethod(lifecycle.extend_leases)

    def situation(self, group: CentralGroup, step: Step, /) -> GroupSituation:
        budget = move_budget(step.state, group.id)
        return central_view(group).situation(group_task.snapshot_of(group, step), budget)

    def at_rest(self, group: CentralGroup, /) -> bool:
        return group.state in (CentralState.EMPTY, CentralState.STABLE)

    def replan(self, group: CentralGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self.settings_changed(group, trigger, step)

    def join(self, group: CentralGroup, event: JoinGroup, step: Step, /) -> None:
        membership.check_may_open(ClassicGroup(group.id), event)
        raise stays_central(group, "classic", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def consumer_heartbeat(self, group: CentralGroup, event: ConsumerHeartbeat, step: Step, /) -> None:
        heartbeat.check_may_open(event, step.limits)
        raise stays_central(group, "consumer", ErrorCode.GROUP_ID_NOT_FOUND)

    def no_member(self, group: CentralGroup, group_id: str) -> CoordinatorError:
        why = f"group {group_id!r} is a central group, whose members speak by their streams"
        return CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, why)

    def subscribed(self, group: CentralGroup, group_id: str, /) -> frozenset[str]:
        return group.subscribed_topics()

    def assignor(self, group: CentralGroup, step: Step, /) -> str:
        return (chosen_assignor(step.state, group.id) or group.assignor) if group.members else ""


def stays_central(group: CentralGroup, kind: str, code: ErrorCode) -> CoordinatorError:
    return CoordinatorError(
        code,
        f"group {group.id!r} is a central group with {len(group.members)} members and cannot be a {kind} group; "
        "stop them first, or use another group.id",
    )
