"""Three real nodes by Kafka's protocol, byte by byte: who leads answers, the others say who does, and a reader learns
what became of the epoch that it knew."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.rights import one
from tests.support.pace import Patience
from tests.unit.storage.logs import batch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC = "orders"
PATIENCE_S = 60.0
NOT_LEADER, FENCED, AHEAD = 6, 74, 75


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper) as running:
        yield running


class Asker:
    """One node, about partition 0 of `orders`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = host, int(port)

    async def ask(self, api: str, version: int, **fields: object) -> Any:
        async with KafkaClient(*self._place) as client:
            return await client.ask(api, version, **fields)

    async def leader(self) -> tuple[int, int]:
        asked = one("MetadataRequest.topics", name=TOPIC)
        answer = await self.ask("Metadata", 9, topics=[asked], allow_auto_topic_creation=False)
        part = answer.topics[0].partitions[0]
        return part.leader_id, part.leader_epoch

    async def produced(self, *values: bytes, acks: int = -1) -> tuple[int, int]:
        data = one("ProduceRequest.topic_data.partition_data", index=0, records=batch(*values))
        rows = [one("ProduceRequest.topic_data", name=TOPIC, partition_data=[data])]
        answer = await self.ask("Produce", 9, acks=acks, timeout_ms=10_000, topic_data=rows)
        part = answer.responses[0].partition_responses[0]
        return part.error_code, part.base_offset

    async def fetched(self, epoch: int = -1) -> Any:
        part = one("FetchRequest.topics.partitions", partition=0, partition_max_bytes=1 << 20)
        part.current_leader_epoch = epoch
        rows = [one("FetchRequest.topics", topic=TOPIC, partitions=[part])]
        answer = await self.ask("Fetch", 12, max_bytes=1 << 20, min_bytes=0, topics=rows)
        told = answer.responses[0].partitions[0]
        leader = told.current_leader
        return told.error_code, leader and (leader.leader_id, leader.leader_epoch)

    async def end_of(self, epoch: int) -> tuple[int, int, int]:
        part = one("OffsetForLeaderEpochRequest.topics.partitions", partition=0, leader_epoch=epoch)
        rows = [one("OffsetForLeaderEpochRequest.topics", topic=TOPIC, partitions=[part])]
        answer = await self.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=rows)
        told = answer.topics[0].partitions[0]
        return told.error_code, told.leader_epoch, told.end_offset

    async def listed(self, timestamp: int) -> tuple[int, int, int]:
        part = one("ListOffsetsRequest.topics.partitions", partition_index=0, timestamp=timestamp)
        rows = [one("ListOffsetsRequest.topics", name=TOPIC, partitions=[part])]
        told = (await self.ask("ListOffsets", 7, replica_id=-1, topics=rows)).topics[0].partitions[0]
        return told.error_code, told.offset, told.leader_epoch

    async def given_up(self, offset: int) -> tuple[int, int]:
        part = one("DeleteRecordsRequest.topics.partitions", partition_index=0, offset=offset)
        rows = [one("DeleteRecordsRequest.topics", name=TOPIC, partitions=[part])]
        told = (await self.ask("DeleteRecords", 2, topics=rows, timeout_ms=30_000)).topics[0].partitions[0]
        return told.error_code, told.low_watermark


def test_who_leads_answers_and_the_others_say_who_does(cluster: ClusterNodes) -> None:
    """CL-K1, CL-L8, CL-A3b, KIP-320."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_S)
    askers = {number: Asker(node.kafka_address) for number, node in cluster.nodes.items()}

    async def story() -> None:
        first, epoch = await askers[1].leader()
        leader = askers[first]
        assert [await leader.produced(b"a", b"b", acks=acks) for acks in (-1, 1)] == [(0, 0), (0, 2)]
        assert await leader.fetched(epoch) == (0, None)
        assert (await leader.fetched(epoch + 1))[0] == AHEAD
        assert [await leader.end_of(each) for each in (epoch, epoch + 1)] == [(0, epoch, 4), (0, -1, -1)]
        for number, other in askers.items():
            if number != first:
                assert await other.produced(b"x") == (NOT_LEADER, -1)
                assert await other.fetched() == (NOT_LEADER, (first, epoch))
                assert await other.end_of(epoch) == (NOT_LEADER, -1, -1)
                assert await other.listed(-1) == (NOT_LEADER, -1, -1)
                assert await other.given_up(1) == (NOT_LEADER, -1)
        assert await leader.given_up(2) == (0, 2)
        assert [await leader.listed(when) for when in (-2, -1)] == [(0, 2, epoch), (0, 4, epoch)]

        cluster.nodes[first].kill()
        del askers[first]
        patience = Patience(PATIENCE_S)
        while (now := await next(iter(askers.values())).leader())[0] not in askers or now[1] == epoch:
            assert patience.lasts(), cluster.log_tail()
        second, later = now
        new = askers[second]
        while (told := await new.produced(b"c"))[0] == NOT_LEADER:
            assert patience.lasts(), cluster.log_tail()
        assert told == (0, 4)
        assert await new.fetched(epoch) == (FENCED, (second, later))
        assert [await new.end_of(each) for each in (epoch, later)] == [(0, epoch, 4), (0, later, 5)]
        assert [await new.listed(when) for when in (-2, -1)] == [(0, 2, epoch), (0, 5, later)]

    asyncio.run(story())
