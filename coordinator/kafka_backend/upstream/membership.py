"""The requests of one member of a classic group of the upstream's; whoever asks decides by their codes.

Heartbeats go by a connection of their own: the broker holds JoinGroup and SyncGroup until others have come, and what
is asked behind them on the same connection as long. Nor does a heartbeat wait behind anything else that this node asks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.errors import UpstreamRefused
from muster.coordinator.kafka_backend.upstream.lines import ASK, BEAT, LOOK_PURPOSE, MEMBER
from muster.coordinator.kafka_backend.upstream.upstream import GROUP, Upstream

EXTRA_WAIT_S: Final = 5.0
"""How much longer than the rebalance timeout a JoinGroup is waited for."""


PREPARING_REBALANCE: Final = "PreparingRebalance"
"""A state of a group, as its coordinator names it."""


class FellowNode(NamedTuple):
    """A member, as its group's coordinator tells of it. metadata: empty while the group is not stable."""

    instance: str
    host: str
    metadata: bytes


class UpstreamMembership:
    """answer_s: within which heartbeats, and all that is not held on purpose, are answered; without an answer by then
    the coordinator is looked for anew."""

    def __init__(
        self, upstream: Upstream, group: str, instance: str, protocol_type: str, *, answer_s: float | None = None
    ) -> None:
        self._upstream = upstream
        self._group = group
        self._instance = instance
        self._protocol_type = protocol_type
        self._answer_s = answer_s

    async def join(
        self, member_id: str, session_ms: int, rebalance_ms: int, protocols: Mapping[str, bytes], reason: str = ""
    ) -> Any:
        """A JoinGroupResponse. Raises UpstreamError, as all of them."""
        told = [struct("JoinGroupRequest.protocols")(name=name, metadata=data) for name, data in protocols.items()]
        request = struct("JoinGroupRequest")(
            group_id=self._group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=self._instance,
            protocol_type=self._protocol_type,
            protocols=told,
            reason=reason or None,
        )
        return await self._ask("JoinGroup", request, MEMBER, rebalance_ms / 1000 + EXTRA_WAIT_S)

    async def sync(
        self, member_id: str, generation: int, protocol: str, assignments: Mapping[str, bytes], rebalance_ms: int
    ) -> Any:
        """A SyncGroupResponse. assignments: the leader's, by member id; others have none."""
        told = [
            struct("SyncGroupRequest.assignments")(member_id=member, assignment=data)
            for member, data in assignments.items()
        ]
        request = struct("SyncGroupRequest")(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._instance,
            protocol_type=self._protocol_type,
            protocol_name=protocol,
            assignments=told,
        )
        return await self._ask("SyncGroup", request, MEMBER, rebalance_ms / 1000 + EXTRA_WAIT_S)

    async def heartbeat(self, member_id: str, generation: int) -> int:
        """Kafka's code."""
        request = struct("HeartbeatRequest")(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._instance,
        )
        return int((await self._ask("Heartbeat", request, BEAT)).error_code)

    async def fellows(self) -> list[FellowNode]:
        """All members, this one included. Raises UpstreamError."""
        return [
            FellowNode(each.group_instance_id or "", each.client_host, bytes(each.member_metadata))
            for group in await self._described(ASK)
            for each in group.members
        ]

    async def is_rebalancing(self) -> bool:
        """Whether all members have to join again. Raises UpstreamError."""
        return any(group.group_state == PREPARING_REBALANCE for group in await self._described(LOOK_PURPOSE))

    async def _described(self, purpose: str) -> Sequence[Any]:
        request = struct("DescribeGroupsRequest")(groups=[self._group])
        groups: Sequence[Any] = (await self._ask("DescribeGroups", request, purpose)).groups
        for group in groups:
            if group.error_code:
                raise UpstreamRefused(f"asking who is in the group {self._group}", group.error_code)
        return groups

    def hang_up(self) -> None:
        """Nobody waits for the answer of a JoinGroup or SyncGroup any more: the next one is not to wait behind it."""
        self._upstream.lines.hang_up(MEMBER)

    async def leave(self, member_id: str, reason: str = "") -> int:
        """Kafka's code. With the member id beside the instance id: by the instance id alone a process that wakes late
        would put out the one that has taken its place; so it hears FENCED_INSTANCE_ID (82)."""
        member = struct("LeaveGroupRequest.members")(
            member_id=member_id, group_instance_id=self._instance, reason=reason or None
        )
        request = struct("LeaveGroupRequest")(group_id=self._group, members=[member])
        answer = await self._ask("LeaveGroup", request)
        codes = [answer.error_code, *(each.error_code for each in answer.members)]
        return next((int(code) for code in codes if code), 0)

    async def _ask(self, api: str, request: object, purpose: str = ASK, waits_s: float = 0.0) -> Any:
        return await self._upstream.ask_coordinator(
            GROUP, self._group, api, request, purpose=purpose, waits_s=waits_s, within_s=self._answer_s
        )
