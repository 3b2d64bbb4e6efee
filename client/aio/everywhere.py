"""What concerns groups of several coordinators: in a cluster each node has its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from muster.client.aio.describing import read_group, read_group_listing
from muster.client.calls import methods
from muster.client.calls.group_calls import ELSEWHERE, GroupCalls, check_code
from muster.client.calls.transport import CallRetry, Transport
from muster.client.described import GroupDescription, GroupListing
from muster.client.errors import Refused, Unreachable
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb

DESCRIBED_AT_ONCE: Final = 100
"""Groups in one DescribeGroups: their answer has to fit into a message."""


async def list_all_groups(
    transport: Transport, request: group_pb.ListGroupsRequest, missing: Callable[[str], None] | None = None
) -> Iterable[GroupListing]:
    """Of the node that is asked, or of all nodes of its cluster: asked anew while one of them goes down. `missing`
    hears why those of some shards, or of a node that nobody reaches from here, are not among them; without it that is
    raised."""
    doing = "listing groups"
    answer = await transport.retried(methods.LIST_GROUPS, request, doing=doing)
    if not answer.in_cluster:
        check_complete(answer, transport.bootstrap, missing)
        return map(read_group_listing, answer.groups)
    answers = await list_at_all_nodes(transport, request, doing, missing)
    for node, answer in answers.items():
        check_complete(answer, node, missing)
    # One that moved meanwhile may have been told twice.
    return {
        group.group_id: read_group_listing(group) for answer in answers.values() for group in answer.groups
    }.values()


async def list_at_all_nodes(
    transport: Transport, request: group_pb.ListGroupsRequest, doing: str, missing: Callable[[str], None] | None
) -> dict[str, group_pb.ListGroupsResponse]:
    """By node. One that is cut off from here, and not from the others, stays one of the cluster."""
    patience = CallRetry(transport)
    while True:
        try:
            answers, away = await call_all_nodes(transport, request, doing)
        except Unreachable as error:
            if not await patience.another_try(error):
                raise error.after(patience.waited_ms) from error
            continue
        if not away or not await patience.another_try(next(iter(away.values()))):
            break
    for node, unreachable in away.items():
        if missing is None:
            raise unreachable.after(patience.waited_ms) from unreachable
        missing(f"those of {node}, which is one of the cluster and cannot be reached from here")
    return answers


async def call_all_nodes(
    transport: Transport, request: group_pb.ListGroupsRequest, doing: str
) -> tuple[dict[str, group_pb.ListGroupsResponse], dict[str, Unreachable]]:
    """What each node answers, and who is not reached. Raises Unreachable where nobody says which nodes there are."""
    nodes = await transport.leaders.all_nodes()
    away: dict[str, Unreachable] = {}

    async def ask(node: str) -> group_pb.ListGroupsResponse | None:
        try:
            return await transport.call(methods.LIST_GROUPS, request, doing=doing, address=node)
        except Unreachable as error:
            away[node] = error
            return None

    answers = await asyncio.gather(*map(ask, nodes))
    return {node: answer for node, answer in zip(nodes, answers, strict=True) if answer is not None}, away


def check_complete(answer: group_pb.ListGroupsResponse, node: str, missing: Callable[[str], None] | None) -> None:
    """An answer with a code has the groups of those shards that could be asked."""
    try:
        check_code(answer.error_code, answer.error_message)
    except Refused as refused:
        if missing is None:
            raise
        missing(f"some of {node}: {refused}")


async def describe_all_groups(transport: Transport, names: Sequence[str]) -> list[GroupDescription]:
    """Those that are there, in the order given. In a cluster what one node does not coordinate is asked of all."""
    found: dict[str, GroupDescription] = {}
    for start in range(0, len(names), DESCRIBED_AT_ONCE):
        request = group_pb.DescribeGroupsRequest(groups=names[start : start + DESCRIBED_AT_ONCE])
        answer = await transport.retried(methods.DESCRIBE_GROUPS, request, doing="describing groups")
        check_code(answer.error_code, "")
        found |= read_existing_groups(answer, transport.bootstrap)
        elsewhere = [group.group_id for group in answer.groups if group.error_code in ELSEWHERE]
        if elsewhere:
            found |= await describe_at_all_nodes(transport, group_pb.DescribeGroupsRequest(groups=elsewhere))
    return [found[name] for name in names if name in found]


async def describe_at_all_nodes(
    transport: Transport, request: group_pb.DescribeGroupsRequest
) -> dict[str, GroupDescription]:
    nodes = await transport.leaders.all_nodes()
    answers = await asyncio.gather(
        *(transport.call(methods.DESCRIBE_GROUPS, request, doing="describing groups", address=node) for node in nodes),
        return_exceptions=True,
    )
    found: dict[str, GroupDescription] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, Unreachable):
            continue  # A node that goes down: its groups have no coordinator right now.
        if isinstance(answer, BaseException):
            raise answer
        found |= read_existing_groups(answer, node)
    return found


def read_existing_groups(answer: group_pb.DescribeGroupsResponse, address: str) -> dict[str, GroupDescription]:
    groups = (group for group in answer.groups if not group.error_code and group.group_state != "Dead")
    return {group.group_id: read_group(group, address) for group in groups}


async def delete_all_groups(transport: Transport, names: Sequence[str], reason: str) -> None:
    """The first refusal is raised after all were tried."""
    request = group_pb.DeleteGroupsRequest(groups_names=names, reason=reason)
    answer = await transport.call(methods.DELETE_GROUPS, request, doing="deleting groups")
    results = list(answer.results)
    for place, result in enumerate(results):
        if result.error_code in ELSEWHERE:
            results[place] = await delete_group(transport, result.group_id, reason)
    for result in results:
        check_code(result.error_code, result.error_message, result.group_id)


async def delete_group(transport: Transport, group: str, reason: str) -> group_pb.DeletedGroup:
    async def attempt(address: str) -> group_pb.DeletedGroup:
        request = group_pb.DeleteGroupsRequest(groups_names=[group], reason=reason)
        answer = await transport.call(
            methods.DELETE_GROUPS, request, doing=f"deleting group {group!r}", address=address
        )
        result = answer.results[0]
        if result.error_code in ELSEWHERE:
            check_code(result.error_code, result.error_message, group)
        return result

    return await GroupCalls(transport, group).patiently(attempt)


async def watch_at_coordinator(transport: Transport, calls: GroupCalls) -> AsyncIterator[group_pb.WatchGroupResponse]:
    """What the group's coordinator tells of it, whichever node that is; without a cluster until the stream breaks."""

    async def known(address: str) -> str:
        return address

    doing = f"watching group {calls.group_id!r}"
    address, patience = await calls.coordinator(), CallRetry(transport)
    while True:
        request = group_pb.WatchGroupRequest(group_id=calls.group_id)
        try:
            async for change in transport.stream(methods.WATCH_GROUP, request, doing=doing, address=address):
                patience = CallRetry(transport)
                yield change
            return
        except Unreachable as error:
            if not transport.leaders.shared or not await patience.another_try(error):
                raise
        calls.forget_coordinator()
        address = await calls.patiently(known)
