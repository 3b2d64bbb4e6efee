"""KEDA's calls over real gRPC, by a stub made of its contract: each method, each refusal, both fields of a number."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from muster.coordinator.core.model.events import Unload
from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as keda
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import commit, connected, create_topic, lone_member, parked_join, serving
from tests.support.stubs import ExternalScalerStub, GroupCoordinatorStub
from tests.unit.storage.logs import T0, batch


@asynccontextmanager
async def scaling(data: Path) -> AsyncIterator[tuple[CoordinatorNode, grpc.aio.Channel, ExternalScalerStub]]:
    """A node with the topic `t` of four partitions, of which the group `s` has read nothing in two."""
    async with serving(data, scaler_enable="true", observe_sample_ms="100") as node, connected(node) as channel:
        await create_topic(channel, "t", 4)
        for partition in (0, 1):
            write(node, partition, 25)
        await GroupCoordinatorStub(channel).OffsetCommit(commit(0, 0, 1, 2, 3))
        yield node, channel, ExternalScalerStub(channel)


def write(node: CoordinatorNode, partition: int, records: int) -> None:
    node.broker.append("t", partition, batch(*[b"x"] * records), T0)
    node.broker.flush()


def ref(**metadata: str) -> keda.ScaledObjectRef:
    given = {"scalerAddress": "muster:9290", "consumerGroup": "s"} | metadata
    return keda.ScaledObjectRef(name="worker", namespace="default", scalerMetadata=given)


async def value(stub: ExternalScalerStub, **metadata: str) -> tuple[int, float]:
    """As KEDA takes it: the specification first, then the metric of that name."""
    spec = (await stub.GetMetricSpec(ref(**metadata))).metricSpecs[0]
    request = keda.GetMetricsRequest(scaledObjectRef=ref(**metadata), metricName=spec.metricName)
    found = (await stub.GetMetrics(request)).metricValues[0]
    assert found.metricName == spec.metricName
    return found.metricValue, found.metricValueFloat


async def refusal(stub: ExternalScalerStub, **metadata: str) -> tuple[grpc.StatusCode, str]:
    """The same from every method that looks at the group."""
    answers = set()
    request = keda.GetMetricsRequest(scaledObjectRef=ref(**metadata))
    for call in (stub.IsActive(ref(**metadata)), stub.GetMetrics(request)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        answers.add((refused.value.code(), refused.value.details() or ""))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.StreamIsActive(ref(**metadata)).read()
    answers.add((refused.value.code(), refused.value.details() or ""))
    (answer,) = answers
    return answer


def test_target_value_and_activity(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (_, _, stub):
            spec = (await stub.GetMetricSpec(ref(topic="t", lagThreshold="20"))).metricSpecs[0]
            assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("kafka-t", 20, 20.0)
            assert await value(stub, topic="t", lagThreshold="20") == (50, 50.0)
            assert await value(stub, lagThreshold="10") == (40, 40.0)  # no more replicas than partitions
            assert await value(stub, lagThreshold="10", allowIdleConsumers="true") == (50, 50.0)
            assert await value(stub, topic="t", lagThreshold="1", limitToPartitionsWithLag="true") == (2, 2.0)
            assert await value(stub, topic="t", partitionLimitation="0,2-3", lagThreshold="20") == (25, 25.0)
            assert (await stub.IsActive(ref(activationLagThreshold="49"))).result
            assert not (await stub.IsActive(ref(activationLagThreshold="50"))).result

    asyncio.run(run())


def test_every_key_that_says_how_to_count_has_its_effect(tmp_path: Path) -> None:
    """Of group n one partition of four has a position: 25 records wait there, 25 in one without."""

    async def run() -> None:
        async with scaling(tmp_path) as (_, channel, stub):
            await GroupCoordinatorStub(channel).OffsetCommit(commit(0, 0, group_id="n"))
            of_n = {"consumerGroup": "n", "topic": "t", "allowIdleConsumers": "true"}
            assert await value(stub, **of_n) == (25 + 3, 25.0 + 3)  # latest: one for each partition without
            assert await value(stub, **of_n, offsetResetPolicy="earliest") == (50, 50.0)
            assert await value(stub, **of_n, scaleToZeroOnInvalidOffset="true") == (25, 25.0)
            three = {"topic": "t", "lagThreshold": "20"}
            assert await value(stub, **three) == (50, 50.0)  # three replicas
            assert await value(stub, **three, ensureEvenDistributionOfPartitions="true") == (80, 80.0)  # four
            assert await value(stub, maxStep="1") == (10, 10.0)  # nobody is there: one at first
            stuck = {"topic": "t", "excludePersistentLag": "true", "allowIdleConsumers": "true"}
            assert await value(stub, **stuck) == (
                50,
                50.0,
            )  # not for long enough yet; tests/unit/observability/scaler has the rest
            kafka_s = {"bootstrapServers": "old:9092", "sasl": "plaintext", "tls": "disable"}
            assert await value(stub, **kafka_s, topicFromEnv="t") == (40, 40.0)

    asyncio.run(run())


def test_activity_is_pushed_when_it_changes(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (node, channel, stub):
            stream = stub.StreamIsActive(ref())
            assert (await stream.read()).result
            await GroupCoordinatorStub(channel).OffsetCommit(commit(25, 0, 1))
            assert not (await stream.read()).result
            write(node, 3, 1)
            assert (await stream.read()).result
            stream.cancel()

    asyncio.run(run())


def test_a_node_that_stops_ends_the_streams(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (node, _, _):
            other = grpc.aio.insecure_channel(f"127.0.0.1:{node.bound.port}")
            stream = ExternalScalerStub(other).StreamIsActive(ref())
            assert (await stream.read()).result
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        await other.close()

    asyncio.run(run())


def test_what_is_not_there_is_no_figure(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (_, _, stub):
            code, said = await refusal(stub, consumerGroup="none")
            assert code is grpc.StatusCode.NOT_FOUND
            assert "there is no group 'none' on this node" in said
            code, said = await refusal(stub, topic="none")
            assert code is grpc.StatusCode.NOT_FOUND
            assert "there is no topic 'none' on this node" in said
            code, said = await refusal(stub, topic="t", partitionLimitation="7")
            assert code is grpc.StatusCode.NOT_FOUND

    asyncio.run(run())


def test_a_group_whose_shard_is_away_is_no_figure(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (node, _, stub):
            shard = partition_for("s", node.engine.shards)
            node.driver.submit_event(shard, Unload())
            assert (await refusal(stub))[0] is grpc.StatusCode.UNAVAILABLE
            assert node.engine.status(shard) is ShardStatus.UNLOADED
            # What needs no group is answered.
            assert (await stub.GetMetricSpec(ref())).metricSpecs[0].targetSize == 10

    asyncio.run(run())


def test_bad_metadata_names_key_value_and_what_was_expected(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (_, _, stub):
            code, said = await refusal(stub, lagThreshold="many")
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert said == "lagThreshold is 'many'; expected a whole number of 1 or more"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.GetMetrics(keda.GetMetricsRequest(scaledObjectRef=ref(), metricName="kafka-other"))
            assert refused.value.details() == (
                "metricName is 'kafka-other'; expected kafka-s-topics, as GetMetricSpec named it"
            )

    asyncio.run(run())


def test_a_figure_is_held_while_the_group_rebalances(tmp_path: Path) -> None:
    async def run() -> None:
        async with scaling(tmp_path) as (_, channel, stub):
            groups = GroupCoordinatorStub(channel)
            member_id = await lone_member(groups)
            request = commit(20, 0, group_id="g")
            request.member_id, request.generation_id_or_member_epoch = member_id, 1
            await groups.OffsetCommit(request)
            of_g = {"consumerGroup": "g", "topic": "t", "partitionLimitation": "0", "lagThreshold": "1"}
            more = {"allowIdleConsumers": "true"}
            assert await value(stub, **of_g, **more) == (5, 5.0)
            joining = await parked_join(groups)
            request.topics[0].partitions[0].committed_offset = 25
            assert (await groups.OffsetCommit(request)).topics[0].partitions[0].error_code == 0
            assert await value(stub, **of_g, **more) == (5, 5.0)
            assert (await stub.IsActive(ref(**of_g, **more))).result
            assert await value(stub, **of_g, holdDuringRebalance="false") == (0, 0.0)
            joining.cancel()

    asyncio.run(run())


def test_replicas_by_rates(tmp_path: Path) -> None:
    """Nothing is known of what one consumer can do yet: those that are there stay, whatever waits."""

    async def run() -> None:
        async with scaling(tmp_path) as (_, channel, stub):
            groups = GroupCoordinatorStub(channel)
            member_id = await lone_member(groups)
            request = commit(0, 0, 1, 2, 3, group_id="g")
            request.member_id, request.generation_id_or_member_epoch = member_id, 1
            await groups.OffsetCommit(request)
            found = await value(stub, consumerGroup="g", lagThreshold="10", drainTargetSeconds="60")
            assert found == (10, 10.0)

    asyncio.run(run())


def test_a_node_that_was_not_asked_to_has_no_scaler(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as node, connected(node) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ExternalScalerStub(channel).IsActive(ref())
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(run())
