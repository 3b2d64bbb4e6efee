"""AddPartitionsToTxn from version 4 on: nodes ask about several transactions, or have partitions added to them."""

from typing import Any

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.handlers.transaction_batches import make_markers_response, read_markers
from muster.storage.logs.producer_state import MarkerToWrite
from tests.support.kafka.door import Door, made, play
from tests.unit.kafka.test_kafka_transactions import ADDED, add, begin, end

NODE = Settings(transaction_state_log_num_partitions=3)
T0, T1, UNKNOWN = ("t", 0), ("t", 1), ("nowhere", 0)


def transaction(name: str, who: tuple[int, int], *places: tuple[str, int], verify_only: bool = True) -> Any:
    path = "AddPartitionsToTxnRequest.transactions"
    return made(
        path,
        transactional_id=name,
        producer_id=who[0],
        producer_epoch=who[1],
        verify_only=verify_only,
        topics=[made(f"{path}.topics", name=topic, partitions=[number]) for topic, number in places],
    )


async def ask(door: Door, *transactions: Any, version: int = 5) -> list[tuple[str, list[int]]]:
    """Each transactional id, and the codes of its partitions."""
    answer = await door.ask("AddPartitionsToTxn", version, transactions=list(transactions))
    assert answer.error_code == 0
    return [
        (
            each.transactional_id,
            [part.partition_error_code for topic in each.topic_results for part in topic.results_by_partition],
        )
        for each in answer.results_by_transaction
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_each_transaction_of_a_request_is_verified_by_itself(version: int) -> None:
    async def story(door: Door) -> None:
        first, second = await begin(door), await begin(door, "other")
        assert await add(door, first, T0) == [0]
        assert await add(door, second, T1, name="other") == [0]
        asked = [transaction("app", first, T0, T1), transaction("other", second, T1), transaction("none", first, T0)]
        assert await ask(door, *asked, version=version) == [("app", [0, 120]), ("other", [0]), ("none", [49])]

    play(story, transactions=NODE)


def test_a_verification_looks_at_the_producer_then_at_the_epoch_then_at_the_state() -> None:
    async def story(door: Door) -> None:
        producer, epoch = await begin(door)
        assert await add(door, (producer, epoch), T0) == [0]
        for who, code in {(producer + 1, epoch): 49, (producer, epoch + 1): 90, (producer, epoch): 0}.items():
            assert await ask(door, transaction("app", who, T0)) == [("app", [code])]
        assert await end(door, (producer, epoch)) == 0
        assert await ask(door, transaction("app", (producer + 1, epoch), T0)) == [("app", [49])]
        while (code := await end(door, (producer, epoch))) == 51:
            pass
        assert code == 0
        assert await ask(door, transaction("app", (producer, epoch), T0)) == [("app", [120])]

    play(story, transactions=NODE)


def test_a_verification_adds_nothing_and_the_addition_of_a_node_begins_a_transaction_of_level_2() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await ask(door, transaction("app", who, T0)) == [("app", [120])]
        assert await ask(door, transaction("app", who, T0, verify_only=False)) == [("app", [0])]
        assert await ask(door, transaction("app", who, T0, T1)) == [("app", [0, 120])]
        assert await end(door, who, version=5) == 0

    play(story, transactions=NODE)


def test_one_unknown_partition_keeps_those_of_its_transaction_out_and_no_others() -> None:
    async def story(door: Door) -> None:
        first, second = await begin(door), await begin(door, "other")
        asked = [
            transaction("app", first, T0, UNKNOWN, verify_only=False),
            transaction("other", second, T1, verify_only=False),
        ]
        assert await ask(door, *asked) == [("app", [55, 3]), ("other", [0])]
        assert await ask(door, transaction("app", first, T0)) == [("app", [120])]

    play(story, transactions=NODE)


def test_hundreds_of_transactions_are_answered_in_their_order() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, *ADDED) == [0, 0]
        asked = [transaction("app" if number == 217 else f"none-{number}", who, T0) for number in range(300)]
        answers = await ask(door, *asked)
        assert [name for name, _ in answers] == [each.transactional_id for each in asked]
        assert [codes for _, codes in answers if codes != [49]] == [[0]]

    play(story, transactions=NODE)


def test_markers_of_version_1_are_of_level_0() -> None:
    path = "WriteTxnMarkersRequest.markers"
    topics = [struct(f"{path}.topics")(name="t", partition_indexes=[0, 1])]
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": 5, "topics": topics}
    old = struct(path)(transaction_result=True, **fields)
    new = struct(path)(transaction_result=False, transaction_version=2, **fields)
    assert read_markers(struct("WriteTxnMarkersRequest")(markers=[old, new])) == [
        (MarkerToWrite(7, 3, True, 5, 0), (T0, T1)),
        (MarkerToWrite(7, 3, False, 5, 2), (T0, T1)),
    ]


def test_what_became_of_markers_is_told_by_producer_and_topic() -> None:
    answer = make_markers_response([(7, {T0: 0, ("u", 4): 3, T1: 47}), (8, {})])
    assert [
        (
            each.producer_id,
            [
                (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
                for topic in each.topics
            ],
        )
        for each in answer.markers
    ] == [(7, [("t", [(0, 0), (1, 47)]), ("u", [(4, 3)])]), (8, [])]
