"""CL-A9: a node's rates, set while it runs."""

import asyncio
from typing import Any

from muster.coordinator.replication.io.admin.node_configs import ReplicationRates
from muster.coordinator.replication.protocol.replica_fetch import NO_LIMIT
from muster.coordinator.zookeeper.errors import ConnectionLost
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, Znode
from tests.fakes.one_page_zookeeper import on_virtual_time

PATH = "/config/brokers/3"


class OneZnode:
    """A session that has one znode, or none, and watches of it."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.watches: list[Any] = []
        self.listeners: list[Any] = []
        self.lost = 0

    def on_state(self, listener: Any) -> None:
        self.listeners.append(listener)

    async def connected(self) -> None: ...

    async def exists(self, path: str, watch: Any = None) -> bool:
        assert path == PATH
        if self.lost:
            self.lost -= 1
            raise ConnectionLost("the line is cut")
        self.watches.append(watch)
        return self.data is not None

    async def get(self, path: str) -> Znode | None:
        return None if self.data is None else Znode(self.data, 0, 0, 0, 0)

    def becomes(self, text: str | None) -> None:
        self.data = None if text is None else text.encode()
        watches, self.watches = self.watches, []
        for watch in watches:
            watch(WatchEvent("changed", PATH))


def test_a_rate_that_is_set_holds_from_then_on_and_the_nodes_own_when_it_is_taken_away() -> None:
    async def story() -> None:
        session, told = OneZnode(), list[tuple[int, int]]()
        session.lost = 2
        rates = ReplicationRates(session, 3, (NO_LIMIT, 700), lambda leader, follower: told.append((leader, follower)))  # type: ignore[arg-type]
        rates.start()
        await asyncio.sleep(1)
        for text in ('{"version":1,"config":{"leader.replication.throttled.rate":"5"}}', "no JSON", None):
            session.becomes(text)
            await asyncio.sleep(0.01)
        assert told == [(NO_LIMIT, 700), (5, 700), (NO_LIMIT, 700), (NO_LIMIT, 700)]
        session.data = b'{"config":{"follower.replication.throttled.rate":"9"}}'
        for listener in session.listeners:
            listener(SessionState.CONNECTED)
        await asyncio.sleep(0.01)
        assert told[-1] == (NO_LIMIT, 9)
        await rates.stop()

    on_virtual_time(story())
