"""Committed offsets, tools and KIP-848 members by Kafka's door, in every version that is served."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.storage.errors import UnknownTopicOrPartition
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.node import beat, create_topic, kafka, kafka_node, lone_member
from tests.unit.storage.logs import batch

pytestmark = pytest.mark.integration

Run = Callable[[Callable[[], Any]], None]


def positions(offsets: dict[int, int], topic: str = "t") -> list[Any]:
    row = struct("OffsetCommitRequest.topics.partitions")
    rows = [row(partition_index=p, committed_offset=at, committed_metadata="note") for p, at in offsets.items()]
    return [struct("OffsetCommitRequest.topics")(name=topic, partitions=rows)]


async def commit(client: KafkaClient, version: int, topics: list[Any], **more: Any) -> dict[tuple[str, int], int]:
    answer = await client.ask("OffsetCommit", version, group_id="g", topics=topics, **more)
    return {(topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions}


async def fetch(client: KafkaClient, version: int, asked: dict[str, list[int]] | None) -> dict[tuple[str, int], Any]:
    path = "OffsetFetchRequest.groups.topics" if version >= 8 else "OffsetFetchRequest.topics"
    topics = None
    if asked is not None:
        topics = [struct(path)(name=name, partition_indexes=partitions) for name, partitions in asked.items()]
    if version >= 8:
        group = struct("OffsetFetchRequest.groups")(group_id="g", topics=topics)
        answer = (await client.ask("OffsetFetch", version, groups=[group])).groups[0]
    else:
        answer = await client.ask("OffsetFetch", version, group_id="g", topics=topics)
    assert answer.error_code == 0
    return {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_committed_and_fetched_in_every_version(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            joined = await lone_member(client)
            identity = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
            assert await commit(client, version, positions({0: 5, 1: 7}), **identity) == {("t", 0): 0, ("t", 1): 0}
            for reader in range(1, 10):
                rows = await fetch(client, reader, {"t": [1, 0], "u": [3]})
                assert [row.committed_offset for row in rows.values()] == [7, 5, -1]
                assert [row.metadata for row in rows.values()] == ["note", "note", ""]
                if reader >= 2:
                    assert list(await fetch(client, reader, None)) == [("t", 0), ("t", 1)]
            stale = await commit(client, version, positions({0: 9}), **identity | {"generation_id_or_member_epoch": 4})
            assert stale == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
            unknown = {"member_id": "x", "generation_id_or_member_epoch": 1}
            assert await commit(client, version, positions({0: 9}), **unknown) == {("t", 0): 25}

    run(story)


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 1 << 62, 1])
def test_no_retention_is_too_long_for_the_log(run: Run, tmp_path: Path, retention_ms: int) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            assert await commit(client, 2, positions({0: 5}), retention_time_ms=retention_ms) == {("t", 0): 0}
            assert (await fetch(client, 8, None))["t", 0].committed_offset == 5

    run(story)


def test_the_protocols_words_for_begin_and_end_are_looked_up(run: Run, tmp_path: Path) -> None:
    """kafkajs resets a group to -2 and -1; what is kept is what they stand for at that moment."""

    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            row = struct("ProduceRequest.topic_data.partition_data")
            data = [row(index=partition, records=batch(b"a", b"b", b"c")) for partition in range(2)]
            produced = [struct("ProduceRequest.topic_data")(name="t", partition_data=data)]
            await client.ask("Produce", 9, acks=-1, timeout_ms=30_000, topic_data=produced)
            for partition in range(2):
                node.broker.delete_records("t", partition, 1)
            assert await commit(client, 5, positions({0: -2, 1: -1})) == {("t", 0): 0, ("t", 1): 0}
            rows = await fetch(client, 8, None)
            assert [row.committed_offset for row in rows.values()] == [1, 3]

    run(story)


def test_a_group_that_is_asked_for_many_times_is_told_once(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            asked = [struct("OffsetFetchRequest.groups")(group_id=name, topics=None) for name in ("a", "b")]
            answer = await client.ask("OffsetFetch", 8, groups=asked * 100)
            assert [group.group_id for group in answer.groups] == ["a", "b"]

    run(story)


def test_partitions_that_cannot_be_are_refused_one_by_one(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            topics = positions({0: 5, 1: -3, 2: 5, -1: 5}) + positions({0: 1}, topic="u")
            assert await commit(client, 7, topics) == {
                ("t", 0): 0,
                ("t", 1): ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert list(await fetch(client, 5, None)) == [("t", 0)]

    run(story)


@pytest.mark.parametrize(("topic", "partition"), [("t", 2), ("t", -1), ("u", 0)])
def test_a_partition_that_is_not_there_is_refused_by_itself_too(
    run: Run, tmp_path: Path, topic: str, partition: int
) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            for _ in range(3):  # the third is one that is known by its bytes
                answer = await commit(client, 7, positions({partition: 5}, topic=topic))
                assert answer == {(topic, partition): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert await fetch(client, 5, None) == {}

    run(story)


def test_what_the_group_refuses_of_a_commit_is_told_each_time(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            rows = positions({0: 5, 1: 7})
            rows[0].partitions[1].committed_metadata = "x" * 4_000
            assert await commit(client, 7, rows) == {("t", 0): 0, ("t", 1): 0}
            rows[0].partitions[1].committed_metadata = "x" * 4_097
            for _ in range(3):
                answer = await commit(client, 7, rows)
                assert answer == {("t", 0): 0, ("t", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}

    run(story)


def test_the_end_of_a_log_that_is_lost_cannot_be_committed(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)

            def lost(topic: str, partition: int) -> Any:
                raise UnknownTopicOrPartition(f"{topic}-{partition} has no directory")

            node.broker.start_offset = lost  # type: ignore[method-assign]
            answer = await commit(client, 7, positions({0: -1, 1: 5}))
            assert answer == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("t", 1): 0}

    run(story)


def test_a_commit_to_a_group_that_is_not_there_is_told_as_each_version_can(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 1)
            claims = {"generation_id_or_member_epoch": 3, "member_id": "m"}
            assert await commit(client, 8, positions({0: 1}), **claims) == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
            assert await commit(client, 9, positions({0: 1}), **claims) == {("t", 0): ErrorCode.GROUP_ID_NOT_FOUND}

    run(story)


def test_offsets_and_groups_are_deleted_once_nobody_needs_them(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await create_topic(client, "t", 2)
            await commit(client, 5, positions({0: 5, 1: 7}))
            row = struct("OffsetDeleteRequest.topics.partitions")(partition_index=0)
            topic = struct("OffsetDeleteRequest.topics")(name="t", partitions=[row])
            deleted = await client.ask("OffsetDelete", 0, group_id="g", topics=[topic])
            assert (deleted.error_code, deleted.topics[0].partitions[0].error_code) == (0, 0)
            assert list(await fetch(client, 5, None)) == [("t", 1)]
            lost = [struct("OffsetDeleteRequest.topics.partitions")(partition_index=index) for index in (1, 99)]
            unknown = [struct("OffsetDeleteRequest.topics")(name=name, partitions=lost) for name in ("t", "x")]
            deleted = await client.ask("OffsetDelete", 0, group_id="no", topics=unknown[1:])
            assert [part.error_code for part in deleted.topics[0].partitions] == [3, 3]
            deleted = await client.ask("OffsetDelete", 0, group_id="g", topics=unknown)
            assert [part.error_code for one in deleted.topics for part in one.partitions] == [0, 3, 3, 3]
            await commit(client, 5, positions({1: 7}))
            missing = await client.ask("OffsetDelete", 0, group_id="no", topics=[topic])
            assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            for version, group, code in ((0, "no", 69), (1, "g", 0), (2, "g", 69)):
                (result,) = (await client.ask("DeleteGroups", version, groups_names=[group])).results
                assert (result.group_id, result.error_code) == (group, code)

    run(story)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_listed_and_described_in_every_version(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            joined = await lone_member(client)
            listing = min(version, 5)
            (listed,) = (await client.ask("ListGroups", listing)).groups
            assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
            if listing >= 4:
                assert listed.group_state == "Stable"
                assert (await client.ask("ListGroups", listing, states_filter=["Empty"])).groups == []
            if listing >= 5:
                assert listed.group_type == "classic"
                assert (await client.ask("ListGroups", listing, types_filter=["consumer"])).groups == []
            group, missing = (await client.ask("DescribeGroups", version, groups=["g", "no"])).groups
            assert (group.group_state, group.protocol_data) == ("Stable", "range")
            (member,) = group.members
            assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "c", "127.0.0.1")
            assert missing.group_state == "Dead"
            if version >= 3:
                asked = {"groups": ["g"], "include_authorized_operations": True}
                (told,) = (await client.ask("DescribeGroups", version, **asked)).groups
                assert (told.authorized_operations, group.authorized_operations) == (3400, -(1 << 31))
            assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
            (busy,) = (await client.ask("DeleteGroups", 2, groups_names=["g"])).results
            assert busy.error_code == ErrorCode.NON_EMPTY_GROUP
            assert (await client.ask("Heartbeat", 4, **beat(joined))).error_code == 0

    run(story)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_of_a_kip_848_group(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            topic_id = await create_topic(client, "t", 2)
            own_id = str(uuid4()) if version >= 1 else ""
            said: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
            if version >= 1:
                said["subscribed_topic_regex"] = ""  # as librdkafka says that it has none
            first = await client.ask(
                "ConsumerGroupHeartbeat", version, group_id="g", member_id=own_id, topic_partitions=[], **said
            )
            assert first.error_code == 0
            epoch = first.member_epoch
            assert first.member_id == own_id or version == 0
            (share,) = first.assignment.topic_partitions
            assert (share.topic_id, share.partitions) == (topic_id, [0, 1])
            owned = struct("ConsumerGroupHeartbeatRequest.topic_partitions")(topic_id=topic_id, partitions=[0, 1])
            member = {"group_id": "g", "member_id": first.member_id}
            again = await client.ask(
                "ConsumerGroupHeartbeat", version, **member, member_epoch=epoch, topic_partitions=[owned]
            )
            assert (again.error_code, again.assignment) == (0, None)
            (group,) = (await client.ask("ConsumerGroupDescribe", version, group_ids=["g"])).groups
            assert (group.group_state, group.assignor_name, group.group_epoch) == ("Stable", "uniform", epoch)
            (row,) = group.members
            assert (row.member_id, row.client_id, row.member_epoch) == (first.member_id, "c", epoch)
            assert [(one.topic_name, one.partitions) for one in row.assignment.topic_partitions] == [("t", [0, 1])]
            assert row.target_assignment.topic_partitions[0].topic_id == topic_id
            asked = {"group_ids": ["g", "", "no"], "include_authorized_operations": True}
            told = (await client.ask("ConsumerGroupDescribe", version, **asked)).groups
            assert [(one.error_code, one.authorized_operations) for one in told] == [
                (0, 3400),
                (ErrorCode.INVALID_GROUP_ID, -(1 << 31)),
                (ErrorCode.GROUP_ID_NOT_FOUND, -(1 << 31)),
            ]
            assert [one.group_state for one in told[1:]] == ["", ""]
            identity = {"member_id": first.member_id, "generation_id_or_member_epoch": epoch}
            assert await commit(client, 9, positions({0: 5}), **identity) == {("t", 0): 0}
            fenced = await client.ask("ConsumerGroupHeartbeat", version, **member, member_epoch=7)
            assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
            assert "epoch 7" in fenced.error_message
            left = await client.ask("ConsumerGroupHeartbeat", version, **member, member_epoch=-1)
            assert (left.error_code, left.member_epoch) == (0, -1)

    run(story)


def test_what_cannot_be_stored_is_refused_in_band(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            long = "x" * 5_000
            beat = await client.ask("Heartbeat", 4, group_id=long, member_id="m")
            assert beat.error_code == ErrorCode.INVALID_REQUEST
            joined = await client.ask("JoinGroup", 9, group_id="g", session_timeout_ms=10_000, group_instance_id=long)
            assert joined.error_code == ErrorCode.INVALID_REQUEST
            twice = [struct("JoinGroupRequest.protocols")(name="range")] * 2
            joined = await client.ask("JoinGroup", 9, group_id="g", session_timeout_ms=10_000, protocols=twice)
            assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(story)
