"""What tools, web interfaces and exporters ask of every node. What Kafka 4.1.1 says to the same stands beside it in
`tests/interop/kafka_answers.py`."""

from typing import Any

import pytest

from muster.long_work import AT_ONCE
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.records.batch import encode_batch
from tests.support.kafka.door import NODE_ID, Door, made, play
from tests.support.turns import turns_of_others
from tests.unit.kafka.test_kafka_log_records import list_offset
from tests.unit.storage.logs import T0

EARLIEST_LOCAL, LATEST_TIERED = -4, -5


def places(answer: Any) -> dict[tuple[str, int], int]:
    """Bytes of each partition of the one directory."""
    (directory,) = answer.results
    return {
        (topic.name, one.partition_index): one.partition_size for topic in directory.topics for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_the_log_directory_has_the_bytes_of_each_partition(version: int) -> None:
    async def story(door: Door) -> None:
        batch = encode_batch([(T0, None, b"x" * 100, ())])
        door.broker.append("t", 1, batch, T0)
        every = await door.ask("DescribeLogDirs", version, topics=None)
        assert places(every) == {("t", 0): 0, ("t", 1): len(batch), ("t", 2): 0, ("__consumer_offsets", 0): 0}
        (directory,) = every.results
        assert (directory.error_code, directory.log_dir) == (0, "/data")
        assert {one.offset_lag for topic in directory.topics for one in topic.partitions} == {0}
        asked = [
            made("DescribeLogDirsRequest.topics", topic="t", partitions=[1, 1, 7]),
            made("DescribeLogDirsRequest.topics", topic="nowhere", partitions=[0]),
        ]
        assert places(await door.ask("DescribeLogDirs", version, topics=asked)) == {("t", 1): len(batch)}
        assert places(await door.ask("DescribeLogDirs", version, topics=[])) == {}, "the directory is told all the same"

    play(story)


def test_very_many_partitions_leave_others_their_turns() -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("wide", 10 * AT_ONCE)

        async def look() -> None:
            assert len(places(await door.ask("DescribeLogDirs", 4, topics=None))) == 10 * AT_ONCE + 4

        assert await turns_of_others(look()) >= 10

    play(story)


def test_the_producers_of_a_partition_are_told_with_their_last_sequence() -> None:
    async def story(door: Door) -> None:
        sent = encode_batch([(T0 + 5, None, b"x", ())] * 3, producer_id=40, producer_epoch=2, base_sequence=7)
        door.broker.append("t", 0, sent, T0)
        asked = [
            made("DescribeProducersRequest.topics", name="t", partition_indexes=[0, 1, 9]),
            made("DescribeProducersRequest.topics", name="nowhere", partition_indexes=[0]),
        ]
        answer = await door.ask("DescribeProducers", 0, topics=asked)
        found = {(t.name, one.partition_index): one for t in answer.topics for one in t.partitions}
        assert {place: one.error_code for place, one in found.items()} == {
            ("t", 0): 0, ("t", 1): 0, ("t", 9): 3, ("nowhere", 0): 3,
        }  # fmt: skip
        (producer,) = found["t", 0].active_producers
        told = (producer.producer_id, producer.producer_epoch, producer.last_sequence, producer.last_timestamp)
        assert told == (40, 2, 9, T0 + 5)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
        assert found["t", 1].active_producers == []

    play(story)


def test_a_producer_is_told_with_its_open_transaction_and_the_newest_coordinator() -> None:
    async def story(door: Door) -> None:
        log = door.broker.log("t", 0)
        log.append_marker(MarkerToWrite(40, 3, commit=True, coordinator_epoch=6), T0)
        sent = encode_batch(
            [(T0 + 5, None, b"x", ())] * 2, producer_id=40, producer_epoch=3, base_sequence=0, transactional=True
        )
        log.append(sent, T0, guard=log.make_guard(40, 3))
        asked = [made("DescribeProducersRequest.topics", name="t", partition_indexes=[0])]
        ((producer,),) = [
            one.active_producers
            for topic in (await door.ask("DescribeProducers", 0, topics=asked)).topics
            for one in topic.partitions
        ]
        told = (producer.producer_epoch, producer.last_sequence, producer.coordinator_epoch)
        assert (*told, producer.current_txn_start_offset) == (3, 1, 6, 1)

    play(story)


@pytest.mark.parametrize("version", range(2))
def test_there_are_no_transactions_and_unknown_states_are_named(version: int) -> None:
    async def story(door: Door) -> None:
        asked = ["Ongoing", "bogus", "ongoing", "bogus"]
        answer = await door.ask("ListTransactions", version, state_filters=asked, producer_id_filters=[5, 1 << 40])
        assert (answer.error_code, answer.transaction_states) == (0, [])
        assert answer.unknown_state_filters == ["bogus", "ongoing"]

    play(story)


@pytest.mark.parametrize("version", range(3))
def test_a_node_on_its_own_has_nothing_to_elect(version: int) -> None:
    async def story(door: Door) -> None:
        path = "ElectLeadersRequest.topic_partitions"
        asked = [made(path, topic="t", partitions=[0, 9]), made(path, topic="nowhere", partitions=[0])]
        answer = await door.ask("ElectLeaders", version, topic_partitions=asked)
        told = {
            (t.topic, one.partition_id): one.error_code
            for t in answer.replica_election_results
            for one in t.partition_result
        }
        assert told == {("t", 0): 84, ("t", 9): 3, ("nowhere", 0): 3}
        every = await door.ask("ElectLeaders", version, topic_partitions=None)
        assert (every.error_code, every.replica_election_results) == (0, [])
        if version:
            assert (await door.ask("ElectLeaders", version, election_type=7, topic_partitions=None)).error_code == 42

    play(story)


@pytest.mark.parametrize("version", range(2))
def test_partitions_of_a_node_on_its_own_go_nowhere(version: int) -> None:
    async def story(door: Door) -> None:
        row, wanted = (made(f"AlterPartitionReassignmentsRequest.topics{of}") for of in (".partitions", ""))
        codes = []
        for partition, replicas in ((0, [NODE_ID]), (0, None), (0, []), (0, [2]), (0, [NODE_ID, NODE_ID]), (9, None)):
            row.partition_index, row.replicas = partition, replicas
            wanted.name, wanted.partitions = "t", [row]
            answer = await door.ask("AlterPartitionReassignments", version, topics=[wanted])
            codes.append(answer.responses[0].partitions[0].error_code)
        assert codes == [0, 85, 39, 39, 39, 3]
        assert (await door.ask("ListPartitionReassignments", 0, topics=None)).topics == []

    play(story)


@pytest.mark.parametrize("version", range(7, 11))
def test_what_is_tiered_is_asked_from_kafkas_version_on(version: int) -> None:
    async def story(door: Door) -> None:
        door.broker.append("t", 0, encode_batch([(T0, None, b"x", ())] * 3), T0)
        door.broker.flush()
        door.broker.delete_records("t", 0, 2)
        local = await list_offset(door, version, EARLIEST_LOCAL)
        tiered = await list_offset(door, version, LATEST_TIERED)
        assert (local.error_code, local.offset, local.timestamp) == ((0, 2, -1) if version >= 8 else (35, -1, -1))
        assert (tiered.error_code, tiered.offset, tiered.leader_epoch) == (0 if version >= 9 else 35, -1, -1)
        assert (await list_offset(door, version, -6)).error_code == 35

    play(story)
