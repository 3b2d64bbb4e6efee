"""What a Kafka broker and a node answer to the same raw requests, and where they differ.

`python -m tests.interop.kafka_answers KAFKA_HOST:PORT NODE_HOST:PORT` prints each difference and why it stays.
Every case is asked of both, with names of its own; of an answer only what is named by the case is compared.
"""

import asyncio
import gzip
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from crc32c import crc32c

from muster.coordinator.kafka.codec.codec import struct
from muster.storage.records.batch import encode_batch
from tests.interop.kafka_group_configs import group_configs
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.node import SUBSCRIPTION

PATIENCE_S = 5.0
ALREADY = 36
UNKNOWN_MEMBER = 25
RETRIED = frozenset({14, 15, 16, 51})
"""A coordinator that loads, or is not there yet, or completes the transaction before."""
NOW = 1_700_000_000_000

STAYS: Final = {
    "host of a member": "Kafka writes a slash before it",
    "join: protocols named twice": "Kafka never answers",
    "join: very long group id": "what is kept in the log has a bound",
    "commit: offset -1": "the log's end is committed: kafkajs resets so",
    "commit: offset -5": "no offset",
    "twice: DescribeGroups": "answered once",
    "twice: FindCoordinator": "answered once",
    "twice: ListOffsets": "answered twice",
    "twice: CreatePartitions": "answered twice",
    "twice: CreateTopics, a setting": "it is a mistake",
    "transactions: FindCoordinator": "none here",
    "transactions: InitProducerId": "none here",
    "list: -3 in version 1": "answered",
    "list: isolation level 7": "answered as uncommitted",
    "fetch: negative size": "answered as with the smallest size",
    "fetch: a session": "never opened",
    "produce: no records": "Kafka never answers",
    "produce: cut short": "CORRUPT_MESSAGE",
    "produce: bytes behind it": "nothing is thrown away unseen",
    "produce: an offset of its own": "offsets are given by the log",
    "produce: codec 5": "Kafka says UNKNOWN_SERVER_ERROR",
    "metadata: name and another id": "the name counts",
    "metadata: made by asking": "it is there at once",
    "configs: loggers": "there are none",
    "configs: of a group": "other settings",
    "alter: a resource twice": "Kafka never answers",
    "alter: unknown operation": "Kafka says UNKNOWN_SERVER_ERROR",
    "alter: a setting of the node": "read when it starts",
    "alter: compact taken away": "gaps would look like damage",
    "ApiVersions 4": "clients ask again with 3",
}
"""Differences on purpose; docs/kafka-clients.md tells them to users."""

TAKEN = {
    "compression.type": "gzip", "flush.ms": "0", "unclean.leader.election.enable": "true", "preallocate": "true",
    "segment.jitter.ms": "5", "segment.index.bytes": "4", "remote.storage.enable": "false", "local.retention.ms": "-2",
    "local.retention.bytes": "-2", "leader.replication.throttled.replicas": "*", "compression.gzip.level": "3",
    "follower.replication.throttled.replicas": "", "compression.zstd.level": "3", "compression.lz4.level": "3",
    "remote.log.delete.on.disable": "false", "remote.log.copy.disable": "false", "min.insync.replicas": "1",
    "cleanup.policy": "delete, compact", "retention.ms": "-1", "no.such": "1", "max.message.bytes": "many",
}  # fmt: skip


Step = tuple[str, int, str | None]


