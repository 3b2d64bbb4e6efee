"""Metadata, topics and settings by Kafka's door, in every version that is served."""

import asyncio
from typing import Any

import pytest

from muster.long_work import AT_ONCE, TURN
from muster.storage.topics.catalog import format_id
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import NODE_ID, Door, made, play
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0, batch, open_broker

CREATE, DELETE, GROW, CONFIGS = range(2, 8), range(1, 7), range(4), range(1, 5)


async def metadata(door: Door, version: int, *names: str, **more: Any) -> Any:
    topics = [made("MetadataRequest.topics", name=name) for name in names]
    return await door.ask("Metadata", version, topics=topics, **more)


async def create(door: Door, version: int, *topics: dict[str, Any], **more: Any) -> list[Any]:
    standard = {"num_partitions": -1, "replication_factor": -1}
    wanted = [made("CreateTopicsRequest.topics", **(standard | topic)) for topic in topics]
    answer = await door.ask("CreateTopics", version, topics=wanted, **more)
    return list(answer.topics)


def config(name: str, value: str | None) -> Any:
    return made("CreateTopicsRequest.topics.configs", name=name, value=value)


def assigned(partition: int, *brokers: int) -> Any:
    return made("CreateTopicsRequest.topics.assignments", partition_index=partition, broker_ids=list(brokers))


@pytest.mark.parametrize("version", range(13))
def test_metadata_tells_of_the_node_and_its_topics(version: int) -> None:
    async def story(door: Door) -> None:
        answer = await door.ask("Metadata", version, topics=None if version else [])
        assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(NODE_ID, "muster.example", 9092)]
        assert answer.controller_id == (NODE_ID if version >= 1 else -1)
        assert answer.cluster_id == (door.broker.cluster_id if version >= 2 else None)
        topics = {topic.name: topic for topic in answer.topics}
        assert topics.keys() == {"t", "__consumer_offsets"}
        assert topics["__consumer_offsets"].is_internal == (version >= 1)
        assert topics["t"].topic_id == (door.broker.topic("t").id if version >= 10 else bytes(16))
        partitions = topics["t"].partitions
        assert [part.partition_index for part in partitions] == [0, 1, 2]
        assert {(part.error_code, part.leader_id, *part.replica_nodes, *part.isr_nodes) for part in partitions} == {
            (0, NODE_ID, NODE_ID, NODE_ID)
        }
        assert (await metadata(door, version or 1)).topics == []

    play(story)


@pytest.mark.parametrize("version", range(13))
def test_a_topic_that_is_asked_for_is_made_where_node_and_client_allow_it(version: int) -> None:
    async def story(door: Door) -> None:
        (topic,) = (await metadata(door, version, "new")).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 2)
        assert door.broker.topic("new").partitions == 2
        may_not = {"allow_auto_topic_creation": False} if version >= 4 else {}
        bad, other = (await metadata(door, version, "no such name!", "other", **may_not)).topics
        assert (bad.error_code, other.error_code) == ((17, 3) if version >= 4 else (17, 0))

    async def without(door: Door) -> None:
        (topic,) = (await metadata(door, version, "new")).topics
        assert (topic.error_code, topic.name) == (3, "new")
        assert "new" not in door.broker.topics()

    play(story, num__partitions=2)
    play(without, auto_create=False)


@pytest.mark.parametrize("version", range(13))
def test_a_topic_that_another_node_has_is_not_made_here_a_second_time(version: int) -> None:
    """Clients of the ZooKeeper era ask any broker for topics that /brokers/topics names, and would make a twin."""

    async def story(door: Door) -> None:
        theirs, new = (await metadata(door, version, "theirs", "new")).topics
        assert (theirs.error_code, new.error_code) == (3, 0)
        assert "theirs" not in door.broker.topics()

    play(story, elsewhere=frozenset({"theirs"}))


