"""The Staging service without its transport: one coroutine per RPC, protobuf in, protobuf out.

What waits for a disk runs in threads; logs are changed on the loop only, a frame at a time, so that a large batch
holds up nobody.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from muster.storage.broker.group_commit import GroupCommit
from muster.storage.errors import StorageError, check_entry_count, check_unique
from muster.storage.rpc.v1 import staging_service_pb2 as pb
from muster.storage.staging.staging import Staging

logger = logging.getLogger("muster.storage")

EXPIRY_INTERVAL_S = 60.0


class StagingService:
    """Handlers named after the RPCs, in snake_case. `call` is the transport's context and is not looked at. Beside them
    `keep_up` runs."""

    def __init__(
        self,
        staging: Staging,
        commit: GroupCommit,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._staging = staging
        self._commit = commit
        self._clock_ms = clock_ms
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._commits: set[asyncio.Task[bool]] = set()

    async def close(self) -> None:
        """Finish the commits under way. What is decided, but not written yet, the next start carries out."""
        await asyncio.gather(*self._commits, return_exceptions=True)

    @asynccontextmanager
    async def _turn(self, sink: str) -> AsyncIterator[None]:
        """One call at a time for each sink; a lock lives as long as somebody holds it or waits for it."""
        lock, users = self._turns.get(sink, (asyncio.Lock(), 0))
        self._turns[sink] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._turns[sink][1] - 1
            if users:
                self._turns[sink] = lock, users
            else:
                del self._turns[sink]

    async def keep_up(self) -> None:
        """First finish what was decided before the last crash, then remove what is too old, now and again. It runs for
        as long as the service does, and is stopped before `close`."""
        for sink in self._staging.undecided():
            try:
                async with self._turn(sink):
                    await self._carry_out(sink, fresh=False)
            except StorageError as error:
                logger.error("The decided batch of sink %s could not be written yet: %s", sink, error)
        while True:
            try:
                self._staging.expire(self._clock_ms())
            except (OSError, StorageError) as error:
                logger.error("Old staged records could not be removed: %s", error)
            await asyncio.sleep(EXPIRY_INTERVAL_S)

    async def stage_records(self, request: pb.StageRecordsRequest, call: object) -> pb.StageRecordsResponse:
        check_entry_count("partitions", sum(len(topic.partition_data) for topic in request.topic_data))
        sink, batch, attempt = request.sink, request.batch, request.attempt
        if self._staging.settled(sink, batch):
            return pb.StageRecordsResponse(settled=True)
        records = [
            ((topic.name, data.index), data.records) for topic in request.topic_data for data in topic.partition_data
        ]
        try:
            now_ms = self._clock_ms()
            await asyncio.to_thread(self._staging.check, records, now_ms)
            end = self._staging.stage(sink, batch, attempt, request.position, records, now_ms, checked=True)
            if request.last:
                await asyncio.to_thread(self._staging.sync, sink, batch, attempt, end)
        except StorageError as error:
            if self._staging.settled(sink, batch):
                return pb.StageRecordsResponse(settled=True)  # decided meanwhile, and cleared up
            return pb.StageRecordsResponse(error_code=_code(error), error_message=str(error))
        return pb.StageRecordsResponse(position=end)

    async def topics_of(self, request: pb.CommitStagedRequest | pb.AbortStagedRequest) -> set[str]:
        """The topics whose records such a request would commit, or throw away; none that are not here (any more)."""
        attempts = [each if isinstance(each, str) else each.attempt for each in request.attempts]
        try:
            return await asyncio.to_thread(self._staging.topics_of, request.sink, request.batch, attempts)
        except (OSError, StorageError):
            return set()  # The handler finds the same, and says so.

    async def commit_staged(self, request: pb.CommitStagedRequest, call: object) -> pb.CommitStagedResponse:
        """Decide, write the decision down, append, flush, and close the batch. A decided batch is only finished."""
        check_entry_count("attempts", len(request.attempts))
        check_unique("attempt", [attempt.attempt for attempt in request.attempts])
        # A caller that goes away must not leave a decision half written down.
        commit = asyncio.create_task(self._committed(request))
        self._commits.add(commit)
        commit.add_done_callback(self._commits.discard)
        try:
            settled = await asyncio.shield(commit)
        except StorageError as error:
            return pb.CommitStagedResponse(error_code=_code(error), error_message=str(error))
        return pb.CommitStagedResponse(settled=settled)

    async def _committed(self, request: pb.CommitStagedRequest) -> bool:
        sink, batch = request.sink, request.batch
        async with self._turn(sink):
            if sink in self._staging.undecided():
                await self._carry_out(sink, fresh=False)
            if self._staging.settled(sink, batch):
                return True
            attempts = {attempt.attempt: attempt.size for attempt in request.attempts}
            decided = self._staging.decided(sink, batch, attempts)
            await asyncio.to_thread(self._staging.save, sink, decided)
            self._staging.adopt(sink, decided)
            await self._carry_out(sink, fresh=True)
            return False

    async def _carry_out(self, sink: str, *, fresh: bool) -> None:
        touched = set()
        for tp in self._staging.carry_out(sink, self._clock_ms(), fresh=fresh):
            touched.add(tp)
            await asyncio.sleep(0)
        await asyncio.gather(*(self._commit.flushed(tp) for tp in touched))
        state = self._staging.finished(sink)
        await asyncio.to_thread(self._staging.save, sink, state)
        self._staging.adopt(sink, state)
        self._staging.clear(sink, state.batch)

    async def abort_staged(self, request: pb.AbortStagedRequest, call: object) -> pb.AbortStagedResponse:
        check_entry_count("attempts", len(request.attempts))
        try:
            async with self._turn(request.sink):
                self._staging.abort(request.sink, request.batch, list(request.attempts))
        except (OSError, StorageError) as error:
            known = error if isinstance(error, StorageError) else StorageError(f"{error.strerror or error}")
            return pb.AbortStagedResponse(error_code=_code(known), error_message=str(known))
        return pb.AbortStagedResponse()


def _code(error: StorageError) -> Any:
    """Kafka's number; the generated enum is open, though its type says otherwise."""
    return error.code
