"""A deposed coordinator of central groups: its late orders are not obeyed, and what it is told reaches no group."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import CentralReply, Order, Ping
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import UNAUTHENTICATED
from muster.coordinator.server.services.member_session import ServerSessions
from muster.coordinator.zookeeper.election import ElectionCandidate
from muster.coordinator.zookeeper.session import SessionState
from tests.fakes.one_page_zookeeper import COUNTER, PLACE, SESSION_S, Line, Server, on_virtual_time

END = None


class Caller:
    """A client on loopback."""

    peer_host = "127.0.0.1"
    client_software = ""
    metadata: Mapping[str, str] = {}
    identity = UNAUTHENTICATED

    def cancelled(self) -> bool:
        return False


class Group:
    """The shard of a node, as far as a stream sees it: takes what it is told, and gives orders when there are some."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self._ids = 0

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    async def ask_shard(self, _shard: int, event: object, _kind: type[CentralReply]) -> CentralReply:
        if isinstance(event, events.AwaitOrders):
            return CentralReply(orders=(await self.orders.get(),))
        self.told.append(event)
        return CentralReply()

    def submit_event(self, _shard: int, _event: object) -> None:
        """The end of a stream is nothing that a member said."""


class Node:
    """One candidate, and the streams of its members."""

    def __init__(self, server: Server, number: int) -> None:
        self.line = Line(server, number)
        self.group = Group()
        self.elected = asyncio.Event()
        self.election = ElectionCandidate(
            self.line,  # type: ignore[arg-type]
            PLACE,
            lambda: b"%d" % number,
            epoch_path=COUNTER,
            on_elected=lambda _term: self.elected.set(),
            on_resigned=lambda: self.sessions.end_central(),
        )
        driver: Any = self.group
        self.sessions = ServerSessions(driver, shards=1, limit=9, grace_ms=0, central_epoch=self.term)
        self.election.start()

    def term(self) -> int | None:
        term = self.election.term
        return None if term is None else term.epoch


class Member:
    """The far end of one stream, which says what it is made to say."""

    def __init__(self, node: Node, heard: int = 0) -> None:
        self.said: asyncio.Queue[pb.SessionRequest | None] = asyncio.Queue()
        registration = pb.RegisterConsumer(
            group_id="g",
            member_id="m",
            client_id="c",
            session_timeout_ms=6_000,
            topics=["t"],
            assignor="range",
            coordinator_epoch=heard,
        )
        self.said.put_nowait(pb.SessionRequest(register_consumer=registration))
        self.stream = aiter(node.sessions.serve(self._requests(), Caller()))

    async def _requests(self) -> AsyncIterator[pb.SessionRequest]:
        while (request := await self.said.get()) is not END:
            yield request

    async def hears(self) -> pb.SessionResponse:
        return await anext(self.stream)


async def elected(node: Node) -> int:
    await node.elected.wait()
    epoch = node.term()
    assert epoch is not None
    return epoch


def stand_still() -> None:
    """For longer than a session: nothing of the loop has run since."""
    loop: Any = asyncio.get_running_loop()
    loop._selector.now_s += SESSION_S


def another_is_elected(server: Server, epoch: int) -> None:
    """The session of who was had ended; it has not heard of that."""
    del server.nodes[PLACE]
    version = server.nodes[COUNTER].version
    server.apply([("create", PLACE, b"you", 99), ("set", COUNTER, b"%d" % epoch, version)])


def test_orders_tell_under_which_election_they_are_given() -> None:
    async def story() -> None:
        node = Node(Server(), 1)
        assert await elected(node) == 1
        member = Member(node)
        assert (await member.hears()).registered.coordinator_epoch == 1
        node.group.orders.put_nowait(Ping(7))
        order = (await member.hears()).order
        assert (order.number, order.coordinator_epoch) == (7, 1)
        await node.election.stop()
        assert (await member.hears()).drain.reason == "this node coordinates central groups no longer; find who does"

    on_virtual_time(story())


def test_what_a_member_says_to_a_deposed_coordinator_reaches_no_group() -> None:
    """Its lease is over on its own clock, though nothing has told it yet: no watch has fired, no loop has run."""

    async def story() -> None:
        node = Node(Server(), 1)
        await elected(node)
        member = Member(node)
        await member.hears()
        await asyncio.sleep(0)
        before = list(node.group.told)
        stand_still()
        member.said.put_nowait(pb.SessionRequest(fetcher_stopped=pb.FetcherStopped(number=3)))
        assert (await member.hears()).WhichOneof("event") == "drain"
        assert node.group.told == before
        await node.election.stop()

    on_virtual_time(story())


def test_a_late_order_of_a_deposed_coordinator_is_not_given() -> None:
    async def story() -> None:
        node = Node(Server(), 1)
        await elected(node)
        member = Member(node)
        await member.hears()
        stand_still()
        node.group.orders.put_nowait(Ping(7))
        assert (await member.hears()).WhichOneof("event") == "drain"
        await node.election.stop()

    on_virtual_time(story())


def test_a_member_that_has_heard_of_a_later_election_is_refused() -> None:
    async def story() -> None:
        server = Server()
        old = Node(server, 1)
        assert await elected(old) == 1
        old.line.cut = True
        another_is_elected(server, 2)
        refused = (await Member(old, heard=2).hears()).registered
        assert refused.error_code == pb.ConsumerRegistered(error_code=ErrorCode.NOT_COORDINATOR.value).error_code
        assert old.group.told == []
        assert old.term() == 1  # and it still thinks that it is elected
        await asyncio.sleep(SESSION_S)
        assert old.term() is None
        old.line.become(SessionState.CONNECTED)
        await old.election.stop()

    on_virtual_time(story())
