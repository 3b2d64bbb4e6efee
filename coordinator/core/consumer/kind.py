"""What KIP-848 groups answer, to members of either protocol."""

from muster.coordinator.core.consumer import cleanup, leaving, lifecycle, regex, target, views
from muster.coordinator.core.consumer import heartbeat as beats
from muster.coordinator.core.consumer import positions as offsets
from muster.coordinator.core.consumer.apply import FACTS
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.consumer.migration import classic_members
from muster.coordinator.core.consumer.removal import session_timeout_ms
from muster.coordinator.core.control.held import consumer as held
from muster.coordinator.core.control.holds.correction import Situation
from muster.coordinator.core.groups.unconcerned import Unconcerned
from muster.coordinator.core.ledger import Trigger
from muster.coordinator.core.plan import CONSUMER
from muster.coordinator.core.state import Step


class Consumer(Unconcerned[ConsumerGroup]):
    word = CONSUMER
    facts = FACTS

    join = staticmethod(classic_members.join_group)
    sync = staticmethod(classic_members.sync_group)
    heartbeat = staticmethod(classic_members.heartbeat)
    consumer_heartbeat = staticmethod(beats.consumer_heartbeat)
    lives = staticmethod(beats.lives)
    spoke = staticmethod(classic_members.spoke)
    leave = staticmethod(leaving.leave_group)
    may_commit = staticmethod(offsets.may_commit)
    owns = staticmethod(offsets.owns)
    positions = staticmethod(offsets.fetched)
    expire = staticmethod(offsets.expire)
    delete = staticmethod(cleanup.delete_group)
    view = staticmethod(views.view)
    epochs = staticmethod(views.epochs)
    listed = staticmethod(views.listed)
    owners = staticmethod(views.owners)
    outlook = staticmethod(views.outlook)
    steady = staticmethod(views.steady)
    topics_changed = staticmethod(target.topics_changed)
    rights_changed = staticmethod(target.rights_changed)
    planned = staticmethod(target.planned)
    snapshot = staticmethod(target.snapshot_of)
    resolved = staticmethod(regex.resolved)
    load = staticmethod(lifecycle.load)
    damaged = staticmethod(lifecycle.damaged)
    timer = staticmethod(lifecycle.timer_fired)

    def subscribed(self, group: ConsumerGroup, group_id: str, /) -> frozenset[str]:
        return group.subscribed_topics()

    def assignor(self, group: ConsumerGroup, step: Step, /) -> str:
        return target.preferred_assignor(group, step) if group.members else ""

    def session_ms(self, group: ConsumerGroup, member_id: str, step: Step, /) -> int:
        member = group.members.get(member_id)
        return session_timeout_ms(group, member, step) if member is not None else 0

    def situation(self, group: ConsumerGroup, step: Step, /) -> Situation:
        return held.situation(group, target.snapshot_of(group, step), step)

    def at_rest(self, group: ConsumerGroup, /) -> bool:
        return group.at_rest or not group.members

    def replan(self, group: ConsumerGroup, trigger: Trigger, step: Step, /) -> None:
        self.settings_changed(group, trigger, step)

    def settings_changed(self, group: ConsumerGroup, trigger: Trigger, step: Step, /) -> None:
        if group.members:
            target.call_for(group, trigger, step)
