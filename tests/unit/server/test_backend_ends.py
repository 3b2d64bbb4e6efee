"""A backend whose start fails half way ends what it had started, the last first, and touches nothing else.

The parts are stand-ins that write down what is called; each call of the start fails in turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.config import Address, Settings, load_settings
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.server.cluster_backend import cluster_backend
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.kafka_backend import backend as kafka_backend
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine

ENDS = {"stop", "close", "give_back"}
NEVER = 1 << 30
DOORS = ClientAddresses(Address("127.0.0.1", 9290), None, None)


class CallFailed(Exception):
    """The call that is to fail."""


class StartRecord:
    """What was called, in order, and which call fails. begins: the call by which a part begins; what it begins may be
    there even where it fails, for those in `halfway`."""

    def __init__(self, fails_at: int, begins: dict[str, str], halfway: set[str]) -> None:
        self._fails_at = fails_at
        self._begins = begins
        self._halfway = halfway
        self._calls = 0
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.touched: set[str] = set()

    def called(self, part: str, method: str) -> None:
        if method in ENDS:
            self.ended.append(part)
            return
        self.touched.add(part)
        fails = self._calls == self._fails_at
        self._calls += 1
        if self._begins.get(part) == method and (not fails or part in self._halfway):
            self.begun.append(part)
        if fails:
            raise CallFailed(f"{part}.{method}")


class Anything:
    """A part of a node: whatever is called is written down, and gives a value to be called, awaited or looked at."""

    def __init__(self, record: StartRecord, part: str) -> None:
        self._record = record
        self._part = part

    def __call__(self, *_: Any, **__: Any) -> "Anything":
        self._record.called(self._part, "made")
        return self

    def __getattr__(self, method: str) -> "AnyMethod":
        return AnyMethod(self._record, self._part, method)

    def __await__(self) -> Generator[None, None, "Anything"]:
        return self
        yield


class AnyMethod(Anything):
    def __init__(self, record: StartRecord, part: str, method: str) -> None:
        super().__init__(record, part)
        self._method = method

    def __call__(self, *_: Any, **__: Any) -> Anything:
        self._record.called(self._part, self._method)
        return Anything(self._record, self._part)


def replaced(monkeypatch: pytest.MonkeyPatch, module: ModuleType, record: StartRecord, names: dict[str, str]) -> None:
    for name, part in names.items():
        monkeypatch.setattr(module, name, Anything(record, part))


CLUSTER_PARTS = {
    "NodeListener": "door",
    "ZooKeeperSession": "session",
    "GroupObserver": "observer",
    "ZooKeeperGroups": "groups",
    "settle_cluster_id": "cluster id",
    "ClusterRegistration": "registration",
    "ControllerCandidate": "candidate",
    "ReplicaManager": "replicas",
    "record_session_length": "session length",
    "adopt_topics": "adoption",
    "ReplicationRates": "rates",
    "ProducerIdBlocks": "producer ids",
    "ReplicatedBroker": "log",
    "PeerChannels": "channels",
    "peer_credentials": "credentials",
    "LogEndsClient": "asks",
    "RemoteLogEnds": "ends",
    "ClusterTopics": "topics",
    "ReplicatedRequests": "requests",
    "ClusterAdmin": "admin",
    "ShardCount": "count",
    "ReplicatedGroupLog": "group log",
    "ShardCoordination": "coordination",
}
CLUSTER_BEGINS = {
    "door": "bind",
    "session": "open",
    "replicas": "open",
    "registration": "start",
    "candidate": "start",
    "rates": "start",
    "producer ids": "begin",
    "channels": "made",
    "asks": "made",
    "ends": "start",
    "count": "watch",
    "coordination": "start",
    "observer": "start",
}


async def start_in_cluster(record: StartRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, cluster_backend, record, CLUSTER_PARTS)
    settings = load_settings(
        overrides={
            "zookeeper.connect": "127.0.0.1:1",
            "inter.broker.listeners": "127.0.0.1:0",
            "log.dirs": "/nowhere",
            "offsets.warm.replicas": "false",
        }
    )
    backend = cluster_backend.ClusterBackend(settings, None)
    backend._door.bound = Address("127.0.0.1", 0)  # type: ignore[misc]
    backend._entered.set_result(None)
    nothing: Any = Anything(record, "")
    disk: Any = SimpleNamespace(
        cluster_id="c", unclean=False, identity=SimpleNamespace(directory_id=b"", unclean=False)
    )

    async def started() -> None:
        backend.bind()
        await backend.meet(None, "c", lambda seen: None)
        await backend.enter(disk, DOORS)
        backend.coordinate(object.__new__(LeasedEngine), nothing, lambda: 0, lambda why: None, nothing)
        backend.start(lambda in_touch: None)

    await ended_again(started, backend.close)


KAFKA_PARTS = {
    "Upstream": "upstream",
    "prepare_security": "security topic",
    "prepare_state_topic": "state topic made",
    "UpstreamTopics": "topics",
    "UpstreamLogEnds": "ends",
    "UpstreamLogs": "log",
    "LogRequests": "requests",
    "StateLog": "group log",
    "ownership_settings_of": "rules",
    "ShardOwner": "owner",
    "NodesGroup": "nodes",
    "StateTopicWatch": "state topic",
    "PeerChannels": "channels",
    "peer_credentials": "credentials",
    "UpstreamDiagnostics": "diagnostics",
    "UpstreamSecurity": "rights",
    "GroupAdoption": "adoption",
    "NodeOffsetMirror": "mirror",
}
KAFKA_BEGINS = {
    "upstream": "made",
    "topics": "look",
    "channels": "made",
    "rights": "made",
    "owner": "start",
    "nodes": "start",
    "state topic": "start",
    "diagnostics": "start",
    "adoption": "made",
    "mirror": "start",
}


async def start_over_kafka(record: StartRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, kafka_backend, record, KAFKA_PARTS)
    settings = Settings.model_validate({"engine": "kafka://127.0.0.1:1"})
    settings = settings.model_copy(update={"authorizer": "acl", "engine_kafka_offsets_mirror": True})
    backend = kafka_backend.KafkaBackend(settings, NodeClock(), lambda: DOORS)
    nothing: Any = Anything(record, "")

    async def started() -> None:
        await backend.meet()
        backend.coordinate(object.__new__(GatedEngine), nothing, lambda: 0, lambda why: None, nothing)

    await ended_again(started, backend.close)


async def ended_again(start: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]) -> None:
    """As a node does it: whatever becomes of the start, what it left is closed, and once more at the very end."""
    try:
        await start()
    finally:
        await close()
        await close()


STARTS = [
    pytest.param(start_in_cluster, CLUSTER_BEGINS, {"session", "producer ids"}, id="cluster"),
    pytest.param(start_over_kafka, KAFKA_BEGINS, {"topics"}, id="kafka"),
]


@pytest.mark.parametrize(("start", "begins", "halfway"), STARTS)
def test_what_was_started_ends_in_reverse_order_wherever_the_start_fails(
    start: Any, begins: dict[str, str], halfway: set[str]
) -> None:
    failed: set[str] = set()
    for fails_at in range(NEVER):
        record = StartRecord(fails_at, begins, halfway)
        with pytest.MonkeyPatch.context() as patched:
            try:
                asyncio.run(start(record, patched))
            except CallFailed as failure:
                failed.add(str(failure))
                whole = False
            else:
                whole = True
        assert record.ended == record.begun[::-1], f"call {fails_at} failed"
        assert set(record.ended) <= record.touched
        if whole:
            assert set(record.begun) == set(begins)
            break
    assert {f"{part}.{method}" for part, method in begins.items() if method != "made"} <= failed


@pytest.mark.parametrize(("start", "begins", "halfway"), STARTS)
def test_an_end_that_fails_keeps_no_other_from_its_end(
    start: Any, begins: dict[str, str], halfway: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class StubbornRecord(StartRecord):
        def called(self, part: str, method: str) -> None:
            super().called(part, method)
            if method in ENDS and len(self.ended) == 1:
                raise CallFailed(part)

    record = StubbornRecord(NEVER, begins, halfway)
    with pytest.raises(CallFailed):
        asyncio.run(start(record, monkeypatch))
    assert record.ended == record.begun[::-1]
