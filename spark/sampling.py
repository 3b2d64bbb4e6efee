"""How long records are, by looking at one batch header per partition."""

import asyncio
from collections.abc import Collection

from muster.client.calls.methods import MULTI_FETCH
from muster.client.calls.transport import now_ms
from muster.client.types import TopicPartition
from muster.spark.lookup import LookupKey, NodeLookup
from muster.spark.planning import OffsetRange
from muster.spark.reading_options import ReadOptions
from muster.storage.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT
from muster.storage.rpc.v1 import broker_service_pb2 as pb

FRESH_MS = 10_000
SAMPLE_BYTES = 1 << 10
AT_ONCE = 200
MAX_KNOWN = 100_000


class RecordSizes:
    """Bytes per record as they lie in the log, by partition; asked for again after ten seconds."""

    def __init__(self, lookup: NodeLookup, options: ReadOptions) -> None:
        self._lookup = lookup
        self._patience_ms = options.connection.default_api_timeout_ms
        self._known: dict[LookupKey, tuple[float, int]] = {}

    def of(self, ranges: Collection[OffsetRange]) -> dict[LookupKey, float]:
        """Partitions that could not be measured are left out."""
        stale = [wanted for wanted in ranges if self._age_ms(wanted.tp) >= FRESH_MS]
        for place in range(0, len(stale), AT_ONCE):
            self._lookup.run(self._measure(stale[place : place + AT_ONCE]))
        return {wanted.tp: self._known[wanted.tp][0] for wanted in ranges if wanted.tp in self._known}

    def _age_ms(self, tp: LookupKey) -> int:
        known = self._known.get(tp)
        return FRESH_MS if known is None else now_ms() - known[1]

    async def _measure(self, ranges: list[OffsetRange]) -> None:
        transport = self._lookup.transport
        by_leader, _ = transport.leaders.routed(TopicPartition(*wanted.tp) for wanted in ranges)
        wanted = {TopicPartition(*each.tp): each for each in ranges}
        lots = [(address, [wanted[tp] for tp in led]) for address, led in by_leader.items()]
        await asyncio.gather(*(self._measure_at(address, lot) for address, lot in lots))
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    async def _measure_at(self, address: str, ranges: list[OffsetRange]) -> None:
        """What is led elsewhere by now is not measured, this time."""
        request = pb.MultiFetchRequest(max_bytes=AT_ONCE * SAMPLE_BYTES)
        for wanted in ranges:
            request.fetches.add(
                topic=wanted.topic,
                partition=wanted.partition,
                fetch_offset=wanted.start,
                partition_max_bytes=SAMPLE_BYTES,
            )
        answer = await self._lookup.transport.retried(
            MULTI_FETCH, request, doing="measuring records", address=address or None, timeout_ms=self._patience_ms
        )
        for wanted, found in zip(ranges, answer.results, strict=True):
            if (size := measure_record_size(found.result.records)) is not None:
                self._known.pop(wanted.tp, None)
                self._known[wanted.tp] = (size, now_ms())


def measure_record_size(data: bytes) -> float | None:
    """The mean of the first batch, of which the header is enough; None when there is none, or nothing in it.

    >>> measure_record_size(b"") is None
    True
    """
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
        return None
    fields = HEADER.unpack_from(data)
    length, count = fields[1], fields[-1]
    return (length + LENGTH_OVERHEAD) / count if count > 0 else None
