"""The coordinator of one classic group on a fake broker: `kafka_group.py` over the wire, in real time."""

import asyncio
from collections.abc import Callable
from typing import Any

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import PROTOCOL, PROTOCOL_TYPE
from tests.fakes.kafka_group import Group, Joined, State, Synced
from tests.fakes.upstream_broker import SILENCE, UpstreamBroker

TICK_S = 0.01
MEMBER_ID_REQUIRED = 79


class GroupDesk:
    """`refusal`: a code that every JoinGroup is answered with; `silent`: heartbeats are left without an answer."""

    def __init__(self, broker: UpstreamBroker, session_ms: int) -> None:
        self.group = Group(session_ms, delay_ms=0)
        self.refusal = 0
        self.silent: Callable[[Any], bool] = lambda request: False
        self._loop = asyncio.get_running_loop()
        self._alarm = self._loop.call_later(TICK_S, self._tick)
        broker.answers |= {
            "JoinGroup": self._join,
            "SyncGroup": self._sync,
            "Heartbeat": self._heartbeat,
            "LeaveGroup": self._leave,
            "DescribeGroups": self._describe,
        }

    @property
    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def close(self) -> None:
        self._alarm.cancel()

    def _tick(self) -> None:
        self.group.tick(self.now_ms)
        self._alarm = self._loop.call_later(TICK_S, self._tick)

    async def _join(self, request: Any) -> Any:
        if self.refusal:
            return struct("JoinGroupResponse")(error_code=self.refusal)
        if not request.member_id and request.group_instance_id is None:
            return struct("JoinGroupResponse")(error_code=MEMBER_ID_REQUIRED, member_id="pending")
        parked: asyncio.Future[Joined] = self._loop.create_future()
        metadata = bytes(request.protocols[0].metadata)
        self.group.join(request.member_id, request.group_instance_id, metadata, self.now_ms, answering(parked))
        self.group.tick(self.now_ms)
        joined = await parked
        made = struct("JoinGroupResponse.members")
        return struct("JoinGroupResponse")(
            error_code=joined.code,
            generation_id=joined.generation,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=[
                made(member_id=line.member_id, group_instance_id=line.instance, metadata=line.metadata)
                for line in joined.members
            ],
        )

    async def _sync(self, request: Any) -> Any:
        parked: asyncio.Future[Synced] = self._loop.create_future()
        plans = {each.member_id: bytes(each.assignment) for each in request.assignments}
        self.group.sync(
            request.member_id, request.group_instance_id, request.generation_id, plans, self.now_ms, answering(parked)
        )
        synced = await parked
        return struct("SyncGroupResponse")(error_code=synced.code, assignment=synced.assignment)

    def _heartbeat(self, request: Any) -> Any:
        if self.silent(request):
            return SILENCE
        code = self.group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, self.now_ms)
        return struct("HeartbeatResponse")(error_code=code)

    def _leave(self, request: Any) -> Any:
        (member,) = request.members
        if member.group_instance_id is None:  # it never had more than an id
            return struct("LeaveGroupResponse")(members=[struct("LeaveGroupResponse.members")()])
        code = self.group.leave(member.member_id, member.group_instance_id, self.now_ms)
        made = struct("LeaveGroupResponse.members")(
            member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
        )
        return struct("LeaveGroupResponse")(members=[made])

    def _describe(self, request: Any) -> Any:
        """Metadata is told of a stable group only."""
        stable = self.group.state is State.STABLE
        made = struct("DescribeGroupsResponse.groups.members")
        members = [
            made(
                member_id=each.id,
                group_instance_id=each.instance,
                client_host="/127.0.0.1",
                member_metadata=each.metadata if stable else b"",
            )
            for each in self.group.members.values()
        ]
        return struct("DescribeGroupsResponse")(
            groups=[struct("DescribeGroupsResponse.groups")(group_id=request.groups[0], members=members)]
        )


def answering(parked: "asyncio.Future[Any]") -> Callable[[Any], None]:
    def answer(word: Any) -> None:
        if not parked.done():
            parked.set_result(word)

    return answer
