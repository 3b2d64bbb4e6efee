"""A consumer of committed records: what it asks for and returns, where it stands afterwards, where it goes back to."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from muster.client.aio.consumer import ConsumerCore
from muster.client.calls import transport
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, load
from muster.client.errors import ConfigError, IllegalState, NoOffset, Refused, refusal
from muster.client.records.fetcher import FetchPoll
from muster.client.records.kafka_records import consumer_properties
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from tests.unit.storage.test_markers import data, marker

TP = TopicPartition("t", 0)
COMMITTED = {"isolation.level": "read_committed", "group.id": "g"}


def fetched(records: bytes, *aborted: tuple[int, int]) -> pb.FetchResponse:
    part = pb.FetchPartitionResult(
        partition_index=0,
        records=records,
        high_watermark=100,
        last_stable_offset=100,
        aborted_transactions=[
            pb.AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted
        ],
    )
    return pb.FetchResponse(responses=[pb.FetchTopicResult(topic="t", partitions=[part])])


class Reader:
    """A consumer of one partition whose fetches are made by hand."""

    def __init__(self, at: int = 0, **more: object) -> None:
        self.core = ConsumerCore(
            load(ConsumerConfig, COMMITTED | {name: str(value) for name, value in more.items()}, {})
        )
        self.core.fetcher.add([TP])
        self.state = self.core.fetcher.states[TP]
        self.state.position = self.state.fetch_offset = self.state.stored = at

    def take(self, records: bytes, *aborted: tuple[int, int]) -> list[bytes | None]:
        """What the application gets of one fetch."""
        assert self.core.fetcher.take_in([self.state], fetched(records, *aborted))
        return self.drained()

    def drained(self, limit: int = 500) -> list[bytes | None]:
        found = []
        while self.state.chunk is not None or self.core.fetcher.ready:
            self.core.fetcher.refill(limit)
            while (message := self.core.pop()) is not None:
                found.append(message.value)
        return found


def test_fetches_ask_for_the_isolation_that_was_chosen() -> None:
    async def run() -> None:
        for level, number in (("read_committed", 1), ("read_uncommitted", 0)):
            config = load(ConsumerConfig, {"isolation.level": level}, {})
            transport = Transport(config)
            core = ConsumerCore(config)
            core.fetcher.add([TP])
            poll = FetchPoll(core.fetcher, transport, config, "")
            assert poll._request([core.fetcher.states[TP]]).isolation_level == number
            await poll.stop()
            await transport.close()

    asyncio.run(run())
    assert load(ConsumerConfig, {}, {}).isolation_level == "read_uncommitted", "as Kafka's"
    assert consumer_properties(load(ConsumerConfig, {}, {}), "k:1")["isolation.level"] == "read_uncommitted"


def test_an_isolation_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        ConfigError, match=r"isolation\.level='dirty': expected one of read_uncommitted, read_committed"
    ):
        load(ConsumerConfig, {"isolation.level": "dirty"}, {})


def test_aborted_records_are_not_returned_and_the_position_goes_over_them_and_over_markers() -> None:
    async def run() -> None:
        reader = Reader()
        log = data(1, 0, b"gone") + data(2, 1, b"kept") + marker(1, 2, commit=False) + marker(2, 3, commit=True)
        assert reader.take(log, (1, 0)) == [b"kept"]
        assert (reader.state.position, reader.state.fetch_offset) == (4, 4)
        assert reader.core.everything_handed_over()[TP].offset == 4
        await reader.core.finish_close()

    asyncio.run(run())


def test_a_fetch_without_one_record_moves_the_position_and_what_is_committed_next() -> None:
    async def run() -> None:
        reader = Reader(at=5)
        assert reader.take(data(1, 5, b"gone") + marker(1, 6, commit=False), (1, 5)) == []
        assert (reader.state.position, reader.state.fetch_offset) == (7, 7)
        assert reader.core.commits.to_commit()[TP].offset == 7
        await reader.core.finish_close()

    asyncio.run(run())


def test_what_is_not_done_is_not_committed_because_a_marker_follows() -> None:
    """Automatic commits cover what was handed over before the latest poll; a record in work stays uncommitted."""

    async def run() -> None:
        reader = Reader()
        reader.core.fetcher.take_in([reader.state], fetched(data(1, 0, b"work") + marker(1, 1, commit=True)))
        reader.core.fetcher.refill(500)
        assert reader.core.pop() is not None
        assert reader.core.commits.to_commit()[TP].offset == 0
        assert reader.core.pop() is None, "the marker: the position is behind it"
        assert (reader.state.position, reader.core.commits.to_commit()[TP].offset) == (2, 0)
        reader.core.begin_poll()
        assert reader.core.commits.to_commit()[TP].offset == 2
        await reader.core.finish_close()

    asyncio.run(run())


def test_offsets_that_the_application_stores_itself_are_left_to_it() -> None:
    async def run() -> None:
        reader = Reader(**{"enable.auto.offset.store": "false"})
        reader.state.stored = None
        assert reader.take(data(1, 0, b"kept") + marker(1, 1, commit=True)) == [b"kept"]
        reader.core.store({TP: 1})
        assert reader.core.commits.to_commit()[TP].offset == 1
        await reader.core.finish_close()

    asyncio.run(run())


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_place_behind_a_fetch_does_not_depend_on_how_it_is_taken(limit: int) -> None:
    async def run() -> None:
        reader = Reader()
        log = data(1, 0, b"a", b"b", b"c") + marker(1, 3, commit=True)
        reader.core.fetcher.take_in([reader.state], fetched(log))
        assert reader.drained(limit) == [b"a", b"b", b"c"]
        assert reader.state.position == 4
        await reader.core.finish_close()

    asyncio.run(run())


def test_a_seek_voids_the_place_behind_a_marker_too() -> None:
    async def run() -> None:
        reader = Reader()
        reader.core.fetcher.take_in([reader.state], fetched(data(1, 0, b"a") + marker(1, 1, commit=True)))
        reader.core.fetcher.refill(500)
        await reader.core.seeking.seek(TP, 0)
        assert reader.core.pop() is None
        assert reader.state.position == 0
        await reader.core.finish_close()

    asyncio.run(run())


def test_a_damaged_marker_is_told_with_its_partition() -> None:
    async def run() -> None:
        reader = Reader()
        spoilt = bytearray(marker(1, 1, commit=False))
        spoilt[-1] ^= 1
        reader.core.fetcher.take_in([reader.state], fetched(data(1, 0, b"gone") + bytes(spoilt), (1, 0)))
        reader.core.fetcher.refill(500)
        assert "t-0 cannot be read at offset 0" in str(reader.core.fetcher.failure)
        await reader.core.finish_close()

    asyncio.run(run())


# Back to the committed offsets
# -----------------------------


class Positions(GroupCalls):
    """A group's positions, without a node; `refusals` come first."""

    def __init__(self, committed: Mapping[TopicPartition, int], *refusals: Exception) -> None:
        super().__init__(Transport(load(ConsumerConfig, {}, {})), "g")
        self.offsets = committed
        self.refusals = list(refusals)

    async def committed(  # type: ignore[override]
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self.refusals:
            raise self.refusals.pop(0)
        return {tp: OffsetAndMetadata(self.offsets[tp]) if tp in self.offsets else None for tp in partitions}


def test_seek_to_committed_drops_what_was_read_ahead_and_what_was_handed_over() -> None:
    async def run() -> None:
        reader = Reader(at=2)
        reader.core.positions._store = Positions({TP: 2})
        reader.core.fetcher.take_in([reader.state], fetched(data(1, 2, b"a", b"b", b"c")))
        reader.core.fetcher.refill(2)
        assert reader.core.pop() is not None
        await reader.core.seeking.seek_to_committed()
        assert reader.core.pop() is None, "b was read ahead"
        assert (reader.state.position, reader.state.chunk) == (2, None)
        reader.core.begin_poll()
        assert reader.core.commits.to_commit() == {}, "a was not done"
        assert reader.take(data(1, 2, b"a", b"b", b"c")) == [b"a", b"b", b"c"]
        await reader.core.finish_close()

    asyncio.run(run())


def test_offsets_stored_by_the_application_are_forgotten_by_seek_to_committed() -> None:
    async def run() -> None:
        reader = Reader(**{"enable.auto.offset.store": "false"})
        reader.core.positions._store = Positions({TP: 1})
        reader.core.store({TP: 9})
        await reader.core.seeking.seek_to_committed()
        assert reader.core.commits.to_commit() == {}
        await reader.core.finish_close()

    asyncio.run(run())


def test_what_stands_in_the_way_is_raised_and_the_next_poll_looks_again() -> None:
    async def run() -> None:
        reader = Reader(at=7)
        reader.core.positions._store = Positions({TP: 3}, refusal(88, "UNSTABLE_OFFSET_COMMIT", "still open", "t-0"))
        with pytest.raises(Refused, match="UNSTABLE_OFFSET_COMMIT: t-0: still open"):
            await reader.core.seeking.seek_to_committed()
        assert reader.state.position is None, "nothing behind the committed offset is returned meanwhile"
        assert await reader.core.seeking.position(TP) == 3
        await reader.core.finish_close()

    asyncio.run(run())


def test_without_a_committed_offset_and_without_a_reset_the_application_decides() -> None:
    async def run() -> None:
        reader = Reader(at=7, **{"auto.offset.reset": "none"})
        reader.core.positions._store = Positions({})
        with pytest.raises(NoOffset, match="no offset is committed for t-0"):
            await reader.core.seeking.seek_to_committed()
        await reader.core.finish_close()

    asyncio.run(run())


def test_without_a_group_there_is_nothing_to_go_back_to() -> None:
    async def run() -> None:
        core = ConsumerCore(load(ConsumerConfig, {}, {}))
        with pytest.raises(IllegalState, match=r"seek_to_committed\(\) needs a group.id"):
            await core.seeking.seek_to_committed()
        await core.finish_close()

    asyncio.run(run())


# Positions that a transaction holds
# ----------------------------------


class Unstable(GroupCalls):
    """Answers 88 so many times, then the position."""

    def __init__(self, times: int, timeout_ms: int = 5_000) -> None:
        config = load(
            ConsumerConfig,
            {"default.api.timeout.ms": timeout_ms, "retry.backoff.ms": 1, "retry.backoff.max.ms": 1},
            {},
        )
        super().__init__(Transport(config), "g", coordinator="n:1")
        self.times = times
        self.asked: list[bool] = []

    async def _call(self, method: object, request: object, doing: str, address: str) -> object:  # type: ignore[override]
        assert isinstance(request, group_pb.OffsetFetchRequest)
        self.asked.append(request.require_stable)
        held = len(self.asked) <= self.times
        line = group_pb.OffsetFetchPartition(
            partition_index=0,
            committed_offset=-1 if held else 4,
            committed_leader_epoch=-1,
            error_code=errors_pb2.ERROR_CODE_UNSTABLE_OFFSET_COMMIT if held else errors_pb2.ERROR_CODE_NONE,
        )
        return group_pb.OffsetFetchResponse(topics=[group_pb.OffsetFetchTopicResult(name="t", partitions=[line])])


def test_a_position_that_a_transaction_holds_is_waited_for() -> None:
    calls = Unstable(times=3)
    found = asyncio.run(calls.committed([TP]))
    assert found == {TP: OffsetAndMetadata(4)}
    assert calls.asked == [True] * 4


def test_a_wait_that_lasts_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(transport, "QUIETLY_REFUSED_MS", 0)
    asyncio.run(Unstable(times=3).committed([TP]))
    [told] = [record.message for record in caplog.records]
    assert told.startswith("UNSTABLE_OFFSET_COMMIT: t-0: an open transaction holds an offset")
    assert told.endswith("; trying again")


def test_the_wait_for_a_transaction_has_an_end_which_says_what_holds_it() -> None:
    calls = Unstable(times=1 << 30, timeout_ms=20)
    with pytest.raises(Refused, match="UNSTABLE_OFFSET_COMMIT: t-0: an open transaction holds an offset") as caught:
        asyncio.run(calls.committed([TP]))
    assert caught.value.retriable
