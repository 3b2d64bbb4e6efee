"""A backend or node whose start fails half way ends what it had started, the last first, and touches nothing else.

The parts are stand-ins that write down what is called; each call of the start fails in turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.config import Address, Settings, load_settings
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend.node_backend import BackendContext, RunningEngine
from muster.coordinator.server.cluster_backend import cluster_backend
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.kafka_backend import backend as kafka_backend
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine
from muster.coordinator.server.monitoring import metrics_scrape
from muster.coordinator.server.node import node

NEVER = 1 << 30
SAME = {"port.stop": "port.give_back"}
"""A port that was served is closed in another way."""
ANSWERED = {"requests.close", "staging.close", "driver.close"}
"""A node that stops ends these earlier, while its clients still get answers."""
DOORS = ClientAddresses(Address("127.0.0.1", 9290), None, None)


class CallFailed(Exception):
    """The call that is to fail."""


class StartRecord:
    """What was called, in order, and which call fails. begins: calls, and which ends each of them makes due. For those
    in `halfway` that is so even where the call fails."""

    def __init__(self, fails_at: int, begins: dict[str, list[str]], halfway: set[str]) -> None:
        self.fails_at = fails_at
        self._begins = begins
        self._halfway = halfway
        self._all_ends = {end for ends in begins.values() for end in ends}
        self._calls = 0
        self.failed = ""
        self.due: list[str] = []
        self.ended: list[str] = []

    def called(self, call: str) -> None:
        call = SAME.get(call, call)
        if call in self._all_ends:
            self.ended.append(call)
            return
        fails = self._calls == self.fails_at
        self._calls += 1
        if not fails or call in self._halfway:
            self.due += self._begins.get(call, [])
        if fails:
            self.failed = call
            raise CallFailed(call)


class Anything:
    """A part of a node: whatever is called is written down, and gives a value to be called, awaited or looked at."""

    def __init__(self, record: StartRecord, part: str) -> None:
        self._record = record
        self._part = part

    def __call__(self, *_: Any, **__: Any) -> "Anything":
        self._record.called(f"{self._part}.made")
        return self

    def __getattr__(self, method: str) -> "AnyMethod":
        return AnyMethod(self._record, self._part, method)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __radd__(self, other: Any) -> Any:
        return other

    def __or__(self, other: Any) -> "Anything":
        return self

    def __await__(self) -> Generator[None, None, "Anything"]:
        return self
        yield


class AnyMethod(Anything):
    def __init__(self, record: StartRecord, part: str, method: str) -> None:
        super().__init__(record, part)
        self._method = method

    def __call__(self, *_: Any, **__: Any) -> Anything:
        self._record.called(f"{self._part}.{self._method}")
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
    "settle_node_secret": "secret",
    "LostDataCheck": "loss",
    "adopt_topics": "adoption",
    "ReplicationRates": "rates",
    "ProducerIdBlocks": "producer ids",
    "ReplicatedLog": "log",
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
    "door.bind": ["door.give_back"],
    "session.open": ["session.close"],
    "replicas.open": ["replicas.stop"],
    "registration.start": ["registration.stop"],
    "candidate.start": ["candidate.close"],
    "rates.start": ["rates.stop"],
    "producer ids.fetch_first_block": ["producer ids.close"],
    "channels.made": ["channels.close"],
    "asks.made": ["asks.close"],
    "ends.start": ["ends.stop"],
    "count.watch": ["count.stop"],
    "coordination.start": ["coordination.stop"],
    "observer.start": ["observer.stop"],
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
        backend.coordinate(RunningEngine(object.__new__(LeasedEngine), nothing, lambda: 0, lambda why: None, nothing))
        backend.start(lambda in_touch: None, Conditions(lambda: 0))

    await ended_again(started, backend.close)


KAFKA_PARTS = {
    "Upstream": "upstream",
    "prepare_security": "security topic",
    "check_state_topic": "state topic checked",
    "prepare_state_topic": "state topic made",
    "UpstreamTopics": "topics",
    "UpstreamLogEnds": "ends",
    "UpstreamLog": "log",
    "UpstreamRequests": "requests",
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
    "upstream.made": ["upstream.close"],
    "topics.refresh_topics": ["topics.stop"],
    "channels.made": ["channels.close"],
    "rights.made": ["rights.stop"],
    "owner.start": ["owner.stop"],
    "nodes.start": ["nodes.stop"],
    "state topic.start": ["state topic.stop"],
    "diagnostics.start": ["diagnostics.stop"],
    "adoption.made": ["adoption.stop"],
    "mirror.start": ["mirror.stop"],
}


async def start_over_kafka(record: StartRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, kafka_backend, record, KAFKA_PARTS)
    settings = Settings.model_validate({"engine": "kafka://127.0.0.1:1"})
    settings = settings.model_copy(update={"authorizer": "acl", "engine_kafka_offsets_mirror": True})
    backend = kafka_backend.KafkaBackend(BackendContext(settings, NodeClock(), None, lambda: DOORS))
    nothing: Any = Anything(record, "")

    async def started() -> None:
        await backend.meet()
        backend.coordinate(RunningEngine(object.__new__(GatedEngine), nothing, lambda: 0, lambda why: None, nothing))

    await ended_again(started, backend.close)


class BackendStub(Anything):
    disk = zookeeper = None

    async def join(self, security: object, have_groups: Any) -> None:
        self._record.called("backend.join")
        have_groups(lambda *_: Anything(self._record, "engine"))

    def upkeep(self, *_: object) -> Anything:
        self._record.called("backend.upkeep")
        return Anything(self._record, "upkeep")

    def staging(self) -> Anything:
        self._record.called("backend.staging")
        return Anything(self._record, "staging")

    @property
    def requests(self) -> Anything:
        return Anything(self._record, "requests")


async def start_node(record: StartRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, node, record, NODE_PARTS)
    monkeypatch.setattr(node, "make_backend", BackendStub(record, "backend"))
    monkeypatch.setattr(metrics_scrape, "NodeGauges", Anything(record, "gauges"))
    started = node.CoordinatorNode(load_settings(overrides={"log.dirs": "/nowhere"}))
    await started.start()
    assert record.ended == []
    record.fails_at = NEVER
    await started.stop()


async def ended_again(start: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]) -> None:
    """As a node does it: whatever becomes of the start, what it left is closed, and once more at the very end."""
    try:
        await start()
    finally:
        await close()
        await close()


NODE_PARTS = {
    "GrpcListener": "port",
    "Isolation": "isolation",
    "RebalanceLines": "lines",
    "make_kafka_listener": "kafka",
    "make_http_listener": "http",
    "make_metrics": "metrics",
    "make_observation": "observation",
    "make_tracing": "tracing",
    "make_backend": "backend",
    "node_services": "security",
    "close_observers": "observers",
    "partition_counts": "partitions",
    "topic_ids": "topic ids",
    "make_load_meter": "load meter",
    "EngineDriver": "driver",
    "ServerSessions": "sessions",
    "GroupControl": "control",
    "make_method_table": "table",
    "report_operator_calls": "reports",
    "GrpcMethods": "methods",
    "log_listening": "listening",
}
NODE_BEGINS = {
    "security.load_certificates": ["security.stop_security", "lines.close"],
    "port.bind": ["port.give_back", "isolation.close"],
    "kafka.bind": ["kafka.give_back"],
    "http.bind": ["http.give_back"],
    "backend.made": ["backend.close", "backend.leave", "observers.made"],
    "driver.made": ["driver.close"],
    "backend.staging": ["requests.close", "staging.close"],
    "backend.upkeep": ["upkeep.stop"],
    "backend.serve_kafka": ["kafka.close"],
    "http.start": ["http.close"],
}


STARTS = [
    pytest.param(start_in_cluster, CLUSTER_BEGINS, {"session.open", "producer ids.fetch_first_block"}, id="cluster"),
    pytest.param(start_over_kafka, KAFKA_BEGINS, {"topics.refresh_topics"}, id="kafka"),
    pytest.param(start_node, NODE_BEGINS, set(), id="node"),
]


@pytest.mark.parametrize(("start", "begins", "halfway"), STARTS)
def test_what_was_started_ends_in_reverse_order_wherever_the_start_fails(
    start: Any, begins: dict[str, list[str]], halfway: set[str]
) -> None:
    failed: set[str] = set()
    for fails_at in range(NEVER):
        record = StartRecord(fails_at, begins, halfway)
        with pytest.MonkeyPatch.context() as patched, suppress(CallFailed):
            asyncio.run(start(record, patched))
        if not record.failed:
            break
        failed.add(record.failed)
        assert record.ended == record.due[::-1], f"{record.failed} failed"
    assert begins.keys() <= failed
    ended = [end for end in record.ended if end not in ANSWERED]
    assert ended == [end for end in record.due[::-1] if end not in ANSWERED]
    assert set(record.due) == set(record.ended) == {end for ends in begins.values() for end in ends}


@pytest.mark.parametrize(("start", "begins", "halfway"), STARTS[:2])
def test_an_end_that_fails_keeps_no_other_from_its_end(
    start: Any, begins: dict[str, list[str]], halfway: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class StubbornRecord(StartRecord):
        def called(self, call: str) -> None:
            before = len(self.ended)
            super().called(call)
            if before < len(self.ended) == 1:
                raise CallFailed(call)

    record = StubbornRecord(NEVER, begins, halfway)
    with pytest.raises(CallFailed):
        asyncio.run(start(record, monkeypatch))
    assert record.ended == record.due[::-1]
