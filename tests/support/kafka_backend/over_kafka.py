"""A real engine over a state topic, with a driver as small as it can be, in the loop of a test.

Run as `python -m tests.support.kafka_backend.over_kafka HOST:PORT CLUSTER SHARDS GROUPS` it commits for ever, tells
each commit that was acknowledged on standard output, and ends by being killed.
"""

import asyncio
import sys
from contextlib import suppress
from itertools import count
from typing import Any, Self

from muster.coordinator.config import parse_address
from muster.coordinator.core.model.effects import OffsetCommitReply, OffsetFetchReply
from muster.coordinator.core.model.events import OffsetCommit, OffsetFetch
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.shard_owner import OwnerCallbacks, OwnerClocks, ShardOwner
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import AcquisitionReport
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.state_topic import StateTopicSpec, prepare_state_topic
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.runtime.stepper import LoadJob
from muster.coordinator.server.driver.clock import NodeClock
from tests.support.kafka_backend.alone import Alone

PATIENCE_S = 60.0


class OverKafka:
    """One node that owns all shards. `async with` it; `served` has how each shard was taken."""

    def __init__(
        self,
        address: str,
        cluster: str,
        shards: int,
        *,
        node: int = 1,
        instance: str = "one",
        session_ms: int = 2_000,
        copies: int = 1,
    ) -> None:
        """copies: of the state topic, where it is made."""
        self.id = node
        self._copies = copies
        self.upstream = Upstream(UpstreamAddress((parse_address(address),), connect_s=10, answer_s=10))
        self.topic, self.shards = f"{cluster}.state", shards
        self.clock = NodeClock()
        self.served: dict[int, AcquisitionReport] = {}
        self.lost: dict[int, str] = {}
        self.fenced: set[int] = set()
        self.bugs: list[Any] = []
        self.stopped = ""
        self._cluster = cluster
        self._instance, self._session_ms = instance, session_ms
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._due = False
        self._loading: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        batch_bytes = await prepare_state_topic(
            self.upstream, StateTopicSpec(self.topic, self.shards, self._copies, 1_000_000)
        )
        limits = AppendLimits(batch_bytes=batch_bytes)
        settings = OwnershipSettings(self.id, self._instance, session_timeout_ms=self._session_ms, limits=limits)
        log = self.log = StateLog(batch_bytes)
        self.owning = ShardOwner(
            self.upstream,
            log,
            self.topic,
            self._cluster,
            settings,
            OwnerClocks(now_ms=self.clock.now_ms, wall_ms=self.clock.now_ms),
            OwnerCallbacks(
                on_served=self._on_served,
                on_fenced=self._on_fenced,
                on_lost=self._on_lost,
                on_stop=self._on_stop,
                on_bug=self.bugs.append,
            ),
        )
        self.engine = LeasedEngine(
            log,
            self.shards,
            Limits(),
            options=EngineOptions(
                on_status=self._on_status,
                on_bug=lambda what, error: self.bugs.append((what, error)),
                loads_elsewhere=True,
            ),
            authority=self.owning,
        )
        self.owning.start(self.engine, self.wake, self._advance)
        self._begin(settings)
        return self

    def _begin(self, settings: OwnershipSettings) -> None:
        self.alone = Alone(self.owning, settings, self.shards)
        self.alone.start()

    async def __aexit__(self, *_: object) -> None:
        await self.owning.stop()
        self.upstream.close()

    # -- asking -------------------------------------------------------------------------------------------------------

    async def all_served(self) -> None:
        await self.serves(self.shards)

    async def serves(self, count: int) -> None:
        await self.until(lambda: len(self.served) == count)

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                assert self.bugs == []
                self._changed.clear()
                await self._changed.wait()

    async def changes(self, within_s: float) -> None:
        """Until something happens, or for so long."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()

    async def ask(self, shard: int, event: OffsetCommit | OffsetFetch) -> Any:
        answer = self._waiting[event.request_id] = asyncio.get_running_loop().create_future()
        self.engine.submit(shard, event)
        self.wake()
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def commit(self, group: str, offset: int, partitions: int = 1) -> ErrorCode:
        positions = {("orders", part): CommittedOffset(offset) for part in range(partitions)}
        event = OffsetCommit(next(self._ids), group, "", None, -1, positions)
        reply: OffsetCommitReply = await self.ask(partition_for(group, self.shards), event)
        return next(iter(reply.partitions.values()), reply.code)

    async def committed(self, group: str) -> int:
        reply = await self.position(group)
        assert reply.code is ErrorCode.NONE, reply
        found = reply.offsets.get(("orders", 0))
        return -1 if found is None else int(found.offset)

    async def position(self, group: str) -> OffsetFetchReply:
        event = OffsetFetch(next(self._ids), group, [("orders", 0)])
        reply: OffsetFetchReply = await self.ask(partition_for(group, self.shards), event)
        return reply

    # -- driving ------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        self.engine.turn(self.clock.now_ms())
        self._advance()

    def _advance(self) -> None:
        if self._loading is None and (load := self.engine.load_job()) is not None:
            self._loading = asyncio.ensure_future(self._load(load))
        if (job := self.engine.flush_job()) is not None:
            job.run()
            self.engine.flushed(job, self.clock.now_ms())
        for request_id, reply in self.engine.take_released().replies:
            waiting = self._waiting.pop(request_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)
        if self.engine.pending:
            self.wake()
        self._changed.set()

    async def _load(self, load: LoadJob) -> None:
        try:
            await asyncio.to_thread(load.run)
        except Exception as error:
            self.engine.load_failed(load, error)
        else:
            self.engine.loaded(load, self.clock.now_ms())
        self._loading = None
        self.wake()

    def _on_status(self, shard: int, status: ShardStatus, why: str) -> None:
        self.owning.on_status(shard, status, why)

    def _on_served(self, report: AcquisitionReport, shard: int) -> None:
        self.served[shard] = report
        self._changed.set()

    def _on_fenced(self, shard: int) -> None:
        self.fenced.add(shard)
        self.alone.fenced(shard)
        self._changed.set()

    def _on_stop(self, sentence: str) -> None:
        self.stopped = sentence
        self._changed.set()

    def _on_lost(self, shard: int, why: str) -> None:
        self.served.pop(shard, None)
        self.lost[shard] = why
        self._changed.set()


async def commit_for_ever(address: str, cluster: str, shards: int, groups: int) -> None:
    async with OverKafka(address, cluster, shards, instance="child") as node:
        await node.all_served()
        print("served", flush=True)

        async def one(group: str) -> None:
            for offset in count(max(await node.committed(group), 0) + 1):
                if await node.commit(group, offset) is ErrorCode.NONE:
                    print(group, offset, flush=True)

        await asyncio.gather(*(one(f"g{number}") for number in range(groups)))


if __name__ == "__main__":
    asyncio.run(commit_for_ever(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
