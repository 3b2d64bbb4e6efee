"""What every edge asks of the log, in no transport's words: produce with group commit, fetch with a long poll.

Refusals are values here, one per partition, so that one bad partition does not hurt the others.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from storage.broker import Broker
from storage.errors import InvalidRequiredAcks, RequestTimedOut, StorageError
from storage.files import Buffer
from storage.group_commit import GroupCommit
from storage.parking import Parking
from storage.types import Appended, Fetched, TopicPartition

Batches: TypeAlias = tuple[str, int, Buffer]
"""Topic, partition, and the batches for it."""

Place: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, the offset to read from, and at most how many bytes (0: no limit of its own)."""

ACKS_NONE = 0
_KNOWN_ACKS = (-1, ACKS_NONE, 1)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class LogRequests:
    """One per node, shared by its edges: they wake each other's fetches and share each other's flushes."""

    def __init__(
        self, broker: Broker, *, commit: GroupCommit | None = None, clock_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.broker = broker
        self.commit = commit or GroupCommit(broker, clock_ms)
        self.parking = Parking(broker, broker.settings.max_parked_fetches)
        self._clock_ms = clock_ms

    async def close(self) -> None:
        """Answer the parked fetches with what there is and finish the flushes under way."""
        self.parking.close()
        await self.commit.close()

    # -- produce ------------------------------------------------------------------------------------------

    async def produce(self, parts: Sequence[Batches], acks: int, timeout_ms: int) -> list[Appended | StorageError]:
        """Append all, then wait for durability together: one write and one flush serve many produces.

        With acks 0 no flush is waited for. RequestTimedOut where the flush took longer than `timeout_ms` (0: wait as
        long as it takes).
        """
        if acks not in _KNOWN_ACKS:
            refusal = InvalidRequiredAcks(f"acks is {acks}; expected -1 (all), 0 or 1.")
            return [refusal for _ in parts]
        if not parts:
            return []
        done = [
            self.commit.append((topic, partition), batches, durable=acks != ACKS_NONE)
            for topic, partition, batches in parts
        ]
        try:
            await asyncio.wait(done, timeout=timeout_ms / 1000 if timeout_ms else None)
            return [_outcome(part, timeout_ms) for part in done]
        finally:
            for part in done:
                part.cancel()

    # -- fetch --------------------------------------------------------------------------------------------

    async def fetch(
        self, places: Sequence[Place], *, max_wait_ms: int, min_bytes: int, max_bytes: int, committed: bool
    ) -> list[Fetched | StorageError]:
        """Read all the places; with fewer than `min_bytes` found, wait for more up to `max_wait_ms`.

        A refusal is answered at once: it is news as good as records. `max_bytes` 0 asks for what the node allows.
        """
        allowed = self.broker.settings.fetch_max_bytes
        budget = min(max_bytes or allowed, allowed)
        results, enough = self._read_all(places, budget, committed, min_bytes)
        if enough or max_wait_ms <= 0 or not places:
            return results
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_ms / 1000
        partitions: list[TopicPartition] = [place[:2] for place in places]
        with self.parking.place(partitions) as parked:
            while True:
                parked.clear()
                results, enough = self._read_all(places, budget, committed, min_bytes)
                if enough or not parked.granted or not await parked.woken(deadline - loop.time()):
                    return results

    def _read_all(
        self, places: Sequence[Place], budget: int, committed: bool, min_bytes: int
    ) -> tuple[list[Fetched | StorageError], bool]:
        """Read fairly: each partition gets an equal share of what is left, and what one leaves the next may have.

        The first partition with records yields a whole batch even if it is larger than the budget. Also says whether
        it is time to answer.
        """
        count = len(places)
        results: list[Fetched | StorageError] = [_NOTHING] * count
        total, failed = 0, False
        for done, turn in enumerate(self.parking.turns(count)):
            topic, partition, offset, most = places[turn]
            share = max(0, budget - total) // (count - done)
            limit = min(share, most) if most > 0 else share
            try:
                log = self.broker.log(topic, partition)
                found = log.fetch(offset, limit, min_one=total == 0, committed=committed)
                results[turn] = found
                total += len(found.records)
            except StorageError as error:
                failed = True
                results[turn] = error
        return results, failed or total >= min_bytes


_NOTHING = Fetched(b"", -1, -1)


def _outcome(part: "asyncio.Future[Appended]", timeout_ms: int) -> Appended | StorageError:
    if not part.done():
        return RequestTimedOut(
            f"The records are written, but were not flushed within {timeout_ms} ms. They may yet survive; "
            "an idempotent producer can safely send them again."
        )
    error = part.exception()
    if error is None:
        return part.result()
    if isinstance(error, StorageError):
        return error
    raise error
