"""Produce, Fetch, ListOffsets and InitProducerId by Kafka's door, in every version that is served."""

import asyncio
from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from muster.coordinator.kafka.dispatch import HangUp
from muster.storage.errors import RequestTimedOut
from muster.storage.records.batch import HEADER, HEADER_SIZE, decode_records, encode_batch, read_batches, seal_batch
from muster.storage.records.markers import encode_marker
from muster.storage.types import AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import Door, made, play
from tests.unit.storage.logs import T0, batch, guard_for
from tests.unit.storage.test_cold_reads import reading_threads

PRODUCE, FETCH, LIST, INIT = range(3, 10), range(4, 13), range(1, 8), range(5)
CODECS = ["gzip", "snappy", "lz4", "zstd"]


async def produce(door: Door, version: int, *parts: tuple[str, int, bytes], **more: Any) -> list[Any]:
    topics = [
        made(
            "ProduceRequest.topic_data",
            name=topic,
            partition_data=[made("ProduceRequest.topic_data.partition_data", index=index, records=data)],
        )
        for topic, index, data in parts
    ]
    answer = await door.ask("Produce", version, **({"acks": -1, "timeout_ms": 5000, "topic_data": topics} | more))
    return [] if answer is None else [part for topic in answer.responses for part in topic.partition_responses]


async def fetch(door: Door, version: int, *parts: tuple[str, int, int], **more: Any) -> list[Any]:
    return [part for topic in (await fetch_all(door, version, *parts, **more)).responses for part in topic.partitions]


async def fetch_all(door: Door, version: int, *parts: tuple[str, int, int], most: int = 1 << 20, **more: Any) -> Any:
    topics = [
        made(
            "FetchRequest.topics",
            topic=topic,
            partitions=[
                made("FetchRequest.topics.partitions", partition=index, fetch_offset=at, partition_max_bytes=most)
            ],
        )
        for topic, index, at in parts
    ]
    return await door.ask("Fetch", version, **({"max_bytes": 1 << 20, "min_bytes": 1, "topics": topics} | more))


async def list_offset(door: Door, version: int, timestamp: int, partition: int = 0, **more: Any) -> Any:
    asked = made("ListOffsetsRequest.topics.partitions", partition_index=partition, timestamp=timestamp)
    topic = made("ListOffsetsRequest.topics", name="t", partitions=[asked])
    answer = await door.ask("ListOffsets", version, **({"replica_id": -1, "topics": [topic]} | more))
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", PRODUCE)
def test_a_producer_waits_for_its_flush_no_longer_than_it_said(version: int) -> None:
    async def story(door: Door) -> None:
        flush, may_go_on = door.broker.flush, Event()

        def flush_late(partitions: Sequence[tuple[str, int]]) -> None:
            may_go_on.wait()
            flush(partitions)

        door.broker.flush = flush_late  # type: ignore[method-assign]
        try:
            (late,) = await produce(door, version, ("t", 0, batch(b"late")), timeout_ms=1)
        finally:
            may_go_on.set()
        assert late.error_code == RequestTimedOut.code
        (patient,) = await produce(door, version, ("t", 0, batch(b"patient")), timeout_ms=0)
        assert (patient.error_code, patient.base_offset) == (0, 1), "the other one came to be all the same"

    play(story)


@pytest.mark.parametrize("version", PRODUCE)
def test_what_is_produced_is_flushed_and_answered_with_its_offsets(version: int) -> None:
    async def story(door: Door) -> None:
        await produce(door, version, ("t", 0, batch(b"first")))
        first, second = await produce(door, version, ("t", 0, batch(b"a", b"b")), ("t", 1, batch(b"c")))
        assert [(part.index, part.error_code, part.base_offset) for part in (first, second)] == [(0, 0, 1), (1, 0, 0)]
        assert first.log_start_offset == (0 if version >= 5 else -1)
        assert door.broker.log("t", 0).unflushed == 0

    play(story)


