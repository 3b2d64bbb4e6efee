"""The store of many nodes: what follows the log of changes does not end without its node hearing why."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from muster.coordinator.server.security.security_store import (
    ConcurrentSecurityChange,
    FollowedSecurityStore,
    SecurityFollowingEnded,
    SecurityUnavailable,
)


class Followed(FollowedSecurityStore):
    """Of a log that is told what becomes of it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.caught_up = self.stepped_aside = 0

    async def end(self, read: Callable[[], Awaitable[None]]) -> BaseException:
        heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def reading() -> None:
            await read()

        self._follow(reading, heard.set_result)
        return await asyncio.wait_for(heard, 10)

    async def _catch_up(self) -> None:
        self.caught_up += 1

    async def _step_aside(self) -> None:
        self.stepped_aside += 1


def test_a_node_hears_what_ended_the_following_by_a_mistake_and_that_it_returned() -> None:
    async def story() -> None:
        async def mistaken() -> None:
            raise ZeroDivisionError

        async def over() -> None:
            return

        assert isinstance(await Followed().end(mistaken), ZeroDivisionError)
        assert isinstance(await Followed().end(over), SecurityFollowingEnded)

    asyncio.run(story())


def test_one_that_is_stopped_tells_nobody() -> None:
    async def story() -> None:
        store, heard = Followed(), list[BaseException]()
        store._follow(asyncio.Event().wait, heard.append)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        store.stop()
        await store._follower.ended()
        assert heard == []

    asyncio.run(story())


def test_a_change_that_others_come_in_between_of_is_decided_anew_and_not_for_ever() -> None:
    async def story() -> None:
        store, overtaken = Followed(), 2

        async def change() -> str:
            nonlocal overtaken
            if overtaken:
                overtaken -= 1
                raise ConcurrentSecurityChange
            return "done"

        assert await store.settled(change) == "done"
        assert (store.caught_up, store.stepped_aside) == (3, 2)
        overtaken = 1_000
        with pytest.raises(SecurityUnavailable, match="again and again"):
            await store.settled(change)

    asyncio.run(story())
