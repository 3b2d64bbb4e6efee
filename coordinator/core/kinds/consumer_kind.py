"""What KIP-848 groups answer, to members of either protocol."""

from muster.coordinator.core.consumer import classic_members, cleanup, leaving, lifecycle, offsets, regex, target
from muster.coordinator.core.consumer import heartbeat as beats
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.consumer.removal import session_timeout_of
from muster.coordinator.core.control.overrides import consumer as held
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds import consumer_views
from muster.coordinator.core.kinds.consumer_apply import CONSUMER_FACTS
from muster.coordinator.core.kinds.unconcerned import DefaultKind
from muster.coordinator.core.model.correction import GroupSituation
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import CONSUMER


class ConsumerKind(DefaultKind[ConsumerGroup]):
    word = CONSUMER
    facts = CONSUMER_FACTS

    join = staticmethod(classic_members.join_group)
    sync = staticmethod(classic_members.sync_group)
    heartbeat = staticmethod(classic_members.heartbeat)
    consumer_heartbeat = staticmethod(beats.consumer_heartbeat)
    lives = staticmethod(beats.take_sign_of_life)
    spoke = staticmethod(classic_members.renew_unread)
    leave = staticmethod(leaving.leave_group)
    may_commit = staticmethod(offsets.check_may_commit)
    owns = staticmethod(offsets.owns_partition)
    positions = staticmethod(offsets.fetch_positions)
    expire = staticmethod(offsets.expire_positions)
    delete = staticmethod(cleanup.delete_group)
    view = staticmethod(consumer_views.describe_group)
    epochs = staticmethod(consumer_views.describe_epochs)
    listed = staticmethod(consumer_views.list_group)
    owners = staticmethod(consumer_views.partition_owners)
    outlook = staticmethod(consumer_views.heartbeat_outlook)
    steady = staticmethod(consumer_views.is_steady)
    topics_changed = staticmethod(target.topics_changed)
    rights_changed = staticmethod(target.rights_changed)
    planned = staticmethod(target.take_planned_target)
    snapshot = staticmethod(target.snapshot_of)
    resolved = staticmethod(regex.take_resolved)
    load = staticmethod(lifecycle.load_group)
    damaged = staticmethod(lifecycle.recover_damaged_group)
    timer = staticmethod(lifecycle.fire_timer)

    def subscribed(self, group: ConsumerGroup, group_id: str, /) -> frozenset[str]:
        return group.subscribed_topics()

    def assignor(self, group: ConsumerGroup, step: Step, /) -> str:
        return target.preferred_assignor(group, step) if group.members else ""

    def session_ms(self, group: ConsumerGroup, member_id: str, step: Step, /) -> int:
        member = group.members.get(member_id)
        return session_timeout_of(group, member, step) if member is not None else 0

    def situation(self, group: ConsumerGroup, step: Step, /) -> GroupSituation:
        return held.consumer_situation(group, target.snapshot_of(group, step), step)

    def at_rest(self, group: ConsumerGroup, /) -> bool:
        return group.at_rest or not group.members

    def replan(self, group: ConsumerGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self.settings_changed(group, trigger, step)

    def settings_changed(self, group: ConsumerGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        if group.members:
            target.request_target(group, trigger, step)