class Asker:
    """One server. `run` is in every name, so that no run meets what an earlier one left."""

    def __init__(self, address: str, run: str) -> None:
        host, _, port = address.rpartition(":")
        self._place, self.run = (host, int(port)), run

    async def __call__(self, api: str, version: int, **fields: object) -> Any:
        """The answer, or None if none comes or the connection is closed."""
        async with KafkaClient(*self._place) as client:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await client.ask(api, version, **fields)
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                return None

    async def topic(self, name: str, **configs: str) -> str:
        """Make a topic of one partition, if there is none; a broker knows of it only a little later."""
        code = await self.made(name, **configs)
        assert code in (0, ALREADY), (name, configs, code)
        asked = one("MetadataRequest.topics", name=f"{name}{self.run}")
        await self.until((0,), "Metadata", 9, topics=[asked], allow_auto_topic_creation=False)
        return f"{name}{self.run}"

    async def until(self, codes: tuple[int, ...], api: str, version: int, **fields: object) -> None:
        """Ask until the answer, or that for its first topic, has one of these codes."""
        for _ in range(300):
            answer = await self(api, version, **fields)
            if (answer.topics[0] if api == "Metadata" else answer).error_code in codes:
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"{api} to {self._place}: {answer}")

    async def made(self, name: str, *twice: str, **configs: str) -> int:
        path = "CreateTopicsRequest.topics"
        rows = [one(f"{path}.configs", name=key, value=value) for key, value in configs.items()]
        rows += [one(f"{path}.configs", name=key, value="1") for key in twice]
        wanted = one(path, name=f"{name}{self.run}", num_partitions=1, replication_factor=1, configs=rows)
        return int((await self("CreateTopics", 7, topics=[wanted], timeout_ms=5000)).topics[0].error_code)

    async def produce(self, topic: str, records: bytes | None) -> object:
        data = one("ProduceRequest.topic_data.partition_data", index=0, records=records)
        told = [one("ProduceRequest.topic_data", name=topic, partition_data=[data])]
        answer = await self("Produce", 9, acks=-1, timeout_ms=3000, topic_data=told)
        return answer and answer.responses[0].partition_responses[0].error_code


def one(path: str, **fields: object) -> Any:
    return struct(path)(**fields)


