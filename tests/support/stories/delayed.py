"""Workers of a delayed group as its leader sees them."""

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription, parse_assignment
from muster.client.members import events as ev
from muster.client.members.member_types import GroupMember

RESOURCES = ("r", "s", "t", "u")


def worker(member_id: str, *owned: str, resources: tuple[str, ...] = RESOURCES) -> GroupMember:
    told = Subscription(3, resources, None, {resource: [0] for resource in owned}, 1)
    return GroupMember(member_id, None, encode_subscription(told))


def shares(planned: ev.PlanMade) -> dict[str, list[str]]:
    return {worker: sorted(parse_assignment(blob).partitions) for worker, blob in planned.assignments}
