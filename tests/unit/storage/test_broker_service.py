"""The service without a transport: what each RPC answers, long polls, group commit, and what is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.long_work import TURN
from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import MalformedRequest
from muster.storage.records.batch import decode_records
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.broker_service import BrokerService
from muster.storage.types import AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0, batch, open_broker

Story = Callable[[BrokerService, Broker], Awaitable[None]]


def play(story: Story, disk: MemoryFiles | None = None, **settings: Any) -> None:
    broker = open_broker(disk or MemoryFiles(), **settings)
    broker.create_topic("t", 3)
    broker.create_topic("__consumer_offsets", 1, internal=True)

    async def run() -> None:
        service = BrokerService(
            LogRequests.standalone(broker, clock_ms=lambda: T0), node_id=1, advertised=lambda: ("localhost", 9290)
        )
        try:
            async with asyncio.timeout(20):
                await story(service, broker)
        finally:
            await service.requests.close()

    asyncio.run(run())
    broker.close()


def produce(*parts: tuple[str, int, bytes], acks: int = -1, timeout_ms: int = 5000) -> pb.ProduceRequest:
    request = pb.ProduceRequest(acks=acks, timeout_ms=timeout_ms)
    for topic, partition, data in parts:
        request.topic_data.add(name=topic).partition_data.add(index=partition, records=data)
    return request


def fetch(*parts: tuple[str, int, int], wait_ms: int = 0, least: int = 1, most: int = 1 << 20) -> pb.FetchRequest:
    request = pb.FetchRequest(max_wait_ms=wait_ms, min_bytes=least, max_bytes=most)
    for topic, partition, offset in parts:
        request.topics.add(topic=topic).partitions.add(partition=partition, fetch_offset=offset)
    return request


def results(response: bytes) -> list[Any]:
    response = pb.FetchResponse.FromString(response)
    return [part for topic in response.responses for part in topic.partitions]


def texts(result: Any) -> list[bytes | None]:
    return [record.value for record in decode_records(result.records)]


def test_what_is_produced_is_fetched() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        answer = await service.produce(produce(("t", 0, batch(b"a", b"b")), ("t", 1, batch(b"c"))), None)
        assert [p.base_offset for topic in answer.responses for p in topic.partition_responses] == [0, 0]
        assert broker.log("t", 0).unflushed == 0
        found = results(await service.fetch(fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0)), None))
        assert [texts(result) for result in found] == [[b"a", b"b"], [b"c"], []]
        assert [result.high_watermark for result in found] == [2, 1, 0]

    play(story)


def test_one_bad_partition_does_not_hurt_the_others() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        request = produce(
            ("t", 0, batch(b"good")),
            ("t", 1, b"bad"),
            ("nowhere", 0, batch(b"x")),
            ("__consumer_offsets", 0, batch(b"x")),
        )
        answer = await service.produce(request, None)
        parts = [p for topic in answer.responses for p in topic.partition_responses]
        assert [(p.error_code, p.base_offset) for p in parts] == [(0, 0), (2, -1), (3, -1), (17, -1)]
        assert all(p.error_message for p in parts[1:])
        found = results(await service.fetch(fetch(("t", 0, 0)), None))
        assert texts(found[0]) == [b"good"]
        beyond = results(await service.fetch(fetch(("t", 0, 7), ("t", 9, 0), wait_ms=5000), None))
        assert [result.error_code for result in beyond] == [1, 3]

    play(story)


def test_a_long_poll_is_woken_by_an_append() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        poll = asyncio.create_task(service.fetch(fetch(("t", 0, 0), ("t", 1, 0), wait_ms=15_000), None))
        await asyncio.sleep(0)
        assert service.requests.parking.parked == 1
        await service.produce(produce(("t", 1, batch(b"news"))), None)
        assert texts(results(await poll)[1]) == [b"news"]
        assert service.requests.parking.parked == 0

    play(story)


def test_a_long_poll_waits_for_enough_bytes_or_its_time() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        size = len(batch(b"x"))
        poll = asyncio.create_task(service.fetch(fetch(("t", 0, 0), wait_ms=15_000, least=2 * size), None))
        await service.produce(produce(("t", 0, batch(b"x"))), None)
        assert not poll.done()
        await service.produce(produce(("t", 0, batch(b"x"))), None)
        assert len(results(await poll)[0].records) == 2 * size
        short = await service.fetch(fetch(("t", 1, 0), wait_ms=1), None)
        assert results(short)[0].records == b""

    play(story)


def test_a_poll_that_is_cancelled_leaves_nothing_behind() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        polls = [asyncio.create_task(service.fetch(fetch(("t", 0, 0), wait_ms=15_000), None)) for _ in range(3)]
        await asyncio.sleep(0)
        assert service.requests.parking.parked == 3
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        assert service.requests.parking.parked == 0
        assert service.requests.parking._waiting == {}

    play(story)


def test_a_full_house_answers_soon() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        parked = asyncio.create_task(service.fetch(fetch(("t", 0, 0), wait_ms=15_000), None))
        await asyncio.sleep(0)
        answered = await service.fetch(fetch(("t", 0, 0), wait_ms=15_000), None)
        assert results(answered)[0].records == b""
        await service.requests.close()
        assert results(await parked)[0].records == b""

    play(story, fetch__max__parked=1)


def test_a_deleted_topic_ends_the_polls_on_it() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        poll = asyncio.create_task(service.fetch(fetch(("t", 0, 0), wait_ms=15_000), None))
        await asyncio.sleep(0)
        answer = await service.delete_topics(pb.DeleteTopicsRequest(topic_names=["t", "t2"]), None)
        assert [topic.error_code for topic in answer.topics] == [0, 3]
        assert results(await poll)[0].error_code == 3

    play(story)


def test_the_byte_budget_is_shared_among_partitions() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        for partition in range(3):
            for _ in range(20):
                broker.append("t", partition, batch(b"x" * 100), T0)
        broker.flush()
        size = len(batch(b"x" * 100))
        for _ in range(6):
            found = results(await service.fetch(fetch(*(("t", n, 0) for n in range(3)), most=9 * size), None))
            assert [len(result.records) // size for result in found] == [3, 3, 3]
        tiny = results(await service.fetch(fetch(*(("t", n, 0) for n in range(3)), most=1), None))
        assert sorted(len(result.records) for result in tiny) == [0, 0, size]
        request = pb.MultiFetchRequest(max_bytes=4 * size, min_bytes=1)
        for partition, limit in ((2, size), (0, 0)):
            request.fetches.add(topic="t", partition=partition, partition_max_bytes=limit)
        multi = pb.MultiFetchResponse.FromString(await service.multi_fetch(request, None))
        assert [(r.topic, r.result.partition_index) for r in multi.results] == [("t", 2), ("t", 0)]
        assert len(multi.results[0].result.records) == size

    play(story)


def test_many_produces_share_one_flush() -> None:
    disk = MemoryFiles()
    syncs: list[str] = []

    async def story(service: BrokerService, broker: Broker) -> None:
        disk.fault = lambda operation, path: syncs.append(path) if operation == "sync" else None
        answers = await asyncio.gather(*(service.produce(produce(("t", 0, batch(b"%d" % n))), None) for n in range(50)))
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert sorted(offsets) == list(range(50))
        assert 1 <= len(syncs) <= 2

    play(story, disk)


def test_a_flush_that_nobody_waits_for_comes_all_the_same() -> None:
    """Or the record could not be read until somebody else produces."""

    async def story(service: BrokerService, broker: Broker) -> None:
        await service.produce(produce(("t", 0, batch(b"x")), acks=0), None)
        (found,) = results(await service.fetch(fetch(("t", 0, 0), wait_ms=600_000), None))
        assert texts(found) == [b"x"]

    play(story)


def test_a_failed_flush_is_told_to_all_who_waited() -> None:
    disk = MemoryFiles()

    async def story(service: BrokerService, broker: Broker) -> None:
        def fault(operation: str, path: str) -> None:
            if operation == "sync" and "/t-0/" in path:
                raise OSError(5, "Input/output error")

        disk.fault = fault
        answers = await asyncio.gather(*(service.produce(produce(("t", n % 2, batch(b"x"))), None) for n in range(6)))
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        assert codes == [56, 0, 56, 0, 56, 0]
        disk.fault = None

    play(story, disk)


def test_group_commit_serves_other_writers_too() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        commit: GroupCommit = service.requests.commit
        broker.append("__consumer_offsets", 0, batch(b"x"), T0, origin=AppendOrigin.COORDINATOR)
        await commit.flushed(("__consumer_offsets", 0))
        assert broker.log("__consumer_offsets", 0).unflushed == 0
        await commit.flushed(("__consumer_offsets", 0))

    play(story)


@pytest.mark.parametrize(("acks", "code"), [(2, 21), (-2, 21)])
def test_unknown_acks_are_refused(acks: int, code: int) -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        answer = await service.produce(produce(("t", 0, batch(b"x")), acks=acks), None)
        assert answer.responses[0].partition_responses[0].error_code == code
        assert broker.end_offset("t", 0) == 0

    play(story)


def test_a_node_on_its_own_keeps_one_copy_and_says_so() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        wanted = [pb.NewTopic(name="one", replication_factor=1), pb.NewTopic(name="three", replication_factor=3)]
        dry = await service.create_topics(pb.CreateTopicsRequest(topics=wanted, validate_only=True), None)
        assert [each.error_code for each in dry.topics] == [0, 38]
        one, three = (await service.create_topics(pb.CreateTopicsRequest(topics=wanted), None)).topics
        assert (one.error_code, three.error_code) == (0, 38)
        assert "'three' cannot have replication factor 3 on one node; expected 1" in three.error_message

    play(story)


def test_topics_are_made_listed_grown_and_described() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        wanted = [pb.NewTopic(name="n", num_partitions=2), pb.NewTopic(name="t"), pb.NewTopic(name="d")]
        wanted += [pb.NewTopic(name="none", num_partitions=0), pb.NewTopic(name="some", num_partitions=-1)]
        request = pb.CreateTopicsRequest(topics=wanted)
        dry = await service.create_topics(pb.CreateTopicsRequest(topics=wanted, validate_only=True), None)
        made = await service.create_topics(request, None)
        assert (
            [topic.error_code for topic in dry.topics]
            == [topic.error_code for topic in made.topics]
            == [0, 36, 0, 37, 0]
        )
        assert [topic.num_partitions for topic in made.topics] == [2, 0, 1, 0, 1]
        listed = await service.metadata(pb.MetadataRequest(all_topics=True), None)
        assert sorted(topic.name for topic in listed.topics) == ["d", "n", "some", "t"]
        assert (listed.brokers[0].host, listed.brokers[0].port) == ("localhost", 9290)
        asked = await service.metadata(pb.MetadataRequest(topics=["n", "zzz"]), None)
        assert [(topic.error_code, len(topic.partitions)) for topic in asked.topics] == [(0, 2), (3, 0)]
        assert len((await service.metadata(pb.MetadataRequest(), None)).topics) == 0
        often = await service.metadata(pb.MetadataRequest(topics=["t"] * 100_000), None)
        assert [len(topic.partitions) for topic in often.topics] == [3], (
            "however often it is named: there is room for one"
        )
        growth = pb.CreatePartitionsRequest(
            topics=[pb.NewPartitions(name="n", count=4), pb.NewPartitions(name="t", count=1)]
        )
        grown = await service.create_partitions(growth, None)
        assert [topic.error_code for topic in grown.results] == [0, 37]
        often = await service.describe_configs(pb.DescribeConfigsRequest(topics=["n"] * 100_000), None)
        assert [(row.topic, row.error_code) for row in often.results] == [("n", 0)], "however often it is named"
        configs = await service.describe_configs(pb.DescribeConfigsRequest(topics=["n", "zzz"]), None)
        assert [described.error_code for described in configs.results] == [0, 3]
        assert "segment.bytes" in {entry.name for entry in configs.results[0].configs}
        node = await service.describe_configs(pb.DescribeConfigsRequest(), None)
        assert "log.segment.bytes" in {entry.name for entry in node.results[0].configs}

    play(story)


def test_growth_that_is_only_asked_about_does_not_come() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        wanted = [pb.NewPartitions(name="t", count=9), pb.NewPartitions(name="zzz", count=9)]
        asked = await service.create_partitions(pb.CreatePartitionsRequest(topics=wanted, validate_only=True), None)
        before = broker.topic("t").partitions
        grown = await service.create_partitions(pb.CreatePartitionsRequest(topics=wanted), None)
        assert [topic.error_code for topic in asked.results] == [topic.error_code for topic in grown.results] == [0, 3]
        assert (before, broker.topic("t").partitions) == (3, 9)

    play(story)


def test_clients_change_nothing_of_the_nodes_own_topics() -> None:
    """With another number of partitions the node would not start again: every group's place depends on it."""

    async def story(service: BrokerService, broker: Broker) -> None:
        own = "__consumer_offsets"
        deletion = pb.DeleteRecordsRequest()
        deletion.topics.add(name=own).partitions.add(partition_index=0, offset=-1)
        more = pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name=own, count=9)])
        would = pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name=own, count=9)], validate_only=True)
        answers = [
            (await service.create_partitions(more, None)).results[0],
            (await service.create_partitions(would, None)).results[0],
            (await service.delete_records(deletion, None)).topics[0].partitions[0],
            (await service.delete_topics(pb.DeleteTopicsRequest(topic_names=[own]), None)).topics[0],
        ]
        assert [answer.error_code for answer in answers] == [17] * 4
        assert broker.topic(own).partitions == 1

    play(story)