async def groups(ask: Asker) -> dict[str, object]:
    group = f"g{ask.run}"

    async def join(name: str, *protocols: str) -> Any:
        rows = [one("JoinGroupRequest.protocols", name=each, metadata=SUBSCRIPTION) for each in protocols]
        fields = {"group_id": name, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
        return await ask("JoinGroup", 3, protocol_type="consumer", protocols=rows, **fields)

    async def commit(offset: int) -> object:
        topic = await ask.topic("commits")
        part = one("OffsetCommitRequest.topics.partitions", partition_index=0, committed_offset=offset)
        rows = [one("OffsetCommitRequest.topics", name=topic, partitions=[part])]
        answer = await ask("OffsetCommit", 8, group_id=group, generation_id_or_member_epoch=-1, topics=rows)
        asked = [one("OffsetFetchRequest.topics", name=topic, partition_indexes=[0])]
        found = await ask("OffsetFetch", 5, group_id=group, topics=asked)
        return answer.topics[0].partitions[0].error_code, found.topics[0].partitions[0].committed_offset

    async def described(name: str, version: int = 5) -> Any:
        return (await ask("DescribeGroups", version, groups=[name], include_authorized_operations=True)).groups[0]

    async def removed(topic: str, partition: int) -> int:
        part = one("OffsetDeleteRequest.topics.partitions", partition_index=partition)
        rows = [one("OffsetDeleteRequest.topics", name=topic, partitions=[part])]
        answer = await ask("OffsetDelete", 0, group_id=group, topics=rows)
        return int(answer.topics[0].partitions[0].error_code if answer.topics else answer.error_code)

    # A fresh broker makes its topic of groups first, and then loads it.
    await ask.until((0,), "FindCoordinator", 3, key=group, key_type=0)
    await ask.until((UNKNOWN_MEMBER,), "Heartbeat", 4, group_id=group, generation_id=1, member_id="m")
    twice = await join(f"twice{ask.run}", "range", "range")
    long = await join("x" * 6000, "range")
    member = await join(f"m{ask.run}", "range")
    row = await described(f"m{ask.run}")
    found: dict[str, object] = {
        "join: protocols named twice": twice and twice.error_code,
        "join: very long group id": long and long.error_code,
        "join: as usual": (member.error_code, member.generation_id, member.protocol_name),
        "host of a member": row.members[0].client_host,
        "operations on a group": row.authorized_operations,
        "commit: offset 3": await commit(3),
        "commit: offset -1": await commit(-1),
        "commit: offset -5": await commit(-5),
        "offsets: of a topic that is not there": await removed(f"none{ask.run}", 0),
        "offsets: of a partition that is not there": await removed(await ask.topic("few"), 99),
        "twice: DescribeGroups": len((await ask("DescribeGroups", 5, groups=[group, group])).groups),
        "describe: unknown group": [(await described(f"no{ask.run}", each)).error_code for each in (5, 6)],
        "twice: FindCoordinator": len(
            (await ask("FindCoordinator", 4, key_type=0, coordinator_keys=["a", "a"])).coordinators
        ),
        "transactions: FindCoordinator": (await ask("FindCoordinator", 3, key="t", key_type=1)).error_code,
        "transactions: InitProducerId": (
            await ask("InitProducerId", 4, transactional_id="t", transaction_timeout_ms=9000)
        ).error_code,
    }
    for label, name in (("empty id", ""), ("unknown", f"no{ask.run}"), ("classic", f"m{ask.run}")):
        (row,) = (await ask("ConsumerGroupDescribe", 1, group_ids=[name])).groups
        found[f"ConsumerGroupDescribe: {label}"] = (row.error_code, row.group_state, len(row.members))
    return found


async def records(ask: Asker) -> dict[str, object]:
    topic, good = await ask.topic("records"), encode_batch([(NOW, None, b"value", ())] * 2)
    garbage = bytearray(encode_batch([(NOW, None, b"x" * 200, ())], codec="gzip"))
    body = gzip.compress(b"\xff" * 50)
    codec_5 = encode_batch([(NOW, None, b"v", ())])
    compacted = await ask.topic("compacted", **{"cleanup.policy": "compact"})
    empty, two = await ask.topic("empty"), await ask.topic("two")
    found: dict[str, object] = {
        "produce: a batch": await ask.produce(topic, good),
        "produce: another": await ask.produce(two, good),
        "produce: no records": await ask.produce(topic, None),
        "produce: cut short": await ask.produce(topic, good[:-3]),
        "produce: bytes behind it": await ask.produce(topic, good + b"abc"),
        "produce: an offset of its own": await ask.produce(topic, encode_batch([(NOW, None, b"v", ())], base_offset=5)),
        "produce: codec 5": await ask.produce(topic, resealed(codec_5, 5, codec_5[61:])),
        "produce: gzip of garbage": await ask.produce(topic, resealed(bytes(garbage), 1, body)),
        "produce: no key for a compacted topic": await ask.produce(compacted, good),
    }

    async def fetched(offset: int, **more: Any) -> object:
        size = more.pop("partition_max_bytes", 1 << 20)
        epoch, leader_epoch = more.pop("last_fetched_epoch", -1), more.pop("current_leader_epoch", -1)
        part = one("FetchRequest.topics.partitions", partition=0, fetch_offset=offset, partition_max_bytes=size)
        part.last_fetched_epoch, part.current_leader_epoch = epoch, leader_epoch
        rows = [one("FetchRequest.topics", topic=topic, partitions=[part])]
        answer = await ask("Fetch", 12, max_wait_ms=0, min_bytes=0, topics=rows, **more)
        if answer is None or answer.error_code or not answer.responses:
            return answer and (answer.error_code, answer.session_id > 0)
        told = answer.responses[0].partitions[0]
        parted = told.diverging_epoch and told.diverging_epoch.epoch
        leader = told.current_leader and (told.current_leader.leader_id, told.current_leader.leader_epoch)
        return told.error_code, bool(told.records), answer.session_id > 0, parted, leader

    async def listed(version: int, timestamp: int, times: int = 1, **more: Any) -> object:
        part = one("ListOffsetsRequest.topics.partitions", partition_index=0, timestamp=timestamp)
        rows = [one("ListOffsetsRequest.topics", name=topic, partitions=[part] * times)]
        answer = await ask("ListOffsets", version, replica_id=-1, topics=rows, **more)
        return answer and [(each.error_code, each.offset >= 0) for each in answer.topics[0].partitions]

    async def ended(name: str, epoch: int, version: int = 4, **more: Any) -> object:
        index = more.pop("partition", 0)
        part = one("OffsetForLeaderEpochRequest.topics.partitions", partition=index, leader_epoch=epoch)
        part.current_leader_epoch = more.pop("current_leader_epoch", -1)
        rows = [one("OffsetForLeaderEpochRequest.topics", topic=name, partitions=[part])]
        answer = await ask("OffsetForLeaderEpoch", version, topics=rows, **({"replica_id": -1} | more))
        return answer and [
            (each.error_code, each.partition, each.leader_epoch, each.end_offset)
            for each in answer.topics[0].partitions
        ]

    async def epoch_of(name: str, timestamp: int) -> object:
        part = one("ListOffsetsRequest.topics.partitions", partition_index=0, timestamp=timestamp)
        rows = [one("ListOffsetsRequest.topics", name=name, partitions=[part])]
        told = (await ask("ListOffsets", 7, replica_id=-1, topics=rows)).topics[0].partitions[0]
        return told.error_code, told.offset, told.leader_epoch

    async def deleted(name: str) -> object:
        part = one("DeleteRecordsRequest.topics.partitions", partition_index=0, offset=0)
        rows = [one("DeleteRecordsRequest.topics", name=name, partitions=[part])]
        return (await ask("DeleteRecords", 2, topics=rows, timeout_ms=3000)).topics[0].partitions[0].error_code

    return found | {
        "fetch: as usual": await fetched(0),
        "fetch: an epoch that never was": await fetched(0, last_fetched_epoch=5),
        "fetch: beyond the end of an epoch": await fetched(99, last_fetched_epoch=0),
        "fetch: negative size": await fetched(0, partition_max_bytes=-1),
        "fetch: a session": await fetched(0, session_epoch=0),
        "list: the end": await listed(7, -1),
        "list: -3 in version 1": await listed(1, -3),
        "list: -3 in version 7": await listed(7, -3),
        "list: isolation level 7": await listed(7, -1, isolation_level=7),
        "twice: ListOffsets": await listed(7, -1, 2),
        **{
            f"list: the epoch at {when} of {what}": await epoch_of(name, when)
            for when in (-1, -2, -3, NOW, NOW + 10**9)
            for what, name in (("records", two), ("nothing", empty))
        },
        "fetch: a later epoch": await fetched(0, current_leader_epoch=5),
        **{
            f"epochs: {epoch} in version {version}": await ended(two, epoch, version)
            for version in (2, 3, 4)
            for epoch in (0, 1, -1)
        },
        "epochs: of nothing": await ended(empty, 0),
        "epochs: a later one of nothing": await ended(empty, 1),
        "epochs: a later leader": await ended(two, 0, current_leader_epoch=3),
        "epochs: the present leader": await ended(two, 0, current_leader_epoch=0),
        "epochs: no such partition": await ended(two, 0, partition=7),
        "epochs: no such topic": await ended(f"nowhere{ask.run}", 0),
        "epochs: for debugging": await ended(two, 0, replica_id=-2),
        "delete records": await deleted(topic),
        "delete records: compacted": await deleted(compacted),
    }


def resealed(batch: bytes, codec: int, body: bytes) -> bytes:
    """The batch with this codec and this body, whatever they are, and a checksum that is right."""
    head = bytearray(batch[:61])
    head[8:12] = (49 + len(body)).to_bytes(4, "big")
    head[21:23] = codec.to_bytes(2, "big")
    head[17:21] = crc32c(bytes(head[21:]) + body).to_bytes(4, "big")
    return bytes(head) + body


async def topics(ask: Asker) -> dict[str, object]:
    found: dict[str, object] = {
        f"create with {key}={value}": await ask.made(f"c{number}", **{key: value})
        for number, (key, value) in enumerate(TAKEN.items())
    }
    topic = await ask.topic("meta")

    async def gone(*rows: tuple[str | None, bytes]) -> object:
        asked = [one("DeleteTopicsRequest.topics", name=name, topic_id=number) for name, number in rows]
        return [each.error_code for each in (await ask("DeleteTopics", 6, topics=asked, timeout_ms=3000)).responses]

    async def metadata(name: str | None, number: bytes = bytes(16), **more: Any) -> Any:
        asked = one("MetadataRequest.topics", name=name, topic_id=number)
        return (await ask("Metadata", 12, topics=[asked], include_topic_authorized_operations=True, **more)).topics[0]

    row = await metadata(topic)
    grown = [one("CreatePartitionsRequest.topics", name=topic, count=2)] * 2
    twice = await ask("CreatePartitions", 3, topics=grown, timeout_ms=3000, validate_only=True)
    cluster = await ask("Metadata", 8, topics=[], include_cluster_authorized_operations=True)
    described = [await describe_cluster(ask, version) for version in (0, 1)]
    mistaken = [(await ask("DescribeCluster", 1, endpoint_type=kind)) for kind in (2, 3)]
    newest = await ask("ApiVersions", 3, client_software_name="tests", client_software_version="1")
    return found | {
        "twice: CreateTopics, a setting": await ask.made("twice", "retention.ms", **{"retention.ms": "1"}),
        "twice: CreatePartitions": len(twice.results),
        "delete: neither name nor id": await gone((None, bytes(16))),
        "delete: both": await gone((topic, bytes(row.topic_id))),
        "delete: twice": await gone((topic, bytes(16)), (topic, bytes(16))),
        "delete: id twice": await gone((None, b"x" * 16), (None, b"x" * 16)),
        "operations on a topic": row.topic_authorized_operations,
        "operations on the cluster": cluster.cluster_authorized_operations,
        "cluster: described": described,
        "cluster: of another kind": [(each.error_code, each.error_message, each.brokers) for each in mistaken],
        "metadata: name and another id": (await metadata(topic, b"y" * 16)).error_code,
        "metadata: made by asking": (await metadata(f"asked{ask.run}", allow_auto_topic_creation=True)).error_code,
        "ApiVersions 4": next(each.max_version for each in newest.api_keys if each.api_key == 18) >= 4,
    }


async def describe_cluster(ask: Asker, version: int) -> object:
    """As in the same node's Metadata, but for what is none of Metadata's."""
    answer = await ask("DescribeCluster", version, include_cluster_authorized_operations=True)
    known = await ask("Metadata", 12, topics=[])
    nodes = [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers]
    return (
        answer.error_code,
        answer.error_message,
        answer.endpoint_type,
        answer.cluster_authorized_operations,
        answer.cluster_id == known.cluster_id,
        answer.controller_id == known.controller_id,
        nodes == [(each.node_id, each.host, each.port, each.rack) for each in known.brokers],
    )


async def configs(ask: Asker) -> dict[str, object]:
    topic = await ask.topic("configs", **{"retention.ms": "5000"})
    path = "IncrementalAlterConfigsRequest.resources"
    put, drop, append, subtract = range(4)

    async def alter(kind: int, name: str, *steps: Step, times: int = 1, trial: bool = False) -> object:
        rows = [one(f"{path}.configs", name=key, config_operation=how, value=value) for key, how, value in steps]
        asked = [one(path, resource_type=kind, resource_name=name, configs=rows)] * times
        answer = await ask("IncrementalAlterConfigs", 1, resources=asked, validate_only=trial)
        await asyncio.sleep(0.1)
        return answer and [each.error_code for each in answer.responses]

    async def replace(times: int, **wanted: str | None) -> object:
        path = "AlterConfigsRequest.resources"
        rows = [one(f"{path}.configs", name=key.replace("_", "."), value=value) for key, value in wanted.items()]
        asked = [one(path, resource_type=2, resource_name=topic, configs=rows)] * times
        answer = await ask("AlterConfigs", 2, resources=asked)
        await asyncio.sleep(0.1)
        return answer and ([each.error_code for each in answer.responses], await own())

    async def described(kind: int, name: str, keys: list[str] | None = None) -> Any:
        asked = one("DescribeConfigsRequest.resources", resource_type=kind, resource_name=name, configuration_keys=keys)
        return (await ask("DescribeConfigs", 4, resources=[asked])).results[0]

    async def own() -> object:
        rows = (await described(2, topic)).configs
        return sorted((row.name, row.value, row.config_type) for row in rows if row.config_source == 1)

    retention, policy = "retention.ms", "cleanup.policy"
    found = {
        "configs: no keys": len((await described(2, topic, [])).configs) > 20,
        "configs: a topic that is not there": (await described(2, f"none{ask.run}")).error_code,
        "configs: loggers": (await described(8, "1")).error_code,
        "resources: of a type that there is not": (await ask("ListConfigResources", 1, resource_types=[3])).error_code,
        "resources: metrics of clients": len((await ask("ListConfigResources", 0)).config_resources),
        "resources: nodes and their loggers": [
            (row.resource_type, row.resource_name)
            for row in (await ask("ListConfigResources", 1, resource_types=[8, 4, 8])).config_resources
        ],
        "configs: of a group": sorted(row.name for row in (await described(32, "g")).configs),
        "alter: set": (await alter(2, topic, (retention, put, "6000")), await own()),
        "alter: delete": (await alter(2, topic, (retention, drop, None)), await own()),
        "alter: delete the unknown": await alter(2, topic, ("no.such", drop, None)),
        "alter: a trial": (await alter(2, topic, (retention, put, "7"), trial=True), await own()),
        "alter: nothing": await alter(2, topic),
        "alter: unknown operation": await alter(2, topic, (retention, 4, "5")),
        "alter: append to no list": await alter(2, topic, (retention, append, "5")),
        "alter: append nonsense": await alter(2, topic, (policy, append, "nope")),
        "alter: subtract nothing": await alter(2, topic, (policy, subtract, "compact")),
        "alter: two resources": await alter(2, topic, (retention, put, "5"), times=2),
        "alter: a topic that is not there": await alter(2, f"none{ask.run}", (retention, put, "5")),
        "alter: a setting of the node": await alter(4, "1", ("log.retention.ms", put, "5"), trial=True),
        "alter: no kind of resource": await alter(3, "x", (retention, put, "5")),
        "alter: another node": await alter(4, "99", (retention, put, "5"), trial=True),
        "alter: replaced": await replace(1, retention_ms="6000"),
        "alter: replaced by nothing": await replace(1),
        "alter: replaced by null": await replace(1, retention_ms=None),
        "alter: a resource twice": await replace(2, retention_ms="1"),
    }  # fmt: skip
    for key, value in (("no.such", "1"), (retention, "x"), (retention, "-5"), (retention, ""), (retention, None)):
        found[f"alter: {key} to {value}"] = await alter(2, topic, (key, put, value))
    for name in ("", "a b"):
        found[f"alter: topic '{name}'"] = await alter(2, name, (retention, put, "5"))
    found["alter: a setting twice"] = await alter(2, topic, (retention, put, "5"), (retention, put, "6"))
    await alter(2, topic, (policy, put, "compact"))
    found["alter: compact taken away"] = await alter(2, topic, (policy, subtract, "compact"))
    return found


async def of_groups(ask: Asker) -> dict[str, object]:
    return await group_configs(ask, ask.run)


async def tools(ask: Asker) -> dict[str, object]:
    """What tools ask of every node. `nowhere` is no topic."""
    topic = await ask.topic("tools")
    sent = encode_batch([(NOW, None, b"v", ())] * 2, producer_id=77_000, producer_epoch=1, base_sequence=0)
    await ask.produce(topic, sent)

    async def listed(version: int, timestamp: int) -> object:
        part = one("ListOffsetsRequest.topics.partitions", partition_index=0, timestamp=timestamp)
        rows = [one("ListOffsetsRequest.topics", name=topic, partitions=[part])]
        told = (await ask("ListOffsets", version, replica_id=-1, topics=rows)).topics[0].partitions[0]
        return told.error_code, told.offset, told.timestamp, told.leader_epoch

    async def sized(version: int) -> object:
        rows = [one("DescribeLogDirsRequest.topics", topic=name, partitions=[0, 9]) for name in (topic, "nowhere")]
        (directory,) = (await ask("DescribeLogDirs", version, topics=rows)).results
        sizes = [(each.name, [vars_of(part) for part in each.partitions]) for each in directory.topics]
        return directory.error_code, sizes, directory.total_bytes > 0, directory.usable_bytes > 0

    async def elected(kind: int) -> object:
        rows = [
            one("ElectLeadersRequest.topic_partitions", topic=name, partitions=[0, 9]) for name in (topic, "nowhere")
        ]
        told = await ask("ElectLeaders", 2, election_type=kind, topic_partitions=rows)
        found = {
            (each.topic, part.partition_id): part.error_code
            for each in told.replica_election_results
            for part in each.partition_result
        }
        return told.error_code, found

    async def moved(partition: int, replicas: list[int] | None) -> object:
        part = one("AlterPartitionReassignmentsRequest.topics.partitions", partition_index=partition, replicas=replicas)
        rows = [one("AlterPartitionReassignmentsRequest.topics", name=topic, partitions=[part])]
        told = await ask("AlterPartitionReassignments", 1, topics=rows, timeout_ms=3000)
        return told.error_code, told.responses[0].partitions[0].error_code

    async def producers() -> object:
        rows = [
            one("DescribeProducersRequest.topics", name=name, partition_indexes=[0, 9]) for name in (topic, "nowhere")
        ]
        told = await ask("DescribeProducers", 0, topics=rows)
        return {
            (each.name, part.partition_index): (part.error_code, [vars_of(found) for found in part.active_producers])
            for each in told.topics
            for part in each.partitions
        }

    async def transactions(*states: str) -> object:
        told = await ask("ListTransactions", 1, state_filters=list(states), producer_id_filters=[5])
        return told.error_code, sorted(told.unknown_state_filters), told.transaction_states

    moving = await ask("ListPartitionReassignments", 0, topics=None, timeout_ms=3000)
    return {
        **{f"list: {when} in version {v}": await listed(v, when) for v in range(7, 11) for when in (-4, -5, -6)},
        **{f"log directory in version {version}": await sized(version) for version in (1, 4)},
        "elect: preferred": await elected(0),
        "elect: unclean": await elected(1),
        "move: to where it is": await moved(0, [1]),
        "move: to a node that is not there": await moved(0, [99]),
        "move: nowhere": await moved(0, []),
        "move: cancel": await moved(0, None),
        "move: a partition that is not there": await moved(9, [1]),
        "move: under way": (moving.error_code, moving.topics),
        "producers": await producers(),
        "transactions": await transactions("Ongoing", "bogus", "ongoing"),
    }


async def additions(ask: Asker) -> dict[str, object]:
    """What leaders of partitions ask coordinators: several transactions in one request. `nowhere` is no topic."""
    topic, names = await ask.topic("added"), (f"one{ask.run}", f"two{ask.run}")
    whose = {name: await producer_of(ask, name) for name in names}
    version = 4

    async def asked(*rows: Any) -> object:
        told = await ask("AddPartitionsToTxn", version, transactions=list(rows))
        return told.error_code, {
            each.transactional_id.removesuffix(ask.run): {
                (found.name.removesuffix(ask.run), part.partition_index): part.partition_error_code
                for found in each.topic_results
                for part in found.results_by_partition
            }
            for each in told.results_by_transaction
        }

    def row(number: int, *places: tuple[str, int], later: int = 0, other: int = 0, verify: bool = True) -> Any:
        path, (producer_id, epoch) = "AddPartitionsToTxnRequest.transactions", whose[names[number]]
        return one(
            path,
            transactional_id=names[number],
            producer_id=producer_id + other,
            producer_epoch=epoch + later,
            verify_only=verify,
            topics=[one(f"{path}.topics", name=name, partitions=[partition]) for name, partition in places],
        )

    async def ended(number: int) -> int:
        """Aborted at level 2, which raises the epoch, and complete: then a repetition is answered."""
        name = names[number]
        (producer_id, epoch), codes = whose[name], list[int]()
        while len(codes) < 2:
            told = await ask(
                "EndTxn", 5, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=False
            )
            if told.error_code in RETRIED:
                await asyncio.sleep(0.1)
            else:
                codes.append(told.error_code)
        whose[name] = told.producer_id, told.producer_epoch
        return max(codes)

    here, there, nowhere = (topic, 0), (topic, 9), ("nowhere", 0)
    answers: dict[str, object] = {}
    for version in (4, 5):
        unknown, nameless = row(0, here), row(0, here)
        unknown.transactional_id, nameless.transactional_id = "unknown", ""
        answers |= {
            f"{what}, version {version}": await asked(*rows)
            for what, rows in {
                "verify: nothing is open": [row(0, here)],
                "verify: an unknown id": [unknown],
                "verify: no id": [nameless],
                "verify: another producer id": [row(0, here, other=9_999)],
                "verify: another epoch": [row(0, here, later=1)],
                "verify: unknown partitions": [row(0, here, there, nowhere)],
                "add: unknown partitions": [row(0, here, there, nowhere, verify=False)],
                "add: two transactions": [row(0, here, verify=False), row(1, here, verify=False)],
                "add: again": [row(0, here, verify=False)],
                "add: another epoch": [row(0, here, later=1, verify=False)],
                "verify: what was added": [row(0, here), row(1, here)],
                "verify: no partitions": [row(0)],
            }.items()
        }
        answers[f"end, version {version}"] = [await ended(0), await ended(1)]
        answers[f"verify: after the end, version {version}"] = await asked(row(0, here, later=-1), row(1, here))
    return answers


async def producer_of(ask: Asker, name: str) -> tuple[int, int]:
    while True:
        told = await ask("InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000)
        if told is not None and told.error_code not in RETRIED:
            return told.producer_id, told.producer_epoch
        await asyncio.sleep(0.1)


def vars_of(row: Any) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__slots__}


CASES: Final[tuple[Callable[[Asker], Awaitable[dict[str, object]]], ...]] = (
    *(groups, records, topics, configs, of_groups, tools, additions),
)


async def differences(kafka: str, node: str) -> tuple[int, dict[str, tuple[object, object]]]:
    """How many answers were compared, and those that differ: Kafka's and the node's."""
    run = f"-{time.time_ns() // 1_000_000:x}"
    theirs, ours = [[await case(Asker(address, run)) for case in CASES] for address in (kafka, node)]
    merged = [(label, one[label], other[label]) for one, other in zip(theirs, ours, strict=True) for label in one]
    return len(merged), {label: (kafka_says, we_say) for label, kafka_says, we_say in merged if kafka_says != we_say}


def main(kafka: str, node: str) -> int:
    asked, found = asyncio.run(differences(kafka, node))
    for label, (theirs, ours) in found.items():
        print(f"{label}: kafka {theirs}, here {ours}: {STAYS.get(label, 'NOBODY KNOWS WHY')}")
    for label in STAYS.keys() - found.keys():
        print(f"{label}: the same in both, though it is listed as a difference")
    print(f"{asked - len(found)} of {asked} answers are the same")
    return int(found.keys() != STAYS.keys())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
