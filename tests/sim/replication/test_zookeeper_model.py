"""The model of ZooKeeper does what connections do: what it says unasked comes, or the connection breaks."""

from collections.abc import Callable

import pytest

from tests.sim.replication.network import Host, Network
from tests.sim.replication.zookeeper import NAME, Client, Create, Ensemble
from tests.sim.world import START_MS, World

SESSION_MS = 3_000


class Stage:
    """Two clients at one ensemble; `told` is what became of the first one's watch on `/a`, `changes` of its session."""

    def __init__(self) -> None:
        self.world = World(3)
        self.network = Network(self.world)
        self.ensemble = Ensemble(self.world, self.network, SESSION_MS)
        self.changes: list[str] = []
        self.told: list[str] = []
        self.watching = self._client("watching", self.changes.append)
        self.writing = self._client("writing", lambda what: None)
        self.until(500)
        self.watching.get("/a", lambda found: None, self.told.append)
        self.until(600)

    def _client(self, name: str, changed: Callable[[str], None]) -> Client:
        self.network.add(Host(name, lambda asker, request, reply: None, lambda: True))
        client = Client(self.ensemble, self.network, name, changed, lambda do: do())
        client.start()
        return client

    def until(self, ms: int) -> None:
        self.world.run(START_MS + ms, lambda: None)

    def cut_while_it_is_made(self, ms: int) -> None:
        self.network.sever(NAME, "watching", both=False)
        self.writing.multi([Create("/a", 1)], lambda made: None)
        self.until(600 + ms)
        assert self.told == []
        self.network.mend()


def test_what_is_watched_is_told() -> None:
    stage = Stage()
    stage.writing.multi([Create("/a", 1)], lambda made: None)
    stage.until(900)
    assert stage.told == ["/a"]


@pytest.mark.parametrize("cut_ms", [250, 350])
def test_a_cut_that_nobody_noticed_takes_nothing_away(cut_ms: int) -> None:
    """Seeds 700154 and 700226: the controller did not hear of a node that was back, and a node of a controller."""
    stage = Stage()
    stage.cut_while_it_is_made(cut_ms)
    stage.until(600 + cut_ms + 200)
    assert stage.told == ["/a"]
    assert stage.changes == ["connected"]


def test_a_cut_that_breaks_the_connection_takes_the_watches_with_it() -> None:
    stage = Stage()
    stage.cut_while_it_is_made(SESSION_MS)
    stage.until(2 * SESSION_MS)
    assert stage.told == []
    assert stage.changes[:3] == ["connected", "broken", "connected"]