def test_what_is_asked_for_many_times_is_told_once() -> None:
    """A small request must not make a large answer, nor keep the node from everybody else while it is made."""

    async def story(door: Door) -> None:
        answer = await metadata(door, 12, *["t"] * 1000, "u")
        assert [topic.name for topic in answer.topics] == ["t", "u"]
        both = [made("DescribeConfigsRequest.resources", resource_type=2, resource_name=name) for name in ("t", "u")]
        shown = await door.ask("DescribeConfigs", 4, resources=both * 1000)
        assert [(result.resource_type, result.resource_name) for result in shown.results] == [(2, "t"), (2, "u")]

    play(story)


def test_a_topic_is_found_by_its_id() -> None:
    async def story(door: Door) -> None:
        ids = [door.broker.topic("t").id, b"?" * 16]
        asked = [made("MetadataRequest.topics", name=None, topic_id=topic_id) for topic_id in ids]
        known, unknown = (await door.ask("Metadata", 12, topics=asked)).topics
        assert (known.error_code, known.name, len(known.partitions)) == (0, "t", 3)
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (100, None, b"?" * 16)
        (early,) = (await door.ask("Metadata", 11, topics=asked[:1])).topics
        assert (early.error_code, early.name) == (42, "")

    play(story)


def test_a_partition_whose_directory_is_gone_has_no_leader() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("hurt", 2)
    broker.close()
    for name in disk.names("/data/hurt-1"):
        disk.remove(f"/data/hurt-1/{name}")
    disk.remove_dir("/data/hurt-1")

    async def story(door: Door) -> None:
        (topic,) = (await metadata(door, 9, "hurt")).topics
        found = [(p.error_code, p.leader_id, list(p.isr_nodes), list(p.offline_replicas)) for p in topic.partitions]
        assert found == [(0, NODE_ID, [NODE_ID], []), (5, -1, [], [NODE_ID])]

    play(story, disk)


@pytest.mark.parametrize("version", CREATE)
def test_topics_are_made_each_for_itself(version: int) -> None:
    async def story(door: Door) -> None:
        topics = await create(
            door,
            version,
            {"name": "plain", "num_partitions": 4, "replication_factor": 1},
            {"name": "tuned", "configs": [config("retention.ms", "5000"), config("min.insync.replicas", "1")]},
            {"name": "by-hand", "assignments": [assigned(1, NODE_ID), assigned(0, NODE_ID)]},
            {"name": "t"},
            {"name": "none", "num_partitions": 0},
            {"name": "copied", "replication_factor": 3},
            {"name": "elsewhere", "assignments": [assigned(0, 99)]},
            {"name": "holes", "assignments": [assigned(1, NODE_ID)]},
            {"name": "both", "num_partitions": 1, "assignments": [assigned(0, NODE_ID)]},
            {"name": "odd", "configs": [config("retention.mss", "1")]},
            {"name": "empty", "configs": [config("retention.ms", None)]},
            {"name": "double", "configs": [config("retention.ms", "1"), config("retention.ms", "2")]},
            {"name": "twice"},
            {"name": "twice"},
            {"name": "bad name"},
        )
        assert [topic.error_code for topic in topics] == [0, 0, 0, 36, 37, 38, 39, 39, 42, 40, 40, 42, 42, 42, 17]
        names = ("plain", "tuned", "by-hand")
        assert [door.broker.topic(name).partitions for name in names] == [4, 1, 2]
        assert door.broker.topics().keys() == {*names, "t", "__consumer_offsets"}
        assert door.broker.topic("tuned").configs == {"retention.ms": "5000", "min.insync.replicas": "1"}
        assert all(topic.error_message for topic in topics[3:])
        if version >= 5:
            assert [(topic.num_partitions, topic.replication_factor) for topic in topics[:3]] == [
                (4, 1),
                (1, 1),
                (2, 1),
            ]
            shown = {entry.name: (entry.value, entry.config_source) for entry in topics[1].configs}
            assert shown["retention.ms"] == ("5000", 1)
            assert shown["segment.bytes"] == ("1073741824", 5)
            assert (shown["min.insync.replicas"], shown["compression.type"]) == (("1", 1), ("producer", 5))
            assert [list(topic.configs) for topic in topics[3:]] == [[]] * 12
        if version >= 7:
            assert topics[0].topic_id == door.broker.topic("plain").id

    play(story)