@pytest.mark.parametrize("version", FETCH)
def test_a_fetch_gives_the_bytes_that_lie_in_the_log(version: int) -> None:
    async def story(door: Door) -> None:
        await produce(door, 9, ("t", 0, batch(b"a", b"b")), ("t", 2, batch(b"c")))
        found = await fetch(door, version, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("nowhere", 0, 0), ("t", 0, 9))
        assert [part.error_code for part in found] == [0, 0, 0, 3, 1]
        assert bytes(found[0].records) == door.broker.fetch("t", 0, 0, 1 << 20).records
        texts = [[record.value for record in decode_records(part.records or b"")] for part in found]
        assert texts == [[b"a", b"b"], [], [b"c"], [], []]
        assert [(part.high_watermark, part.last_stable_offset) for part in found[:3]] == [(2, 2), (0, 0), (1, 1)]
        assert found[0].aborted_transactions is None

    play(story)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_pass_through_untouched(codec: str) -> None:
    async def story(door: Door) -> None:
        data = encode_batch([(T0, None, b"%d" % n * 100, ()) for n in range(50)], codec=codec)
        assert [part.error_code for part in await produce(door, 9, ("t", 0, data))] == [0]
        (found,) = await fetch(door, 12, ("t", 0, 0))
        # Base offset and leader epoch are the log's; from the magic on nothing has changed.
        assert bytes(found.records)[16:] == data[16:]

    play(story)


def test_without_acks_there_is_no_answer_and_a_refusal_ends_the_connection() -> None:
    async def story(door: Door) -> None:
        assert await produce(door, 9, ("t", 0, batch(b"x")), acks=0) == []
        # Nobody waits for it, and yet it can be read soon.
        (part,) = await fetch(door, 9, ("t", 0, 0), max_wait_ms=600_000)
        assert [record.value for record in decode_records(part.records)] == [b"x"]
        with pytest.raises(HangUp, match="no topic 'nowhere'"):
            await produce(door, 9, ("t", 0, batch(b"y")), ("nowhere", 0, batch(b"x")), acks=0)
        assert door.broker.end_offset("t", 0) == 2

    play(story)


def test_each_partition_is_refused_for_itself() -> None:
    async def story(door: Door) -> None:
        old = bytearray(batch(b"x"))
        old[16] = 1
        flipped = bytearray(batch(b"x"))
        flipped[-1] ^= 1
        parts = await produce(
            door,
            9,
            ("t", 0, batch(b"good")),
            ("t", 1, bytes(flipped)),
            ("t", 9, batch(b"x")),
            ("__consumer_offsets", 0, batch(b"x")),
            ("t", 2, batch(b"x" * (2 << 20))),
            ("t", 2, batch(b"x") + batch(b"y")),
            ("t", 2, bytes(old)),
            ("t", 2, b""),
        )
        assert [part.error_code for part in parts] == [0, 2, 3, 17, 10, 87, 87, 87]
        assert [part.base_offset for part in parts] == [0, *[-1] * 7]
        assert "max.message.bytes" in parts[4].error_message
        assert "exactly one" in parts[5].error_message
        assert [part.error_code for part in await produce(door, 9, ("t", 0, batch(b"x")), acks=2)] == [21]

    play(story)


def test_a_topic_that_stamps_arrival_says_when_that_was() -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        (part,) = await produce(door, 9, ("stamped", 0, batch(b"x", at=T0 - 5000)))
        assert (part.error_code, part.log_append_time_ms) == (0, T0)
        (found,) = await fetch(door, 12, ("stamped", 0, 0))
        assert [record.timestamp_ms for record in decode_records(found.records)] == [T0]

    play(story)


def test_a_compacted_topic_needs_keys() -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("keyed", 1, {"cleanup.policy": "compact"})
        parts = await produce(door, 9, ("keyed", 0, batch(b"x")), ("keyed", 0, batch(b"x", key=b"k")))
        assert [part.error_code for part in parts] == [87, 0]
        (at_fault,) = parts[0].record_errors
        assert at_fault.batch_index == 0
        assert at_fault.batch_index_error_message == "Record 0 of a batch has no key; a compacted topic needs one."
        assert parts[0].error_message == at_fault.batch_index_error_message
        assert not parts[1].record_errors

    play(story)


def test_a_batch_that_nobody_can_read_comes_in_by_no_door() -> None:
    async def story(door: Door) -> None:
        sound = batch(b"x" * 50)
        header = HEADER.unpack_from(sound)
        garbage = bytes(seal_batch((0, 0, 1, 0, header[7], header[8]), (-1, -1, -1), 1, b"no gzip stream"))
        over_two = bytes(seal_batch((0, 0, 0, 4, header[7], header[8]), (-1, -1, -1), 5, sound[HEADER_SIZE:] * 2))
        parts = await produce(door, 9, ("t", 0, garbage), ("t", 0, over_two), ("t", 0, sound))
        assert [part.error_code for part in parts] == [87, 87, 0]
        assert "cannot be unpacked" in parts[0].error_message
        assert door.broker.end_offset("t", 0) == 1

    play(story)


