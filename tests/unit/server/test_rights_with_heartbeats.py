"""A heartbeat says what its sender may read at each door, whichever way it takes: rights are on no record."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.edge.listener_base import UNRESTRICTED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import ClientPeer, DeferredAnswer, KafkaCall
from muster.coordinator.kafka.handlers.handlers import GroupHandlers
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import (
    UNAUTHENTICATED,
    Acl,
    Identity,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from muster.coordinator.server.security.acl_service import PrincipalTopicRights
from muster.coordinator.server.services.group_coordinator import GroupCoordinator
from muster.coordinator.server.services.member_session import ServerSession
from muster.coordinator.server.services.member_session import SessionIdentity as Member
from tests.support.group_service import group_service_context
from tests.support.kafka.door import OneShard

OPEN = Acl(ResourceType.TOPIC, PatternType.LITERAL, "open", "User:alice", "*", Operation.READ, Permission.ALLOW)


def alice() -> Identity:
    return Identity(Principal("User", "alice"), "h")


class Asked(PrincipalTopicRights):
    """The lists, and how often they were asked."""

    def __init__(self) -> None:
        super().__init__(lambda who: False)
        self.replace([OPEN])
        self.times = 0

    def of(self, who: Identity) -> Any:
        self.times += 1
        return super().of(who)


class Noting(OneShard):
    """Keeps what came with each heartbeat, by the way that it took."""

    def __init__(self, *, well: bool = False) -> None:
        super().__init__()
        self.well = well
        self.heard: list[tuple[str, Rights]] = []

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights) -> bool:
        self.heard.append(("short", rights))
        return self.well

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        if isinstance(event, events.Heartbeat):
            self.heard.append(("long", event.rights))
        return effects.HeartbeatReply()

    def begin_request(self, shard: int, event: events.Request, waiter: Any) -> None:
        assert isinstance(event, events.Heartbeat)
        self.heard.append(("long", event.rights))
        waiter.set_result(effects.HeartbeatReply())


def over_grpc(driver: Noting, rights_of: Any, who: Identity) -> None:
    groups = GroupCoordinator(group_service_context(driver=driver, rights_of=rights_of))
    call = cast(Any, SimpleNamespace(peer_host="h", identity=who))
    asyncio.run(groups.heartbeat(pb.HeartbeatRequest(group_id="g", member_id="m", generation_id=1), call))


def over_kafka(driver: Noting, rights_of: Any, who: Identity) -> None:
    async def story() -> None:
        nothing = cast(Any, None)
        handlers = GroupHandlers(
            driver, shards=1, endpoint=nothing, partitions=dict, log_span=nothing, rights_of=rights_of
        )
        call = KafkaCall(4, "c", ClientPeer("h", asyncio.get_running_loop().create_future(), identity=who))
        request = struct("HeartbeatRequest")(group_id="g", member_id="m", generation_id=1)
        answer = handlers.heartbeat_now(request, call)
        assert isinstance(answer, DeferredAnswer) is not driver.well

    asyncio.run(story())


def over_a_stream(driver: Noting, rights_of: Any, who: Identity) -> None:
    async def story() -> None:
        session = ServerSession(
            cast(Any, driver), 0, Member("g", "m", None), "h", "software", lambda: rights_of.of(who)
        )
        session._listen = lambda *_, **__: None  # type: ignore[method-assign]
        beat = pb.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)

        async def said() -> Any:
            yield pb.SessionRequest(request_number=1, heartbeat=beat)

        await session.read(said())

    asyncio.run(story())


@pytest.mark.parametrize("door", [over_grpc, over_kafka, over_a_stream])
def test_rights_go_with_a_heartbeat(door: Any) -> None:
    driver, rights_of, who = Noting(), Asked(), alice()
    door(driver, rights_of, who)
    may = rights_of.of(who)
    assert may.may_read("open")
    assert driver.heard == [("short", may), ("long", may)]


@pytest.mark.parametrize("door", [over_grpc, over_kafka])
def test_the_lists_are_asked_once_in_a_moment_and_anew_in_the_next(door: Any) -> None:
    driver, rights_of, who = Noting(well=True), Asked(), alice()
    for _ in range(3):
        door(driver, rights_of, who)
    assert rights_of.times == 1
    rights_of.change([OPEN], [])
    driver.heard.clear()
    door(driver, rights_of, who)
    assert rights_of.times == 2
    assert [rights and rights.may_read("open") for _, rights in driver.heard] == [False]


@pytest.mark.parametrize("door", [over_grpc, over_kafka])
def test_where_nobody_is_asked_there_are_no_rights_whoever_comes(door: Any) -> None:
    for who in (UNAUTHENTICATED, alice()):
        driver = Noting()
        Asked().of(who)
        door(driver, UNRESTRICTED, who)
        assert driver.heard == [("short", None), ("long", None)]
