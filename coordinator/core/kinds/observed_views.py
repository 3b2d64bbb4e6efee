"""Views of groups that ZooKeeper holds, and what is left of one that it does not hold any more."""

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.groups.forgetting import forget_ledger
from muster.coordinator.core.groups.observed_group import ZOOKEEPER, ObservedGroup
from muster.coordinator.core.groups.owners import OwnedPartitions
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import DeleteGroup
from muster.coordinator.core.model.effects import DeleteReply, DescribedMember, DescribeReply, ListedGroup
from muster.coordinator.errors import CoordinatorError, ErrorCode


def describe_group(group: ObservedGroup) -> DescribeReply:
    """The group as DescribeGroups shows it: claims as assignments, as they stand at this moment."""
    members = group.members
    return DescribeReply(
        group_id=group.id,
        state=group.state.value,
        protocol_type=ZOOKEEPER,
        generation=group.generation,
        members=tuple(
            DescribedMember(
                member_id,
                None,
                "",
                members[member_id].host,
                encode_subscription(Subscription(version=1, topics=members[member_id].topics)),
                encode_assignment(shares),
            )
            for member_id, shares in group.owned.items()
        ),
        waiting_for=group.late,
    )


def list_group(group: ObservedGroup) -> ListedGroup:
    return ListedGroup(group.id, ZOOKEEPER, group.state.value, ZOOKEEPER)


def partition_owners(group: ObservedGroup) -> OwnedPartitions:
    """By their claims, also of members that are gone and whose claims are not."""
    rows: dict[str, dict[int, str]] = {}
    for (topic, partition), owner in group.seen.owners.items():
        rows.setdefault(topic, {})[partition] = owner
    return OwnedPartitions(rows)


def delete_group(group: ObservedGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group's ledger; the edge has deleted what ZooKeeper held."""
    if group.members:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} has {len(group.members)} members in ZooKeeper; stop them first",
        )
    if not request.elsewhere:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"group {group.id!r} lies in ZooKeeper, which this request does not reach; use muster groups delete",
        )
    forget_ledger(group.id, step)
    step.state.overlook(group.id)
    step.disarm(group.timer)
    step.reply(request.request_id, DeleteReply())
