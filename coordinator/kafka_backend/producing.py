"""What the shards of a node write goes to the brokers that lead them, by calls alone: no task, and no round of the loop
between the answer and those who wait for it."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.kafka_backend.owner import LogOwner
from muster.coordinator.kafka_backend.shard_ownership import effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events as ev
from muster.coordinator.kafka_backend.shard_ownership.facts import BatchResult
from muster.coordinator.kafka_backend.upstream import records
from muster.coordinator.kafka_backend.upstream.errors import FENCED_CODES, UpstreamError
from muster.coordinator.kafka_backend.upstream.records import ProduceResult, TopicPartition
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.kafka_backend.writing import are_large, encode_batches, wires_of

API: Final = "Produce"


class StateLogWriter:
    """on_acked hears after how many seconds a request was answered, on_fenced of a shard that somebody else writes,
    on_bug of a mistake of the program."""

    def __init__(
        self,
        owner: LogOwner,
        upstream: Upstream,
        topic: str,
        wall_ms: Callable[[], int],
        *,
        on_acked: Callable[[float], None],
        on_fenced: Callable[[int], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._owner = owner
        self._upstream = upstream
        self._topic = topic
        self._wall_ms = wall_ms
        self._on_acked = on_acked
        self._on_fenced = on_fenced
        self._on_bug = on_bug
        self._stopped = False

    def stop(self) -> None:
        """What is under way may come to be; nobody is told."""
        self._stopped = True

    def write(self, effect: ef.Produce) -> None:
        stamp_ms = self._wall_ms()
        if not are_large(effect.batches):
            self._send(effect, wires_of(effect.batches, stamp_ms))
            return

        async def write() -> None:
            self._send(effect, await encode_batches(effect.batches, stamp_ms))

        self._owner.begin(write())

    def _send(self, effect: ef.Produce, bytes_of: Mapping[int, bytes]) -> None:
        began_s = time.perf_counter()

        def told(answer: dict[TopicPartition, ProduceResult] | UpstreamError) -> None:
            if self._stopped:
                return
            try:
                self._told(effect, answer, began_s)
            except Exception as error:  # it is no fault of the connection, in whose call this is
                self._on_bug(error)

        sent = {(self._topic, shard): wire for shard, wire in bytes_of.items()}
        records.produce_then(self._upstream, effect.broker, sent, effect.timeout_ms, told)

    def _told(
        self, effect: ef.Produce, answer: dict[TopicPartition, ProduceResult] | UpstreamError, began_s: float
    ) -> None:
        if isinstance(answer, UpstreamError):
            self._owner.heard(ev.ProduceLost(effect.broker, effect.request, str(answer)))
            return
        self._on_acked(time.perf_counter() - began_s)
        results = {shard: BatchResult(each.code, each.offset, each.start) for (_, shard), each in answer.items()}
        for result in results.values():
            self._upstream.count(API, result.code)
        self._owner.heard(ev.BatchesProduced(effect.broker, effect.request, results))
        for shard, result in results.items():
            if result.code in FENCED_CODES:
                self._on_fenced(shard)