def test_offsets_are_listed_and_records_deleted() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        await service.produce(produce(("t", 0, batch(*[b"x"] * 10))), None)
        listing = pb.ListOffsetsRequest()
        topic = listing.topics.add(name="t")
        for stamp in (-1, -2, -3, T0, T0 + 1):
            topic.partitions.add(partition_index=0, timestamp=stamp)
        topic.partitions.add(partition_index=9, timestamp=-1)
        listed = (await service.list_offsets(listing, None)).topics[0].partitions
        assert [part.offset for part in listed] == [10, 0, 0, 0, -1, -1]
        assert [part.error_code for part in listed] == [0, 0, 0, 0, 0, 3]
        deletion = pb.DeleteRecordsRequest()
        topic2 = deletion.topics.add(name="t")
        for offset, partition in ((4, 0), (5, 1)):
            topic2.partitions.add(partition_index=partition, offset=offset)
        deleted = (await service.delete_records(deletion, None)).topics[0].partitions
        assert [(part.low_watermark, part.error_code) for part in deleted] == [(4, 0), (-1, 1)]

    play(story)


def test_producer_ids_are_given_but_transactions_are_not_coordinated() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        fresh = await service.init_producer_id(pb.InitProducerIdRequest(), None)
        bumped = await service.init_producer_id(
            pb.InitProducerIdRequest(producer_id=fresh.producer_id, producer_epoch=fresh.producer_epoch), None
        )
        assert (bumped.producer_id, bumped.producer_epoch) == (fresh.producer_id, 1)
        refused = await service.init_producer_id(pb.InitProducerIdRequest(transactional_id="x"), None)
        assert (refused.error_code, refused.producer_id) == (42, -1)

    play(story)


