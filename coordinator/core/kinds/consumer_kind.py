"""What KIP-848 groups answer to members of either protocol, and their read-only views."""

from collections.abc import Iterator

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.consumer import (
    classic_members,
    epoch_ledger,
    handoff,
    lifecycle,
    members,
    target,
)
from muster.coordinator.core.consumer import heartbeat as beats
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState, shares
from muster.coordinator.core.consumer.lifecycle import session_timeout_of
from muster.coordinator.core.groups import member_causes
from muster.coordinator.core.groups.group import OwnedPartitions
from muster.coordinator.core.groups.kind import HeartbeatOutlook
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.default_kind import DefaultKind
from muster.coordinator.core.kinds.facts import CONSUMER_FACTS
from muster.coordinator.core.model.effects import (
    ConsumerMemberView,
    DescribeConsumerReply,
    DescribedMember,
    DescribeReply,
    PlannedBy,
)
from muster.coordinator.core.model.events import ConsumerHeartbeat, Listen
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.plan_correction import GroupSituation
from muster.coordinator.core.model.types import ListedGroup
from muster.coordinator.core.settings.assignor_choice import chosen_assignor, move_budget
from muster.coordinator.core.settings.setting import HEARTBEAT_INTERVAL, SESSION_TIMEOUT

# Views
# -----


def describe_epochs(group: ConsumerGroup, group_id: str, step: Step) -> DescribeConsumerReply:
    """Epochs, and for each member what it has and what it is to have."""
    waiting_for, until_ms = describe_wait(group, step)
    members = tuple(member_view(group, member) for member in group.members.values())
    topics = {topic for view in members for share in (view.assigned, view.revoking, view.target) for topic in share}
    return DescribeConsumerReply(
        group_id=group.id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=target.preferred_assignor(group, step),
        members=members,
        names={topic: name for topic, name in step.state.topic_names.items() if topic in topics},
        waiting_for=waiting_for,
        waiting_until_ms=until_ms,
    )


def member_view(group: ConsumerGroup, member: ConsumerMember) -> ConsumerMemberView:
    return ConsumerMemberView(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(member.topic_names)),
        topic_regex=member.topic_regex,
        epoch=member.epoch,
        state=member.state.name.lower(),
        assigned=member.assigned,
        revoking=member.revoking,
        target=group.target_of(member),
        classic=member.classic is not None,
    )


def describe_wait(group: ConsumerGroup, step: Step) -> tuple[tuple[str, ...], int]:
    """Who has to give something up first, and until when at most (0: nobody)."""
    late = tuple(member.id for member in group.members.values() if member.state is ConsumerMemberState.UNREVOKED)
    timers = [key for member_id in late for key in group.timers_of(member_id) if key[0] != "session"]
    return late, max((step.state.deadlines.get(key, 0) for key in timers), default=0)


def describe_group(group: ConsumerGroup, group_id: str, step: Step) -> DescribeReply:
    """The group as DescribeGroups shows it: its epoch as the generation, assignments in the members' own format."""
    waiting_for, until_ms = describe_wait(group, step)
    heartbeat_ms = HEARTBEAT_INTERVAL.of(step.state, group.id)
    session_ms = SESSION_TIMEOUT.of(step.state, group.id)
    assignor = target.preferred_assignor(group, step) if group.members else ""
    return DescribeReply(
        group_id=group.id,
        state=group.state.value,
        protocol_type=CONSUMER,
        protocol_name=assignor,
        generation=group.epoch,
        members=tuple(
            DescribedMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"",
                encode_assignment(epoch_ledger.share_by_name(shares(member.assigned), step)),
                member.client_software,
                session_timeout_ms=member.classic.session_timeout_ms if member.classic else session_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                heartbeat_interval_ms=None if member.classic else heartbeat_ms,
                offers=(member.server_assignor,) if member.server_assignor else (),
                last_heard_ms=group.progress.last_seen_ms.get(member.id),
                topics=tuple(sorted(group.subscribed_names(member))),
            )
            for member in group.members.values()
        ),
        waiting_for=waiting_for,
        waiting_until_ms=until_ms,
        planned_by=PlannedBy(assignor, bool(assignor and chosen_assignor(step.state, group.id))),
    )


def list_group(group: ConsumerGroup) -> tuple[ListedGroup, ...]:
    return (ListedGroup(group.id, CONSUMER, group.state.value, CONSUMER),)


