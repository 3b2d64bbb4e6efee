"""What the door between nodes does not take: strangers, other clusters, clients, floods, bytes that mean nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode, decode_frame, encode, encode_uvarint, is_flexible, struct
from muster.coordinator.replication.io.wire import node_listener as module
from muster.coordinator.replication.io.wire.node_api import KEY_OF, client_id_of
from muster.coordinator.replication.io.wire.node_codec import fetch_request, shutdown_request, state_request
from muster.coordinator.replication.io.wire.node_links import LinkBroken
from muster.coordinator.replication.io.wire.node_listener import LIMITS, NodeListener
from muster.coordinator.replication.protocol.cluster_metadata import ImageVersion
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer
from muster.coordinator.security.access_model import Identity
from tests.support.replication import CLUSTER, PATIENCE_S, HeldDesk, fetch_of, linked, serving, whole

ELSEWHERE = "x" * 22


class Raw:
    """Bytes to the door as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, door: NodeListener, *, greet: bool = True) -> "Raw":
        raw = cls(*await asyncio.open_connection(*door.bound))
        if greet:
            raw.send(
                "ApiVersions", 3, struct("ApiVersionsRequest")(client_software_name="a", client_software_version="1")
            )
            await raw.receive("ApiVersions", 3)
        return raw

    def send(self, name: str, version: int, message: object, client_id: str = client_id_of(CLUSTER, 2)) -> None:
        self.writer.write(frame(name, version, message, client_id))

    async def receive(self, name: str, version: int) -> Any:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        data = await self.reader.readexactly(size)
        tagged = is_flexible(f"{name}Response", version) and name != "ApiVersions"
        return decode_frame(f"{name}Response", version, data, decode("ResponseHeader", int(tagged), data)[1])

    async def ended(self) -> bool:
        """Whether the door closes the connection without another byte."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


def frame(name: str, version: int, message: object, client_id: str, key: int | None = None) -> bytes:
    header = struct("RequestHeader")(
        request_api_key=KEY_OF[name] if key is None else key,
        request_api_version=version,
        correlation_id=9,
        client_id=client_id,
    )
    body = b"".join([*encode("RequestHeader", 2, header), *encode(f"{name}Request", version, message)])
    return len(body).to_bytes(4, "big") + body


def fetching(cluster_id: str | None = CLUSTER, node: int = 2) -> Any:
    asked = fetch_request("", whole()._replace(node=node), max_wait_ms=0, min_bytes=1)
    asked.cluster_id = cluster_id
    return asked


def play(story: Callable[[HeldDesk, NodeListener], Awaitable[None]], **more: Any) -> list[Any]:
    async def run() -> list[Any]:
        desk = HeldDesk()
        with capture_logs() as logged:
            async with serving(desk, **more) as door, asyncio.timeout(PATIENCE_S):
                await story(desk, door)
        assert [line for line in logged if line["log_level"] == "error"] == []
        return [line.get("why") for line in logged]

    return asyncio.run(run())


def test_api_versions_comes_first() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        raw = await Raw.to(door, greet=False)
        raw.send("Fetch", 15, fetching())
        assert await raw.ended()
        assert desk.asked == []

    assert play(story) == ["API 1 was asked for before ApiVersions"]


def test_who_asks_for_nothing_is_cut_off_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_S", 0.01)

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        assert await (await Raw.to(door, greet=False)).ended()

    assert play(story) == ["nothing was asked within 0.01 s"]


def test_before_it_has_greeted_nobody_sends_much() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        raw = await Raw.to(door, greet=False)
        raw.writer.write((1 << 20).to_bytes(4, "big") + b"\0\x12\0\3")
        assert await raw.ended()

    assert play(story) == ["a frame of 1048576 bytes; expected 8 to 4096"]


def test_a_frame_is_of_bounded_size() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        raw = await Raw.to(door)
        raw.writer.write(((32 << 20) + 1).to_bytes(4, "big"))
        assert await raw.ended()

    assert play(story) == ["a frame of 33554433 bytes; expected 8 to 33554432"]


@pytest.mark.parametrize("cluster_id", [ELSEWHERE, "", None])
def test_a_fetch_for_another_cluster_is_told_so_and_cut_off(cluster_id: str | None) -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        raw = await Raw.to(door)
        raw.send("Fetch", 15, fetching(cluster_id))
        raw.send("Fetch", 15, fetching())
        assert (await raw.receive("Fetch", 15)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await raw.ended()
        assert desk.asked == []

    play(story)


def test_a_poll_for_another_cluster_is_told_so_and_cut_off() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        link = await linked(door, cluster_id=ELSEWHERE)
        told = await link.cluster_state(77, ImageVersion(), (), max_wait_ms=500, deadline_s=PATIENCE_S)
        assert told.error == ErrorCode.INCONSISTENT_CLUSTER_ID
        with pytest.raises(LinkBroken):
            await link.cluster_state(77, ImageVersion(), (), max_wait_ms=500, deadline_s=PATIENCE_S)
        assert desk.asked == []

    play(story)


def test_what_names_no_cluster_in_itself_names_it_in_its_header() -> None:
    """ControlledShutdown, AlterPartition and OffsetForLeaderEpoch have no field for it."""

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        links = [await linked(door, cluster_id=ELSEWHERE) for _ in range(3)]
        with pytest.raises(LinkBroken):
            await links[0].controlled_shutdown(77, deadline_s=PATIENCE_S)
        with pytest.raises(LinkBroken):
            await links[1].alter_partition(77, (), deadline_s=PATIENCE_S)
        with pytest.raises(LinkBroken):
            await links[2].epochs((), deadline_s=PATIENCE_S)
        raw = await Raw.to(door)
        raw.send("ControlledShutdown", 3, shutdown_request(2, 77), "consumer-1")
        assert await raw.ended()
        assert desk.asked == []

    assert f"it is for cluster {ELSEWHERE!r}; this one is {CLUSTER!r}" in play(story)


@pytest.mark.parametrize(
    ("name", "version", "key"),
    [("Fetch", 12, None), ("Fetch", 14, None), ("ApiVersions", 3, 3), ("ApiVersions", 3, 0), ("ApiVersions", 3, -1)],
)
def test_what_clients_ask_is_not_answered(name: str, version: int, key: int | None) -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        raw = await Raw.to(door)
        message = struct(f"{name}Request")(**({"replica_id": 2} if name == "Fetch" else {}))
        raw.writer.write(frame(name, version, message, client_id_of(CLUSTER, 2), key))
        assert await raw.ended()

    (why,) = play(story)
    assert why.endswith("is not served here")


def test_a_consumer_is_sent_away() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        for node in (-1, -2):
            raw = await Raw.to(door)
            raw.send("Fetch", 15, fetching(node=node))
            assert await raw.ended()
        assert desk.asked == []

    assert play(story)[0] == "a fetch names no replica; consumers are answered at kafka.listeners and listeners"


def test_lists_are_bounded_before_anything_is_built_of_them() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        raw = await Raw.to(door)
        message = b"".join(encode("ClusterStateRequest", 0, state_request(CLUSTER, 2, 77, ImageVersion(), (), 0)))
        many, entry = 100_001, bytes(20) + b"\1\0"
        body = message[:-2] + encode_uvarint(many + 1) + entry * many + b"\0"
        head = frame("ClusterState", 0, state_request(CLUSTER, 2, 77, ImageVersion(), (), 0), client_id_of(CLUSTER, 2))
        head = head[4 : len(head) - len(message)]
        raw.writer.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
        assert (await raw.receive("ClusterState", 0)).error_code == ErrorCode.INVALID_REQUEST
        assert desk.asked == []

    (why,) = play(story)
    assert "at most 100000 are accepted in one request" in why


def test_connections_are_bounded() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        first, second = await Raw.to(door), await Raw.to(door)
        assert await (await Raw.to(door, greet=False)).ended()
        first.writer.close()
        second.writer.close()

    assert play(story, limits=replace(LIMITS, max_connections=2)) == ["2 are open (max.connections)"]


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(100), b"\xff" * 100])
def test_bytes_that_mean_nothing_end_their_connection_and_nothing_else(data: bytes) -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        link = await linked(door)
        for greet in (True, False):
            raw = await Raw.to(door, greet=greet)
            raw.writer.write(data)
            assert await raw.ended()
        assert (await fetch_of(link, whole())).code == 0

    play(story)


def test_who_has_no_right_to_is_refused() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        link = await linked(door)
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await fetch_of(link, whole())).code == refused
        assert (await link.cluster_state(77, ImageVersion(), (), max_wait_ms=0, deadline_s=PATIENCE_S)).error == refused
        assert (await link.alter_partition(77, (), deadline_s=PATIENCE_S)).error == refused
        assert (await link.controlled_shutdown(77, deadline_s=PATIENCE_S)).error == refused
        with pytest.raises(LinkBroken):  # its answer has no place for it
            await link.epochs((), deadline_s=PATIENCE_S)
        assert desk.asked == []

    asked: list[str] = []

    def may(identity: Identity) -> bool:
        asked.append(str(identity.principal))
        return False

    whys = play(story, may=may)
    assert whys == ["User:ANONYMOUS may not ask for OffsetForLeaderEpoch: it needs CLUSTER_ACTION on CLUSTER"]
    assert asked == ["User:ANONYMOUS"] * 5


def test_a_bug_at_the_desk_ends_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        desk = HeldDesk()
        with capture_logs() as logged:
            async with serving(desk) as door, asyncio.timeout(PATIENCE_S):
                link, other = await linked(door), await linked(door, 3)
                desk.found = lambda asked: 1 // 0  # type: ignore[assignment, return-value]
                with pytest.raises(LinkBroken):
                    await fetch_of(link, whole())
                desk.found = lambda asked: FetchAnswer(0, 9)
                assert await fetch_of(other, whole()) == FetchAnswer(0, 9)
        assert [line["event"] for line in logged if line["log_level"] == "error"] == ["handler failed"]

    asyncio.run(run())


def test_a_port_that_is_taken_is_not_ours() -> None:
    async def run() -> None:
        async with serving(HeldDesk()) as door:
            with pytest.raises(OSError, match="in use"):
                NodeListener(Address(*door.bound)).bind()

    asyncio.run(run())
