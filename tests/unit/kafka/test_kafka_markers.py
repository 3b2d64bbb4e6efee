"""WriteTxnMarkers of clients: the tool against a transaction that no coordinator will end."""

from typing import Any

import pytest

from muster.coordinator.config import Settings
from tests.support.kafka.door import Door, made, play
from tests.unit.kafka.test_kafka_transactions import ADDED, add, begin, committed, ended, send
from tests.unit.storage.logs import T0, batch

NODE = Settings(transaction_state_log_num_partitions=3)
PATH = "WriteTxnMarkersRequest.markers"


async def mark(
    door: Door,
    who: tuple[int, int],
    *places: tuple[str, int],
    commit: bool = False,
    coordinator: int = 0,
    version: int = 1,
    **more: Any,
) -> list[int]:
    """The codes, one per partition, in order."""
    topics = [made(f"{PATH}.topics", name=name, partition_indexes=[number]) for name, number in places]
    marker = made(
        PATH,
        producer_id=who[0],
        producer_epoch=who[1],
        transaction_result=commit,
        coordinator_epoch=coordinator,
        topics=topics,
        **more,
    )
    answer = await door.ask("WriteTxnMarkers", version, markers=[marker])
    (told,) = answer.markers
    assert told.producer_id == who[0]
    assert [(topic.name, part.partition_index) for topic in told.topics for part in topic.partitions] == list(places)
    return [part.error_code for topic in told.topics for part in topic.partitions]


def hang(door: Door, who: tuple[int, int], *texts: bytes) -> None:
    """Leave a transaction open in the first partition that no coordinator knows."""
    log = door.broker.log("t", 0)
    sent = batch(*texts, producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True)
    log.append(sent, T0, guard=log.make_guard(*who))
    door.broker.flush()


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_is_aborted_and_readers_go_on(version: int) -> None:
    async def story(door: Door) -> None:
        hang(door, (4711, 3), b"lost")
        door.broker.append("t", 0, batch(b"kept"), T0)
        assert await committed(door) == []
        assert await mark(door, (4711, 3), ("t", 0), version=version) == [0]
        assert await committed(door) == [b"kept"]

    play(story, transactions=NODE)


def test_what_cannot_be_written_is_told_partition_by_partition() -> None:
    async def story(door: Door) -> None:
        hang(door, (4711, 3), b"lost")
        places = ("nowhere", 0), ("t", 9), ("t", 0)
        assert await mark(door, (4711, 2), *places) == [3, 3, 47]
        assert door.broker.log("t", 0).open_transactions() != []
        assert await mark(door, (4711, 3), *places) == [3, 3, 0]
        assert door.broker.log("t", 0).open_transactions() == []

    play(story, transactions=NODE)


def test_a_coordinator_epoch_that_nobody_has_had_yet_is_refused() -> None:
    """Its marker would keep the true coordinator out of this partition."""

    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, ADDED[0]) == [0]
        assert await send(door, who, b"a") == 0
        assert await mark(door, who, ADDED[0], coordinator=1) == [42]
        assert await mark(door, who, ("nowhere", 0), coordinator=7) == [42]
        await ended(door, who)
        assert await committed(door) == [b"a"]

    play(story, transactions=NODE)


def test_a_coordinator_that_was_replaced_is_told() -> None:
    async def story(door: Door) -> None:
        assert await mark(door, (4711, 3), ("t", 0), coordinator=0) == [0]
        assert await mark(door, (4711, 3), ("t", 0), coordinator=-1) == [52]

    play(story, transactions=NODE)


def test_a_marker_of_level_two_needs_a_later_epoch() -> None:
    async def story(door: Door) -> None:
        hang(door, (4711, 3), b"lost")
        assert await mark(door, (4711, 3), ("t", 0), version=2, transaction_version=2) == [47]
        assert await mark(door, (4711, 4), ("t", 0), version=2, transaction_version=2) == [0]

    play(story, transactions=NODE)


def test_what_is_aborted_by_hand_is_missing_from_a_transaction_that_commits() -> None:
    """As in Kafka: whoever aborts what does not hang tears it."""

    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, *ADDED) == [0, 0]
        assert await send(door, who, b"a") == 0
        assert await send(door, who, b"b", place=ADDED[1]) == 0
        assert await mark(door, who, ADDED[0]) == [0]
        await ended(door, who)
        assert await committed(door) == []
        assert door.broker.log(*ADDED[1]).last_stable_offset == 2

    play(story, transactions=NODE)


def test_markers_for_positions_go_through_the_groups() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        added = await door.ask(
            "AddOffsetsToTxn",
            3,
            transactional_id="app",
            producer_id=who[0],
            producer_epoch=who[1],
            group_id="g",
        )
        assert added.error_code == 0
        part = made("TxnOffsetCommitRequest.topics.partitions", partition_index=0, committed_offset=7)
        sent = await door.ask(
            "TxnOffsetCommit",
            3,
            transactional_id="app",
            group_id="g",
            producer_id=who[0],
            producer_epoch=who[1],
            topics=[made("TxnOffsetCommitRequest.topics", name="t", partitions=[part])],
        )
        assert [part.error_code for topic in sent.topics for part in topic.partitions] == [0]
        state = door.driver.shard.state
        assert state.offsets.get("g", {}) == {}
        assert await mark(door, who, ("__consumer_offsets", 0), ("__consumer_offsets", 9), commit=True) == [0, 3]
        assert {place: stored.offset for place, stored in state.offsets["g"].items()} == {("t", 0): 7}

    play(story, transactions=NODE)


def test_other_topics_of_the_node_take_no_markers() -> None:
    async def story(door: Door) -> None:
        await begin(door)
        assert await mark(door, (4711, 3), ("__transaction_state", 0)) == [17]
        assert door.broker.end_offset("__transaction_state", 0) <= 1

    play(story, transactions=NODE)
