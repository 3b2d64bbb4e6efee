"""What central groups answer. Their members speak by their streams; other calls are for operators and views."""

from muster.coordinator.core.central import lifecycle, rebalance, registration, topics, views
from muster.coordinator.core.central import positions as offsets
from muster.coordinator.core.central.apply import FACTS
from muster.coordinator.core.central.group import CentralGroup, CentralState
from muster.coordinator.core.classic import join
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.control.held import central as held
from muster.coordinator.core.control.holds.correction import Situation
from muster.coordinator.core.control.who import wanted_assignor
from muster.coordinator.core.events import ConsumerHeartbeat, JoinGroup
from muster.coordinator.core.groups.unconcerned import Unconcerned
from muster.coordinator.core.ledger import Trigger
from muster.coordinator.core.state import Step
from muster.coordinator.errors import CoordinatorError, ErrorCode


class Central(Unconcerned[CentralGroup]):
    word = views.CENTRAL
    facts = FACTS

    register = staticmethod(registration.register_consumer)
    forget = staticmethod(lifecycle.forget)
    leave = staticmethod(lifecycle.leave_group)
    may_commit = staticmethod(offsets.may_commit)
    owns = staticmethod(offsets.owns)
    expire = staticmethod(offsets.expire)
    delete = staticmethod(lifecycle.delete_group)
    view = staticmethod(views.view)
    listed = staticmethod(views.listed)
    owners = staticmethod(views.owners)
    settings_changed = staticmethod(lifecycle.settings_changed)
    topics_changed = staticmethod(topics.changed)
    rights_changed = staticmethod(topics.rights_changed)
    planned = staticmethod(rebalance.planned)
    snapshot = staticmethod(rebalance.snapshot_of)
    resolved = staticmethod(topics.resolved)
    load = staticmethod(lifecycle.load)
    unload = staticmethod(lifecycle.unload)
    timer = staticmethod(lifecycle.timer_fired)
    stood_still = staticmethod(lifecycle.stood_still)

    def situation(self, group: CentralGroup, step: Step, /) -> Situation:
        return held.situation(group, rebalance.snapshot_of(group, step), step)

    def at_rest(self, group: CentralGroup, /) -> bool:
        return group.state in (CentralState.EMPTY, CentralState.STABLE)

    def replan(self, group: CentralGroup, trigger: Trigger, step: Step, /) -> None:
        self.settings_changed(group, trigger, step)

    def join(self, group: CentralGroup, event: JoinGroup, step: Step, /) -> None:
        join.may_open(ClassicGroup(group.id), event)
        raise stays(group, "classic", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def consumer_heartbeat(self, group: CentralGroup, event: ConsumerHeartbeat, step: Step, /) -> None:
        heartbeat.may_open(event, step.limits)
        raise stays(group, "consumer", ErrorCode.GROUP_ID_NOT_FOUND)

    def no_member(self, group: CentralGroup, group_id: str) -> CoordinatorError:
        why = f"group {group_id!r} is a central group, whose members speak by their streams"
        return CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, why)

    def subscribed(self, group: CentralGroup, group_id: str, /) -> frozenset[str]:
        return group.subscribed_topics()

    def assignor(self, group: CentralGroup, step: Step, /) -> str:
        return (wanted_assignor(step.state, group.id) or group.assignor) if group.members else ""


def stays(group: CentralGroup, kind: str, code: ErrorCode) -> CoordinatorError:
    return CoordinatorError(
        code,
        f"group {group.id!r} is a central group with {len(group.members)} members and cannot be a {kind} group; "
        "stop them first, or use another group.id",
    )
