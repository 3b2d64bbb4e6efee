"""Plain classic members over gRPC: join, sync and beat as the protocol says, count every message and byte.

They are lean on purpose: thousands live in one process. The real member machine is measured elsewhere (`muster lab`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.processes import BenchFailed

SERVICE = "/coordinator.rpc.v1.GroupCoordinator/"
CALL_S = 120.0
SUBSCRIPTION = b"\x00\x03" + bytes(46)
"""As long as the subscription of a consumer of one topic; the coordinator does not look into it."""

Response = TypeVar("Response", bound=Message)


class GrpcConnection:
    """One connection, and what went over it: messages and their bytes, without headers and polled heartbeats.

    `token` is shown with every call, if there is one.
    """

    def __init__(self, address: str, token: str = "") -> None:
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        options += [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
        self.channel = grpc.aio.insecure_channel(address, options)
        self._stubs: dict[str, Any] = {}
        self.messages = 0
        self.bytes = 0

    async def call(self, method: str, request: Message, answer: type[Response]) -> Response:
        data = request.SerializeToString()
        stub = self._stubs.get(method)
        if stub is None:
            stub = self._stubs[method] = self.channel.unary_unary(SERVICE + method)
        reply: bytes = await stub(data, timeout=CALL_S, metadata=self._metadata)
        if method != "Heartbeat":
            self.count(len(data))
            self.count(len(reply))
        return answer.FromString(reply)

    async def refused(self, method: str, data: bytes) -> None:
        """Ask for what breaks a limit. Raises BenchFailed if it is answered."""
        try:
            ask: Any = self.channel.unary_unary(SERVICE + method)
            await ask(data, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                return
            raise
        raise BenchFailed(f"{method} of {len(data)} bytes was answered; it has to be refused")

    def count(self, size: int) -> None:
        self.messages += 1
        self.bytes += size

    async def close(self) -> None:
        await self.channel.close(None)


@dataclass(slots=True)
class GrpcMember:
    """One member of a group. Times in milliseconds; `generation` is -1 while it has no share."""

    wire: GrpcConnection
    group_id: str
    share: Callable[[Sequence[str]], bytes]
    """What the leader gives everybody, from the member ids."""
    session_timeout_ms: int = 60_000
    rebalance_timeout_ms: int = 60_000
    member_id: str = ""
    generation: int = -1
    asked_at_s: float = 0.0
    """When it last asked to join, by the loop's clock."""
    joining: bool = False
    assigned: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with every share it gets; whoever waits for the next one clears it."""

    async def join(self) -> None:
        """Join and sync until it has its share."""
        self.joining = True
        while True:
            self.asked_at_s = asyncio.get_running_loop().time()
            joined = await self.wire.call("JoinGroup", self._join_request(), pb.JoinGroupResponse)
            if code_of(joined) is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if code_of(joined) is ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            check_answer("JoinGroup", joined)
            synced = await self.wire.call("SyncGroup", self._sync_request(joined), pb.SyncGroupResponse)
            if code_of(synced) is ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            check_answer("SyncGroup", synced)
            self.generation = joined.generation_id
            self.joining = False
            self.assigned.set()
            return

    async def beat(self) -> bool:
        """One heartbeat; False when the group calls its members back."""
        answer = await self.wire.call("Heartbeat", self.heartbeat_request(), pb.HeartbeatResponse)
        if code_of(answer) is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        check_answer("Heartbeat", answer)
        return True

    async def leave(self) -> None:
        who = pb.MemberIdentity(member_id=self.member_id)
        request = pb.LeaveGroupRequest(group_id=self.group_id, members=[who])
        check_answer("LeaveGroup", await self.wire.call("LeaveGroup", request, pb.LeaveGroupResponse))

    async def live(self, every_s: float, first_s: float) -> None:
        """Beat, and join again when called; for ever. The first heartbeat comes after `first_s`."""
        await asyncio.sleep(first_s)
        while True:
            if not await self.beat():
                await self.join()
            await asyncio.sleep(every_s)

    def heartbeat_request(self) -> pb.HeartbeatRequest:
        return pb.HeartbeatRequest(group_id=self.group_id, member_id=self.member_id, generation_id=self.generation)

    def _join_request(self) -> pb.JoinGroupRequest:
        return pb.JoinGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            client_id="bench",
            protocol_type="consumer",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=[pb.JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
        )

    def _sync_request(self, joined: pb.JoinGroupResponse) -> pb.SyncGroupRequest:
        request = pb.SyncGroupRequest(
            group_id=self.group_id, generation_id=joined.generation_id, member_id=self.member_id
        )
        if joined.leader == self.member_id:
            everyone = [member.member_id for member in joined.members]
            share = self.share(everyone)
            request.assignments.extend(pb.SyncGroupAssignment(member_id=who, assignment=share) for who in everyone)
        return request


def check_answer(method: str, answer: Any) -> None:
    """Raises AssertionError for an answer that no member of a healthy group gets."""
    code = code_of(answer)
    assert code is ErrorCode.NONE, f"{method} was answered {code.name}: {answer.error_message}"


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def make_share(_: Sequence[str]) -> bytes:
    """An assignment as long as one topic's with two partitions."""
    return bytes(40)
