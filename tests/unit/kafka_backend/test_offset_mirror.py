"""KB-M4: what is committed upstream, how often, and what a refusal costs."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from muster.assignors.api import TopicPartition
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.offset_migration import LEFT_ALONE_MS, GroupAway, OffsetMirror
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker, metadata

INTERVAL_MS = 5_000


class Scene:
    """A mirror over one fake broker. kept: what counts here; codes: what the upstream says of a topic."""

    def __init__(self, upstream: Upstream, broker: UpstreamBroker) -> None:
        self.broker = broker
        self.now = 10_000
        self.kept: dict[str, dict[TopicPartition, UpstreamOffset]] = {}
        self.codes: dict[str, int] = {}
        self.troubles: list[str] = []
        self.mirror = OffsetMirror(
            upstream,
            self._positions,
            now_ms=lambda: self.now,
            interval_ms=INTERVAL_MS,
            on_trouble=self.troubles.append,
        )
        broker.answers["FindCoordinator"] = lambda request: struct("FindCoordinatorResponse")(
            node_id=1, host=broker.address.host, port=broker.address.port
        )
        broker.answers["OffsetCommit"] = self._taken

    async def _positions(self, group: str) -> Mapping[TopicPartition, UpstreamOffset]:
        if group not in self.kept:
            raise GroupAway
        return dict(self.kept[group])

    def _taken(self, request: Any) -> Any:
        return struct("OffsetCommitResponse")(
            topics=[
                struct("OffsetCommitResponse.topics")(
                    name=topic.name,
                    partitions=[
                        struct("OffsetCommitResponse.topics.partitions")(
                            partition_index=part.partition_index, error_code=self.codes.get(topic.name, 0)
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def commit(self, group: str, **offsets: int) -> None:
        self.kept.setdefault(group, {}).update({(topic, 0): UpstreamOffset(at) for topic, at in offsets.items()})
        self.mirror.written(0, {group})

    @property
    def sent(self) -> list[tuple[str, dict[str, int]]]:
        return [
            (request.group_id, {topic.name: topic.partitions[0].committed_offset for topic in request.topics})
            for request in self.broker.of("OffsetCommit")
        ]


def run(story: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            broker.answers["Metadata"] = lambda request: metadata({1: broker.address}, {})
            upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=5))
            await upstream.refresh([])
            await story(Scene(upstream, broker))
            upstream.close()

    asyncio.run(whole())


def test_what_has_changed_is_written_and_each_group_seldom() -> None:
    async def story(scene: Scene) -> None:
        scene.commit("g", t=1, u=5)
        await scene.mirror.round()
        assert scene.sent == [("g", {"t": 1, "u": 5})]
        scene.commit("g", t=2)
        scene.commit("h", t=9)
        await scene.mirror.round()
        assert scene.sent[1:] == [("h", {"t": 9})], "g was written a moment ago"
        scene.now += INTERVAL_MS
        await scene.mirror.round()
        assert scene.sent[2:] == [("g", {"t": 2})]
        scene.now += INTERVAL_MS
        await scene.mirror.round()
        assert len(scene.sent) == 3, "nobody has committed since"
        assert set(scene.troubles) == {""}

    run(story)


def test_what_the_upstream_has_of_a_shard_is_not_known_any_more_once_another_node_had_it() -> None:
    """A group was put back to where it had been when this node wrote it last; the upstream has what another wrote."""

    async def story(scene: Scene) -> None:
        scene.commit("g", t=50)
        await scene.mirror.round()
        scene.mirror.lost(0)
        scene.now += INTERVAL_MS
        scene.commit("g", t=50)
        scene.mirror.lost(1)
        await scene.mirror.round()
        assert scene.sent == [("g", {"t": 50}), ("g", {"t": 50})]

    run(story)


def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    async def story(scene: Scene) -> None:
        for number in range(3):
            scene.commit(f"g{number}", t=1)
        await scene.mirror.round()
        for group in scene.kept:
            scene.kept[group].clear()
            scene.mirror.written(0, {group})
        scene.now += INTERVAL_MS
        await scene.mirror.round()
        assert scene.mirror._groups == {}

    run(story)


def test_a_refused_group_is_left_alone_for_a_while_and_told_of() -> None:
    async def story(scene: Scene) -> None:
        scene.codes["t"] = 25
        scene.commit("g", t=1)
        await scene.mirror.round()
        assert scene.troubles == [
            "what group g has committed is not in the upstream yet: the upstream says error 25; has it members there?"
        ]
        scene.codes.clear()
        scene.now += LEFT_ALONE_MS - 1
        await scene.mirror.round()
        assert len(scene.sent) == 1
        scene.now += 1
        await scene.mirror.round()
        assert (scene.sent[1:], scene.troubles[-1]) == ([("g", {"t": 1})], "")

    run(story)


def test_a_topic_that_is_no_more_is_no_reason_to_stop() -> None:
    async def story(scene: Scene) -> None:
        scene.codes["gone"] = 3
        scene.commit("g", t=1, gone=2)
        await scene.mirror.round()
        assert scene.troubles == [""]

    run(story)


def test_an_upstream_that_does_not_answer_is_written_to_later() -> None:
    async def story(scene: Scene) -> None:
        taken = scene.broker.answers["OffsetCommit"]
        scene.broker.answers["OffsetCommit"] = lambda request: HANG_UP
        scene.commit("g", t=1)
        await scene.mirror.round()
        scene.broker.answers["OffsetCommit"] = taken
        scene.now += INTERVAL_MS
        await scene.mirror.round()
        assert scene.sent[-1] == ("g", {"t": 1})
        assert (scene.troubles[0] != "", scene.troubles[-1]) == (True, "")

    run(story)


def test_a_group_that_is_another_nodes_by_now_is_forgotten() -> None:
    async def story(scene: Scene) -> None:
        scene.commit("g", t=1)
        del scene.kept["g"]
        await scene.mirror.round()
        scene.now += INTERVAL_MS
        await scene.mirror.round()
        assert scene.sent == []

    run(story)
