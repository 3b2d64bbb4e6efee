"""Nothing that a shard reads or writes stands the loop for long: much is done in slices, or in a thread."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend import state_log, state_log_io
from muster.coordinator.kafka_backend import transaction_log as transactions
from muster.coordinator.kafka_backend.shard_owner import ShardOwner
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.append_queues import RECORD_BYTES, AppendLimits, AppendQueues
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    MeasuredRecords,
    NewRecord,
    ProducerEpoch,
    ShardBatch,
    TransactionalClient,
)
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker
from tests.support.kafka_backend.over_kafka import OverKafka

MOST = 300
RECORDS = st.lists(st.binary(max_size=MOST - RECORD_BYTES - 1).map(lambda value: (b"k", value, -1)), max_size=30)


def parts_of(records: Sequence[NewRecord], size: int) -> list[Sequence[NewRecord]]:
    """As one append of a shard leaves, batch after batch."""
    appends = AppendQueues(AppendLimits(batch_bytes=MOST))
    appends.open(0, ProducerEpoch(1, 0))
    appends.append(0, records, size, 1)
    parts = [each.records for each in appends._queues[0].waiting]
    assert appends.unacked(0) == size + RECORD_BYTES * len(records)
    return parts


@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(0, 6))
def test_measured_records_leave_as_others_do_in_their_order_and_no_batch_is_too_large(
    portions: list[list[Any]], joined: int
) -> None:
    measured = MeasuredRecords()
    for portion in portions[:joined]:
        measured.extend(portion)
    behind = MeasuredRecords()
    for portion in portions[joined:]:
        behind.extend(portion)
    measured.extend(behind)
    records = [record for portion in portions for record in portion]
    sizes = [len(key) + len(value) for key, value, _ in records]
    assert (list(measured), measured.size, measured.largest) == (records, sum(sizes), max(sizes, default=0))
    if not records:
        return
    parts = parts_of(measured, measured.size)
    assert [record for part in parts for record in part] == records
    for part in parts:
        assert sum(len(key) + len(value or b"") + RECORD_BYTES for key, value, _ in part) <= MOST
        assert part


def test_a_portion_is_parted_only_where_it_is_too_large_for_a_batch() -> None:
    measured = MeasuredRecords([(b"k", b"v" * 60, -1)] * 2)
    measured.extend([(b"k", b"v" * 60, -1)] * 2)
    measured.extend([(b"k", b"v" * 60, -1)] * 4)
    assert [len(part) for part in parts_of(measured, measured.size)] == [2, 3, 3]


def over(broker: UpstreamBroker, instance: str = "one") -> OverKafka:
    return OverKafka(f"127.0.0.1:{broker.address.port}", "muster", 1, instance=instance)


def test_a_shard_is_read_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one answer there may be a million records: they used to be looked at in one step of the loop."""
    monkeypatch.setattr(state_log_io, "AT_ONCE", 4)
    looked_at: list[int] = []
    step = ShardOwner.step

    def watched(self: ShardOwner, event: ev.ShardEvent) -> None:
        if isinstance(event, ev.LogFetched):
            looked_at.append(sum(len(batch.records) for batch in event.batches))
        step(self, event)

    async def story() -> None:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", 1)
            topic.configs["min.insync.replicas"] = "1"
            async with over(broker) as node:
                await node.all_served()
                for number in range(12):
                    assert await node.commit(f"g{number}", number) is ErrorCode.NONE
            monkeypatch.setattr(ShardOwner, "step", watched)
            async with over(broker, "two") as node:
                await node.all_served()
                assert [await node.committed(f"g{number}") for number in range(12)] == list(range(12))
            assert (max(looked_at) <= 4, sum(looked_at) >= 13) == (True, True), looked_at
            assert len(broker.of("Fetch")) < len(looked_at), "what was fetched is not fetched again"

    asyncio.run(story())


def test_a_large_batch_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, bool] = {}
    make = state_log.wire_of

    def watched(batch: ShardBatch, timestamp_ms: int) -> bytes:
        made[len(batch.records)] = threading.current_thread() is threading.main_thread()
        return make(batch, timestamp_ms)

    monkeypatch.setattr(state_log, "wire_of", watched)

    async def story() -> None:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", 1)
            topic.configs["min.insync.replicas"] = "1"
            async with over(broker) as node:
                await node.all_served()
                assert await node.commit("small", 1) is ErrorCode.NONE
                assert await node.commit("large", 1, partitions=1_500) is ErrorCode.NONE
                assert await node.committed("large") == 1
        assert (made[1], made[max(made)], max(made) >= 1_500) == (True, False, True), made

    asyncio.run(story())


def test_e2_many_positions_of_a_client_s_transaction_are_made_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a plain commit: 10,000 stood the loop for 50 ms, once as records and once as a batch."""
    here: dict[str, set[bool]] = {}

    def watched(name: str, make: Any) -> Any:
        def made(*given: Any) -> Any:
            here.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
            return make(*given)

        return made

    monkeypatch.setattr(transactions, "entries", watched("records", transactions.entries))
    monkeypatch.setattr(state_log, "wire_of", watched("batch", state_log.wire_of))

    async def story() -> None:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", 1)
            topic.configs["min.insync.replicas"] = "1"
            async with over(broker) as node:
                await node.all_served()
                broker.answers["DescribeProducers"] = lambda request: struct("DescribeProducersResponse")()
                here.clear()
                kept = {("t", number): StoredOffset(number, -1, "", 0) for number in range(1_500)}
                client = TransactionalClient("app", ProducerEpoch(5_000, 0))
                outcome = await node.owning.transactions.append(0, client, "g", kept)
                assert outcome.code == 0, outcome
        assert here == {"records": {False}, "batch": {False}}

    asyncio.run(story())


def test_e2_what_the_core_of_before_has_allowed_is_not_written_once_its_shard_is_taken_anew() -> None:
    """Making many records takes a while."""

    class Owner:
        stepped: ClassVar[list[Any]] = []

        def takes(self, shard: int) -> bool:
            return True

        def step(self, event: Any) -> None:
            self.stepped.append(event)

    async def story() -> None:
        owner: Any = Owner()
        nobody: Any = None
        writing_them = transactions.ClientTransactions(owner, nobody, nobody, "t", lambda: 0)
        kept = {("t", number): StoredOffset(number, -1, "", 0) for number in range(1_500)}
        appending = asyncio.create_task(
            writing_them.append(0, TransactionalClient("app", ProducerEpoch(5, 0)), "g", kept)
        )
        await asyncio.sleep(0)
        writing_them.gone(0)
        assert (await appending).code == 16
        assert owner.stepped == []

    asyncio.run(story())
