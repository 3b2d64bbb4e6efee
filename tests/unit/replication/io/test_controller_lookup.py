"""Who holds `/controller` is found by its registration; one that is of no use is told of, and looked at again."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.config import Address
from muster.coordinator.replication.io import controller_candidate
from muster.coordinator.replication.io.controller_candidate import CandidateContext, ControllerCandidate
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, ClusterNode, NodeEndpoint
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.session import Znode

HOLDER = paths.controller_json(2, 5)
DOOR = NodeEndpoint("REPLICATION", "h", 9094)


def registration(*endpoints: NodeEndpoint) -> bytes:
    node = ClusterNode(2, 0, "d" * 22, endpoints=endpoints)
    return cluster_layout.registration_json(node, timestamp_ms=5)


class Session:
    """Node 2's registration, as somebody has left it; counts how often it is looked at."""

    session_timeout_ms = 6_000

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.looks = 0

    def on_state(self, listener: Any) -> None:
        pass

    async def connected(self) -> None:
        pass

    async def get(self, path: str) -> Znode:
        self.looks += 1
        return Znode(self.data, 0, 1, 0, 0, made=7)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "/brokers/ids/2 holds b'{'; expected"),
        (registration(DOOR).replace(b'"features":1', b'"session_ms":Infinity,"features":1'), "/brokers/ids/2 holds"),
        (registration(), "/brokers/ids/2 names no REPLICATION://host:port"),
    ],
)
def test_a_registration_by_which_it_cannot_be_asked_is_told_of_once_and_does_not_end_the_search(
    data: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_candidate, "RETRY_S", 0)

    async def story() -> None:
        session, told, found = Session(data), list[str](), asyncio.Event()
        around = CandidateContext(ClusterImage, lambda: 0, lambda: 0, bytes, warn=told.append, seen=found.set)
        candidate = ControllerCandidate(cast(Any, session), 1, ControllerSettings(), around)
        candidate._seen(HOLDER)
        async with asyncio.timeout(30):
            while session.looks < 5:  # noqa: ASYNC110  # one turn of the loop at a time, no time passes
                await asyncio.sleep(0)
            assert [says in line and line.startswith("node 2, the controller, cannot be asked: ") for line in told] == [
                True
            ]
            assert candidate.seated is None
            session.data = registration(DOOR)
            await found.wait()
        assert candidate.seated == (2, Address("h", 9094))
        assert len(told) == 1

    asyncio.run(story())


def test_one_that_is_not_registered_yet_is_waited_for_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_candidate, "RETRY_S", 0)

    async def story() -> None:
        session = SimpleNamespace(session_timeout_ms=6_000, on_state=lambda listener: None, looks=0)

        async def get(path: str) -> Znode | None:
            session.looks += 1
            return Znode(registration(DOOR), 0, 1, 0, 0, made=7) if session.looks > 3 else None

        async def connected() -> None:
            pass

        session.get, session.connected = get, connected
        told, found = list[str](), asyncio.Event()
        around = CandidateContext(ClusterImage, lambda: 0, lambda: 0, bytes, warn=told.append, seen=found.set)
        candidate = ControllerCandidate(cast(Any, session), 1, ControllerSettings(), around)
        candidate._seen(HOLDER)
        async with asyncio.timeout(30):
            await found.wait()
        assert (candidate.seated, told) == ((2, Address("h", 9094)), [])

    asyncio.run(story())
