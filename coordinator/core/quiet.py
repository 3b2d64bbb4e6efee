"""Which requests leave no record, known before they are stepped: what goes on while a log takes none."""

from coordinator.core.central.events import AwaitOrders, PingAnswered
from coordinator.core.consumer.group import ConsumerGroup, shares
from coordinator.core.events import (
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    DescribeGroup,
    Event,
    ExplainGroup,
    Heartbeat,
    Listen,
    ListGroups,
    OffsetFetch,
    SessionHeartbeat,
)
from coordinator.core.state import ShardState

READS = (OffsetFetch, DescribeGroup, DescribeConsumerGroup, ListGroups, ExplainGroup)
SIGNS_OF_LIFE = (Heartbeat, Listen, PingAnswered, AwaitOrders)


def quiet(event: Event, state: ShardState) -> bool:
    """Whether a request reads, or says no more than that a member is still there."""
    if isinstance(event, SessionHeartbeat):
        return quiet(event.heartbeat, state)
    if isinstance(event, ConsumerHeartbeat):
        return steady(state.consumer_groups.get(event.group_id), event)
    return isinstance(event, READS + SIGNS_OF_LIFE)


def steady(group: ConsumerGroup | None, beat: ConsumerHeartbeat) -> bool:
    """The member is up to date, and so is its group: nothing is asked for, and nothing is to be handed over."""
    member = None if group is None else group.members.get(beat.member_id)
    if group is None or member is None or beat.member_epoch <= 0:
        return False
    return (
        beat.member_epoch == member.epoch == group.epoch == group.target_epoch
        and not member.revoking
        and (beat.topic_names is None or frozenset(beat.topic_names) == member.topic_names)
        and (beat.topic_regex or None) in (None, member.topic_regex)
        and beat.server_assignor in (None, member.server_assignor)
        and (beat.owned is None or dict(beat.owned) == shares(member.assigned))
    )
