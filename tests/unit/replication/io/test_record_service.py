"""gRPC's service of records at a node of a cluster: its refusals by Kafka's numbers, and who leads instead."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.broker_service import BrokerService
from tests.support.led_side import HERE, THERE, LedSide, partition, topic
from tests.support.pace import pace
from tests.unit.storage.logs import batch

PATIENCE_S = 20
Story = Callable[[LedSide, BrokerService], Awaitable[None]]


def play(story: Story) -> None:
    """Node 1 leads `orders`-0, node 2 `orders`-1."""

    async def run() -> None:
        side = LedSide(topic(partition(), partition(leader=THERE, epoch=5)))
        service = BrokerService(side.requests, node_id=HERE, advertised=lambda: ("muster.example", 9290))
        try:
            async with asyncio.timeout(PATIENCE_S * pace()):
                await story(side, service)
        finally:
            await side.requests.close()

    asyncio.run(run())


async def produced(service: BrokerService, number: int, *, acks: int = -1, timeout_ms: int = 0) -> tuple[int, int, int]:
    """(code, leader, leader epoch)"""
    request = pb.ProduceRequest(acks=acks, timeout_ms=timeout_ms)
    request.topic_data.add(name="orders").partition_data.add(index=number, records=batch(b"a"))
    (told,) = (await service.produce(request, None)).responses[0].partition_responses
    return told.error_code, told.current_leader.leader_id, told.current_leader.leader_epoch


def test_records_are_refused_in_kafka_s_numbers() -> None:
    """CL-L2."""

    async def story(side: LedSide, service: BrokerService) -> None:
        assert await produced(service, 1) == (6, THERE, 5)
        assert (await produced(service, 0, timeout_ms=1))[0] == 7
        side.hears(topic(partition(isr=(HERE,), version=1)))
        assert (await produced(service, 0))[0] == 19
        assert (await produced(service, 0, acks=0))[0] == 0

    play(story)


@pytest.mark.parametrize(("number", "epoch", "code"), [(1, -1, 6), (1, 5, 6), (1, 4, 74), (1, 6, 75), (0, 4, 75)])
def test_readers_are_refused_in_kafka_s_numbers(number: int, epoch: int, code: int) -> None:
    """CL-K1, CL-K2."""

    async def story(side: LedSide, service: BrokerService) -> None:
        request = pb.MultiFetchRequest(max_wait_ms=600_000, min_bytes=1)
        part = request.fetches.add(topic="orders", partition=number)
        if epoch >= 0:
            part.current_leader_epoch = epoch
        answer = pb.MultiFetchResponse.FromString(await service.multi_fetch(request, None))
        told = answer.results[0].result
        assert told.error_code == code
        if code != 75:
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (THERE, 5)

    play(story)


def test_offsets_and_records_given_up_are_refused_in_kafka_s_numbers() -> None:
    """CL-L8, CL-A3b."""

    async def story(side: LedSide, service: BrokerService) -> None:
        begun = asyncio.create_task(produced(service, 0, acks=1))
        while not side.grew:  # noqa: ASYNC110  # one turn of the loop at a time, no time passes
            await asyncio.sleep(0)
        side.flushes()
        await begun
        side.hears(topic(partition(epoch=4)))
        listing = pb.ListOffsetsRequest()
        listing.topics.add(
            name="orders",
            partitions=[pb.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in (0, 1)],
        )
        listed = await service.list_offsets(listing, None)
        assert [each.error_code for each in listed.topics[0].partitions] == [78, 6]
        giving = pb.DeleteRecordsRequest()
        giving.topics.add(name="orders", partitions=[pb.DeleteRecordsPartition(partition_index=1, offset=0)])
        given = await service.delete_records(giving, None)
        assert [(each.error_code, each.low_watermark) for each in given.topics[0].partitions] == [(6, -1)]

    play(story)
