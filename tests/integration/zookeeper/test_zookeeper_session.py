"""The session against a real server: what is asked, what is watched, and what happens when the session ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kazoo.client import KazooClient

from muster.coordinator.zookeeper.errors import (
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    ZooKeeperRequestTooLarge,
    ZooKeeperUnreachable,
)
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from muster.coordinator.zookeeper.session import (
    FRAME_BYTES,
    MAX_REQUEST_BYTES,
    SessionState,
    WatchEvent,
    ZooKeeperSession,
)
from tests.integration.conftest import Run
from tests.support.zookeeper.servers import TICK_MS

SESSION_MS = 2_000


@asynccontextmanager
async def session(connect: str, login: str = "") -> AsyncIterator[ZooKeeperSession]:
    opened = ZooKeeperSession(connect, session_timeout_ms=SESSION_MS, connection_timeout_ms=20_000, login=login)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


class Heard(asyncio.Queue[WatchEvent | SessionState]):
    """What was told, in order; to be awaited."""

    async def until(self, wanted: Callable[[WatchEvent | SessionState], bool]) -> WatchEvent | SessionState:
        async with asyncio.timeout(30):
            while not wanted(heard := await self.get()):
                pass
        return heard

    async def state(self, state: SessionState) -> None:
        await self.until(lambda heard: heard is state)


def expire(victim: ZooKeeperSession) -> None:
    """End a session as the servers would: a second client with its id and password says goodbye in its name."""
    twin = KazooClient(hosts=victim.connect.hosts, client_id=victim.client.client_id)
    twin.start(timeout=20)
    twin.stop()
    twin.close()


def test_what_the_servers_grant_is_told_whatever_was_asked_for(zookeeper: str, run: Run) -> None:
    """Leases count on it: servers hold a session to between 2 and 20 of their ticks."""

    async def story() -> None:
        granted = []
        for asked_ms in (SESSION_MS, 10_000_000):
            opened = ZooKeeperSession(zookeeper, session_timeout_ms=asked_ms, connection_timeout_ms=20_000)
            assert opened.session_timeout_ms == asked_ms
            await opened.open()
            granted.append(opened.session_timeout_ms)
            await opened.close()
        assert granted == [SESSION_MS, 20 * TICK_MS]

    run(story)


def test_what_is_written_is_read_back_below_the_chroot(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(f"{zookeeper}/deep/down") as zk:
            await zk.create("/a/b", b"1", ephemeral=True)
            found = await zk.get("/a/b")
            assert found is not None
            assert (found.data, found.version, found.owner) == (b"1", 0, zk.id)
            with pytest.raises(NodeExists):
                await zk.create("/a/b")
            with pytest.raises(NoNode):
                await zk.create("/x/y", parents=False)
            assert await zk.put("/a/b", b"2", version=0) == 1
            with pytest.raises(BadVersion):
                await zk.put("/a/b", b"3", version=0)
            with pytest.raises(NotEmpty):
                await zk.delete("/a")
            await zk.write("/w", b"new")
            await zk.write("/w", b"again")
            assert await zk.children("/") == ["a", "w"]
            assert await zk.children("/nowhere") is None
            await zk.delete_all("/a")
            assert await zk.get("/a") is None
            assert not await zk.delete("/a")
        async with session(zookeeper) as outside:
            assert await outside.children("/deep/down") == ["w"]

    run(story)


def test_a_watch_fires_once_however_often_it_was_set(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        heard = Heard()
        async with session(zookeeper) as zk, session(zookeeper) as other:
            await zk.ensure("/d")
            for _ in range(3):
                await zk.children("/d", heard.put_nowait)
            await other.create("/d/1")
            assert await heard.get() == WatchEvent("children", "/d")
            await zk.exists("/later", heard.put_nowait)
            await other.create("/later")
            assert await heard.get() == WatchEvent("created", "/later")
            assert heard.empty()

    run(story)


def test_an_expired_session_is_followed_by_a_new_one(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        heard = Heard()
        async with session(zookeeper) as zk, session(zookeeper) as other:
            zk.on_state(heard.put_nowait)
            await zk.create("/mine", ephemeral=True)
            first = zk.id
            assert zk.epoch == 1
            await asyncio.to_thread(expire, zk)
            await heard.state(SessionState.LOST)
            await heard.state(SessionState.CONNECTED)
            assert zk.epoch == 2
            assert zk.id != first
            await other.sync("/")
            assert not await other.exists("/mine")

    run(story)


def test_the_session_outlives_the_leader(zookeeper_ensemble: LocalEnsemble, run: Run) -> None:
    async def story() -> None:
        heard = Heard()
        async with session(f"{zookeeper_ensemble.connect}/leader") as zk:
            zk.on_state(heard.put_nowait)
            await zk.create("/mine", ephemeral=True)
            first, leader = zk.id, await asyncio.to_thread(zookeeper_ensemble.leader)
            await asyncio.to_thread(zookeeper_ensemble.kill, leader)
            await heard.state(SessionState.SUSPENDED)
            await zk.connected()
            assert zk.id == first
            assert await zk.exists("/mine")
            await asyncio.to_thread(zookeeper_ensemble.restart, leader)

    run(story)


def test_without_a_quorum_everybody_waits(zookeeper_ensemble: LocalEnsemble, run: Run) -> None:
    """Nobody can tell that a session is over while there is no quorum, so nobody does."""

    async def story() -> None:
        heard = Heard()
        async with session(f"{zookeeper_ensemble.connect}/quorum") as zk:
            zk.on_state(heard.put_nowait)
            await zk.create("/kept", b"1")
            for number in (1, 2):
                await asyncio.to_thread(zookeeper_ensemble.kill, number)
            # With the first server gone it may have gone on by another, until the second was gone as well.
            await heard.state(SessionState.SUSPENDED)
            while zk.state is not SessionState.SUSPENDED:
                await heard.state(SessionState.SUSPENDED)
            for number in (1, 2):
                zookeeper_ensemble.server(number).launch()
            await asyncio.to_thread(zookeeper_ensemble.start)
            await heard.state(SessionState.CONNECTED)
            found = await zk.get("/kept")
            assert found is not None
            assert found.data == b"1"

    run(story)


def test_nobody_there_is_said_with_the_address_and_the_remedy(run: Run) -> None:
    async def story() -> None:
        zk = ZooKeeperSession("127.0.0.1:1/x", connection_timeout_ms=300)
        with pytest.raises(
            ZooKeeperUnreachable, match=r"no ZooKeeper answered at 127\.0\.0\.1:1 within 300 ms .*zookeeper start"
        ):
            await zk.open()

    run(story)


def test_what_zookeeper_does_not_take_is_refused_before_it_is_sent(zookeeper: str, run: Run) -> None:
    """ZooKeeper closes the connection of who sends it, and whatever else was asked there goes unanswered."""

    async def story() -> None:
        async with session(zookeeper) as zk:
            told: list[SessionState] = []
            zk.on_state(told.append)
            most = bytes(MAX_REQUEST_BYTES - len(f"{zk.connect.chroot}/large") - 2 * FRAME_BYTES - 1)
            await zk.create("/large", most)
            await zk.put("/large", most)
            for write in (
                lambda: zk.put("/large", most + bytes(100)),
                lambda: zk.create("/larger", most + bytes(100)),
                lambda: zk.commit(lambda both: [both.set_data("/large", most), both.set_data("/large", b"1")]),
            ):
                with pytest.raises(ZooKeeperRequestTooLarge, match=r"/large.* less than 1048575 \(jute.maxbuffer\)"):
                    await write()
            await zk.put("/large", b"1")
            assert await zk.get("/larger") is None
            assert told == []

    run(story)
