"""gRPC's calls within quotas: who waits, for how long, and whose session stands still meanwhile."""

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.errors import Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import Identity, parse_principal
from muster.coordinator.security.quota_usage import NodeQuotas, UserCounts
from muster.coordinator.server.rpc_dispatch import FastPathHandler, MethodKind, ServiceMethod, fast_path_of
from muster.coordinator.server.security import grpc_quotas
from muster.coordinator.server.security.grpc_quotas import GrpcQuotas
from muster.storage.rpc.v1 import broker_service_pb2 as log

PRODUCE = log.ProduceRequest(topic_data=[log.ProduceTopic(name="t" * 3_000)])
BEAT = pb.HeartbeatRequest(group_id="g", member_id="m")


@dataclass
class Scene:
    """Methods that answer at once, and a clock that goes on as they wait."""

    figures: dict[str, float]
    now_s: float = 100.0
    slept: list[float] = field(default_factory=list)
    held: list[tuple[str, str, int]] = field(default_factory=list)
    groups: set[tuple[str, str]] = field(default_factory=set)
    """Those that there are, and their members."""
    waits: asyncio.Event | None = None
    """Who sleeps waits for this, where it is given."""

    def __post_init__(self) -> None:
        self.quotas = NodeQuotas()
        self.quotas.replace({(("user", "alice"),): self.figures} if self.figures else {})
        owners: Any = SimpleNamespace(kept=False)
        held = lambda *one: self.held.append(one)  # noqa: E731
        counts = UserCounts(self.quotas)
        counts.alive = lambda group, member: (group, member) in self.groups
        self.paying = GrpcQuotas(self.quotas, counts, held, lambda: {"t": 6}, owners, lambda: self.now_s, self.sleep)
        kinds: dict[str, tuple[Any, Any]] = {
            "Produce": (log.ProduceRequest, log.ProduceResponse),
            "Heartbeat": (pb.HeartbeatRequest, pb.HeartbeatResponse),
            "OffsetCommit": (pb.OffsetCommitRequest, pb.OffsetCommitResponse),
            "TxnOffsetCommit": (pb.TxnOffsetCommitRequest, pb.TxnOffsetCommitResponse),
            "DeleteTopics": (log.DeleteTopicsRequest, log.DeleteTopicsResponse),
        }
        table = {
            name: ServiceMethod(f"/s/{name}", MethodKind.UNARY, asked, answer, self._answering(answer))
            for name, (asked, answer) in kinds.items()
        }
        self.table = self.paying.charged(table)

    @staticmethod
    def _answering(kind: Any) -> Any:
        async def answer(request: Any, call: Any) -> Any:
            return kind()

        return answer

    async def ask(self, api: str, request: Any, user: str = "alice", host: str = "10.0.0.1") -> Any:
        call = SimpleNamespace(identity=Identity(parse_principal(f"User:{user}"), host), peer_host=host)
        return await self.table[api].handler(request, call)

    async def sleep(self, seconds: float) -> None:
        if self.waits is not None:
            await self.waits.wait()
        self.slept.append(seconds)
        self.now_s += seconds


def test_the_answer_says_how_long_and_the_next_call_waits_so_long_and_no_other() -> None:
    async def story() -> None:
        scene = Scene({"producer_byte_rate": 100})
        told_ms = (await scene.ask("Produce", PRODUCE)).throttle_time_ms
        assert 20_000 < told_ms < 21_000
        assert (await scene.ask("Heartbeat", BEAT, user="bob")).throttle_time_ms == 0
        assert (await scene.ask("Heartbeat", BEAT, host="10.0.0.2")).throttle_time_ms == 0
        assert scene.slept == []
        await scene.ask("Heartbeat", BEAT)
        assert scene.slept == [pytest.approx(told_ms / 1000, abs=0.01)]
        assert scene.held == [("g", "m", pytest.approx(told_ms, abs=10))]
        await scene.ask("Heartbeat", BEAT)
        assert len(scene.slept) == 1, "its time is over"

    asyncio.run(story())


def test_a_member_that_calls_again_while_it_is_held_stands_still_once() -> None:
    async def story() -> None:
        scene = Scene({"producer_byte_rate": 100})
        told_ms = (await scene.ask("Produce", PRODUCE)).throttle_time_ms
        scene.waits = asyncio.Event()
        calls = [asyncio.create_task(scene.ask("Heartbeat", BEAT)) for _ in range(grpc_quotas.MOST_HELD)]
        await asyncio.sleep(0)
        assert scene.held == [("g", "m", pytest.approx(told_ms, abs=10))]
        with pytest.raises(Overloaded, match="32 calls of alice wait already for its quota"):
            await scene.ask("Heartbeat", BEAT)
        scene.waits.set()
        await asyncio.gather(*calls)

    asyncio.run(story())


def test_partitions_that_are_deleted_are_charged() -> None:
    async def story() -> None:
        made = Scene({"controller_mutation_rate": 1})
        request = log.DeleteTopicsRequest(topic_names=["t", "unknown"])
        assert (await made.ask("DeleteTopics", request)).throttle_time_ms == 0
        assert (await made.ask("DeleteTopics", request)).throttle_time_ms == 1_000

    asyncio.run(story())


@pytest.mark.parametrize(
    ("api", "kind"), [("OffsetCommit", pb.OffsetCommitRequest), ("TxnOffsetCommit", pb.TxnOffsetCommitRequest)]
)
def test_groups_made_by_commits_alone_are_counted(api: str, kind: Any) -> None:
    async def story() -> None:
        scene = Scene({"group_count": 2})

        async def commit(group: str, **more: Any) -> tuple[int, str]:
            answer = await scene.ask(api, kind(group_id=group, **more))
            return answer.error_code, answer.error_message

        assert [(await commit(group))[0] for group in ("a", "b", "a")] == [0, 0, 0]
        code, why = await commit("c")
        assert code == 44
        assert "as many as its quota allows (group_count)" in why
        assert (await commit("c", member_id="m"))[0] == 0, "who is a member was counted when it joined"
        scene.groups.add(("c", ""))
        assert (await commit("c"))[0] == 0, "a group that is there is not made by a commit"

    asyncio.run(story())


def test_time_is_charged_and_nothing_without_a_quota() -> None:
    async def story() -> None:
        busy, idle = Scene({"request_percentage": 1e-6}), Scene({})
        assert (await busy.ask("Heartbeat", BEAT)).throttle_time_ms == 1_000
        for _ in range(2):
            assert (await idle.ask("Produce", PRODUCE)).throttle_time_ms == 0
        assert idle.quotas.throttled == {}

    asyncio.run(story())


def test_a_short_way_is_gone_only_while_nothing_is_set() -> None:
    """What goes it is neither counted nor charged."""
    scene = Scene({})
    heartbeat = scene.table["Heartbeat"]
    paid = scene.paying.charged(
        {"Heartbeat": replace(heartbeat, handler=FastPathHandler(heartbeat.handler, lambda *asked: True))}
    )
    well = fast_path_of(paid["Heartbeat"].handler)
    assert well is not None
    call: Any = None
    assert well(BEAT, call)
    scene.quotas.replace({(("user", "alice"),): {"member_count": 1.0}})
    assert not well(BEAT, call)
    scene.quotas.replace({})
    assert well(BEAT, call)
    assert fast_path_of(scene.table["Produce"].handler) is None
