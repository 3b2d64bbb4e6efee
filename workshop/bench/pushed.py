"""Members that are told at once: the same classic members, each with a session stream beside its calls."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.members import SERVICE, GrpcMember


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
