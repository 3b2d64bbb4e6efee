"""What central groups answer. Their members speak by their streams; other calls are for operators and views."""

from muster.coordinator.core.central import lifecycle, rebalance, registration, topics
from muster.coordinator.core.central import positions as offsets
from muster.coordinator.core.central.group import CentralGroup, CentralState
from muster.coordinator.core.classic import join
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.control.overrides import central as held
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds import views
from muster.coordinator.core.kinds.central_apply import CENTRAL_FACTS
from muster.coordinator.core.kinds.unconcerned import DefaultKind
from muster.coordinator.core.model.core_events import ConsumerHeartbeat, JoinGroup
from muster.coordinator.core.model.correction import GroupSituation
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.settings.who import chosen_assignor
from muster.coordinator.errors import CoordinatorError, ErrorCode


class CentralKind(DefaultKind[CentralGroup]):
    word = views.CENTRAL
    facts = CENTRAL_FACTS

    register = staticmethod(registration.register_consumer)
    forget = staticmethod(lifecycle.forget_waiting_stream)
    leave = staticmethod(lifecycle.leave_group)
    may_commit = staticmethod(offsets.check_may_commit)
    owns = staticmethod(offsets.owns_partition)
    expire = staticmethod(offsets.expire_positions)
    delete = staticmethod(lifecycle.delete_group)
    view = staticmethod(views.describe_group)
    listed = staticmethod(views.list_group)
    owners = staticmethod(views.partition_owners)
    settings_changed = staticmethod(lifecycle.replan_after_settings)
    topics_changed = staticmethod(topics.take_topic_changes)
    rights_changed = staticmethod(topics.take_rights_change)
    planned = staticmethod(rebalance.take_planned)
    snapshot = staticmethod(rebalance.snapshot_of)
    resolved = staticmethod(topics.take_resolved)
    load = staticmethod(lifecycle.load_group)
    unload = staticmethod(lifecycle.unload_group)
    timer = staticmethod(lifecycle.fire_timer)
    stood_still = staticmethod(lifecycle.extend_leases)

    def situation(self, group: CentralGroup, step: Step, /) -> GroupSituation:
        return held.central_situation(group, rebalance.snapshot_of(group, step), step)

    def at_rest(self, group: CentralGroup, /) -> bool:
        return group.state in (CentralState.EMPTY, CentralState.STABLE)

    def replan(self, group: CentralGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self.settings_changed(group, trigger, step)

    def join(self, group: CentralGroup, event: JoinGroup, step: Step, /) -> None:
        join.check_may_open(ClassicGroup(group.id), event)
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
