"""Metadata, FindCoordinator and watches by gRPC of a node that is one of three (rules CL-K1 and CL-K2)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.errors import NodeShuttingDown, TemporarilyUnknown
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.runtime.ports import LogNotReady
from muster.coordinator.server.cluster_backend.group_service import ClusterGroupCoordinator
from muster.coordinator.server.cluster_backend.metadata_service import ClusterBrokerService
from muster.coordinator.server.services.group_coordinator import GroupWatchers
from muster.storage.broker.requests import LogRequests
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from tests.fakes.memory_files import MemoryFiles
from tests.support.cluster_image import ALL, ME, OTHERS, ThreeNodes, led, node, topic_id
from tests.support.group_service import group_service_context
from tests.support.kafka.door import OneShard
from tests.unit.storage.logs import T0, open_broker

SHARDS = 1
CALL = cast(Any, SimpleNamespace(peer_host="h"))


def told(cluster: ThreeNodes, request: pb.MetadataRequest) -> pb.MetadataResponse:
    broker = open_broker(MemoryFiles())
    broker.create_topic("stray", 1)

    async def run() -> pb.MetadataResponse:
        requests = LogRequests.standalone(broker, clock_ms=lambda: T0)
        service = ClusterBrokerService(requests, cluster.view, advertised=lambda: ("localhost", 1))
        try:
            answer = await service.metadata(request, None)
            assert answer.cluster_id == broker.cluster_id
            return answer
        finally:
            await requests.close()

    answer = asyncio.run(run())
    broker.close()
    return answer


def test_metadata_has_all_nodes_and_who_leads_what() -> None:
    answer = told(ThreeNodes(), pb.MetadataRequest(topics=["t", "stray"]))
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
        (each, f"node-{each}.example", 50051) for each in ALL
    ]
    assert answer.controller_id == OTHERS[0]
    there, stray = answer.topics
    assert (there.error_code, there.topic_id, there.is_internal, stray.error_code) == (0, topic_id("t"), False, 3)
    assert [
        (part.partition_index, part.leader_id, part.leader_epoch, list(part.replica_nodes), list(part.isr_nodes))
        for part in there.partitions
    ] == [(number, ALL[number], 3, list(ALL), list(ALL)) for number in range(3)]
    assert {part.error_code for part in there.partitions} == {0}


def test_a_topic_that_is_named_often_is_told_of_once() -> None:
    answer = told(ThreeNodes(), pb.MetadataRequest(topics=["t", "none", *["t"] * 99_998]))
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("t", 3), ("none", 0)]


def test_many_partitions_are_told_of_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made, here = ClusterBrokerService._partition, set[bool]()

    def seen(service: ClusterBrokerService, *about: Any) -> pb.PartitionMetadata:
        here.add(threading.current_thread() is threading.main_thread())
        return made(service, *about)

    monkeypatch.setattr(ClusterBrokerService, "_partition", seen)
    cluster = ThreeNodes()
    told(cluster, pb.MetadataRequest(topics=["t"]))
    assert here == {True}
    here.clear()
    cluster.topics(many={number: led(ME) for number in range(500)})
    answer = told(cluster, pb.MetadataRequest(all_topics=True))
    assert {topic.name: len(topic.partitions) for topic in answer.topics} == {"t": 3, "many": 500}
    assert here == {False}


def test_a_node_that_is_cut_off_sends_clients_to_another_one() -> None:
    cluster = ThreeNodes()
    cluster.cut_off = True
    with pytest.raises(TemporarilyUnknown, match="ask another node"):
        told(cluster, pb.MetadataRequest(topics=["t"]))


@pytest.mark.parametrize("internal", [False, True])
def test_all_topics_are_those_of_the_cluster_but_what_nodes_keep_for_themselves(internal: bool) -> None:
    cluster = ThreeNodes()
    cluster.topics(__security={0: led(ME)})
    answer = told(cluster, pb.MetadataRequest(all_topics=True, include_internal=internal))
    assert {topic.name for topic in answer.topics} == {"t", *(("__consumer_offsets", "__rebalances") * internal)}
    assert told(cluster, pb.MetadataRequest(topics=["__security"])).topics[0].error_code == 3


def test_a_partition_without_a_leader_and_replicas_of_a_node_that_is_gone() -> None:
    cluster = ThreeNodes()
    cluster.nodes(node(8, gone=True))
    cluster.topics(t={0: led(-1, epoch=9, isr=[8]), 1: led(8), 2: led(9)}, new={})
    answer = told(cluster, pb.MetadataRequest(topics=["t", "new"]))
    assert (answer.controller_id, [each.node_id for each in answer.brokers]) == (-1, [ME, 9])
    nobody, gone, well = answer.topics[0].partitions
    assert [(part.error_code, part.leader_id) for part in (nobody, gone, well)] == [(5, -1), (5, -1), (0, 9)]
    assert (nobody.leader_epoch, list(nobody.isr_nodes)) == (9, [8])
    assert [list(part.offline_replicas) for part in (nobody, gone, well)] == [[8]] * 3
    assert answer.topics[1].error_code == 5, "nobody leads it yet"


class Looked(OneShard):
    async def ask_and_look(self, shard: int, event: Any, wanted: type[Any], look: Callable[[], Any]) -> Any:
        return await self.ask_shard(shard, event, wanted), look()


class Ends:
    """Of partitions led elsewhere: asked for, and known after a wait."""

    def __init__(self) -> None:
        self.waits = 0
        self.untried = False

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        if not self.waits:
            self.untried = True
            raise LogNotReady("its leader is asked", lambda: None)
        return 3, 70

    async def known(self) -> None:
        self.waits += 1
        self.untried = False


def coordinator(cluster: ThreeNodes, watchers: GroupWatchers, ends: Ends | None = None) -> ClusterGroupCoordinator:
    context = group_service_context(
        driver=Looked(),
        watchers=watchers,
        shards=SHARDS,
        partitions=lambda: {"t": 3},
        log_span=(ends or Ends()).span,
    )
    return ClusterGroupCoordinator(cluster.view, context, ends)


def test_the_coordinator_of_a_group_is_the_leader_of_its_shard() -> None:
    cluster = ThreeNodes(SHARDS)
    for leader in ALL:
        cluster.topics(__consumer_offsets={0: led(leader, epoch=leader)})
        found = asyncio.run(found_by(cluster))
        assert (found.error_code, found.node_id, found.partition) == (0, leader, 0)
        assert (found.host, found.port) == (f"node-{leader}.example", 50051)


async def found_by(cluster: ThreeNodes) -> group_pb.FindCoordinatorResponse:
    return await coordinator(cluster, GroupWatchers(1)).find_coordinator(group_pb.FindCoordinatorRequest(key="g"), CALL)


def test_a_shard_without_a_leader_has_no_coordinator() -> None:
    cluster = ThreeNodes(SHARDS)
    cluster.topics(__consumer_offsets={0: led(-1)})
    found = asyncio.run(found_by(cluster))
    assert (found.error_code, found.node_id, found.host, found.partition) == (15, -1, "", 0)
    assert "shard 0" in found.error_message


@pytest.mark.parametrize("with_log", [True, False])
def test_the_end_of_a_log_that_is_led_elsewhere_is_waited_for_where_it_is_asked_for(with_log: bool) -> None:
    async def story() -> None:
        ends = Ends()
        service = coordinator(ThreeNodes(SHARDS), GroupWatchers(1), ends)
        request = group_pb.OffsetFetchRequest(group_id="g", include_log_offsets=with_log)
        request.topics.add(name="t", partition_indexes=[0, 2])
        answer = await service.offset_fetch(request, CALL)
        rows = [row for topic in answer.topics for row in topic.partitions]
        assert [(row.partition_index, row.HasField("log_end_offset")) for row in rows] == [(0, with_log), (2, with_log)]
        assert {(row.log_start_offset, row.log_end_offset) for row in rows} == {(3, 70) if with_log else (0, 0)}
        assert ends.waits == with_log
        await service.offset_fetch(request, CALL)
        assert ends.waits == with_log, "what is known is told at once"

    asyncio.run(story())


Watch = Callable[[Any, GroupWatchers, ThreeNodes], Awaitable[None]]


def watched(story: Watch) -> None:
    async def run() -> None:
        cluster, watchers = ThreeNodes(SHARDS), GroupWatchers(1)
        service = coordinator(cluster, watchers)
        service.look_s = 0.001
        watch = service.watch_group(group_pb.WatchGroupRequest(group_id="g"), CALL)
        async with asyncio.timeout(20):
            await story(watch, watchers, cluster)
        assert len(watchers) == 0

    asyncio.run(run())


def test_whoever_watches_a_group_of_another_node_is_sent_there() -> None:
    async def story(watch: Any, watchers: GroupWatchers, cluster: ThreeNodes) -> None:
        cluster.topics(__consumer_offsets={0: led(8)})
        with pytest.raises(NodeShuttingDown, match="'g'; find the coordinator"):
            await anext(watch)

    watched(story)


def test_a_watch_ends_when_the_group_moves_and_hears_of_it_until_then() -> None:
    async def story(watch: Any, watchers: GroupWatchers, cluster: ThreeNodes) -> None:
        assert (await anext(watch)).group_state == "Dead"
        reading = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.01)  # many a look, which changes nothing
        watchers.publish(GroupChanged("g", "Stable", 3))
        assert (await reading).generation_id == 3
        reading = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        cluster.topics(__consumer_offsets={0: led(8)})
        with pytest.raises(NodeShuttingDown):
            await reading

    watched(story)