def test_zstd_is_for_clients_that_know_it() -> None:
    async def story(door: Door) -> None:
        data = encode_batch([(T0, None, b"x" * 100, ())], codec="zstd")
        assert [(await produce(door, version, ("t", 0, data)))[0].error_code for version in (6, 7)] == [76, 0]

    play(story)


def test_nothing_of_a_transaction_comes_in() -> None:
    async def story(door: Door) -> None:
        sent = batch(b"x", producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
        assert [part.error_code for part in await produce(door, 9, ("t", 0, sent), transactional_id="a")] == [53]
        (part,) = await produce(door, 9, ("t", 0, sent))
        assert (part.error_code, door.broker.end_offset("t", 0)) == (53, 0)
        assert "idempotent" in part.error_message

    play(story)


def test_a_failed_flush_is_told_to_those_it_concerns() -> None:
    disk = MemoryFiles()

    async def story(door: Door) -> None:
        def fault(operation: str, path: str) -> None:
            if operation == "sync" and "/t-1/" in path:
                raise OSError(5, "Input/output error")

        disk.fault = fault
        parts = await produce(door, 9, ("t", 0, batch(b"x")), ("t", 1, batch(b"x")))
        assert [(part.error_code, part.base_offset) for part in parts] == [(0, 0), (56, -1)]
        disk.fault = None

    play(story, disk)


@pytest.mark.parametrize("version", INIT)
def test_an_idempotent_producer_gets_an_id_and_its_repeats_their_old_offset(version: int) -> None:
    async def story(door: Door) -> None:
        first = await door.ask("InitProducerId", version, transactional_id=None)
        other = await door.ask("InitProducerId", version, transactional_id=None)
        assert (first.error_code, first.producer_epoch) == (0, 0)
        assert other.producer_id == first.producer_id + 1
        sent = batch(b"x", producer_id=first.producer_id, producer_epoch=0, base_sequence=0)
        for _ in range(2):
            (part,) = await produce(door, 9, ("t", 0, sent))
            assert (part.error_code, part.base_offset) == (0, 0)
        skipped = batch(b"x", producer_id=first.producer_id, producer_epoch=0, base_sequence=7)
        assert [part.error_code for part in await produce(door, 9, ("t", 0, skipped))] == [45]
        refused = [await door.ask("InitProducerId", version, transactional_id=name) for name in ("orders", "")]
        assert [answer.error_code for answer in refused] == [53, 42]

    play(story)


# -- long polls -----------------------------------------------------------------------------------------------


def test_a_fetch_that_waits_is_woken_by_enough_records() -> None:
    async def story(door: Door) -> None:
        size = len(batch(b"x"))
        waiting = asyncio.create_task(fetch(door, 12, ("t", 0, 0), max_wait_ms=600_000, min_bytes=size + 1))
        await parked(door)
        await produce(door, 9, ("t", 0, batch(b"x")))
        await produce(door, 9, ("t", 1, batch(b"elsewhere")))
        await parked(door)
        await produce(door, 9, ("t", 0, batch(b"y")))
        (part,) = await waiting
        assert [record.value for record in decode_records(part.records)] == [b"x", b"y"]
        assert door.requests.parking.parked == 0

    play(story)


async def parked(door: Door) -> None:
    while not door.requests.parking.parked:  # noqa: ASYNC110  # one turn of the loop at a time, no time passes
        await asyncio.sleep(0)


def test_a_fetch_does_not_wait_for_what_cannot_come() -> None:
    async def story(door: Door) -> None:
        patient: Any = {"max_wait_ms": 600_000, "min_bytes": 1}
        assert [part.error_code for part in await fetch(door, 12, ("t", 0, 0), ("t", 7, 0), **patient)] == [0, 3]
        assert (await fetch_all(door, 12, **patient)).responses == []
        assert len(await fetch(door, 12, ("t", 0, 0), max_wait_ms=600_000, min_bytes=0)) == 1
        assert len(await fetch(door, 12, ("t", 0, 0), max_wait_ms=0, min_bytes=1)) == 1
        waiting = asyncio.create_task(fetch(door, 12, ("t", 0, 0), **patient))
        await parked(door)
        await door.ask("DeleteTopics", 5, topic_names=["t"])
        assert [part.error_code for part in await waiting] == [3]

    play(story)


def test_a_client_that_went_away_leaves_nothing_behind() -> None:
    async def story(door: Door) -> None:
        waiting = asyncio.create_task(fetch(door, 12, ("t", 0, 0), ("t", 1, 0), max_wait_ms=600_000))
        await parked(door)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert door.requests.parking.parked == 0

    play(story)


def test_the_budget_is_shared_and_the_first_batch_comes_whole() -> None:
    async def story(door: Door) -> None:
        data = batch(b"x" * 1000)
        for index in range(3):
            for _ in range(5):
                await produce(door, 9, ("t", index, data))
        places = [("t", index, 0) for index in range(3)]
        found = await fetch(door, 12, *places, max_bytes=6 * len(data))
        assert [len(part.records) for part in found] == [2 * len(data)] * 3
        found = await fetch(door, 12, *places, max_bytes=1, most=1)
        assert sorted(len(part.records) for part in found) == [0, 0, len(data)]
        # Nobody is always first.
        firsts = [[len(part.records) > 0 for part in await fetch(door, 12, *places, max_bytes=1)] for _ in range(3)]
        assert [any(column) for column in zip(*firsts, strict=True)] == [True] * 3

    play(story)


def test_aborted_data_is_named_and_open_data_withheld_from_those_who_read_committed() -> None:
    async def story(door: Door) -> None:
        def send(producer: int, text: bytes) -> None:
            sent = batch(text, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
            door.broker.append("t", 0, sent, T0, guard=guard_for(door.broker.log("t", 0), sent))

        send(1, b"undone")
        marker = encode_marker(commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=T0)
        door.broker.append("t", 0, marker, T0, origin=AppendOrigin.COORDINATOR)
        send(2, b"open")
        door.broker.flush()
        (all_of_it,) = await fetch(door, 12, ("t", 0, 0))
        (committed,) = await fetch(door, 12, ("t", 0, 0), isolation_level=1)
        assert (all_of_it.high_watermark, all_of_it.last_stable_offset) == (3, 2)
        assert len(all_of_it.records) > len(committed.records) > 0
        assert [(a.producer_id, a.first_offset) for a in committed.aborted_transactions] == [(1, 0)]
        ends = [(await list_offset(door, 7, -1, isolation_level=level)).offset for level in (0, 1)]
        assert ends == [3, 2]

    play(story)


def test_sessions_are_not_kept_and_leader_epochs_are_checked() -> None:
    async def story(door: Door) -> None:
        answer = await fetch_all(door, 12, ("t", 0, 0), session_id=5, session_epoch=1)
        assert (answer.error_code, answer.session_id, answer.responses) == (70, 0, [])
        assert (await fetch_all(door, 12, ("t", 0, 0), session_epoch=0)).session_id == 0
        for epoch, code in ((0, 0), (1, 75)):
            part = made("FetchRequest.topics.partitions", current_leader_epoch=epoch, partition_max_bytes=100)
            topic = made("FetchRequest.topics", topic="t", partitions=[part])
            answer = await door.ask("Fetch", 12, topics=[topic], max_wait_ms=600_000 if code else 0, min_bytes=1)
            assert answer.responses[0].partitions[0].error_code == code

    play(story)


def test_old_records_on_a_slow_disk_and_searches_by_time_are_read_in_a_thread() -> None:
    disk = MemoryFiles()
    disk.cold = lambda path: True

    async def story(door: Door) -> None:
        for number in range(12):
            await produce(door, 9, ("t", 0, batch(b"x" * 300, at=T0 + number)))
        own = reading_threads(disk)
        assert await read_from(door, 11) == 11
        assert own == [True] * len(own) != []
        own.clear()
        assert await read_from(door, 2) == 2
        listed = await list_offset(door, 7, T0 + 3)
        assert listed.offset == 3
        assert own == [False] * len(own) != []

    async def read_from(door: Door, offset: int) -> int:
        (part,) = await fetch(door, 11, ("t", 0, offset))
        return next(iter(read_batches(part.records))).base_offset

    play(story, disk, log__segment__bytes=1024)


@pytest.mark.parametrize("most", [1 << 20, 2000])
def test_a_fetch_that_comes_to_a_slow_disk_goes_on_there_and_reads_nothing_again(most: int) -> None:
    disk = MemoryFiles()

    async def story(door: Door) -> None:
        for number in range(6):
            for partition in range(3):
                await produce(door, 9, ("t", partition, batch(b"x" * 300, at=T0 + number)))
        disk.cold = lambda path: "t-1/" in path
        own = reading_threads(disk)
        parts = await fetch(door, 11, ("t", 0, 0), ("t", 2, 2), ("t", 1, 0), most=most)
        assert [next(iter(read_batches(part.records))).base_offset for part in parts] == [0, 2, 0]
        assert len(own) == 2 * 3, "where it is, and the records"
        assert own.count(False) >= 2

    play(story, disk, log__segment__bytes=1024)


def test_a_reader_that_has_more_than_the_log_hears_where_they_part() -> None:
    """As a follower of a log whose end was lost: it says the epoch of the last record that it has (KIP-595)."""

    async def story(door: Door) -> None:
        async def asked(epoch: int, offset: int) -> Any:
            path = "FetchRequest.topics.partitions"
            part = made(path, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20)
            topic = made("FetchRequest.topics", topic="t", partitions=[part])
            answer = await door.ask("Fetch", 12, topics=[topic], max_wait_ms=0, max_bytes=1 << 20)
            return answer.responses[0].partitions[0]

        assert (await asked(0, 0)).error_code == 0, "nothing was written yet"
        await produce(door, 9, ("t", 0, batch(b"a", b"b")))
        agreed, parted, foreign = await asked(0, 1), await asked(0, 99), await asked(5, 0)
        assert (agreed.error_code, agreed.diverging_epoch, len(agreed.records) > 0) == (0, None, True)
        assert (parted.error_code, parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 0, 2)
        assert (parted.high_watermark, parted.log_start_offset, len(parted.records)) == (2, 0, 0)
        assert (foreign.error_code, foreign.high_watermark) == (1, -1)

    play(story)


# -- offsets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LIST)
def test_offsets_are_found_by_time(version: int) -> None:
    async def story(door: Door) -> None:
        for number in range(4):
            await produce(door, 9, ("t", 0, batch(b"x", at=T0 + 1000 * number)))
        door.broker.delete_records("t", 0, 1)
        found = {}
        for asked in (-1, -2, -3, 0, T0 + 1500, T0 + 9000):
            part = await list_offset(door, version, asked)
            found[asked] = (part.error_code, part.offset, part.timestamp)
            assert part.leader_epoch == (0 if version >= 4 and part.offset >= 0 else -1)
        assert found == {
            -1: (0, 4, -1),
            -2: (0, 1, -1),
            -3: (0, 3, T0 + 3000),
            0: (0, 1, T0 + 1000),
            T0 + 1500: (0, 2, T0 + 2000),
            T0 + 9000: (0, -1, -1),
        }
        assert (await list_offset(door, version, -1, partition=9)).error_code == 3
        assert (await list_offset(door, version, -4)).error_code == 35

    play(story)


@pytest.mark.parametrize("version", FETCH)
def test_who_calls_itself_a_replica_reads_nothing_here(version: int) -> None:
    """A replica is shown what is not committed yet: nodes have a door of their own for that."""

    async def story(door: Door) -> None:
        await produce(door, 9, ("t", 0, batch(b"a")))
        for replica, code in ((0, 31), (2, 31), (-2, 0)):
            answer = await fetch_all(door, version, ("t", 0, 0), ("t", 1, 0), replica_id=replica)
            parts = [part for topic in answer.responses for part in topic.partitions]
            assert [part.error_code for part in parts] == [code] * 2
            assert [bool(part.records) for part in parts] == [not code, False]
            assert answer.error_code == (code if version >= 7 else 0)

    play(story)


@pytest.mark.parametrize("version", LIST)
def test_who_calls_itself_a_replica_is_told_of_no_offsets(version: int) -> None:
    async def story(door: Door) -> None:
        await produce(door, 9, ("t", 0, batch(b"a")))
        for replica, told in ((0, (31, -1)), (2, (31, -1)), (-2, (0, 1))):
            found = await list_offset(door, version, -1, replica_id=replica)
            assert (found.error_code, found.offset) == told

    play(story)
