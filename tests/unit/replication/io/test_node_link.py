"""The link: who refuses, who is silent, who breaks off, and that nothing that was asked is left waiting."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import Buffer, encode, struct
from muster.coordinator.replication.io.wire import node_links as module
from muster.coordinator.replication.io.wire.node_api import KEY_OF, NODE_APIS, AbortRecord, AbortsQuery
from muster.coordinator.replication.io.wire.node_links import (
    LinkBroken,
    LinkCaller,
    LinkError,
    LinkRefused,
    LinkSilent,
    NodeLink,
    probe_refusals,
)
from tests.support.replication import CLUSTER, PATIENCE_S, HeldDesk, fetch_of, linked, serving, whole

ME = LinkCaller(CLUSTER, 2)
SOON_S = 0.05


def connecting(address: Address, timeout_s: float = PATIENCE_S) -> Awaitable[NodeLink]:
    return NodeLink.connect(address, ME, timeout_s=timeout_s)


def closed_port() -> int:
    """A port on which nobody listens, and which nobody else is given for now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


@asynccontextmanager
async def stranger(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[Address]:
    """Whoever listens there answers each frame by these bytes; None: closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                said = answer(frame)
                if said is None:
                    break
                writer.write(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])


def greeting(frame: bytes, *left_out: str) -> bytes:
    made = struct("ApiVersionsResponse.api_keys")
    served = [
        made(api_key=api.key, min_version=api.first, max_version=api.last)
        for api in NODE_APIS
        if api.name not in left_out
    ]
    return answered(frame, *encode("ApiVersionsResponse", 3, struct("ApiVersionsResponse")(api_keys=served)))


def answered(frame: bytes, *body: Buffer) -> bytes:
    whole = frame[4:8] + b"".join(body)
    return len(whole).to_bytes(4, "big") + whole


def is_greeting(frame: bytes) -> bool:
    return frame[:2] == b"\0\x12"


def test_a_machine_that_refuses_is_told_from_one_that_is_silent() -> None:
    async def story() -> None:
        with pytest.raises(LinkRefused, match="refuses connections; nobody listens there"):
            await connecting(Address("127.0.0.1", closed_port()))
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(1)
            with pytest.raises(LinkSilent, match=r"did not answer within 0\.05 s"):
                await connecting(Address(*silent.getsockname()), SOON_S)
        with pytest.raises(LinkBroken, match=r"nowhere\.invalid:1 is not known"):
            await connecting(Address("nowhere.invalid", 1))

    asyncio.run(story())


def test_a_door_that_is_bound_and_not_served_yet_is_silent_and_does_not_refuse() -> None:
    """A node that loads is not dead."""
    from muster.coordinator.replication.io.wire.node_listener import NodeListener

    async def story() -> None:
        door = NodeListener(Address("127.0.0.1", 0))
        try:
            with pytest.raises(LinkSilent):
                await connecting(door.bind(), SOON_S)
        finally:
            door.give_back()
        with pytest.raises(LinkRefused):
            await connecting(door.bound)

    asyncio.run(story())


def test_a_node_is_gone_that_refuses_time_after_time_and_silence_is_no_refusal() -> None:
    """CL-C9: three times within 300 ms."""
    moments = count(100, 10)

    async def story() -> None:
        def now_ms() -> int:
            return next(moments)

        gone = Address("127.0.0.1", closed_port())
        assert await probe_refusals(gone, now_ms, within_ms=30_000, pause_ms=0) == (100, 110, 120)
        assert await probe_refusals(gone, now_ms, within_ms=0) == (), "there was no time to ask three times"
        assert await probe_refusals(Address("nowhere.invalid", 1), now_ms) == ()
        with socket.socket() as frozen:
            frozen.bind(("127.0.0.1", 0))
            frozen.listen(1)
            assert await probe_refusals(Address(*frozen.getsockname()), now_ms, pause_ms=0) == ()
        async with serving(HeldDesk()) as door:
            assert await probe_refusals(door.bound, now_ms) == ()

    asyncio.run(story())


def test_a_node_that_comes_back_between_two_tries_is_not_gone() -> None:
    async def story() -> None:
        place = Address("127.0.0.1", closed_port())
        with socket.socket() as back:
            back.bind(place)

            def now_ms() -> int:
                back.listen(1)
                return 5

            assert await probe_refusals(place, now_ms, within_ms=30_000, pause_ms=0) == ()

    asyncio.run(story())


def test_an_answer_that_is_larger_than_agreed_ends_the_link() -> None:
    async def story() -> None:
        big = struct("ControlledShutdownResponse.remaining_partitions")(topic_name="t" * 3_000)
        said = struct("ControlledShutdownResponse")(remaining_partitions=[big])
        body = b"\0" + b"".join(encode("ControlledShutdownResponse", 3, said))
        async with stranger(lambda frame: greeting(frame) if is_greeting(frame) else answered(frame, body)) as address:
            link = await NodeLink.connect(address, ME, timeout_s=PATIENCE_S, most_answer_bytes=2_000)
            with pytest.raises(LinkBroken, match=r"a frame of .* bytes; expected 4 to 2000"):
                await link.controlled_shutdown(77, deadline_s=PATIENCE_S)

    asyncio.run(story())


def test_a_node_of_an_earlier_version_is_told_as_such_and_the_link_goes_on() -> None:
    """As while a cluster is upgraded: what it does not serve it is not asked for."""
    asked: list[int] = []

    def answer(frame: bytes) -> bytes | None:
        if is_greeting(frame):
            return greeting(frame, "NoteAborts", "ReadAborts")
        asked.append(int.from_bytes(frame[:2], "big"))
        body = b"\0" + b"".join(encode("ControlledShutdownResponse", 3, struct("ControlledShutdownResponse")()))
        return answered(frame, body)

    async def story() -> None:
        async with stranger(answer) as address:
            link = await NodeLink.connect(address, ME, timeout_s=PATIENCE_S)
            for _ in range(2):
                with pytest.raises(LinkError, match="a node of an earlier version, without NoteAborts; upgrade it"):
                    await link.note_aborts([AbortRecord(b"", b"x")], deadline_s=PATIENCE_S)
            with pytest.raises(LinkError, match="without ReadAborts"):
                await link.read_aborts(AbortsQuery("A", 5), deadline_s=PATIENCE_S)
            await link.controlled_shutdown(77, deadline_s=PATIENCE_S)
            link.close()

    asyncio.run(story())
    assert asked == [KEY_OF["ControlledShutdown"]]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda frame: None, "closed the connection"),
        (lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n", "sent an invalid answer: a frame of 1213486160 bytes"),
        (lambda frame: bytes([0, 0, 0, 8, 9, 9, 9, 9, 0, 0, 0, 0]), "correlation id 151587081; expected 1"),
        (lambda frame: answered(frame, bytes(4)), "ApiVersionsResponse version 3, ApiVersionsResponse"),
        (lambda frame: greeting(frame, "AlterPartition"), "does not speak AlterPartition 3; is it a node of this vers"),
        (lambda frame: greeting(frame) * 2, "sent an invalid answer: nothing was asked"),
    ],
    ids=["closes", "speaks HTTP", "answers another", "cuts", "is older", "answers twice"],
)
def test_whoever_else_listens_there_is_no_node(answer: Callable[[bytes], bytes | None], why: str) -> None:
    async def story() -> None:
        async with stranger(answer) as address:
            try:
                link = await connecting(address)
                await link.controlled_shutdown(77, deadline_s=PATIENCE_S)
            except LinkBroken as broken:
                told = str(broken)
            assert why in told

    asyncio.run(story())


def test_a_node_that_serves_no_transactions_yet_is_talked_to_all_the_same() -> None:
    async def story() -> None:
        async with stranger(lambda frame: greeting(frame, "AddPartitionsToTxn", "WriteTxnMarkers")) as address:
            assert (await connecting(address)).open

    asyncio.run(story())


@pytest.mark.parametrize("body", [b"", b"\1", b"\0\xff\xff", b"\0" + bytes(40)], ids=["cut", "tagged", "torn", "long"])
def test_an_answer_that_cannot_be_read_ends_the_link_and_fails_all_at_once(body: bytes) -> None:
    async def story() -> None:
        async with stranger(lambda frame: greeting(frame) if is_greeting(frame) else answered(frame, body)) as address:
            link = await connecting(address)
            asked = [asyncio.create_task(fetch_of(link, whole())) for _ in range(3)]
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(each) for each in results] == [LinkBroken] * 3
            assert (link.open, link.under_way) == (False, 0)
            with pytest.raises(LinkBroken, match="the connection is at its end"):
                await fetch_of(link, whole())

    asyncio.run(story())


def test_a_deadline_ends_the_link_for_answers_come_in_order() -> None:
    async def story() -> None:
        desk = HeldDesk()
        desk.held = asyncio.Event()
        async with serving(desk) as door:
            link = await linked(door)
            patient = asyncio.create_task(fetch_of(link, whole()))
            with pytest.raises(LinkSilent, match=r"did not answer ControlledShutdown within 0\.05 s"):
                await link.controlled_shutdown(77, deadline_s=SOON_S)
            with pytest.raises(LinkSilent):
                await patient
            await desk.until(lambda: sorted(desk.gone) == ["controlled_shutdown", "fetch"])
            with pytest.raises(LinkBroken, match=r"is at its end: .* did not answer ControlledShutdown"):
                await link.epochs((), deadline_s=PATIENCE_S)

    asyncio.run(story())


def test_a_connection_that_is_cut_fails_all_that_is_under_way() -> None:
    async def story() -> None:
        desk = HeldDesk()
        desk.held = asyncio.Event()
        async with serving(desk) as door:
            link = await linked(door)
            asked = [asyncio.create_task(link.controlled_shutdown(77, deadline_s=PATIENCE_S)) for _ in range(3)]
            await desk.until(lambda: len(desk.asked) == 3)
            await door.close(0)
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(each) for each in results] == [LinkBroken] * 3
            assert not link.open

    asyncio.run(story())


def test_who_wants_an_answer_no_longer_harms_nobody() -> None:
    async def story() -> None:
        desk = HeldDesk()
        desk.held = asyncio.Event()
        async with serving(desk) as door:
            link = await linked(door)
            first = asyncio.create_task(link.epochs((), deadline_s=PATIENCE_S))
            await desk.until(lambda: len(desk.asked) == 1)
            first.cancel()
            second = asyncio.create_task(link.epochs((), deadline_s=PATIENCE_S))
            desk.held.set()
            assert await second == []

    asyncio.run(story())


def test_so_many_requests_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UNDER_WAY", 2)

    async def story() -> None:
        desk = HeldDesk()
        desk.held = asyncio.Event()
        async with serving(desk) as door:
            link = await linked(door)
            asked = [asyncio.create_task(link.epochs((), deadline_s=PATIENCE_S)) for _ in range(2)]
            await desk.until(lambda: len(desk.asked) == 2)
            with pytest.raises(LinkError, match=r"2 requests to 127.* are under way; at most so many may be"):
                await link.epochs((), deadline_s=PATIENCE_S)
            desk.held.set()
            assert await asyncio.gather(*asked) == [[], []]
            assert await link.epochs((), deadline_s=PATIENCE_S) == []

    asyncio.run(story())


def test_a_request_that_the_other_door_would_not_take_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REQUEST_BYTES", 100)

    async def story() -> None:
        async with serving(HeldDesk()) as door:
            link = await linked(door)
            with pytest.raises(LinkError, match=r"Fetch of \d+ bytes for 127.*; at most 100 are sent at once"):
                await fetch_of(link, whole())
            assert (link.open, link.under_way) == (True, 0)

    asyncio.run(story())
