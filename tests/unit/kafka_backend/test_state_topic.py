"""Whether the state topic is the one it was: what a node asks before it starts (KB-H1)."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend import state_topic
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import UpstreamTopic
from muster.coordinator.kafka_backend.state_topic import StateTopicSpec, UnusableUpstream, id_text, prepare_state_topic
from muster.coordinator.kafka_backend.state_topic import StateTopicWatch as Looks
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker
from tests.support.kafka.memory_node import until

SHARDS = 2
WANTED = StateTopicSpec("muster.state", SHARDS, 3, 1_000_000)
ANY = "muster.shard-topic.muster.state"
THIS = f"{ANY}.{id_text(b'muster.state'.ljust(16, bytes(1)))}"


def started(
    change: Callable[[StateTopic, UpstreamBroker], object], wanted: StateTopicSpec = WANTED, *, exists: bool = True
) -> StateTopic:
    async def whole() -> StateTopic:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", SHARDS, exists=exists)
            change(topic, broker)
            upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=5))
            try:
                await prepare_state_topic(upstream, wanted)
            finally:
                upstream.close()
            return topic

    return asyncio.run(whole())


def remembers(*names: str) -> Callable[[StateTopic, UpstreamBroker], None]:
    return lambda topic, broker: topic.remembers(*names)


def test_a_topic_that_was_there_is_not_made_anew() -> None:
    with pytest.raises(UnusableUpstream, match=r"the state topic muster\.state is not there, and it was"):
        started(remembers(ANY), exists=False)


def test_a_topic_that_is_another_one_is_not_taken() -> None:
    with pytest.raises(UnusableUpstream, match=r"the state topic muster\.state \(id .*\) is not the one it was"):
        started(remembers(ANY, f"{THIS[:-3]}zzz.{SHARDS}"))
    started(remembers(ANY, f"{THIS}.{SHARDS}"))
    started(remembers(f"{THIS}.{SHARDS}"))


def test_a_topic_that_has_grown_is_taken_where_an_operator_has_said_so() -> None:
    less = WANTED._replace(partitions=SHARDS - 1)
    with pytest.raises(UnusableUpstream, match="`muster engine init --again` leaves those unused"):
        started(remembers(ANY, f"{THIS}.{SHARDS - 1}"), less)
    started(remembers(ANY, f"{THIS}.{SHARDS}"), less)
    with pytest.raises(UnusableUpstream, match=f"has {SHARDS} partitions and every group's place depends on it"):
        started(remembers(ANY, f"{THIS}.{SHARDS}"), WANTED._replace(partitions=SHARDS + 1))


def test_an_upstream_that_cannot_be_asked_has_no_topic_before() -> None:
    """Older than 3.0 (KIP-664)."""

    def old(topic: StateTopic, broker: UpstreamBroker) -> None:
        topic.remembers(ANY)
        del broker.offers[65]

    assert len(started(old, exists=False).made) == 1


def test_while_transactional_ids_have_no_coordinator_a_topic_that_is_there_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_topic, "PATIENCE_S", 0.0)
    codes: list[int] = []

    def away(topic: StateTopic, broker: UpstreamBroker) -> None:
        def find(request: Any) -> Any:
            codes.append(15)
            return struct("FindCoordinatorResponse")(error_code=15)

        broker.answers["FindCoordinator"] = find

    started(away)
    assert codes
    monkeypatch.setattr(state_topic, "FIRST_S", 0.0)
    with pytest.raises(UpstreamError, match="COORDINATOR_NOT_AVAILABLE"):
        started(away, exists=False)


def test_that_it_cannot_be_remembered_for_want_of_a_right_is_said_once() -> None:
    """It went without a word: the node that started after the topic was deleted made it anew, empty."""
    asked: list[Any] = []

    def refuse(request: Any) -> Any:
        asked.append(request)
        return struct("InitProducerIdResponse")(error_code=53)

    async def story() -> None:
        async with UpstreamBroker() as broker:
            StateTopic(broker, "muster.state", SHARDS)
            upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=5))
            broker.answers["InitProducerId"] = refuse
            topics: Any = SimpleNamespace(
                topic=lambda name: UpstreamTopic(b"muster.state".ljust(16, b"\0"), SHARDS),
                on_change=lambda changed: None,
            )
            looks = Looks(upstream, topics, WANTED, tell=print, now_ms=lambda: 0, refresh_ms=1, mark_ms=1_000)
            looks.start()
            await until(lambda: len(asked) > 3)
            await looks.stop()
            upstream.close()

    with capture_logs() as logged:
        asyncio.run(story())
    (line,) = logged
    assert "`muster engine acls` prints" in line["event"]
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)" in line["why"]
