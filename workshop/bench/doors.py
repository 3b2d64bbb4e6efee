"""Members at either door, as lean as they can be: thousands of them share this process with the clock."""

import asyncio
from collections.abc import Mapping

import grpc
from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.growth_crowd import REBALANCE_MS, SESSION_MS, GrowthJoinAnswer, GrowthMember
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.members import GrpcConnection, Response
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.wire_members import BEAT, JOIN, PROTOCOL, SYNC, heartbeat_request, join_request, sync_request

CONNECTING = 100
"""Connections that are being made at once."""
CALLS_EACH = 100
"""Members on a connection of gRPC. A node takes 256 calls there at once, and a call that was answered counts a little
longer."""


class KafkaMemberCalls:
    """A connection for each member that is on its way: a JoinGroup that waits holds up all that comes behind it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lines: list[LoadConnection] = []

    async def open(self, ways: int) -> None:
        while missing := ways - len(self._lines):
            self._lines += await asyncio.gather(
                *(LoadConnection.to(self._address) for _ in range(min(missing, CONNECTING)))
            )

    async def join(self, seat: GrowthMember) -> GrowthJoinAnswer:
        request = join_request(seat.group_id, seat.member_id, seat.subscription, SESSION_MS, REBALANCE_MS)
        told = await self._lines[seat.way].ask("JoinGroup", JOIN, request)
        members = [each.member_id for each in told.members]
        return GrowthJoinAnswer(ErrorCode(told.error_code), told.member_id, told.generation_id, told.leader, members)

    async def sync(self, seat: GrowthMember, joined: GrowthJoinAnswer, shares: Mapping[str, bytes]) -> ErrorCode:
        request = sync_request(seat.group_id, seat.member_id, joined.generation, shares)
        return ErrorCode((await self._lines[seat.way].ask("SyncGroup", SYNC, request)).error_code)

    async def beat(self, seat: GrowthMember) -> ErrorCode:
        request = heartbeat_request(seat.group_id, seat.member_id, seat.generation)
        return ErrorCode((await self._lines[seat.way].ask("Heartbeat", BEAT, request)).error_code)

    async def close(self) -> None:
        for line in self._lines:
            line.close()


class GrpcMemberCalls:
    """Calls of many members share a connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wires: list[GrpcConnection] = []

    async def open(self, ways: int) -> None:
        self._wires = [GrpcConnection(self._address) for _ in range(-(-ways // CALLS_EACH))]

    async def join(self, seat: GrowthMember) -> GrowthJoinAnswer:
        request = pb.JoinGroupRequest(
            group_id=seat.group_id,
            member_id=seat.member_id,
            client_id="bench",
            protocol_type="consumer",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=[pb.JoinGroupProtocol(name=PROTOCOL, metadata=seat.subscription)],
        )
        told = await self._ask(seat, "JoinGroup", request, pb.JoinGroupResponse)
        members = [each.member_id for each in told.members]
        return GrowthJoinAnswer(ErrorCode(told.error_code), told.member_id, told.generation_id, told.leader, members)

    async def sync(self, seat: GrowthMember, joined: GrowthJoinAnswer, shares: Mapping[str, bytes]) -> ErrorCode:
        request = pb.SyncGroupRequest(group_id=seat.group_id, generation_id=joined.generation, member_id=seat.member_id)
        request.assignments.extend(
            pb.SyncGroupAssignment(member_id=who, assignment=blob) for who, blob in shares.items()
        )
        return ErrorCode((await self._ask(seat, "SyncGroup", request, pb.SyncGroupResponse)).error_code)

    async def beat(self, seat: GrowthMember) -> ErrorCode:
        request = pb.HeartbeatRequest(group_id=seat.group_id, member_id=seat.member_id, generation_id=seat.generation)
        return ErrorCode((await self._ask(seat, "Heartbeat", request, pb.HeartbeatResponse)).error_code)

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()

    async def _ask(self, seat: GrowthMember, method: str, request: Message, answer: type[Response]) -> Response:
        try:
            return await self._wires[seat.way % len(self._wires)].call(method, request, answer)
        except grpc.aio.AioRpcError as error:
            raise BenchFailed(
                f"{method} of {seat.group_id} was not answered: {error.code().name}, {error.details()}"
            ) from None
