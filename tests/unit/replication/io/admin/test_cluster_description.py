"""Who waits for the image to show something is told once it does, and not longer than he wants to wait."""

import asyncio
from collections.abc import Callable

import pytest

from muster.coordinator.replication.io.admin import cluster_admin
from muster.coordinator.replication.io.admin.cluster_admin import ImageWaits
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, ImageChanges

SOON_S = 30.0


def waiting(shown: Callable[[], bool], by: ImageWaits, patience_s: float = SOON_S) -> "asyncio.Task[bool]":
    return asyncio.ensure_future(by.until(shown, asyncio.get_running_loop().time() + patience_s))


def test_it_is_looked_at_with_each_change() -> None:
    async def story() -> None:
        listeners: list[Callable[[ImageChanges], None]] = []
        shows, true = ImageWaits(ClusterImage(), listeners.append), set[str]()
        (learned,) = listeners
        assert await shows.until(lambda: True, 0)
        first, second = waiting(lambda: "a" in true, shows), waiting(lambda: "b" in true, shows)
        late = waiting(lambda: "c" in true, shows, 0)
        await asyncio.sleep(0)
        true.add("a")
        learned(ImageChanges())
        assert await first
        assert not await late
        assert not second.done()
        true.add("b")
        learned(ImageChanges())
        assert await second
        assert shows._waiting == {}

    asyncio.run(story())


def test_a_mistake_of_one_who_waits_is_his_alone() -> None:
    async def story() -> None:
        listeners: list[Callable[[ImageChanges], None]] = []
        shows, true = ImageWaits(ClusterImage(), listeners.append), set[str]()

        def wrong() -> bool:
            if true:
                raise LookupError("his own")
            return False

        his, other = waiting(wrong, shows), waiting(lambda: bool(true), shows)
        await asyncio.sleep(0)
        true.add("a")
        listeners[0](ImageChanges())
        assert await other
        with pytest.raises(LookupError):
            await his

    asyncio.run(story())


def test_so_many_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(cluster_admin, "MOST_WAITING", 1)
        shows = ImageWaits(ClusterImage(), lambda listener: None)
        first = waiting(lambda: False, shows)
        await asyncio.sleep(0)
        assert not await waiting(lambda: False, shows)
        first.cancel()

    asyncio.run(story())
