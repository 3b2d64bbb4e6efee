"""The upstream's topics where a node on its own has its log: what a change of them means for what is known."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

from muster.coordinator.config import load_settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.server.kafka_backend.upstream_logs import RecordsKeptInKafka, UpstreamLog, UpstreamRequests
from muster.storage.broker.requests import MorePartitions, NewTopic
from muster.storage.errors import InvalidReplicationFactor, UnknownTopicOrPartition
from muster.storage.types import Topic


class Told:
    """`Topics`, as far as it is asked."""

    internal = frozenset({"muster.state"})

    def __init__(self) -> None:
        self.counts = {"orders": 2, "muster.state": 8}
        self.listeners: list[Callable[[TopicsChanged], None]] = []

    def partitions(self) -> dict[str, int]:
        return self.counts

    def ids(self) -> dict[str, bytes]:
        return {"orders": b"o" * 16}

    def on_change(self, listener: Callable[[TopicsChanged], None]) -> None:
        self.listeners.append(listener)


def test_t5_where_a_topics_logs_ended_is_forgotten_with_it() -> None:
    """What is made anew under its name has other ends: with the old ones every lag would be wrong."""
    told, forgotten = Told(), list[str]()

    def forget(topics: Iterable[str]) -> None:
        forgotten.extend(topics)

    ends = SimpleNamespace(forget=forget, ahead=None)
    logs = UpstreamLog(load_settings(None, {"engine": "kafka://b:9092"}), "id", cast(Any, told), cast(Any, ends))
    heard: list[set[str]] = []
    logs.on_topics_changed(lambda: heard.append(set(logs.topics())))
    told.counts = {"shop": 1, "muster.state": 8}
    for listener in told.listeners:
        listener(TopicsChanged(told.counts, ("orders",)))
    assert (forgotten, heard) == (["orders"], [{"shop", "muster.state"}])
    assert [topic.name for topic in logs.topics().values() if topic.internal] == ["muster.state"]


def test_changes_of_topics_are_refused_one_by_one_and_what_is_wrong_with_one_is_said_first() -> None:
    ends = SimpleNamespace(forget=lambda topics: None, ahead=None)
    logs = UpstreamLog(load_settings(None, {"engine": "kafka://b:9092"}), "id", cast(Any, Told()), cast(Any, ends))
    topics = UpstreamRequests(logs).topics
    three = [NewTopic("a", 1), NewTopic("b", 1, replication_factor=3)]
    answers = [
        *asyncio.run(topics.create(three)),
        *asyncio.run(topics.grow([MorePartitions("orders", 4)])),
        *asyncio.run(topics.change([("orders", {"retention.ms": "1"})])),
        *asyncio.run(topics.delete([logs.topic("orders"), Topic("gone", b"", 1, {}, False)])),
    ]
    refused = RecordsKeptInKafka
    assert [type(each) for each in answers] == [
        *(refused, InvalidReplicationFactor),
        refused,
        refused,
        *(refused, UnknownTopicOrPartition),
    ]
    assert str(answers[0]).startswith("Topics are made, changed and removed in the Kafka cluster at b:9092")
