"""What the node keeps of users and rights: nobody, super users included, reads, changes or sees it by any door."""

import asyncio
from typing import Any

import pytest

from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.server.security.security_store import SECURITY_TOPIC, SecurityStore
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.rpc.v1 import staging_service_pb2 as staged
from muster.storage.service.broker_service import BrokerService
from muster.storage.service.staging_service import StagingService
from muster.storage.staging.staging import Staging
from tests.support.kafka.asked import HUNG_UP, Asked
from tests.support.kafka.memory_node import MemoryNode
from tests.support.kafka.rights import FIELDS, ROOT, authorizer, codes, request, words

SERVED = {api.name: api for api in APIS}
UNKNOWN = 3
NAMED = [api for api in FIELDS if api in SERVED]

OF_TOPICS = {
    *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "CreateTopics", "DeleteTopics", "DeleteRecords"),
    *("DescribeConfigs", "AlterConfigs", "CreatePartitions", "IncrementalAlterConfigs", "OffsetDelete"),
}
"""Those that have to say that there is none, or that it cannot be made."""


async def asked_of(there: bool, api: str) -> list[Any]:
    async with MemoryNode({"t": 1}, authorizer()) as node:
        if there:
            SecurityStore(node.broker).load()
        root, answers = Asked(node.dispatch, ROOT), []
        for version in range(SERVED[api].first, SERVED[api].last + 1):
            answer = await root(api, version, request(api, [SECURITY_TOPIC], ["g"]))
            if api == "Metadata":
                answer.cluster_id = ""
            answers.append(answer)
        return answers


@pytest.mark.parametrize("api", NAMED)
def test_it_is_as_if_it_were_not_there(api: str) -> None:
    there, gone = asyncio.run(asked_of(True, api)), asyncio.run(asked_of(False, api))
    assert there == gone
    if api in OF_TOPICS:
        assert all({3, 17} & set(codes(answer)) for answer in there if answer is not HUNG_UP), there


def test_it_is_on_no_list() -> None:
    async def story() -> None:
        async with MemoryNode({"t": 1}, authorizer()) as node:
            SecurityStore(node.broker).load()
            root = Asked(node.dispatch, ROOT)
            for api, version, fields in (("Metadata", 12, {"topics": None}), ("ListConfigResources", 1, {})):
                answer = await root(api, version, **fields)
                assert SECURITY_TOPIC not in set(words(answer))
                assert "t" in set(words(answer))

    asyncio.run(story())


def test_by_grpc_it_is_as_if_it_were_not_there() -> None:
    async def story() -> None:
        async with MemoryNode({"t": 1}, authorizer()) as node:
            SecurityStore(node.broker).load()
            service = BrokerService(node.requests, node_id=1, advertised=lambda: ("localhost", 1))
            listed = await service.metadata(pb.MetadataRequest(all_topics=True, include_internal=True), None)
            assert sorted(topic.name for topic in listed.topics) == ["__consumer_offsets", "__rebalances", "t"]
            name = SECURITY_TOPIC
            part = {"partition_data": [{"index": 0, "records": b"x" * 100}]}
            told = [
                await service.metadata(pb.MetadataRequest(topics=[name]), None),
                await service.delete_topics(pb.DeleteTopicsRequest(topic_names=[name]), None),
                await service.create_topics(pb.CreateTopicsRequest(topics=[{"name": name}]), None),
                await service.create_partitions(pb.CreatePartitionsRequest(topics=[{"name": name, "count": 2}]), None),
                await service.describe_configs(pb.DescribeConfigsRequest(topics=[name]), None),
                await service.alter_configs(
                    pb.AlterConfigsRequest(topics=[{"topic": name, "configs": {"retention.ms": "1"}}]), None
                ),
                await service.produce(pb.ProduceRequest(acks=1, topic_data=[{"name": name, **part}]), None),
                await service.fetch(
                    pb.FetchRequest(topics=[{"topic": name, "partitions": [{"partition": 0}]}], max_bytes=1000), None
                ),
                await service.multi_fetch(pb.MultiFetchRequest(fetches=[{"topic": name}], max_bytes=1000), None),
                await service.list_offsets(
                    pb.ListOffsetsRequest(topics=[{"name": name, "partitions": [{"timestamp": -1}]}]), None
                ),
                await service.delete_records(
                    pb.DeleteRecordsRequest(topics=[{"name": name, "partitions": [{"offset": -1}]}]), None
                ),
            ]
            for answer in told:
                said = answer if not isinstance(answer, bytes) else pb.FetchResponse.FromString(answer)
                assert "ERROR_CODE_UNKNOWN_TOPIC" in str(said) or "INVALID_TOPIC" in str(said), said
            stage = StagingService(Staging(node.broker), node.requests.commit)
            sent = staged.StageRecordsRequest(sink="s", batch=1, attempt="a", topic_data=[{"name": name, **part}])
            assert (await stage.stage_records(sent, None)).error_code == UNKNOWN

    asyncio.run(story())
