"""What classic groups answer: eager, static, cooperative, delayed, and planned by the coordinator."""

from muster.coordinator.core.classic import delay, lifecycle, liveness, views
from muster.coordinator.core.classic import join as joining
from muster.coordinator.core.classic import leave as leaving
from muster.coordinator.core.classic import positions as offsets
from muster.coordinator.core.classic import sync as syncing
from muster.coordinator.core.classic.apply import FACTS
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.remote import again, plans
from muster.coordinator.core.control.held import classic as held
from muster.coordinator.core.control.held import thaw
from muster.coordinator.core.control.holds.correction import Situation
from muster.coordinator.core.groups.unconcerned import Unconcerned
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import GroupState


class Classic(Unconcerned[ClassicGroup]):
    word = views.CLASSIC
    facts = FACTS

    join = staticmethod(joining.join_group)
    sync = staticmethod(syncing.sync_group)
    heartbeat = staticmethod(liveness.heartbeat)
    spoke = staticmethod(liveness.spoke)
    forget = staticmethod(liveness.forget)
    session_ms = staticmethod(liveness.session_ms)
    leave = staticmethod(leaving.leave_group)
    may_commit = staticmethod(offsets.may_commit)
    owns = staticmethod(offsets.owns)
    positions = staticmethod(offsets.fetched)
    subscribed = staticmethod(offsets.subscribed)
    expire = staticmethod(offsets.expire)
    delete = staticmethod(lifecycle.delete_group)
    view = staticmethod(views.view)
    listed = staticmethod(views.listed)
    owners = staticmethod(views.owners)
    settings_changed = staticmethod(again.settings_changed)
    word_lost = staticmethod(again.word_lost)
    topics_changed = staticmethod(again.topics_changed)
    rights_changed = staticmethod(again.rights_changed)
    planned = staticmethod(again.planned)
    snapshot = staticmethod(plans.as_last_planned)
    load = staticmethod(lifecycle.load)
    unload = staticmethod(lifecycle.unload)
    timer = staticmethod(lifecycle.timer_fired)
    stood_still = staticmethod(delay.stood_still)

    def situation(self, group: ClassicGroup, step: Step, /) -> Situation:
        return held.situation(group, plans.snapshot_of(group, step), step)

    def at_rest(self, group: ClassicGroup, /) -> bool:
        return group.is_in(GroupState.EMPTY, GroupState.STABLE) and group.settling is None

    replan = staticmethod(thaw.replan)

    def assignor(self, group: ClassicGroup, step: Step, /) -> str:
        return group.remote if group.members else ""

    def plans_itself(self, group: ClassicGroup, /) -> bool:
        return bool(group.members) and not group.remote
