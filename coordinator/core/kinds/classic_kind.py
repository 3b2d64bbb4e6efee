"""What classic groups answer: eager, static, cooperative and delayed groups, and groups planned by the coordinator.

Includes their read-only views. Subscriptions are shown only while a group is stable: they are in flux otherwise. When
a freeze ends, every member is called back, and newcomers that were waiting join the same round.
"""

from collections.abc import Iterator

from muster.coordinator.core.classic import lifecycle, membership, rebalance, replanning, server_side_assignment
from muster.coordinator.core.classic.group import ClassicGroup, classic_view
from muster.coordinator.core.groups import member_causes
from muster.coordinator.core.groups.group import OwnedPartitions, owners_by_partition
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.default_kind import DefaultKind
from muster.coordinator.core.kinds.facts import CLASSIC_FACTS
from muster.coordinator.core.model.effects import DescribedMember, DescribeReply, JoinReply, PlannedBy
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.plan_correction import GroupSituation
from muster.coordinator.core.model.types import GroupState, ListedGroup
from muster.coordinator.core.settings.assignor_choice import move_budget
from muster.coordinator.errors import CoordinatorError

# The end of a freeze
# -------------------


def call_back_after_freeze(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """Whoever plans for it. Those who waited join this very round."""
    replanning.end_standing_plan(group, trigger, step)
    for request in rebalance.release_newcomers(group, step):
        try:
            membership.join_group(group, request, step)
        except CoordinatorError as refusal:
            step.reply(request.request_id, JoinReply(refusal.code, refusal.message))


# Views
# -----

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


class ClassicKind(DefaultKind[ClassicGroup]):
    word = CLASSIC
    facts = CLASSIC_FACTS

    join = staticmethod(membership.join_group)
    sync = staticmethod(membership.sync_group)
    heartbeat = staticmethod(lifecycle.heartbeat)
    spoke = staticmethod(lifecycle.renew_unread)
    forget = staticmethod(lifecycle.forget_parked_sync)
    session_ms = staticmethod(lifecycle.session_ms)
    stream_opened = staticmethod(lifecycle.note_stream)
    leave = staticmethod(membership.leave_group)
    may_commit = staticmethod(lifecycle.check_may_commit)
    owns = staticmethod(lifecycle.owns_partition)
    positions = staticmethod(lifecycle.fetch_positions)
    subscribed = staticmethod(lifecycle.subscribed_topics_or_all)
    expire = staticmethod(lifecycle.expire_positions)
    delete = staticmethod(lifecycle.delete_group)
    view = staticmethod(describe_group)
    listed = staticmethod(list_group)
    owners = staticmethod(partition_owners)
    settings_changed = staticmethod(replanning.settings_changed)
    is_planned_by = staticmethod(replanning.is_planned_by)
    word_lost = staticmethod(replanning.replan_after_lost_setting)
    topics_changed = staticmethod(replanning.take_topics)
    connection_closed = staticmethod(member_causes.note_connection_closed)
    explain = staticmethod(membership.explain)
    rights_changed = staticmethod(replanning.rights_changed)
    planned = staticmethod(replanning.take_planned_again)
    snapshot = staticmethod(server_side_assignment.as_last_planned)
    load = staticmethod(lifecycle.load_group)
    unload = staticmethod(lifecycle.unload_group)
    timer = staticmethod(lifecycle.fire_timer)
    stood_still = staticmethod(rebalance.extend_delay)

    def situation(self, group: ClassicGroup, step: Step, /) -> GroupSituation:
        budget = move_budget(step.state, group.id)
        return classic_view(group).situation(server_side_assignment.snapshot_of(group, step), budget)

    def at_rest(self, group: ClassicGroup, /) -> bool:
        return group.is_in(GroupState.EMPTY, GroupState.STABLE) and group.settling is None

    replan = staticmethod(call_back_after_freeze)

    def assignor(self, group: ClassicGroup, step: Step, /) -> str:
        return group.remote if group.members else ""

    def classic_offers(self, group: ClassicGroup, /) -> Iterator[tuple[str, frozenset[str]]]:
        return ((member.id, member.offer) for member in group.members.values())

    def plans_itself(self, group: ClassicGroup, /) -> bool:
        return bool(group.members) and not group.remote
