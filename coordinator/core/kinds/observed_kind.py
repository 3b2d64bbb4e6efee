"""What groups of the ZooKeeper era answer: their members meet elsewhere, so whoever speaks here means the log's group.

A group on its way between two generations is in both places. Which of the two is shown, deleted, or has its members
removed is decided here: `ObservedGroup.prevails`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from muster.assignors.api import Snapshot
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.kind import NO_FACTS, GroupKind, HeartbeatOutlook, Positions, RefusedPositions
from muster.coordinator.core.groups.observed_group import ObservedGroup
from muster.coordinator.core.groups.owners import OwnedPartitions
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds import observed_views, watching
from muster.coordinator.core.model.core_events import (
    ConsumerHeartbeat,
    DeleteGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Listen,
    OffsetCommit,
    OffsetFetch,
    Planned,
    RegexResolved,
    StoodStill,
    SyncGroup,
)
from muster.coordinator.core.model.correction import GroupSituation
from muster.coordinator.core.model.effects import DescribeConsumerReply, DescribeReply, ListedGroup
from muster.coordinator.core.model.events import RegisterConsumer
from muster.coordinator.core.model.fences_events import ClaimFence
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.rights import RightsAnew
from muster.coordinator.core.model.types import RequestId, TimerKey
from muster.coordinator.errors import CoordinatorError, ErrorCode


class ObservedKind:
    """`kind_of` tells the kind of the log's group behind this one, which may be none."""

    facts = NO_FACTS

    def __init__(self, kind_of: Callable[[GroupData | None], GroupKind[Any]]) -> None:
        self._kind_of = kind_of

    # What is answered for the group that ZooKeeper holds, unless the log's prevails.

    def leave(self, group: ObservedGroup, event: LeaveGroup, step: Step, /) -> None:
        if group.prevails:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"the members of {event.group_id!r} meet in ZooKeeper and cannot be removed from here; stop them, or "
                "delete their znodes in /consumers/[group]/ids",
            )
        self._kind_of(group.logged).leave(group.logged, event, step)

    def delete(self, group: ObservedGroup, event: DeleteGroup, step: Step, /) -> None:
        if group.prevails:
            observed_views.delete_group(group, event, step)
        else:
            self._kind_of(group.logged).delete(group.logged, event, step)

    def view(self, group: ObservedGroup, group_id: str, step: Step, /) -> DescribeReply:
        if group.prevails:
            return observed_views.describe_group(group)
        return self._kind_of(group.logged).view(group.logged, group_id, step)

    def listed(self, group: ObservedGroup, /) -> Iterator[ListedGroup]:
        """The one that prevails, and those with members beside the log's: nobody may think that the one is alone."""
        if group.members or group.prevails:
            yield observed_views.list_group(group)
        if not group.prevails:
            yield from self._kind_of(group.logged).listed(group.logged)

    def owners(self, group: ObservedGroup, state: ShardState, former: OwnedPartitions, /) -> OwnedPartitions:
        return observed_views.partition_owners(group)

    def timer(self, group: ObservedGroup, key: TimerKey, step: Step, /) -> None:
        if key == group.timer:
            watching.fire_quiet_timer(group, step)
        else:
            self._kind_of(group.logged).timer(group.logged, key, step)

    # What is meant for the log's group.

    def join(self, group: ObservedGroup, event: JoinGroup, step: Step, /) -> None:
        self._kind_of(group.logged).join(group.logged, event, step)

    def sync(self, group: ObservedGroup, event: SyncGroup, step: Step, /) -> None:
        self._kind_of(group.logged).sync(group.logged, event, step)

    def heartbeat(self, group: ObservedGroup, event: Heartbeat, step: Step, /) -> None:
        self._kind_of(group.logged).heartbeat(group.logged, event, step)

    def consumer_heartbeat(self, group: ObservedGroup, event: ConsumerHeartbeat, step: Step, /) -> None:
        self._kind_of(group.logged).consumer_heartbeat(group.logged, event, step)

    def register(self, group: ObservedGroup, event: RegisterConsumer, step: Step, /) -> None:
        self._kind_of(group.logged).register(group.logged, event, step)

    def lives(self, group: ObservedGroup, event: ConsumerHeartbeat, step: Step, /) -> None:
        self._kind_of(group.logged).lives(group.logged, event, step)

    def spoke(self, group: ObservedGroup, member_id: str, step: Step, /) -> None:
        self._kind_of(group.logged).spoke(group.logged, member_id, step)

    def session_ms(self, group: ObservedGroup, member_id: str, step: Step, /) -> int:
        return self._kind_of(group.logged).session_ms(group.logged, member_id, step)

    def forget(self, group: ObservedGroup, member_id: str, request: RequestId, step: Step, /) -> None:
        self._kind_of(group.logged).forget(group.logged, member_id, request, step)

    def may_commit(self, group: ObservedGroup, event: OffsetCommit, step: Step, /) -> RefusedPositions:
        return self._kind_of(group.logged).may_commit(group.logged, event, step)

    def owns(self, group: ObservedGroup, event: ClaimFence, step: Step, /) -> bool | None:
        if group.prevails:
            return group.seen.owners.get((event.topic, event.partition)) == event.member_id
        return self._kind_of(group.logged).owns(group.logged, event, step)

    def positions(self, group: ObservedGroup, event: OffsetFetch, step: Step, /) -> Positions:
        return self._kind_of(group.logged).positions(group.logged, event, step)

    def subscribed(self, group: ObservedGroup, group_id: str, /) -> frozenset[str] | None:
        return self._kind_of(group.logged).subscribed(group.logged, group_id)

    def epochs(self, group: ObservedGroup, group_id: str, step: Step, /) -> DescribeConsumerReply:
        return self._kind_of(group.logged).epochs(group.logged, group_id, step)

    def assignor(self, group: ObservedGroup, step: Step, /) -> str:
        return self._kind_of(group.logged).assignor(group.logged, step)

    def plans_itself(self, group: ObservedGroup, /) -> bool:
        return self._kind_of(group.logged).plans_itself(group.logged)

    def situation(self, group: ObservedGroup, step: Step, /) -> GroupSituation:
        return self._kind_of(group.logged).situation(group.logged, step)

    def at_rest(self, group: ObservedGroup, /) -> bool:
        return self._kind_of(group.logged).at_rest(group.logged)

    def replan(self, group: ObservedGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self._kind_of(group.logged).replan(group.logged, trigger, step)

    def settings_changed(self, group: ObservedGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self._kind_of(group.logged).settings_changed(group.logged, trigger, step)

    def snapshot(self, group: ObservedGroup, step: Step, /) -> Snapshot | None:
        return self._kind_of(group.logged).snapshot(group.logged, step)

    def load(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).load(group.logged, step)

    def damaged(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).damaged(group.logged, step)

    def word_lost(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).word_lost(group.logged, step)

    def unload(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).unload(group.logged, step)

    def stood_still(self, group: ObservedGroup, event: StoodStill, step: Step, /) -> None:
        self._kind_of(group.logged).stood_still(group.logged, event, step)

    def topics_changed(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).topics_changed(group.logged, step)

    def rights_changed(self, group: ObservedGroup, event: RightsAnew, step: Step, /) -> None:
        self._kind_of(group.logged).rights_changed(group.logged, event, step)

    def planned(self, group: ObservedGroup, event: Planned, step: Step, /) -> None:
        self._kind_of(group.logged).planned(group.logged, event, step)

    def resolved(self, group: ObservedGroup, event: RegexResolved, step: Step, /) -> None:
        self._kind_of(group.logged).resolved(group.logged, event, step)

    def expire(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).expire(group.logged, step)

    def outlook(self, group: ObservedGroup, listener: Listen, /) -> HeartbeatOutlook:
        return self._kind_of(group.logged).outlook(group.logged, listener)

    def steady(self, group: ObservedGroup, event: ConsumerHeartbeat, state: ShardState, /) -> bool:
        return self._kind_of(group.logged).steady(group.logged, event, state)
