"""Which requests leave no record, known before they are stepped: what goes on while a log takes none."""

from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.control_events import DescribeHolds
from muster.coordinator.core.model.core_events import (
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeSettings,
    Event,
    ExplainGroup,
    Heartbeat,
    Hello,
    Listen,
    ListGroups,
    ListSettings,
    OffsetFetch,
    SessionHeartbeat,
)
from muster.coordinator.core.model.events import AwaitOrders, PingAnswered
from muster.coordinator.core.model.trial_events import DescribeCanary
from muster.coordinator.core.model.txn_events import TxnWriteOver

READS = (
    OffsetFetch,
    DescribeGroup,
    DescribeConsumerGroup,
    ListGroups,
    ExplainGroup,
    DescribeSettings,
    ListSettings,
    DescribeHolds,
    DescribeCanary,
    Hello,
    TxnWriteOver,
)
SIGNS_OF_LIFE = (Heartbeat, Listen, PingAnswered, AwaitOrders)


def leaves_no_record(event: Event, state: ShardState) -> bool:
    """Whether a request reads, or says no more than that a member is still there."""
    if isinstance(event, SessionHeartbeat):
        return leaves_no_record(event.heartbeat, state)
    if isinstance(event, ConsumerHeartbeat):
        group = state.groups.get(event.group_id)
        return KINDS[type(group)].steady(group, event, state)
    return isinstance(event, READS + SIGNS_OF_LIFE)
