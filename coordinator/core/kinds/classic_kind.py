"""What classic groups answer: eager, static, cooperative, delayed, and planned by the coordinator."""

from muster.coordinator.core.classic import again, delay, lifecycle, liveness, offsets, plans
from muster.coordinator.core.classic import join as joining
from muster.coordinator.core.classic import leave as leaving
from muster.coordinator.core.classic import sync as syncing
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.control.overrides import classic as held
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds import classic_views, thaw
from muster.coordinator.core.kinds.apply import CLASSIC_FACTS
from muster.coordinator.core.kinds.unconcerned import DefaultKind
from muster.coordinator.core.model.correction import GroupSituation
from muster.coordinator.core.model.types import GroupState


class ClassicKind(DefaultKind[ClassicGroup]):
    word = classic_views.CLASSIC
    facts = CLASSIC_FACTS

    join = staticmethod(joining.join_group)
    sync = staticmethod(syncing.sync_group)
    heartbeat = staticmethod(liveness.heartbeat)
    spoke = staticmethod(liveness.renew_unread)
    forget = staticmethod(liveness.forget_parked_sync)
    session_ms = staticmethod(liveness.session_ms)
    leave = staticmethod(leaving.leave_group)
    may_commit = staticmethod(offsets.check_may_commit)
    owns = staticmethod(offsets.owns_partition)
    positions = staticmethod(offsets.fetch_positions)
    subscribed = staticmethod(offsets.subscribed_topics_or_all)
    expire = staticmethod(offsets.expire_positions)
    delete = staticmethod(lifecycle.delete_group)
    view = staticmethod(classic_views.describe_group)
    listed = staticmethod(classic_views.list_group)
    owners = staticmethod(classic_views.partition_owners)
    settings_changed = staticmethod(again.settings_changed)
    word_lost = staticmethod(again.replan_after_lost_setting)
    topics_changed = staticmethod(again.topics_changed)
    rights_changed = staticmethod(again.rights_changed)
    planned = staticmethod(again.take_planned_again)
    snapshot = staticmethod(plans.as_last_planned)
    load = staticmethod(lifecycle.load_group)
    unload = staticmethod(lifecycle.unload_group)
    timer = staticmethod(lifecycle.fire_timer)
    stood_still = staticmethod(delay.extend_delay)

    def situation(self, group: ClassicGroup, step: Step, /) -> GroupSituation:
        return held.classic_situation(group, plans.snapshot_of(group, step), step)

    def at_rest(self, group: ClassicGroup, /) -> bool:
        return group.is_in(GroupState.EMPTY, GroupState.STABLE) and group.settling is None

    replan = staticmethod(thaw.call_back_after_freeze)

    def assignor(self, group: ClassicGroup, step: Step, /) -> str:
        return group.remote if group.members else ""

    def plans_itself(self, group: ClassicGroup, /) -> bool:
        return bool(group.members) and not group.remote
