"""What passes the proxy streams: answers leave in the order of requests, whoever they come from and however they are
cut, and nobody who does not read makes the node hold what comes for him (KB-X7)."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from tests.interop.kafka_broker import free_port
from tests.support.kafka.client import KEYS, frame
from tests.support.kafka.memory_node import until
from tests.support.kafka_backend.proxied import Proxied
from tests.support.kafka_backend.scripted_broker import Asked, ScriptedBroker, answered

OURS: Final = {"engine.kafka.groups": "ours-.*"}
VERSIONS: Final = {"Fetch": 11, "Produce": 8, "Metadata": 8, "DescribeGroups": 4, "DescribeConfigs": 1, "Heartbeat": 3,
                   "OffsetCommit": 7}  # fmt: skip
GROUPS: Final = {"Heartbeat", "OffsetCommit"}
"""Requests that the node answers."""


# -- order ------------------------------------------------------------------------------------------------------------


def request(name: str, number: int, size: int) -> bytes:
    fields: dict[str, Any] = {}
    if name == "Produce":  # acks=0: nothing comes
        data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=bytes(size))
        fields = {"acks": 0, "topic_data": [struct("ProduceRequest.topic_data")(name="t", partition_data=[data])]}
    elif name == "Metadata":
        fields = {"topics": None}
    elif name == "DescribeGroups":
        fields = {"groups": ["theirs", "ours-1"]}
    elif name == "DescribeConfigs":
        resource = struct("DescribeConfigsRequest.resources")(
            resource_type=4, resource_name="1", configuration_keys=None
        )
        fields = {"resources": [resource]}
    elif name in GROUPS:
        fields = {"group_id": "ours-1", "member_id": "nobody"}
    return frame(name, VERSIONS[name], number, struct(f"{name}Request")(**fields))


def body(name: str, size: int) -> bytes:
    """The broker's answer."""
    made = struct(f"{name}Response")()
    if name == "Fetch":
        return bytes(number % 251 for number in range(size))
    if name == "Metadata":
        broker = struct("MetadataResponse.brokers")
        topics = [struct("MetadataResponse.topics")(name="t" * (size % 200), partitions=[])] * (size % 7)
        made = struct("MetadataResponse")(
            brokers=[broker(node_id=1, host="real", port=1), broker(node_id=9, host="real", port=2)], topics=topics
        )
    if name == "DescribeGroups":
        group = struct("DescribeGroupsResponse.groups")(
            group_id="theirs", group_state="Stable", protocol_data="x" * min(size, 30_000)
        )
        made = struct("DescribeGroupsResponse")(groups=[group])
    if name == "DescribeConfigs":  # of 70,000 bytes: so much is rewritten by a thread
        entry = struct("DescribeConfigsResponse.results.configs")(name="host.name", value="real", synonyms=[])
        result = struct("DescribeConfigsResponse.results")(
            resource_type=4, resource_name="1", configs=[entry] * (size // 20)
        )
        made = struct("DescribeConfigsResponse")(results=[result])
    return b"".join(encode(f"{name}Response", VERSIONS[name], made))


def check(name: str, size: int, answer: bytes) -> None:
    if name == "Fetch":
        assert answer == body(name, size)
        return
    told = decode_frame(f"{name}Response", VERSIONS[name], answer)
    if name == "Metadata":
        assert len(told.topics) == size % 7
        assert "real" not in {each.host for each in told.brokers}
    elif name == "DescribeGroups":
        assert [(each.group_id, each.group_state) for each in told.groups] == [("theirs", "Stable"), ("ours-1", "Dead")]
    elif name == "DescribeConfigs":
        assert [each.value for each in told.results[0].configs] == [None] * (size // 20)
    elif name == "Heartbeat":
        assert told.error_code == ErrorCode.UNKNOWN_MEMBER_ID


REQUESTS: Final = st.lists(
    st.tuples(st.sampled_from(sorted(VERSIONS)), st.sampled_from([0, 1, 200, 70_000])), min_size=1, max_size=12
)
CUTS: Final = st.lists(st.sampled_from([1, 3, 7, 50, 5_000]), min_size=1, max_size=5)


async def in_pieces(writer: asyncio.StreamWriter, data: bytes, sizes: list[int]) -> None:
    at = turn = 0
    while at < len(data):
        size = max(sizes[turn % len(sizes)], len(data) // 20)
        writer.write(data[at : at + size])
        at, turn = at + size, turn + 1
        await asyncio.sleep(0)


class Upstream:
    """A broker that answers one by one, or `lazy`: what it has at once, a while later."""

    def __init__(self, asked: dict[int, tuple[str, int]], cuts: list[int], lazy: bool) -> None:
        self._asked, self._cuts, self._lazy = asked, cuts, lazy
        self._held: list[bytes] = []
        self._writing = asyncio.Lock()
        self._later: set[asyncio.Task[None]] = set()

    async def answer(self, told: Asked) -> None:
        if told.key == KEYS["Produce"]:
            return
        name, size = self._asked.get(told.correlation, ("", 0))
        if KEYS.get(name) != told.key:  # it is the node itself that asks
            raise ConnectionResetError
        self._held.append(answered(told.correlation, body(name, size)))
        if self._lazy:
            self._later.add(asyncio.ensure_future(self._write(told.writer)))
        else:
            await self._write(told.writer)

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        async with self._writing:
            data = b"".join(self._held)
            self._held.clear()
            await in_pieces(writer, data, self._cuts)


class Late:
    """A driver that takes some turns of the loop before it looks at what it is asked."""

    def __init__(self, driver: Any, turns: int) -> None:
        self._driver, self._turns = driver, turns
        self._tasks: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def ask_shard(self, *question: Any) -> Any:
        await self._later()
        return await self._driver.ask_shard(*question)

    def begin_request(self, *question: Any) -> None:
        async def begun() -> None:
            await self._later()
            self._driver.begin_request(*question)

        self._tasks.add(asyncio.ensure_future(begun()))

    async def _later(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)


@settings(deadline=None)
@given(asked=REQUESTS, up=CUTS, down=CUTS, lazy=st.booleans(), late=st.sampled_from([0, 5, 200]))
def test_answers_leave_in_the_order_of_the_requests(
    asked: list[tuple[str, int]], up: list[int], down: list[int], lazy: bool, late: int
) -> None:
    """late: turns of the loop before the node looks at what is for it."""
    by_number = dict(enumerate(asked, 1))

    async def story() -> None:
        upstream = Upstream(by_number, down, lazy)
        more: dict[str, Any] = {"driver_of": lambda driver: Late(driver, late), **OURS}
        async with ScriptedBroker(upstream.answer) as broker, Proxied((broker.address,), {"t": 1}, **more) as proxied:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxied.door.bound.port)
            sent = b"".join(request(name, number, size) for number, (name, size) in by_number.items())
            sending = asyncio.ensure_future(in_pieces(writer, sent, up))
            for number, (name, size) in by_number.items():
                if name == "Produce":
                    continue
                data = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                assert int.from_bytes(data[:4], "big") == number
                check(name, size, data[4:])
            await sending
            writer.close()
            assert proxied.node.bugs == []

    asyncio.run(asyncio.wait_for(story(), 60))


# -- pressure ---------------------------------------------------------------------------------------------------------

LONG: Final = 64 << 20
"""Bytes of one answer, or of requests."""
MOST: Final = 24 << 20
"""What fits into the buffers of four sockets, however the system widens them, and what a node may hold of it."""
HELD: Final = 4 << 20
"""By the node alone."""
LIMITS: Final = {"kafka.max.unsent.bytes.per.connection": str(1 << 20)}
QUIET_TURNS: Final = 300


async def settled(count: Callable[[], int]) -> int:
    """A number that has stopped to grow."""
    last, quiet = -1, 0
    while quiet < QUIET_TURNS:
        now = count()
        quiet = quiet + 1 if now == last else 0
        last = now
        await asyncio.sleep(0)
    return last


def test_a_client_that_does_not_read_stops_the_upstream() -> None:
    async def answer(told: Asked) -> None:
        if told.key != KEYS["Fetch"]:
            raise ConnectionResetError
        told.writer.write(answered(told.correlation, bytes(LONG)))

    async def story() -> None:
        async with ScriptedBroker(answer) as broker, Proxied((broker.address,), **OURS, **LIMITS) as proxied:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxied.door.bound.port, limit=1 << 16)
            writer.write(request("Fetch", 1, 0))
            traffic = proxied.door.traffic
            await until(lambda: traffic.down > 1 << 20)
            came = await settled(lambda: traffic.down)
            assert came < MOST
            assert proxied.door.unread < HELD
            assert len(await reader.readexactly(8 + LONG)) == 8 + LONG
            assert traffic.down - came > LONG - MOST
            writer.close()

    asyncio.run(story())


def test_an_upstream_that_does_not_read_stops_the_client() -> None:
    requests, size = LONG >> 20, 1 << 20
    heard: list[int] = []

    async def answer(told: Asked) -> None:
        if told.key != KEYS["Produce"]:
            raise ConnectionResetError
        heard.append(told.correlation)

    async def story() -> None:
        async with ScriptedBroker(answer) as broker, Proxied((broker.address,), **OURS) as proxied:
            broker.reads = False
            _, writer = await asyncio.open_connection("127.0.0.1", proxied.door.bound.port)
            for number in range(requests):
                writer.write(request("Produce", number, size))
            traffic = proxied.door.traffic
            await until(lambda: traffic.up > 1 << 20)
            assert await settled(lambda: traffic.up) < MOST
            broker.read_on()
            await until(lambda: heard == list(range(requests)))
            writer.close()

    asyncio.run(story())


# -- who is not there -------------------------------------------------------------------------------------------------


def test_every_port_is_there_though_no_broker_is() -> None:
    async def story() -> None:
        async with Proxied((Address("127.0.0.1", free_port()),), brokers=3, **OURS) as proxied:
            for port in proxied.ports:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                assert await reader.read() == b"", "it is closed at once"
                writer.close()
            async with proxied.client() as client:
                client.send("Metadata", 8, topics=None)
                assert await client.closed_by_node()

    asyncio.run(story())
