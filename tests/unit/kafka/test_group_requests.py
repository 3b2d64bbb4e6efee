"""How handlers of Kafka's protocol ask the groups."""

import asyncio
from collections.abc import Sequence
from typing import Any

from muster.coordinator.core.model.effects import DescribeConsumerReply
from muster.coordinator.core.model.events import DescribeConsumerGroup, Request
from muster.coordinator.edge.large_answers import MAX_GROUPS_PER_TURN
from muster.coordinator.kafka.handlers.group_requests import GroupRequests

CALLERS = 5


class CountingDriver:
    """Knows in which turn of the loop it was asked about how many groups."""

    def __init__(self) -> None:
        self.turn = 0
        self.asked: list[tuple[int, int]] = []

    def next_id(self) -> int:
        return 1

    async def ask_all(self, questions: Sequence[tuple[int, Request]], wanted: type[Any]) -> list[Any]:
        self.asked.append((self.turn, len(questions)))
        return [wanted() for _ in questions]


def asked_by_many(groups: int) -> list[tuple[int, int]]:
    """CALLERS at once describe so many groups each: the turn of each question, and how many groups it is about."""
    driver = CountingDriver()
    requests: Any = GroupRequests(driver, 1)  # type: ignore[arg-type]

    async def play() -> None:
        def ask() -> "asyncio.Task[list[DescribeConsumerReply]]":
            questions = [(0, DescribeConsumerGroup(number, f"g{number}")) for number in range(groups)]
            return asyncio.create_task(requests.ask_each(questions, DescribeConsumerReply))

        asks = [ask() for _ in range(CALLERS)]
        while not all(each.done() for each in asks):
            await asyncio.sleep(0)
            driver.turn += 1
        assert [len(each.result()) for each in asks] == [groups] * CALLERS

    asyncio.run(play())
    return driver.asked


def test_each_turn_of_the_loop_has_the_questions_of_one_caller() -> None:
    """Fifty who describe one group of hundreds of members each would stand in its shard's queue before a heartbeat."""
    asked = asked_by_many(1)
    assert [size for _, size in asked] == [1] * CALLERS
    assert len({turn for turn, _ in asked}) == CALLERS


def test_many_groups_are_asked_about_a_slice_at_a_time() -> None:
    asked = asked_by_many(MAX_GROUPS_PER_TURN + 1)
    assert sorted(size for _, size in asked) == [1] * CALLERS + [MAX_GROUPS_PER_TURN] * CALLERS
    assert len({turn for turn, _ in asked}) == 2 * CALLERS
