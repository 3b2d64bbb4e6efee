"""A heartbeat says what its sender may read at each door, whichever way it takes: rights are on no record."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.core import effects, events
from muster.coordinator.core.rights import Names, Rights, TopicRights
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall, Later, Peer
from muster.coordinator.kafka.groups.handlers import GroupHandlers
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.identity import Identity
from muster.coordinator.server.service.groups import GroupCoordinator
from muster.coordinator.server.service.session import Session
from muster.coordinator.server.service.session_identity import Identity as Member
from tests.support.kafka.door import OneShard

MAY = TopicRights("alice", Names(frozenset({"open"})))


class Noting(OneShard):
    """Keeps what came with each heartbeat, by the way that it took."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, Rights]] = []

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights) -> bool:
        self.heard.append(("short", rights))
        return False

    async def ask(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        if isinstance(event, events.Heartbeat):
            self.heard.append(("long", event.rights))
        return effects.HeartbeatReply()

    def begin(self, shard: int, event: events.Request, waiter: Any) -> None:
        assert isinstance(event, events.Heartbeat)
        self.heard.append(("long", event.rights))
        waiter.set_result(effects.HeartbeatReply())


def rights_of(who: Identity) -> Rights:
    return MAY


def over_grpc(driver: Noting) -> None:
    nothing = cast(Any, None)
    groups = GroupCoordinator(
        cast(Any, driver),
        *(nothing, nothing),
        shards=1,
        snapshot_bytes=0,
        endpoint=nothing,
        partitions=dict,
        log_span=lambda *_: (0, 0),
        conditions=nothing,
        resources=nothing,
        isolation=nothing,
        assignor_deadline_ms=0,
        plugins={},
        rights_of=rights_of,
    )
    call = cast(Any, SimpleNamespace(peer_host="h", identity=nothing))
    asyncio.run(groups.heartbeat(pb.HeartbeatRequest(group_id="g", member_id="m", generation_id=1), call))


def over_kafka(driver: Noting) -> None:
    async def story() -> None:
        nothing = cast(Any, None)
        handlers = GroupHandlers(
            driver, shards=1, endpoint=nothing, partitions=dict, log_span=nothing, rights_of=rights_of
        )
        call = KafkaCall(4, "c", Peer("h", asyncio.get_running_loop().create_future()))
        request = struct("HeartbeatRequest")(group_id="g", member_id="m", generation_id=1)
        answer = handlers.heartbeat_now(request, call)
        assert isinstance(answer, Later)

    asyncio.run(story())


def over_a_stream(driver: Noting) -> None:
    async def story() -> None:
        session = Session(cast(Any, driver), 0, Member("g", "m", None), "h", "software", lambda: MAY)
        session._listen = lambda *_, **__: None  # type: ignore[method-assign]
        beat = pb.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)

        async def said() -> Any:
            yield pb.SessionRequest(request_number=1, heartbeat=beat)

        await session.read(said())

    asyncio.run(story())


@pytest.mark.parametrize(
    ("door", "ways"), [(over_grpc, ["short", "long"]), (over_kafka, ["short", "long"]), (over_a_stream, ["long"])]
)
def test_rights_go_with_a_heartbeat(door: Any, ways: list[str]) -> None:
    driver = Noting()
    door(driver)
    assert driver.heard == [(way, MAY) for way in ways]
