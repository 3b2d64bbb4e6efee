"""KB-X9, KB-M1, KB-M3 against a real broker: who reads by the back door, and what a group has committed, there and
back."""

import asyncio
from collections.abc import Mapping, Sequence

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from muster.assignors.api import TopicPartition
from muster.coordinator.config import parse_address
from muster.coordinator.kafka_backend.foreign_member_guard import ForeignMemberGuard, foreign_members_sentence
from muster.coordinator.kafka_backend.offset_migration import MoveBlocked, adopt_group, release_group
from muster.coordinator.kafka_backend.upstream import group_requests
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

PATIENCE_S = 60


class HereInMemory:
    """A Muster's groups."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[TopicPartition, UpstreamOffset]] = {}
        self.names: list[str] = []

    async def members(self, group: str) -> Sequence[str]:
        return self.names

    async def positions(self, group: str) -> Mapping[TopicPartition, UpstreamOffset]:
        return self.kept.get(group, {})

    async def commit(self, group: str, positions: Mapping[TopicPartition, UpstreamOffset]) -> None:
        self.kept.setdefault(group, {}).update(positions)

    async def delete(self, group: str) -> None:
        self.kept.pop(group, None)


def topic_of(kafka: str, name: str, partitions: int = 3) -> str:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
    return name


def consumer(kafka: str, group: str, **more: object) -> Consumer:
    given = {"bootstrap.servers": kafka, "group.id": group, "client.id": f"{group}-client", "enable.auto.commit": False}
    return Consumer({**given, **more})


def assigned(reader: Consumer, topic: str) -> None:
    """It is a member, and has its partitions."""
    there: list[object] = []
    reader.subscribe([topic], on_assign=lambda _, parts: there.append(parts))
    for _ in range(PATIENCE_S * 10):
        reader.poll(0.1)
        if there:
            return
    raise AssertionError("nothing was assigned")


def upstream_at(kafka: str) -> Upstream:
    return Upstream(UpstreamAddress((parse_address(kafka),), connect_s=10, answer_s=10))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_x9_members_at_the_real_broker_are_found_and_named(kafka: str, protocol: str) -> None:
    topic = topic_of(kafka, f"guarded-{protocol}")
    mine, other = f"mine-{protocol}", f"other-{protocol}"
    readers = [consumer(kafka, group, **{"group.protocol": protocol}) for group in (mine, other)]
    try:
        for reader in readers:
            assigned(reader, topic)

        async def story() -> None:
            upstream = upstream_at(kafka)
            await upstream.refresh([topic])
            guard = ForeignMemberGuard(upstream, lambda group: group == mine)
            found = await guard.find_foreign_members()
            assert set(found) == {mine}
            assert found[mine].members == 1
            assert f"{mine} ({mine}-client at /127.0.0.1)" in foreign_members_sentence(found)
            readers[0].close()
            assert await guard.find_foreign_members() == {}
            upstream.close()

        asyncio.run(story())
    finally:
        for reader in readers:
            reader.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_m1_m3_a_group_is_adopted_and_given_back_as_it_was(kafka: str, protocol: str) -> None:
    topic, group = topic_of(kafka, f"moved-{protocol}"), f"moved-{protocol}"
    reader = consumer(kafka, group, **{"group.protocol": protocol})
    assigned(reader, topic)
    reader.commit(
        offsets=[
            confluent_kafka.TopicPartition(topic, 0, 7, "note", leader_epoch=0),
            confluent_kafka.TopicPartition(topic, 2, 9),
        ],
        asynchronous=False,
    )
    here = HereInMemory()

    async def story() -> None:
        upstream = upstream_at(kafka)
        await upstream.refresh([topic])
        with pytest.raises(MoveBlocked, match=f"{group} has members upstream: {group}-client at /127.0.0.1; stop them"):
            await adopt_group(upstream, group, here, {topic: 3})
        reader.close()
        kept = await group_requests.fetch_offsets(upstream, group)
        note = kept[topic, 0].metadata  # which librdkafka sends with a byte of its own behind it
        assert note.rstrip("\0") == "note"
        assert kept == {(topic, 0): UpstreamOffset(7, 0, note), (topic, 2): UpstreamOffset(9, -1, "")}
        assert (await adopt_group(upstream, group, here, {topic: 3}, dry_run=True)).positions == kept
        assert here.kept == {}
        moved = await adopt_group(upstream, group, here, {topic: 2})
        assert (moved.positions, moved.without_topic) == ({(topic, 0): kept[topic, 0]}, [(topic, 2)])
        here.kept.clear()
        await adopt_group(upstream, group, here, {topic: 3})
        assert here.kept == {group: kept}
        assert (await adopt_group(upstream, group, here, {topic: 3})).positions == kept, "twice is once"
        # It works on here, and is given back.
        here.kept[group][topic, 1] = UpstreamOffset(3, 0, "")
        here.kept[group][topic, 0] = UpstreamOffset(70, 0, "later")
        with pytest.raises(MoveBlocked, match="others than upstream"):
            await adopt_group(upstream, group, here, {topic: 3})
        worked_on = dict(here.kept[group])
        here.names = ["m1"]
        with pytest.raises(MoveBlocked, match="has members here: m1"):
            await release_group(upstream, group, here)
        here.names = []
        await release_group(upstream, group, here)
        assert here.kept == {}
        assert await group_requests.fetch_offsets(upstream, group) == worked_on
        assert await group_requests.describe_group(upstream, "nobody-knows-it") == group_requests.NOBODY_THERE
        upstream.close()

    asyncio.run(story())