@pytest.mark.parametrize(
    ("handler", "request_", "words"),
    [
        ("produce", produce(("t", 0, b""), ("t", 0, b"")), "twice"),
        ("produce", produce(("t", 0, b""), timeout_ms=-1), "timeout_ms"),
        ("fetch", fetch(("t", 0, 0), ("t", 0, 0)), "twice"),
        ("fetch", fetch(("t", 0, 0), wait_ms=-1), "max_wait_ms"),
        ("fetch", fetch(*(("t", n, 0) for n in range(100_001))), "at most 100000"),
        ("create_topics", pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")] * 2), "twice"),
    ],
)
def test_requests_that_contradict_themselves_are_malformed(handler: str, request_: Any, words: str) -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        with pytest.raises(MalformedRequest, match=words):
            await getattr(service, handler)(request_, None)

    play(story)


def test_there_is_a_handler_for_every_method_of_the_contract() -> None:
    for method in pb.DESCRIPTOR.services_by_name["Broker"].methods:
        name = "".join("_" + c.lower() if c.isupper() else c for c in method.name).lstrip("_")
        assert asyncio.iscoroutinefunction(getattr(BrokerService, name)), name


def test_requests_for_many_topics_let_others_have_their_turn() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        many = [f"many-{number}" for number in range(5 * TURN)]
        new = [pb.NewTopic(name=name, num_partitions=1) for name in many]
        assert await turns_of_others(service.create_topics(pb.CreateTopicsRequest(topics=new), None)) >= 4
        more = [pb.NewPartitions(name=name, count=2) for name in many]
        assert await turns_of_others(service.create_partitions(pb.CreatePartitionsRequest(topics=more), None)) >= 4
        assert {broker.topic(name).partitions for name in many} == {2}
        request = pb.DeleteRecordsRequest()
        for name in many:
            request.topics.add(name=name).partitions.add(partition_index=1, offset=-1)
        assert await turns_of_others(service.delete_records(request, None)) >= 4
        assert await turns_of_others(service.delete_topics(pb.DeleteTopicsRequest(topic_names=many), None)) >= 4
        assert not set(many) & broker.topics().keys()

    play(story)


def test_who_waits_for_records_of_topics_that_go_is_told_though_nobody_waits_for_the_answer() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        many = [f"many-{number}" for number in range(5 * TURN)]
        for name in many:
            broker.create_topic(name, 1)
        waiting = asyncio.create_task(service.fetch(fetch((many[0], 0, 0), wait_ms=3_600_000), None))
        deleting = asyncio.create_task(service.delete_topics(pb.DeleteTopicsRequest(topic_names=many), None))
        broker.on_topics_changed(lambda: deleting.cancel())
        (found,) = results(await waiting)
        assert found.error_code == pb.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        assert deleting.cancelled()
        await service.requests.topics.close()
        assert not set(many) & set(broker.topics()), "what was begun goes on"

    play(story)
