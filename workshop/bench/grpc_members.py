"""Classic members over gRPC as load: one by one, as a crowd of one group, and with a session stream.

They join, sync and send heartbeats as the protocol says, and count every message and byte. They are lean, because
thousands of them live in one process; the real member machine is measured elsewhere (`muster lab`). A pushed member
keeps a session stream next to its calls and joins again when the stream asks it to.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.processes import BenchFailed, ServerProcess

# Members
# -------

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


# A crowd of members
# ------------------

HEARTBEAT_S = 3.0
PATIENCE_S = 90.0


class MemberCrowd:
    """`size` members over at most `wires` connections. Use it in `async with`."""

    def __init__(self, server: ServerProcess, group_id: str, size: int, kind: type[GrpcMember], wires: int) -> None:
        self.wires = [GrpcConnection(server.address) for _ in range(min(wires, size))]
        self.group_id = group_id
        self._kind = kind
        self._rng = random.Random(size)
        self._lives: dict[int, asyncio.Task[None]] = {}
        self.members = [self.newcomer(number) for number in range(size)]

    @property
    def messages(self) -> int:
        """All but polled heartbeats, both ways."""
        return sum(wire.messages for wire in self.wires)

    @property
    def bytes(self) -> int:
        return sum(wire.bytes for wire in self.wires)

    def newcomer(self, number: int) -> GrpcMember:
        return self._kind(self.wires[number % len(self.wires)], self.group_id, make_share)

    async def __aenter__(self) -> "MemberCrowd":
        return self

    async def __aexit__(self, *_: object) -> None:
        for life in self._lives.values():
            life.cancel()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        for wire in self.wires:
            await wire.close()

    async def join(self) -> float:
        """All join at once; seconds from the last request to join until everyone has its share."""
        await self.done(member.join() for member in self.members)
        ended_s = asyncio.get_running_loop().time()
        for member in self.members:
            self.start_member(member)
        return ended_s - max(member.asked_at_s for member in self.members)

    def start_member(self, member: GrpcMember) -> None:
        """Let it live: heartbeats spread evenly over the interval, as those of members that started by chance."""
        life = member.live(HEARTBEAT_S, self._rng.uniform(0, HEARTBEAT_S))
        self._lives[id(member)] = asyncio.create_task(life)

    def crash(self, member: GrpcMember) -> None:
        """Not a word any more, and no stream."""
        self._lives.pop(id(member)).cancel()
        self.members.remove(member)

    async def all_beyond(self, generation: int) -> None:
        """Return once every member has a share of a later generation."""
        await self.done(self._beyond(member, generation) for member in self.members)

    async def _beyond(self, member: GrpcMember, generation: int) -> None:
        while member.generation <= generation:
            member.assigned.clear()
            await member.assigned.wait()

    async def done(self, work: Iterable["asyncio.Future[None] | object"]) -> None:
        """All of it, within the patience of a benchmark; a life that ended badly is told at once."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*work)  # type: ignore[arg-type]
        except TimeoutError:
            for life in self._lives.values():
                if life.done() and not life.cancelled():
                    life.result()
            raise BenchFailed(
                f"{len(self.members)} members of {self.group_id!r} were not done after {PATIENCE_S:.0f} s; "
                "try again on a machine with less to do"
            ) from None


# Members on a session stream
# ---------------------------


@dataclass(slots=True)
class PushedMember(GrpcMember):
    """Its heartbeats go up the stream, and it joins again when the stream says so."""

    speaking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """gRPC takes one message of a stream at a time."""

    async def live(self, every_s: float, first_s: float) -> None:
        stream: Any = self.wire.channel.stream_stream(SERVICE + "Session")()
        try:
            await self._say(stream, pb.SessionRequest(hello=self._hello()))
            told_s = await self._welcome(stream)
            # Spread over the interval, as members that joined at different times are.
            beating = asyncio.create_task(self._beat_on(stream, told_s, told_s * first_s / every_s))
            try:
                await self._listen(stream)
            finally:
                beating.cancel()
        finally:
            stream.cancel()

    async def _welcome(self, stream: Any) -> float:
        """How many seconds there are to be between two heartbeats."""
        data = await stream.read()
        self.wire.count(len(data))
        return pb.SessionResponse.FromString(data).welcome.heartbeat_interval_ms / 1000

    async def _listen(self, stream: Any) -> None:
        while data := await stream.read():
            self.wire.count(len(data))
            event = pb.SessionResponse.FromString(data)
            match event.WhichOneof("event"):
                case "rebalance" if event.rebalance.generation_id == self.generation:
                    await self.join()
                    await self._say(stream, self._beat())
                case "fenced" | "drain":
                    raise AssertionError(f"a healthy member was told: {event}")

    async def _beat_on(self, stream: Any, every_s: float, first_s: float) -> None:
        await self._say(stream, self._beat())  # From here on the coordinator speaks first.
        await asyncio.sleep(first_s)
        while True:
            if not self.joining:
                await self._say(stream, self._beat())
            await asyncio.sleep(every_s)

    async def _say(self, stream: Any, request: pb.SessionRequest) -> None:
        data = request.SerializeToString()
        self.wire.count(len(data))
        async with self.speaking:
            await stream.write(data)

    def _hello(self) -> pb.SessionHello:
        return pb.SessionHello(group_id=self.group_id, member_id=self.member_id)

    def _beat(self) -> pb.SessionRequest:
        return pb.SessionRequest(heartbeat=pb.HeartbeatRequest(generation_id=self.generation))