def heartbeat_outlook(group: ConsumerGroup, listener: Listen) -> HeartbeatOutlook:
    """Most members, most of the time: where they have to be, or yet to let go of what they know they must."""
    member = group.members.get(listener.member_id) if listener.consumer else None
    if member is None:
        return HeartbeatOutlook.UNKNOWN
    if member.epoch != listener.generation:
        return HeartbeatOutlook.MOVED_ON
    at_rest = member.state is ConsumerMemberState.STABLE and member.epoch == group.target_epoch == group.epoch
    draining = member.state is ConsumerMemberState.UNREVOKED and not handoff.has_unreported_owner(group, member)
    return HeartbeatOutlook.NOTHING_NEW if at_rest or draining else HeartbeatOutlook.UNKNOWN


def is_steady(group: ConsumerGroup, beat: ConsumerHeartbeat, state: ShardState) -> bool:
    """The member is up to date, and so is its group: nothing is asked for, and nothing is to be handed over."""
    member = group.members.get(beat.member_id)
    if member is None or beat.member_epoch <= 0:
        return False
    return (
        beat.member_epoch == member.epoch == group.epoch == group.target_epoch
        and not member.revoking
        and (beat.topic_names is None or frozenset(beat.topic_names) == member.topic_names)
        and (beat.topic_regex or None) in (None, member.topic_regex)
        and beat.server_assignor in (None, member.server_assignor)
        and (beat.owned is None or dict(beat.owned) == shares(member.assigned))
        and target.target_fits_rights(group, member, beat.rights, state)
    )


def partition_owners(group: ConsumerGroup, state: ShardState, former: OwnedPartitions) -> OwnedPartitions:
    """Under the names that topics have now; one that is gone has none."""
    names = state.topic_names
    return OwnedPartitions({names[topic]: row for topic, row in group.owners.items() if topic in names})


class ConsumerKind(DefaultKind[ConsumerGroup]):
    word = CONSUMER
    facts = CONSUMER_FACTS

    join = staticmethod(classic_members.join_group)
    sync = staticmethod(classic_members.sync_group)
    heartbeat = staticmethod(classic_members.heartbeat)
    consumer_heartbeat = staticmethod(beats.consumer_heartbeat)
    lives = staticmethod(beats.take_sign_of_life)
    spoke = staticmethod(classic_members.renew_unread)
    leave = staticmethod(lifecycle.leave_group)
    may_commit = staticmethod(lifecycle.check_may_commit)
    owns = staticmethod(lifecycle.owns_partition)
    positions = staticmethod(lifecycle.fetch_positions)
    expire = staticmethod(lifecycle.expire_positions)
    delete = staticmethod(members.delete_group)
    view = staticmethod(describe_group)
    epochs = staticmethod(describe_epochs)
    listed = staticmethod(list_group)
    owners = staticmethod(partition_owners)
    outlook = staticmethod(heartbeat_outlook)
    steady = staticmethod(is_steady)
    topics_changed = staticmethod(target.topics_changed)
    connection_closed = staticmethod(member_causes.note_connection_closed)
    explain = staticmethod(beats.explain)
    rights_changed = staticmethod(target.rights_changed)
    planned = staticmethod(target.take_planned_target)
    snapshot = staticmethod(target.snapshot_of)
    resolved = staticmethod(target.take_resolved)
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

    def stream_opened(self, group: ConsumerGroup, member_id: str, connection: int, /) -> None:
        member = group.members.get(member_id)
        if member is not None:
            member.connection = connection

    def situation(self, group: ConsumerGroup, step: Step, /) -> GroupSituation:
        budget = move_budget(step.state, group.id)
        return epoch_ledger.consumer_view(group, step).situation(target.snapshot_of(group, step), budget)

    def classic_offers(self, group: ConsumerGroup, /) -> Iterator[tuple[str, frozenset[str]]]:
        for member in group.members.values():
            if member.classic is not None:
                yield member.id, frozenset(protocol.name for protocol in member.classic.protocols)

    def at_rest(self, group: ConsumerGroup, /) -> bool:
        return group.at_rest or not group.members

    def replan(self, group: ConsumerGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self.settings_changed(group, trigger, step)

    def settings_changed(self, group: ConsumerGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        if group.members:
            target.request_target(group, trigger, step)
