"""Nodes that keep groups in somebody's Kafka have no records: who says so, what is asked of it, and what it is told."""

import asyncio
import builtins
from collections.abc import Callable
from typing import Any

import pytest

from muster.client.calls.leaders import ONE_NODE
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, ProducerConfig, load
from muster.client.errors import ClientError, ConfigError
from muster.client.records import kafka_records as room
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.records.kafka_records import (
    KafkaPoll,
    consumer_properties,
    load_confluent_kafka,
    producer_properties,
)
from muster.client.types import TopicPartition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

PLACE = TopicPartition("orders", 0)
KAFKA = "b1:9092,b2:9092"


def told(bootstrap: str = KAFKA) -> pb.MetadataResponse:
    """What a node over a Kafka says of itself."""
    node = pb.NodeMetadata(node_id=1, host="node", port=1, records="kafka", records_bootstrap=bootstrap)
    return pb.MetadataResponse(controller_id=1, brokers=[node])


def refused() -> pb.FetchResponse:
    part = pb.FetchPartitionResult(partition_index=0, error_code=pb.ErrorCode.Value("ERROR_CODE_UNSUPPORTED_VERSION"))
    return pb.FetchResponse(responses=[pb.FetchTopicResult(topic="orders", partitions=[part])])


def test_credentials_come_by_their_own_names_and_the_place_by_the_nodes_word_or_by_ones_own() -> None:
    given = {"records.security.protocol": "SASL_SSL", "records.sasl.mechanism": "PLAIN", "records.sasl.password": "x"}
    made = consumer_properties(load(ConsumerConfig, given, {"group_id": "g"}), KAFKA)
    assert [made[name] for name in ("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.password")] == [
        KAFKA, "SASL_SSL", "PLAIN", "x",
    ]  # fmt: skip
    assert (made["enable.auto.commit"], "ssl.ca.location" in made) == (False, False)
    elsewhere = load(ProducerConfig, {"records.bootstrap.servers": "other:1", "acks": "1"}, {})
    made = producer_properties(elsewhere, KAFKA)
    assert (made["bootstrap.servers"], made["acks"], made["enable.idempotence"]) == ("other:1", "1", False)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(ConfigError) as refusal:
        load(ConsumerConfig, {"records.sasl.password": ""}, {})
    assert "records.sasl.password=..." in str(refusal.value)
    assert "secret" not in repr(load(ProducerConfig, {"records.sasl.password": "secret"}, {}))


def test_what_is_missing_is_said_with_the_place_and_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **given: Any) -> Any:
        if name == "confluent_kafka":
            raise ImportError(name)
        return real(name, *more, **given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ClientError, match=r"b1:9092,b2:9092, and confluent-kafka.* pip install 'muster-groups\[kafka\]'"
    ):
        load_confluent_kafka(KAFKA)


class Idle:
    """In place of the thread's portions."""

    made: "list[Idle]"

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.changes = 0
        self.task = asyncio.create_task(asyncio.sleep(3600))
        Idle.made.append(self)

    def changed(self) -> None:
        self.changes += 1

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_a_refused_fetch_asks_who_has_the_records_once_and_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        Idle.made = []
        monkeypatch.setattr(room, "KafkaPoll", Idle)
        transport = Transport(load(ConsumerConfig, {"bootstrap.servers": "127.0.0.1:1"}, {}))
        looked: list[Any] = []
        monkeypatch.setattr(transport.leaders, "refresh_leaders", lambda places: looked.append(list(places)))
        fetcher = ConsumerFetcher(transport, transport.config, lambda: None)  # type: ignore[arg-type]
        fetcher.add([PLACE])
        state = fetcher.states[PLACE]
        state.move_to(0)
        fetcher.start()
        assert not fetcher.take_in([state], refused())
        assert (looked, fetcher.failure, Idle.made) == ([[PLACE]], None, [])
        transport.leaders.learn(told())
        [poll] = Idle.made
        assert (poll.given[2], list(fetcher._polls)) == (KAFKA, [ONE_NODE])
        fetcher.changed()
        assert (len(Idle.made), poll.changes) == (1, 2)
        fetcher.take_in([state], refused())
        assert "UNSUPPORTED_VERSION" in str(fetcher.failure)
        await fetcher.stop()

    asyncio.run(story())


class Portions:
    """A fetcher, and a poll whose thread never runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
        async def nothing(self: KafkaPoll) -> None: ...

        monkeypatch.setattr(KafkaPoll, "_run", nothing)
        config = load(ConsumerConfig, {"bootstrap.servers": "127.0.0.1:1"}, given)
        self.fetcher = ConsumerFetcher(Transport(config), config, lambda: None)
        self.poll = KafkaPoll(self.fetcher, config, KAFKA)
        self.fetcher.add([PLACE])
        self.state = self.fetcher.states[PLACE]

    def brings(self, *offsets: int) -> None:
        self.poll._sort([Portion(offset) for offset in offsets])
        self.poll._hand_out()

    def reads(self) -> list[int]:
        self.fetcher.refill(100)
        found = [entry.message.offset for entry in self.fetcher.ready if entry.epoch == self.state.epoch]
        self.fetcher.ready.clear()
        return found


class Portion:
    """A record of confluent-kafka's."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.partition

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 7

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v" * 10

    def headers(self) -> None:
        return None


def play(story: Callable[[Portions], None], monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    async def run() -> None:
        portions = Portions(monkeypatch, **given)
        story(portions)
        await portions.poll.stop()

    asyncio.run(run())


def test_portions_wait_for_each_other_and_those_before_a_seek_are_void(monkeypatch: pytest.MonkeyPatch) -> None:
    def story(portions: Portions) -> None:
        portions.state.move_to(0)
        assert portions.poll._compare_reads() == ([], [(PLACE, 0)])
        portions.brings(0, 1)
        portions.brings(2)
        assert portions.reads() == [0, 1]
        portions.poll._hand_out()
        assert portions.reads() == [2]
        portions.brings(3)
        portions.brings(4)
        portions.state.move_to(100)
        assert portions.poll._compare_reads() == ([PLACE], [(PLACE, 100)])
        portions.poll._hand_out()
        assert portions.reads() == []
        portions.state.paused = True
        assert portions.poll._compare_reads() == ([PLACE], [])
        portions.brings(101)
        assert portions.reads() == []

    play(story, monkeypatch)


def test_nothing_more_is_asked_for_while_enough_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def story(portions: Portions) -> None:
        portions.state.move_to(0)
        portions.poll._compare_reads()
        portions.brings(0, 1)
        assert not portions.poll._is_full()
        portions.brings(*range(2, 12))
        assert portions.poll._is_full()

    play(story, monkeypatch, fetch_max_bytes=100)
