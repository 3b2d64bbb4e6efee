"""Members of one central group as load: a stream each, thousands to a process.

They register, answer pings, stop and start as they are ordered, and report a position for each partition that they
give up, which the coordinator commits. They are lean, because thousands of them live in one process; the real member
machine is measured elsewhere (`muster lab`). The crowd knows when every partition is owned again: all of its members
have started under one generation, and what they started is each partition once.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

import grpc

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.grpc_members import SERVICE, GrpcConnection
from muster.workshop.bench.processes import BenchFailed, ServerProcess

TOPIC: Final = "orders"
NOT_FETCHING: Final = -1
JOINING_AT_ONCE: Final = 500
"""Streams that are being opened at a time, as by a deployment that starts a node full of processes after the other."""


class CentralLoadMember:
    """One member: its stream, and what it fetches."""

    def __init__(self, crowd: "CentralCrowd", wire: GrpcConnection) -> None:
        self.member_id = uuid4().hex
        self.generation = NOT_FETCHING
        self.partitions: tuple[int, ...] = ()
        self.registered = asyncio.Event()
        self._crowd = crowd
        self._wire = wire
        self._stream: Any = None
        self._life: asyncio.Task[None] | None = None
        self._position = 0
        self._leaving = False
        self._speaking = asyncio.Lock()  # gRPC takes one message of a stream at a time

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def leave(self) -> None:
        """In good order: what it has is free at once."""
        self._leaving = True
        await self._say(pb.SessionRequest(deregister=pb.Deregister(reason="the benchmark is over for it")))
        assert self._life is not None
        await self._life

    async def end(self) -> None:
        """As if its process had died: the stream breaks."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    @property
    def failure(self) -> BaseException | None:
        """What ended it before its time."""
        life = self._life
        return life.exception() if life is not None and life.done() and not life.cancelled() else None

    async def _live(self) -> None:
        self._stream = self._wire.channel.stream_stream(SERVICE + "Session")()
        try:
            await self._say(pb.SessionRequest(register_consumer=self._crowd.registration(self.member_id)))
            while True:
                data = await self._stream.read()
                if data is grpc.aio.EOF:
                    if self._leaving:
                        return
                    raise BenchFailed(f"the node ended the stream of member {self.member_id}")
                self._wire.count(len(data))
                await self._obey(pb.SessionResponse.FromString(data))
        finally:
            self._stream.cancel()

    async def _obey(self, said: pb.SessionResponse) -> None:
        if said.WhichOneof("event") == "registered":
            if said.registered.error_code:
                raise BenchFailed(f"a member was refused: {said.registered.error_message}")
            self.registered.set()
            return
        order = said.order
        match order.WhichOneof("order"):
            case "ping":
                await self._say(pb.SessionRequest(ping_answered=pb.PingAnswered(number=order.number)))
            case "stop_fetcher":
                self._crowd.note_stopped(self)
                await self._say(pb.SessionRequest(fetcher_stopped=self._stopped(order.number)))
            case "start_fetcher":
                shares = tuple(each.partition for each in order.start_fetcher.partitions)
                self._crowd.note_started(self, order.start_fetcher.generation_id, shares)
                await self._say(pb.SessionRequest(fetcher_started=pb.FetcherStarted(number=order.number)))
            case _:
                raise BenchFailed(f"a member that obeys was told: {said}")

    def _stopped(self, number: int) -> pb.FetcherStopped:
        self._position += 1
        offsets = [
            pb.ConsumedOffset(topic=TOPIC, partition=partition, offset=self._position) for partition in self.partitions
        ]
        return pb.FetcherStopped(number=number, offsets=offsets)

    async def _say(self, request: pb.SessionRequest) -> None:
        data = request.SerializeToString()
        self._wire.count(len(data))
        async with self._speaking:
            await self._stream.write(data)


