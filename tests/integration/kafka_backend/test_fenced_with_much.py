"""An owner that is fenced with much on its way."""

import asyncio

import pytest

from muster.coordinator.errors import ErrorCode
from tests.support.kafka_backend.over_kafka import OverKafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SHARDS = 4
WAITING = 1_000


def test_an_owner_that_is_fenced_while_1000_commits_wait(kafka: str) -> None:
    """All that are not acknowledged hear 16, and of the acknowledged ones none is missing at the next owner."""

    async def story() -> None:
        async with OverKafka(kafka, "thousand", SHARDS, instance="first") as first:
            await first.all_served()
            groups = [f"g{number}" for number in range(WAITING)]
            under_way = [asyncio.ensure_future(first.commit(group, 1)) for group in groups]
            async with OverKafka(kafka, "thousand", SHARDS, instance="second") as second:
                await second.all_served()
                told = await asyncio.gather(*under_way)
                assert set(told) <= {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
                late = await asyncio.gather(*(first.commit(group, 2) for group in groups))
                assert set(late) == {ErrorCode.NOT_COORDINATOR}
                acked = [group for group, code in zip(groups, told, strict=True) if code is ErrorCode.NONE]
                assert [await second.committed(group) for group in acked] == [1] * len(acked)
                again = await asyncio.gather(*(second.commit(group, 3) for group in groups))
                assert set(again) == {ErrorCode.NONE}
                assert {await second.committed(group) for group in groups} == {3}

    asyncio.run(story())
