"""A client of three servers that expects any of them to be gone, or to stand still, at any moment."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from muster.coordinator.bench.processes import BenchFailed
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.kafka.codec.codec import struct
from muster.storage.records.batch import encode_turn

ASK_S: Final = 0.25
"""How long one answer is waited for. Who stands still costs that much each time."""
PAUSE_S: Final = 0.01
SESSION_MS: Final = 45_000
GROUP: Final = "bench"
NOBODY: Final = -1
COORDINATOR_MOVED: Final = (14, 15, 16)
TRIES_S: Final = 90.0


class Gone(Exception):
    """No answer, from whatever reason."""


class Asking:
    def __init__(self, addresses: Mapping[int, str]) -> None:
        self.addresses = addresses
        self._lines: dict[int, Line] = {}

    async def ask(self, node: int, name: str, version: int, message: object, within_s: float = ASK_S) -> Any:
        """Raises Gone, and the next question goes by another connection."""
        try:
            async with asyncio.timeout(within_s):
                if node not in self._lines:
                    self._lines[node] = await Line.to(self.addresses[node])
                line = self._lines[node]
                return line.read(name, version, await line.pass_on(line.request(name, version, message)))
        except (OSError, TimeoutError) as error:
            self.drop(node)
            raise Gone from error

    def drop(self, node: int) -> None:
        line = self._lines.pop(node, None)
        if line is not None:
            line.close()

    def close(self) -> None:
        for node in list(self._lines):
            self.drop(node)

    async def anybody(self, name: str, version: int, message: object, but: int = NOBODY) -> Any:
        """Of whoever answers first in order. Raises Gone."""
        for node in self.addresses:
            if node == but:
                continue
            try:
                return await self.ask(node, name, version, message)
            except Gone:
                continue
        raise Gone

    async def make(self, topic: str, partitions: int, factor: int) -> None:
        """Returns once each partition has a leader."""
        wanted = struct("CreateTopicsRequest.topics")(name=topic, num_partitions=partitions, replication_factor=factor)
        request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=30_000)
        deadline_s = time.monotonic() + TRIES_S
        while time.monotonic() < deadline_s:
            try:
                answer = await self.ask(min(self.addresses), "CreateTopics", 4, request, 60.0)
                if answer.topics[0].error_code in (0, 36) and len(await self.leaders(topic)) == partitions:
                    return
            except Gone:
                pass
            await asyncio.sleep(PAUSE_S)
        raise BenchFailed(f"the topic {topic} could not be made")

    async def leaders(self, topic: str, but: int = NOBODY) -> dict[int, int]:
        """By partition; those that have none are left out."""
        request = struct("MetadataRequest")(topics=[struct("MetadataRequest.topics")(name=topic)])
        answer = await self.anybody("Metadata", 4, request, but)
        parts = answer.topics[0].partitions
        return {part.partition_index: part.leader_id for part in parts if part.leader_id >= 0}

    async def coordinator(self, but: int = NOBODY) -> int:
        """Raises Gone where nobody knows one."""
        request = struct("FindCoordinatorRequest")(key_type=0, coordinator_keys=[GROUP])
        found = (await self.anybody("FindCoordinator", 4, request, but)).coordinators[0]
        if found.error_code or found.node_id == but:
            raise Gone
        return int(found.node_id)


class Member:
    """The one member of a group; it beats at whoever coordinates it."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self.at = NOBODY
        self._id = ""
        self._generation = 0

    async def join(self) -> None:
        deadline_s = time.monotonic() + TRIES_S
        while time.monotonic() < deadline_s:
            try:
                await self._join()
                return
            except Gone:
                await asyncio.sleep(0.1)
        raise BenchFailed("nobody let a member join")

    async def _join(self) -> None:
        self.at = await self._asking.coordinator()
        protocol = struct("JoinGroupRequest.protocols")(name="range", metadata=bytes(10))
        for _ in range(2):  # who has no id yet is given one first
            request = struct("JoinGroupRequest")(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            joined = await self._asking.ask(self.at, "JoinGroup", 9, request, 10.0)
            self._id = joined.member_id
        if joined.error_code:
            raise Gone
        self._generation = joined.generation_id
        mine = struct("SyncGroupRequest.assignments")(member_id=self._id, assignment=b"")
        request = struct("SyncGroupRequest")(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[mine],
        )
        if (await self._asking.ask(self.at, "SyncGroup", 5, request, 10.0)).error_code:
            raise Gone

    async def beat(self, but: int = NOBODY) -> bool:
        """Whether the coordinator says that all is well. but: a node that is known to be gone.

        Raises BenchFailed where the member would have to join again.
        """
        try:
            if self.at == NOBODY:
                self.at = await self._asking.coordinator(but)
            request = struct("HeartbeatRequest")(group_id=GROUP, generation_id=self._generation, member_id=self._id)
            code = (await self._asking.ask(self.at, "Heartbeat", 4, request)).error_code
        except Gone:
            self.at = NOBODY
            return False
        if code in COORDINATOR_MOVED:
            self.at = NOBODY
            return False
        if code:
            raise BenchFailed(f"a member of the group was told error {code}; expected that it lives through this")
        return True


class Writer:
    """Produces to partition 0 of a topic with acks=all, at whoever leads it."""

    def __init__(self, asking: Asking, topic: str, batch: bytes = b"") -> None:
        self._asking = asking
        self._topic = topic
        self._batch = batch or encode_turn([(b"", b"x" * 100, None)], 0)
        self.at = NOBODY

    def request(self) -> object:
        data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=self._batch)
        told = struct("ProduceRequest.topic_data")(name=self._topic, partition_data=[data])
        return struct("ProduceRequest")(acks=-1, timeout_ms=5_000, topic_data=[told])

    async def write(self, but: int = NOBODY) -> bool:
        """Whether it was acknowledged."""
        try:
            if self.at == NOBODY:
                leader = (await self._asking.leaders(self._topic, but)).get(0, NOBODY)
                if leader in (NOBODY, but):
                    return False
                self.at = leader
            answer = await self._asking.ask(self.at, "Produce", 9, self.request())
        except Gone:
            self.at = NOBODY
            return False
        if answer.responses[0].partition_responses[0].error_code:
            self.at = NOBODY
            return False
        return True