SCRIPTS = {
    "compression.type": "zstd",
    "compression.gzip.level": "3",
    "compression.lz4.level": "3",
    "compression.zstd.level": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
    "segment.jitter.ms": "5",
    "preallocate": "true",
    "flush.ms": "0",
    "segment.index.bytes": "4",
    "local.retention.ms": "5",
    "local.retention.bytes": "-2",
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "leader.replication.throttled.replicas": "*",
    "follower.replication.throttled.replicas": "0:1,1:2",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_scripts_for_kafka_set_is_taken_and_shown(name: str) -> None:
    async def story(door: Door) -> None:
        (topic,) = await create(door, 7, {"name": "scripted", "configs": [config(name, SCRIPTS[name])]})
        assert topic.error_code == 0
        asked = made("DescribeConfigsRequest.resources", resource_type=2, resource_name="scripted")
        (result,) = (await door.ask("DescribeConfigs", 4, resources=[asked], include_documentation=True)).results
        shown = {entry.name: entry for entry in result.configs}
        assert (shown[name].value, shown[name].config_source) == (SCRIPTS[name], 1)
        assert shown[name].documentation

    play(story)


def test_a_dry_run_makes_nothing() -> None:
    async def story(door: Door) -> None:
        topics = await create(door, 7, {"name": "new"}, {"name": "t"}, validate_only=True)
        assert [topic.error_code for topic in topics] == [0, 36]
        assert "new" not in door.broker.topics()

    play(story)


@pytest.mark.parametrize("version", DELETE)
def test_topics_are_deleted_by_name_or_id(version: int) -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("second", 1)
        names = ["t", "nowhere", "__consumer_offsets"]
        if version < 6:
            answer = await door.ask("DeleteTopics", version, topic_names=names)
        else:
            second, foreign = door.broker.topic("second").id, b"?" * 16
            by_name = [made("DeleteTopicsRequest.topics", name=name) for name in names]
            by_id = [made("DeleteTopicsRequest.topics", name=None, topic_id=known) for known in (second, foreign)]
            answer = await door.ask("DeleteTopics", version, topics=by_name + by_id)
        codes = [topic.error_code for topic in answer.responses]
        assert codes == [0, 3, 17] + ([0, 100] if version >= 6 else [])
        assert door.broker.topics().keys() == {"__consumer_offsets"} | ({"second"} if version < 6 else set())
        if version >= 6:
            assert [topic.name for topic in answer.responses[3:]] == ["second", None]
            assert format_id(foreign) in answer.responses[4].error_message

    play(story)


def test_an_ill_formed_deletion_deletes_nothing() -> None:
    async def story(door: Door) -> None:
        known = door.broker.topic("t").id
        twice, both, neither = (
            [{"name": "t"}] * 2,
            [{"name": "t", "topic_id": known}],
            [{"name": None}],
        )
        for wanted in (twice, both, neither, [{"name": None, "topic_id": known}] * 2):
            topics = [made("DeleteTopicsRequest.topics", **topic) for topic in wanted]
            (answer,) = (await door.ask("DeleteTopics", 6, topics=topics)).responses
            assert answer.error_code == 42
        assert "t" in door.broker.topics()

    play(story)


def test_what_may_be_done_is_told_to_those_who_ask() -> None:
    async def story(door: Door) -> None:
        for asked, on_topic, on_cluster in ((True, 3576, 8096), (False, -(1 << 31), -(1 << 31))):
            wanted = {"include_topic_authorized_operations": asked, "include_cluster_authorized_operations": asked}
            answer = await metadata(door, 10, "t", "no such name!", **wanted)
            assert [topic.topic_authorized_operations for topic in answer.topics] == [on_topic, -(1 << 31)]
            assert answer.cluster_authorized_operations == on_cluster

    play(story)


@pytest.mark.parametrize("version", GROW)
def test_partitions_are_added(version: int) -> None:
    async def story(door: Door) -> None:
        path = "CreatePartitionsRequest.topics"
        hands = [made(f"{path}.assignments", broker_ids=[broker]) for broker in (NODE_ID, 99)]
        wanted = [
            made(path, name="t", count=5, assignments=None),
            made(path, name="nowhere", count=5, assignments=None),
            made(path, name="__consumer_offsets", count=5, assignments=None),
        ]
        answer = await door.ask("CreatePartitions", version, topics=wanted)
        assert [topic.error_code for topic in answer.results] == [0, 3, 17]
        codes = []
        for count, assignments in ((5, None), (6, hands[1:]), (7, hands[:1]), (6, hands[:1]), (9, None)):
            wanted = [made(path, name="t", count=count, assignments=assignments)]
            answer = await door.ask("CreatePartitions", version, topics=wanted, validate_only=count == 9)
            codes.append(answer.results[0].error_code)
        assert codes == [37, 39, 39, 0, 0]
        assert door.broker.topic("t").partitions == 6
        answer = await door.ask("CreatePartitions", version, topics=wanted * 2)
        assert [topic.error_code for topic in answer.results] == [42, 42]

    play(story)


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(version: int) -> None:
    async def story(door: Door) -> None:
        door.broker.append("t", 0, batch(b"a", b"b", b"c"), T0)
        door.broker.append("t", 1, batch(b"a"), T0)
        door.broker.flush()
        path = "DeleteRecordsRequest.topics.partitions"
        wanted = [(0, 2), (1, -1), (2, 5), (9, 0)]
        parts = [made(path, partition_index=index, offset=offset) for index, offset in wanted]
        topics = [
            made("DeleteRecordsRequest.topics", name="t", partitions=parts),
            made("DeleteRecordsRequest.topics", name="__consumer_offsets", partitions=parts[:1]),
        ]
        answer = await door.ask("DeleteRecords", version, topics=topics)
        found = [(part.error_code, part.low_watermark) for topic in answer.topics for part in topic.partitions]
        assert found == [(0, 2), (0, 1), (1, -1), (3, -1), (17, -1)]
        assert [door.broker.start_offset("t", number) for number in range(3)] == [2, 1, 0]

    play(story)


@pytest.mark.parametrize(("policy", "code"), [("compact", 44), ("compact,delete", 0)])
def test_records_of_a_compacted_topic_are_not_deleted(policy: str, code: int) -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("kept", 1, {"cleanup.policy": policy})
        part = made("DeleteRecordsRequest.topics.partitions", partition_index=0, offset=0)
        topic = made("DeleteRecordsRequest.topics", name="kept", partitions=[part])
        answer = await door.ask("DeleteRecords", 2, topics=[topic])
        assert answer.topics[0].partitions[0].error_code == code

    play(story)


@pytest.mark.parametrize("version", CONFIGS)
def test_settings_say_where_they_come_from(version: int) -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("tuned", 1, {"retention.ms": "5000", "cleanup.policy": "compact"})
        asked = [(2, "tuned", None), (4, str(NODE_ID), ["log.segment.bytes", "nonsense"]), (2, "x", None)]
        asked += [(4, "99", None), (8, str(NODE_ID), None), (2, "no such name!", None)]
        resources = [
            made("DescribeConfigsRequest.resources", resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in asked
        ]
        answer = await door.ask(
            "DescribeConfigs", version, resources=resources, include_synonyms=True, include_documentation=version >= 3
        )
        topic, node, *refused = answer.results
        assert [result.error_code for result in answer.results] == [0, 0, 3, 42, 42, 17]
        assert all(result.error_message and list(result.configs) == [] for result in refused)
        entries = {entry.name: entry for entry in topic.configs}
        found = {name: (entries[name].value, entries[name].config_source) for name in ("retention.ms", "segment.bytes")}
        # The node was told another segment size than the default.
        assert found == {"retention.ms": ("5000", 1), "segment.bytes": ("12345", 4)}
        synonyms = [(each.name, each.value, each.source) for each in entries["retention.ms"].synonyms]
        assert synonyms == [("retention.ms", "5000", 1), ("log.retention.ms", "604800000", 5)]
        assert [each.name for each in entries["segment.bytes"].synonyms] == ["log.segment.bytes"]
        assert [(entry.name, entry.value, entry.read_only) for entry in node.configs] == [
            ("log.segment.bytes", "12345", True)
        ]
        if version >= 3:
            kinds = {name: entry.config_type for name, entry in entries.items()}
            wanted = {"segment.bytes": 3, "retention.ms": 5, "min.cleanable.dirty.ratio": 6, "cleanup.policy": 7}
            assert {name: kinds[name] for name in wanted} == wanted
            assert "segment file" in entries["segment.bytes"].documentation

    play(story, log__segment__bytes=12345)


def test_requests_for_many_topics_let_others_have_their_turn() -> None:
    async def story(door: Door) -> None:
        many = [f"many-{number}" for number in range(5 * TURN)]
        creating = create(door, 5, *({"name": name} for name in many))
        assert await turns_of_others(creating) >= 4
        assert await turns_of_others(metadata(door, 9, *(f"{name}-by-name" for name in many))) >= 4
        growing = [made("CreatePartitionsRequest.topics", name=name, count=4, assignments=None) for name in many]
        assert await turns_of_others(door.ask("CreatePartitions", 1, topics=growing)) >= 4
        emptied = [
            made(
                "DeleteRecordsRequest.topics",
                name=name,
                partitions=[made("DeleteRecordsRequest.topics.partitions", partition_index=0, offset=-1)],
            )
            for name in many
        ]
        assert await turns_of_others(door.ask("DeleteRecords", 2, topics=emptied)) >= 4
        asked = [made("DescribeConfigsRequest.resources", resource_type=2, resource_name=name) for name in many]
        assert await turns_of_others(door.ask("DescribeConfigs", 1, resources=asked)) >= 4
        assert await turns_of_others(door.ask("DeleteTopics", 5, topic_names=many)) >= 4
        assert not set(many) & door.broker.topics().keys()

    play(story)


def test_who_waits_for_records_of_topics_that_go_is_told_though_nobody_waits_for_the_answer() -> None:
    async def story(door: Door) -> None:
        many = [f"many-{number}" for number in range(5 * TURN)]
        await create(door, 5, *({"name": name} for name in many))
        partition = made("FetchRequest.topics.partitions", partition=0, partition_max_bytes=1000)
        waiting = asyncio.create_task(
            door.ask(
                "Fetch",
                11,
                max_wait_ms=3_600_000,
                min_bytes=1,
                max_bytes=1000,
                topics=[made("FetchRequest.topics", topic=many[0], partitions=[partition])],
            )
        )
        deleting = asyncio.create_task(door.ask("DeleteTopics", 5, topic_names=many))
        door.broker.on_topics_changed(lambda: deleting.cancel())
        (topic,) = (await waiting).responses
        assert topic.partitions[0].error_code != 0
        assert deleting.cancelled()
        await door.requests.topics.close()
        assert not set(many) & set(door.broker.topics()), "what was begun goes on"

    play(story)


@pytest.mark.parametrize("version", [1, 9, 12])
def test_very_many_partitions_are_told_of_in_slices(version: int) -> None:
    count = 2 * AT_ONCE

    async def story(door: Door) -> None:
        door.broker.create_topic("large", count)
        asking = asyncio.ensure_future(door.ask("Metadata", version, topics=None))
        assert await turns_of_others(asking) >= 2
        [large] = [topic for topic in asking.result().topics if topic.name == "large"]
        assert [part.partition_index for part in large.partitions] == list(range(count))

    play(story)
