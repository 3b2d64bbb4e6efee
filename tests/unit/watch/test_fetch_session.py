"""A fetch session asks for what has moved on and hears of what is new, whatever the broker does about it (KIP-227)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.protocol import Unreached, UpstreamAddress, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.watch.fetch_session import (
    LAST_EPOCH,
    NO_MORE,
    NOT_FOUND,
    WRONG_EPOCH,
    FetchPlace,
    TopicFetchSession,
)
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker
from tests.fakes.upstream_catalog import Told, UpstreamCatalog

TOPIC = "__consumer_offsets"


def places(wanted: dict[int, int]) -> dict[int, FetchPlace]:
    return {number: FetchPlace(offset) for number, offset in wanted.items()}


class SessionBroker:
    """A broker that keeps one fetch session as Kafka does. ends: of each partition, where its log ends."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.broker = broker
        UpstreamCatalog({1: broker}).all_know(**{TOPIC: Told(b"one", 3)})
        broker.answers["Fetch"] = self._fetch
        self.ends = {0: 5, 1: 0, 2: 0}
        self.codes: list[int] = []
        """What the next requests are refused with."""
        self.keeps = True
        self.away = False
        self.session_id = self.epoch = 0
        self.offsets: dict[int, int] = {}
        self.said: dict[int, int] = {}
        self.upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=30))
        self.session = TopicFetchSession(self.upstream, 1, TOPIC)

    def _fetch(self, request: Any) -> Any:
        if self.away:
            return HANG_UP
        if self.codes:
            return struct("FetchResponse")(error_code=self.codes.pop(0))
        named = {part.partition: part.fetch_offset for topic in request.topics for part in topic.partitions}
        if request.session_epoch == 0:
            self.session_id, self.epoch = (self.session_id + 1 if self.keeps else 0), 0
            self.offsets, self.said = {}, {}
        elif request.session_epoch == NO_MORE:
            return struct("FetchResponse")()
        elif request.session_id != self.session_id:
            return struct("FetchResponse")(error_code=NOT_FOUND)
        elif request.session_epoch != self.epoch:
            return struct("FetchResponse")(error_code=WRONG_EPOCH)
        self.offsets |= named
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                del self.offsets[partition]
        self.epoch += 1
        parts = [
            struct("FetchResponse.responses.partitions")(
                partition_index=number, high_watermark=end, records=b"new" if offset < end else b""
            )
            for number, offset in self.offsets.items()
            if offset < (end := self.ends[number]) or self.said.get(number) != end
        ]
        self.said |= {each.partition_index: each.high_watermark for each in parts}
        told = [struct("FetchResponse.responses")(topic=TOPIC, partitions=parts)] if parts else []
        return struct("FetchResponse")(session_id=self.session_id, responses=told)

    async def heard(self, wanted: dict[int, int]) -> dict[int, tuple[int, bytes]]:
        """By partition, where it ends and what came."""
        return {
            number: (each.high_watermark, each.records or b"")
            for number, each in (await self.session.fetch(places(wanted))).items()
        }

    @property
    def named(self) -> list[dict[int, int]]:
        """What each request named."""
        return [
            {part.partition: part.fetch_offset for topic in request.topics for part in topic.partitions}
            for request in self.broker.of("Fetch")
        ]


