"""Read-only views of KIP-848 groups."""

from assignors.user_data import encode_assignment
from coordinator.core.consumer import history, target
from coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, MemberState, shares
from coordinator.core.effects import ConsumerMemberView, DescribeConsumerReply, DescribedMember, DescribeReply
from coordinator.core.events import DescribeConsumerGroup
from coordinator.core.plan import CONSUMER
from coordinator.core.state import Step
from coordinator.errors import CoordinatorError, ErrorCode


def describe_consumer_group(request: DescribeConsumerGroup, step: Step) -> None:
    """Epochs, and for each member what it has and what it is to have."""
    group = step.state.consumer_groups.get(request.group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id!r}")
    waiting_for, until_ms = waiting(group, step)
    members = tuple(member_view(group, member) for member in group.members.values())
    topics = {topic for view in members for share in (view.assigned, view.revoking, view.target) for topic in share}
    step.reply(
        request.request_id,
        DescribeConsumerReply(
            group_id=group.id,
            state=group.state.value,
            epoch=group.epoch,
            target_epoch=group.target_epoch,
            assignor=target.preferred_assignor(group, step),
            members=members,
            names={topic: name for topic, name in step.state.topic_names.items() if topic in topics},
            waiting_for=waiting_for,
            waiting_until_ms=until_ms,
        ),
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


def waiting(group: ConsumerGroup, step: Step) -> tuple[tuple[str, ...], int]:
    """Who has to give something up first, and until when at most (0: nobody)."""
    late = tuple(member.id for member in group.members.values() if member.state is MemberState.UNREVOKED)
    timers = [key for member_id in late for key in group.timers_of(member_id) if key[0] != "session"]
    return late, max((step.state.deadlines.get(key, 0) for key in timers), default=0)


def as_any_group(group: ConsumerGroup, step: Step) -> DescribeReply:
    """The group as DescribeGroups shows it: its epoch as the generation, assignments in the members' own format."""
    waiting_for, until_ms = waiting(group, step)
    return DescribeReply(
        group_id=group.id,
        state=group.state.value,
        protocol_type=CONSUMER,
        protocol_name=target.preferred_assignor(group, step) if group.members else "",
        generation=group.epoch,
        members=tuple(
            DescribedMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"",
                encode_assignment(history.by_name(shares(member.assigned), step)),
            )
            for member in group.members.values()
        ),
        waiting_for=waiting_for,
        waiting_until_ms=until_ms,
    )
