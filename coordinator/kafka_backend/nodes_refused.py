"""What it means that the nodes' group refuses a node: as sentences for operators, and by whom it was put out
(KB-F2)."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import NodeBid, decode_bid, instance_id
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError
from muster.coordinator.kafka_backend.upstream.membership import FellowNode, UpstreamMembership

WHO_S: Final = 0.2
"""How often it is asked who has this node's place in the group; while the group shares anew nobody is told."""

FOR_GOOD: Final = frozenset(
    {
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
    }
)
"""A node is not started if the group refuses it so."""


def refusal_sentence(code: ErrorCode, message: str, group: str, session_ms: int) -> str:
    """Why the group refuses this node, and what to do."""
    if code is ErrorCode.INVALID_SESSION_TIMEOUT:
        return (
            f"engine.kafka.session.timeout.ms is {session_ms}, which the upstream does not take; set it within its "
            "group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"the upstream does not let this node into the group {group}; allow its principal READ on it"
    if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return (
            f"the upstream's group {group} is not one of nodes of this version: {message}; name another "
            "engine.kafka.cluster, or end the members of that group"
        )
    return f"the upstream's group {group} refuses this node: {message}"


class PlaceHolder(NamedTuple):
    """Who has a node's place. me: this very process. address: where it is, as far as is known."""

    me: bool
    address: str = ""


async def find_place_holder(
    membership: UpstreamMembership, node: int, instance: str, now_ms: Callable[[], int], patience_ms: int
) -> PlaceHolder:
    """After FENCED_INSTANCE_ID. It may be this very process: of two joins of its own the first may have come later."""
    until_ms, address = now_ms() + patience_ms, ""
    while now_ms() < until_ms:
        there = await find_fellow(membership, instance_id(node))
        address = there.host.lstrip("/") or address
        bid = bid_of(there.metadata)
        if bid is not None:
            return PlaceHolder(
                bid.instance == instance, bid.addresses.get("grpc") or bid.addresses.get("kafka") or address
            )
        await asyncio.sleep(WHO_S)
    return PlaceHolder(False, address)


async def find_fellow(membership: UpstreamMembership, instance: str) -> FellowNode:
    """What is known of it; nothing where it is not there, or nobody answers."""
    try:
        fellows = await membership.fellows()
    except UpstreamError:
        fellows = []
    return next((each for each in fellows if each.instance == instance), FellowNode(instance, "", b""))


def bid_of(metadata: bytes) -> NodeBid | None:
    """None: it cannot be read, or was not told."""
    try:
        return decode_bid(metadata)
    except ValueError:
        return None