class CentralCrowd:
    """`size` members of one group, `each` on a connection. `partitions`: how many the group's one topic has.

    Use it in `async with`. Times are of the loop's clock.
    """

    def __init__(
        self, server: ServerProcess, group_id: str, size: int, each: int, partitions: int, session_ms: int
    ) -> None:
        self.group_id = group_id
        self.partitions = partitions
        self.wires = [GrpcConnection(server.address) for _ in range(-(-size // each))]
        self.members = [CentralLoadMember(self, self.wires[number // each]) for number in range(size)]
        self._session_ms = session_ms
        self._generations: Counter[int] = Counter()
        self._changed = asyncio.Event()
        self.first_stopped_s = self.last_started_s = 0.0

    async def __aenter__(self) -> "CentralCrowd":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.end() for member in self.members))
        await asyncio.gather(*(wire.close() for wire in self.wires))

    @property
    def messages(self) -> int:
        """Pings included, both ways."""
        return sum(wire.messages for wire in self.wires)

    @property
    def generation(self) -> int:
        """The latest under which anybody fetches."""
        return max((member.generation for member in self.members), default=NOT_FETCHING)

    def registration(self, member_id: str) -> pb.RegisterConsumer:
        return pb.RegisterConsumer(
            group_id=self.group_id,
            member_id=member_id,
            client_id="bench",
            session_timeout_ms=self._session_ms,
            topics=[TOPIC],
            assignor="range",
        )

    async def join(self, patience_s: float) -> None:
        """All of them, one crowd after the other."""
        began_s = asyncio.get_running_loop().time()
        for first in range(0, len(self.members), JOINING_AT_ONCE):
            some = self.members[first : first + JOINING_AT_ONCE]
            for member in some:
                member.start()
            await self._within(patience_s, (member.registered.wait() for member in some), "registered")
        left_s = patience_s - (asyncio.get_running_loop().time() - began_s)
        await self.all_own(NOT_FETCHING, left_s)

    async def leave(self) -> None:
        """The last member goes in good order."""
        await self._without(self.members[-1]).leave()

    async def crash(self) -> None:
        """The last member's stream breaks."""
        await self._without(self.members[-1]).end()

    def begin_measuring(self) -> None:
        self.first_stopped_s = self.last_started_s = 0.0

    def note_stopped(self, member: CentralLoadMember) -> None:
        self.first_stopped_s = self.first_stopped_s or asyncio.get_running_loop().time()

    def note_started(self, member: CentralLoadMember, generation: int, partitions: tuple[int, ...]) -> None:
        self._generations[member.generation] -= 1
        member.generation, member.partitions = generation, partitions
        self._generations[generation] += 1
        if self._generations[generation] == len(self.members):
            self.last_started_s = asyncio.get_running_loop().time()
            self._changed.set()

    async def all_own(self, beyond: int, patience_s: float) -> None:
        """Return once all members fetch under one generation beyond that one, and each partition is fetched once."""
        try:
            async with asyncio.timeout(patience_s):
                while not self._own_all(beyond):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._explain(patience_s, f"own {self.partitions:,} partitions")

    def _own_all(self, beyond: int) -> bool:
        generation = self.generation
        if generation <= beyond or self._generations[generation] != len(self.members):
            return False
        owned = [partition for member in self.members for partition in member.partitions]
        return len(owned) == self.partitions == len(set(owned))

    def _without(self, member: CentralLoadMember) -> CentralLoadMember:
        self.members.remove(member)
        self._generations[member.generation] -= 1
        return member

    async def _within(self, patience_s: float, work: Iterable[Any], what: str) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await asyncio.gather(*work)
        except TimeoutError:
            self._explain(patience_s, f"were {what}")

    def _explain(self, patience_s: float, what: str) -> None:
        """Raises what ended a member, or says that nothing did."""
        for failure in filter(None, (member.failure for member in self.members)):
            raise failure
        raise BenchFailed(
            f"not all of {len(self.members):,} members of {self.group_id!r} {what} after {patience_s:.0f} s; "
            "try again on a machine with less to do"
        )
