"""Committed reads of a log with transactions: committed, aborted, interleaved, and one still open.

The node coordinates no transactions itself, so their batches and markers are written into its log while it is down.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.records.batch import encode_batch
from muster.storage.records.markers import encode_marker
from muster.storage.types import AppendOrigin
from tests.support.node import NodeProcess
from tests.support.spark.reading import Reading
from tests.unit.storage.logs import guard_for

pytestmark = pytest.mark.integration

T0 = 1_700_000_000_000
NOBODY = -1
TOPIC = "payments"
COMMITTED = [*range(5), *range(15, 30), *range(37, 46)]
"""Of partition 0; of partition 1 all is aborted."""

MARKERS = [35, 36, 46]
LATER = [*range(47, 55)]
"""The open transaction, and what waits behind it."""


class Writer:
    """Appends to one partition. Sequences go on for each producer."""

    def __init__(self, broker: Broker, partition: int) -> None:
        self._broker = broker
        self._partition = partition
        self._sequences: dict[int, int] = {}

    def records(self, count: int, producer: int = NOBODY) -> None:
        rows = [(T0, b"k", b"%d" % number, ()) for number in range(count)]
        known: dict[str, Any] = {}
        if producer != NOBODY:
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + count
            known = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        data = encode_batch(rows, **known)
        guard = guard_for(self._broker.log(TOPIC, self._partition), data) if known else None
        self._broker.append(TOPIC, self._partition, data, T0, guard=guard)

    def end(self, producer: int, *, commit: bool) -> None:
        marker = encode_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=T0
        )
        self._broker.append(TOPIC, self._partition, marker, T0, origin=AppendOrigin.COORDINATOR)


@contextmanager
def opened(data: Path) -> Iterator[Broker]:
    """The log of a node that is down."""
    broker = Broker(str(data), LogSettings())
    try:
        yield broker
        broker.flush()
    finally:
        broker.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    data = tmp_path / "data"
    with opened(data) as broker:
        broker.create_topic(TOPIC, 2)
        first = Writer(broker, 0)
        first.records(5)
        first.records(10, producer=7)
        first.records(5)
        first.records(10, producer=8)
        first.records(5, producer=7)
        first.end(7, commit=False)
        first.end(8, commit=True)
        first.records(5)
        first.records(4, producer=7)
        first.end(7, commit=True)
        first.records(5, producer=9)
        first.records(3)
        other = Writer(broker, 1)
        other.records(20, producer=7)
        other.end(7, commit=False)
    node = NodeProcess(data)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def offsets(spark: Any, node: NodeProcess, **options: str) -> list[tuple[int, int]]:
    given = {"bootstrap.servers": node.address, "subscribe": TOPIC} | options
    rows = spark.read.format("muster").options(**given).load().select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_a_table_holds_what_is_committed_however_it_is_cut(spark: Any, node: NodeProcess) -> None:
    wanted = [(0, offset) for offset in COMMITTED]
    for way in ({"tasks": "1"}, {"tasks": "7"}, {"assignor": "one-to-one"}, {"maxRecordsPerPartition": "4"}):
        assert offsets(spark, node, **{"isolation.level": "read_committed"}, **way) == wanted, way
    everything = [(0, offset) for offset in range(55) if offset not in MARKERS] + [(1, offset) for offset in range(20)]
    assert offsets(spark, node) == everything, "read_uncommitted, as in Kafka, unless asked for"


def test_a_stream_reads_what_is_committed_and_goes_on_when_a_transaction_ends(
    spark: Any, node: NodeProcess, tmp_path: Path
) -> None:
    options = {"isolation.level": "read_committed", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    reading = Reading(spark, node, tmp_path, subscribe=TOPIC, **options).drain()
    assert reading.rows == [(TOPIC, 0, offset) for offset in COMMITTED]
    assert len(reading.batches) > 5, "batches begin and end within transactions"
    reading.drain()
    assert len(reading.rows) == len(COMMITTED), "nothing is read beyond the open transaction"
    node.stop()
    with opened(node.data) as broker:
        Writer(broker, 0).end(9, commit=True)
    node.start()
    reading.drain()
    assert reading.rows == [(TOPIC, 0, offset) for offset in COMMITTED + LATER]
