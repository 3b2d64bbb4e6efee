"""Several nodes over a real Kafka, each a process: killed, frozen, ended and started again while commits go on."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from tests.support.kafka_backend.of_many import CONFLICT, OfMany
from tests.support.kafka_backend.processes import GROUPS, LONG_MS, three


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_a_node_is_killed_and_its_shards_are_taken_and_it_comes_back(kafka: str) -> None:
    async def story() -> None:
        async with three(kafka, "killed") as nodes:
            await nodes.nodes[2].kill()
            await nodes.share(0, 3, 3)
            await nodes.clients.more()
            await nodes.begin(2)
            await nodes.share(2, 2, 2)

    run(story)


def test_a_node_that_is_started_again_within_its_session_has_its_shards_and_nobody_else_moves(kafka: str) -> None:
    async def story() -> None:
        async with three(kafka, "again", LONG_MS) as nodes:
            await nodes.nodes[2].kill()
            await nodes.begin(2)
            seen = set[tuple[int, int]]()

            def shared() -> bool:
                seen.add((nodes.nodes[1].serves, nodes.nodes[3].serves))
                return nodes.nodes[2].serves == 2

            await nodes.news.until(shared)
            assert seen == {(2, 2)}

    run(story)


def test_a_node_that_ends_has_its_shards_taken_before_and_nobody_waits_for_its_session(kafka: str) -> None:
    async def story() -> None:
        async with three(kafka, "ends", LONG_MS) as nodes:
            ended = nodes.nodes.pop(2)
            ended.signal(signal.SIGTERM)
            assert await ended.ended() == 0
            assert ended.said == ["left True"]
            await nodes.share(3, 3)
            await nodes.clients.more()

    run(story)


def test_a_frozen_node_that_wakes_answers_nobody_and_joins_again(kafka: str) -> None:
    async def story() -> None:
        async with three(kafka, "frozen") as nodes:
            frozen = nodes.nodes.pop(2)
            frozen.signal(signal.SIGSTOP)
            await nodes.share(3, 3)
            asked = [asyncio.ensure_future(frozen.ask(group, within_s=20)) for group in GROUPS]
            await nodes.clients.more()
            frozen.signal(signal.SIGCONT)
            for group, (offset, code) in zip(GROUPS, await asyncio.gather(*asked), strict=True):
                assert code != "NONE" or offset >= nodes.clients.acked[group] - 1, (group, offset)
            nodes.nodes[2] = frozen
            await nodes.share(2, 2, 2)

    run(story)


def test_f2_a_second_process_of_one_id_ends_the_first(kafka: str) -> None:
    async def story() -> None:
        async with three(kafka, "twice", LONG_MS) as nodes:
            first = nodes.nodes[2]
            await nodes.begin(2)
            assert await first.ended() == CONFLICT
            assert first.said == [
                "stops another process at host-2:9290 runs as node.id 2: give each node of a cluster an id of its own"
            ]
            await nodes.share(2, 2, 2)

    run(story)


def test_a_session_that_the_upstream_does_not_take_is_said_at_the_start(kafka: str) -> None:
    async def story() -> None:
        async with OfMany(kafka, "short", 1, session_ms=500) as one:
            with pytest.raises(UnusableUpstream, match=r"engine\.kafka\.session\.timeout\.ms is 500"):
                await one.nodes.entered()

    run(story)