def run(story: Callable[[SessionBroker], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            scene = SessionBroker(broker)
            await scene.upstream.refresh([TOPIC])
            try:
                await story(scene)
            finally:
                scene.upstream.close()

    asyncio.run(whole())


def test_only_what_has_moved_on_is_named_and_what_has_nothing_new_is_told_all_the_same() -> None:
    async def story(scene: SessionBroker) -> None:
        assert await scene.heard({0: 0, 1: 0}) == {0: (5, b"new"), 1: (0, b"")}
        assert await scene.heard({0: 5, 1: 0}) == {0: (5, b""), 1: (0, b"")}
        scene.ends[1] = 2
        assert await scene.heard({0: 5, 1: 0}) == {0: (5, b""), 1: (2, b"new")}
        assert await scene.heard({0: 5, 1: 2}) == {0: (5, b""), 1: (2, b"")}
        assert scene.named == [{0: 0, 1: 0}, {0: 5}, {}, {1: 2}]

    run(story)


def test_a_place_of_another_leader_epoch_is_named_again() -> None:
    async def story(scene: SessionBroker) -> None:
        for epoch in (3, 3, 4):
            await scene.session.fetch({0: FetchPlace(5, epoch), 1: FetchPlace(0)})
        epochs = [
            {part.partition: part.last_fetched_epoch for topic in request.topics for part in topic.partitions}
            for request in scene.broker.of("Fetch")
        ]
        assert epochs == [{0: 3, 1: -1}, {}, {0: 4}]

    run(story)


def test_partitions_come_and_go() -> None:
    async def story(scene: SessionBroker) -> None:
        await scene.heard({0: 5, 1: 0})
        assert await scene.heard({1: 0, 2: 0}) == {1: (0, b""), 2: (0, b"")}
        scene.ends[0] = 9
        assert await scene.heard({1: 0, 2: 0}) == {1: (0, b""), 2: (0, b"")}
        assert scene.named == [{0: 5, 1: 0}, {2: 0}, {}]

    run(story)


@pytest.mark.parametrize("code", [NOT_FOUND, WRONG_EPOCH])
def test_a_broker_that_has_forgotten_it_is_asked_for_everything_at_once(code: int) -> None:
    async def story(scene: SessionBroker) -> None:
        await scene.heard({0: 5, 1: 0})
        scene.codes = [code]
        scene.ends[1] = 1
        assert await scene.heard({0: 5, 1: 0}) == {0: (5, b""), 1: (1, b"new")}
        assert scene.named[1:] == [{}, {0: 5, 1: 0}]

    run(story)


def test_a_broker_that_cannot_keep_one_is_asked_for_everything_each_time() -> None:
    async def story(scene: SessionBroker) -> None:
        scene.keeps = False
        for _ in range(2):
            assert await scene.heard({0: 0, 1: 0}) == {0: (5, b"new"), 1: (0, b"")}
        assert scene.named == [{0: 0, 1: 0}] * 2
        assert [each.session_epoch for each in scene.broker.of("Fetch")] == [0, 0]

    run(story)


def test_after_a_lost_answer_everything_is_named_in_place_of_the_old_session() -> None:
    async def story(scene: SessionBroker) -> None:
        await scene.heard({0: 5, 1: 0})
        scene.away = True
        with pytest.raises(Unreached):
            await scene.heard({0: 5, 1: 0})
        scene.away = False
        await scene.heard({0: 5, 1: 0})
        last = scene.broker.of("Fetch")[-1]
        assert (last.session_id, last.session_epoch) == (1, 0)
        assert scene.named[-1] == {0: 5, 1: 0}

    run(story)


def test_the_broker_may_forget_one_that_is_closed() -> None:
    async def story(scene: SessionBroker) -> None:
        await scene.session.close()
        assert scene.named == [], "there is none yet"
        await scene.heard({0: 5, 1: 0})
        await scene.session.close()
        last = scene.broker.of("Fetch")[-1]
        assert (last.session_id, last.session_epoch, scene.named[-1]) == (1, -1, {})
        await scene.heard({0: 5, 1: 0})
        assert scene.named[-1] == {0: 5, 1: 0}

    run(story)


def test_another_refusal_is_an_error() -> None:
    async def story(scene: SessionBroker) -> None:
        scene.codes = [29]
        with pytest.raises(UpstreamRefused, match="fetching"):
            await scene.heard({0: 5})

    run(story)


def test_epochs_begin_again_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: SessionBroker) -> None:
        await scene.heard({0: 5})
        scene.session._epoch = scene.epoch = LAST_EPOCH
        await scene.heard({0: 5})
        scene.epoch = 1
        await scene.heard({0: 5})
        assert [each.session_epoch for each in scene.broker.of("Fetch")] == [0, LAST_EPOCH, 1]

    run(story)
