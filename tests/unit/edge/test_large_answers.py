"""Answers that grow with the node's state: one at a time, shared by those who ask for the same."""

import asyncio
from typing import Any

import pytest

from muster.coordinator.core.model.effects import ListReply
from muster.coordinator.core.model.types import ListedGroup
from muster.coordinator.edge.large_answers import GroupFilter, GroupLists, SharedAnswers


class Kitchen:
    """Makes answers when it is told to."""

    def __init__(self) -> None:
        self.shared: SharedAnswers[str, list[str]] = SharedAnswers()
        self.begun: list[str] = []
        self.ready: dict[int, asyncio.Event] = {}

    async def make(self, key: str) -> list[str]:
        number = len(self.begun)
        self.begun.append(key)
        self.ready[number] = asyncio.Event()
        await self.ready[number].wait()
        return [key, str(number)]

    def ask(self, key: str = "all") -> "asyncio.Task[list[str]]":
        return asyncio.create_task(self.shared.get(key, lambda: self.make(key)))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_asks_before_it_is_begun_shares_it_and_who_asks_later_gets_a_newer_one() -> None:
    async def play() -> None:
        kitchen = Kitchen()
        first = kitchen.ask()
        await settled()
        later = [kitchen.ask() for _ in range(50)]
        await settled()
        assert kitchen.begun == ["all"], "one is made at a time"
        kitchen.ready[0].set()
        assert await first == ["all", "0"]
        await settled()
        kitchen.ready[1].set()
        assert {tuple(answer) for answer in await asyncio.gather(*later)} == {("all", "1")}
        assert kitchen.begun == ["all", "all"]

    asyncio.run(play())


def test_different_questions_wait_for_each_other() -> None:
    async def play() -> None:
        kitchen = Kitchen()
        asked = [kitchen.ask("a"), kitchen.ask("b")]
        await settled()
        assert kitchen.begun == ["a"]
        kitchen.ready[0].set()
        await settled()
        assert kitchen.begun == ["a", "b"]
        kitchen.ready[1].set()
        assert await asyncio.gather(*asked) == [["a", "0"], ["b", "1"]]

    asyncio.run(play())


@pytest.mark.parametrize("begun", [True, False])
def test_a_client_that_goes_leaves_the_others_their_answer(begun: bool) -> None:
    async def play() -> None:
        kitchen = Kitchen()
        before = kitchen.ask("other")
        gone, stays = kitchen.ask(), kitchen.ask()
        await settled()
        if begun:
            kitchen.ready[0].set()
            await settled()
        gone.cancel()
        await settled()
        kitchen.ready[0].set()
        await settled()
        kitchen.ready[len(kitchen.begun) - 1].set()
        assert (await stays)[0] == "all"
        assert await before == ["other", "0"]
        assert gone.cancelled()

    asyncio.run(play())


def test_a_failure_is_that_of_all_who_share_it_and_of_nobody_else() -> None:
    async def play() -> None:
        shared: SharedAnswers[str, str] = SharedAnswers()
        fails = True

        async def make() -> str:
            await asyncio.sleep(0)
            if fails:
                raise OSError("no")
            return "yes"

        outcomes: list[Any] = await asyncio.gather(*(shared.get("all", make) for _ in range(3)), return_exceptions=True)
        assert [str(each) for each in outcomes] == ["no"] * 3
        fails = False
        assert await shared.get("all", make) == "yes"

    asyncio.run(play())


def test_fifty_lists_of_all_groups_ask_each_shard_twice_at_most_and_one_at_a_time() -> None:
    asked: list[int] = []
    at_once = 0

    async def ask(shard: int, wanted: GroupFilter) -> ListReply:
        nonlocal at_once
        asked.append(shard)
        at_once += 1
        assert at_once == 1
        await asyncio.sleep(0)
        at_once -= 1
        return ListReply(groups=(ListedGroup(f"g{shard}", "", "", ""),))

    async def play() -> None:
        lists = GroupLists(ask, 5)
        replies = await asyncio.gather(*(lists.get(GroupFilter()) for _ in range(50)))
        for each in replies:
            assert [group.group_id for reply in each for group in reply.groups] == [f"g{n}" for n in range(5)]

    asyncio.run(play())
    assert asked == [*range(5)] * 2
