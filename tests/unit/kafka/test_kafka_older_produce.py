"""Produce 0 to 2, for producers from before Kafka 0.11, and producers that hang up once their records are sent."""

import asyncio
import gzip
from typing import Any

import pytest

from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka.protocol import APIS, FIRST_VERSIONS_OF_TODAY, without_old_clients
from muster.storage.records.batch import decode_records, read_batches
from tests.support.kafka.door import Door, play
from tests.support.kafka.listener import HeldHandlers, client, listening
from tests.support.kafka.memory_node import until
from tests.unit.kafka.test_kafka_log_records import produce
from tests.unit.storage.test_message_conversion import message

OLDER = range(3)


def said(version: int, *values: bytes) -> bytes:
    magic = int(version == 2)
    return b"".join(message(magic, value, offset=number) for number, value in enumerate(values))


def records_of(door: Door, partition: int = 0) -> list[Any]:
    data = door.broker.log("t", partition).fetch(0, 1 << 20).records
    return [record for each in read_batches(data) for record in decode_records(each.data, each.base_offset)]


@pytest.mark.parametrize("version", OLDER)
def test_messages_become_batches_of_today(version: int) -> None:
    async def story(door: Door) -> None:
        one, two = await produce(door, version, ("t", 0, said(version, b"a", b"b")), ("t", 1, said(version, b"c")))
        assert (one.error_code, one.base_offset, two.error_code, two.base_offset) == (0, 0, 0, 0)
        (again,) = await produce(door, version, ("t", 0, said(version, b"d")))
        assert again.base_offset == 2
        found = records_of(door)
        assert [(each.offset, each.value) for each in found] == [(0, b"a"), (1, b"b"), (2, b"d")]
        assert {each.timestamp_ms for each in found} == {5 if version == 2 else -1}

    play(story)


@pytest.mark.parametrize("version", OLDER)
def test_what_cannot_be_converted_is_refused_for_itself(version: int) -> None:
    async def story(door: Door) -> None:
        packed = message(int(version == 2), gzip.compress(said(version, b"x", b"y")), attributes=1, offset=1)
        cut = said(version, b"c")[:-1]
        parts = [("t", 0, cut), ("t", 1, packed), ("none", 0, said(version, b"d")), ("t", 2, said(version, b"e"))]
        answers = await produce(door, version, *parts)
        assert [each.error_code for each in answers] == [2, 0, 0 if door.broker.topics().get("none") else 3, 0]
        assert [each.value for each in records_of(door, 1)] == [b"x", b"y"]
        assert [each.value for each in records_of(door, 2)] == [b"e"]

    play(story)


def test_no_message_of_a_compacted_topic_is_without_a_key() -> None:
    async def story(door: Door) -> None:
        (refused,) = await produce(door, 1, ("t", 0, said(1, b"a")))
        assert refused.error_code == 87
        assert records_of(door) == []

    play(story, log__cleanup__policy="compact")


def test_without_old_clients_nothing_is_served_that_kafka_4_refuses() -> None:
    today = {api.name: api.first for api in without_old_clients(APIS)}
    assert {name: today[name] for name in FIRST_VERSIONS_OF_TODAY} == FIRST_VERSIONS_OF_TODAY
    assert all(api.first == 0 for api in APIS if api.name in FIRST_VERSIONS_OF_TODAY)


# Producers that hang up
# ----------------------


def test_records_of_a_client_that_has_hung_up_are_appended_in_order() -> None:
    """With acks=0 nothing tells a producer when it may close, so what came before its end counts, as in Kafka."""

    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port):
            async with client(port) as connection:
                for _ in range(3):
                    connection.send("Produce", 2, acks=0, timeout_ms=1, topic_data=[])
                connection.send(
                    "JoinGroup", 7, group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, protocols=[]
                )
                await handlers.until_begun(1)
            for number in range(3):
                await handlers.until_begun(number + 1)
                assert listener.connections == 1, "it counts until its records are appended"
                handlers.answer_nothing(number)
            await until(lambda: listener.connections == 0)
            assert [name for name, _, _ in handlers.begun] == ["produce"] * 3
            assert not handlers.cancelled

    asyncio.run(story())


def test_what_waits_behind_refused_records_of_a_client_that_has_hung_up_is_dropped() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port):
            async with client(port) as connection:
                connection.send("Produce", 2, acks=0, timeout_ms=1, topic_data=[])
                connection.send("Produce", 2, acks=0, timeout_ms=1, topic_data=[])
                await handlers.until_begun(1)
            handlers.fail(0, HangUp("refused"))
            await until(lambda: listener.connections == 0)
            assert len(handlers.begun) == 1

    asyncio.run(story())
