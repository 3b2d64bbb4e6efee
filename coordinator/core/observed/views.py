"""Read-only views of groups that ZooKeeper holds, and which view shows a group that the log knows, too."""

from assignors.user_data import Subscription, encode_assignment, encode_subscription
from coordinator.core.effects import DeleteReply, DescribedMember, DescribeReply, ListedGroup
from coordinator.core.events import DeleteGroup
from coordinator.core.observed.group import ZOOKEEPER, ObservedGroup
from coordinator.core.records import RebalanceForgotten
from coordinator.core.state import ShardState, Step
from coordinator.errors import CoordinatorError, ErrorCode


def prevailing(group_id: str, state: ShardState) -> ObservedGroup | None:
    """The observed group, unless the log has a group of that id which is more alive.

    A group on its way between two generations is in both places. Members decide; with none on either side the log does.
    """
    observed = state.observed.get(group_id)
    if observed is None:
        return None
    kinds = (state.groups, state.consumer_groups, state.central_groups)
    logged = [group for groups in kinds if (group := groups.get(group_id)) is not None]
    if any(group.members for group in logged) or (logged and not observed.members):
        return None
    return observed


def as_any_group(group: ObservedGroup) -> DescribeReply:
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


def listed(state: ShardState) -> list[ListedGroup]:
    """Those that prevail, and those with members beside the log's: nobody may think that the one is alone."""
    return [
        ListedGroup(group.id, ZOOKEEPER, group.state.value, ZOOKEEPER)
        for group in state.observed.values()
        if group.members or prevailing(group.id, state) is group
    ]


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
    ledger = step.state.ledgers.get(group.id)
    for number in sorted(ledger.entries) if ledger else ():
        step.keep(RebalanceForgotten(group.id, number))
    step.state.observed.pop(group.id)
    step.disarm(group.timer)
    step.reply(request.request_id, DeleteReply())
