"""What is promised for any bytes at Kafka's door. Each target takes bytes and fails when a promise is broken.

Hypothesis calls them in the ordinary tests (`test_targets.py`), atheris guides them by coverage (`make fuzz`).
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from structlog.testing import capture_logs

from muster.coordinator.kafka.codec.codec import MalformedFrame, decode_frame, encode, is_flexible
from muster.coordinator.kafka.codec.messages import all_messages
from muster.coordinator.kafka.connections.connection import ServerConnection
from muster.coordinator.kafka.connections.received_requests import ConnectionLimits
from muster.coordinator.kafka.protocol import API_VERSIONS, transactional_apis
from muster.coordinator.security.access_model import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.authorizer import AclAuthorizer, Authorizer
from tests.support.kafka.client import frame
from tests.support.kafka.memory_node import MemoryNode, until
from tests.support.kafka.messages import random_message

MESSAGES: Final = [(name, version) for name, message in sorted(all_messages().items()) for version in message.versions]
APIS: Final = transactional_apis(2)
SERVED: Final = [(api.name, version) for api in APIS for version in range(api.first, api.last + 1)]
BY_KEY: Final = {api.key: api for api in APIS}
PRODUCE: Final = 0

LIMITS: Final = ConnectionLimits(
    max_frame=1 << 16, max_in_flight=5, max_in_flight_bytes=1 << 14, max_unsent_bytes=1 << 16, max_idle_ms=60_000
)
SENSIBLE: Final = {
    "group_id": "a",
    "group_instance_id": None,
    "instance_id": None,
    "protocol_type": "consumer",
    "session_timeout_ms": 30_000,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": [],
    "session_id": 0,
    "transactional_id": "a",
    "transaction_timeout_ms": 60_000,
}
"""Fields without which a request does not get far."""

RIGHTS: Final = [
    Acl(kind, pattern, name, "User:*", "*", operation, permission)
    for kind, pattern, name, operation, permission in (
        (ResourceType.GROUP, PatternType.LITERAL, "*", Operation.ALL, Permission.ALLOW),
        (ResourceType.GROUP, PatternType.LITERAL, "a", Operation.READ, Permission.ALLOW),
        (ResourceType.GROUP, PatternType.PREFIXED, "group", Operation.ALL, Permission.DENY),
        (ResourceType.TOPIC, PatternType.LITERAL, "*", Operation.ALL, Permission.ALLOW),
        (ResourceType.TOPIC, PatternType.LITERAL, "a", Operation.ALL, Permission.ALLOW),
        (ResourceType.TOPIC, PatternType.LITERAL, "a", Operation.DESCRIBE, Permission.DENY),
        (ResourceType.TOPIC, PatternType.PREFIXED, "g", Operation.DESCRIBE, Permission.ALLOW),
        (ResourceType.TOPIC, PatternType.PREFIXED, "g", Operation.DESCRIBE_CONFIGS, Permission.ALLOW),
        (ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME, Operation.ALL, Permission.ALLOW),
        (ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME, Operation.DESCRIBE, Permission.ALLOW),
    )
]
"""Of which the input chooses."""


class Bytes:
    """The input as numbers and pieces, as a target wants them; zeros when it is at its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, size: int = 1) -> int:
        return int.from_bytes(self.piece(size), "big")

    def piece(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def rest(self) -> bytes:
        return self.piece(len(self._data))


def codec(data: bytes) -> None:
    """Any bytes are a message or are refused by one error; a message is written as bytes that say the same."""
    given = Bytes(data)
    name, version = MESSAGES[given.number(2) % len(MESSAGES)]
    body = given.rest()
    try:
        message = decode_frame(name, version, body)
    except MalformedFrame:
        return
    again = b"".join(encode(name, version, message))
    assert decode_frame(name, version, again) == message, f"{name} {version}: {body.hex()} is read as {message}"


def connection(data: bytes) -> None:
    """Whatever a client sends in whatever pieces, see `Conversation`."""
    asyncio.run(converse(data))


def judged(data: bytes) -> None:
    """The same, of a client that may do some things, some only in part, and most not at all."""
    lists = AclAuthorizer()
    chosen = Bytes(data).number(2)
    lists.replace(acl for at, acl in enumerate(RIGHTS) if chosen >> at & 1)
    asyncio.run(converse(data[2:], lists))


async def converse(data: bytes, authorizer: Authorizer | None = None) -> None:
    with capture_logs() as logged:
        async with MemoryNode({"a": 1, "group-1": 3}, authorizer, transactional=True) as node:
            talk = Conversation(node)
            for step in steps(Bytes(data)):
                if step is None:
                    await node.quiet()
                else:
                    step(talk)
            await talk.end()
        failed = [line for line in logged if line["log_level"] == "error"]
    assert not failed, failed
    assert not node.bugs, node.bugs
    assert all(talk.answers())


class Wire:
    """A transport that a test looks into. What a paused one is given before it is read on is kept, as a kernel does."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.protocol: asyncio.Protocol | None = None

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 9) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """What is unread is said by the test."""

    def get_write_buffer_size(self) -> int:
        """What is written has left."""
        return 0

    def write(self, data: bytes) -> None:
        assert not self.closed, "nothing is written to a closed connection"
        self.sent += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


class Conversation:
    """One client's connection to a node in memory.

    Promised: no bug shows, not even as a line of the log; never is more kept than the limits say; each answer is that
    of its request, in its order, in the form of its version; after the end nothing is under way any more.
    """

    def __init__(self, node: MemoryNode) -> None:
        self._node = node
        self._wire = Wire()
        self._arrived = bytearray()
        self._waiting = bytearray()
        self._connection = ServerConnection(node.dispatch, LIMITS, lambda one: True, lambda one: None)
        self._wire.protocol = self._connection
        self._connection.connection_made(self._wire)  # type: ignore[arg-type]
        self._asked = 0
        self.known: dict[str, Any] = {
            "member_id": "",
            "generation_id": 1,
            "member_epoch": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        """What the client was last told of itself."""

    def ask(self, name: str, version: int, seed: int, *, as_told: bool, tamper: Callable[[bytes], bytes]) -> None:
        """Send a request in perfect form, whatever nonsense it says; `as_told`: as the member that it last became."""
        self.hear()
        self._asked += 1
        message = random_message(all_messages()[f"{name}Request"], version, random.Random(seed))
        for field, value in (SENSIBLE | self.known).items() if as_told else ():
            if field in type(message).__slots__:
                setattr(message, field, value)
        if as_told and name == "ConsumerGroupHeartbeat":
            message.member_id = message.member_id or "m"  # KIP-848: a member makes its own id
        self.send(tamper(frame(name, version, self._asked, message)))

    def hear(self) -> None:
        """Note whom the answers make of the client."""
        for message in self.answers():
            for field in self.known.keys() & set(type(message).__slots__):
                self.known[field] = getattr(message, field) or self.known[field]

    def send(self, data: bytes) -> None:
        """Bytes reach the node while it reads."""
        self._waiting += data
        if self._wire.closed or not self._wire.reading or not self._waiting:
            return
        data = bytes(self._waiting)
        self._waiting.clear()
        self._arrived += data
        self._connection.data_received(data)
        held, count = self._connection.in_flight_bytes, self._connection.in_flight
        assert count <= LIMITS.max_in_flight + len(list(frames(data))) + 1, f"{count} requests are kept"
        assert held <= LIMITS.max_in_flight_bytes + LIMITS.max_frame + len(data), f"{held} bytes are kept"

    def choke(self) -> None:
        self._connection.pause_writing()

    def read_on(self) -> None:
        if not self._wire.closed:
            self._connection.resume_writing()

    async def end(self) -> None:
        """The client goes; what waited for it goes too."""
        self.send(b"")
        await self._node.quiet()
        self._wire.close()
        driver, parking = self._node.driver, self._node.requests.parking
        await until(lambda: not (driver.parked or parking.parked))

    def answers(self) -> Iterator[Any]:
        """All that came so far, decoded. Fails where one is not that of the next request that has an answer."""
        asked = requests(bytes(self._arrived))
        for answer in frames(bytes(self._wire.sent)):
            correlation = answer[:4]
            for key, version, number in asked:
                if number == correlation:
                    yield decoded(key, version, answer)
                    break
                assert key == PRODUCE, f"API {key} version {version} has no answer"
            else:
                raise AssertionError(f"nobody asked for this answer: {answer.hex()}")


def decoded(key: int, version: int, answer: bytes) -> Any:
    api = BY_KEY[key]
    if not api.serves(version):
        assert key == API_VERSIONS, f"API {key} version {version} is not served, but answered"
        version = 0
    tagged = is_flexible(f"{api.name}Response", version) and key != API_VERSIONS
    return decode_frame(f"{api.name}Response", version, answer, 4 + tagged)


def requests(stream: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Key, version and correlation id of each request that came in whole."""
    for body in frames(stream):
        yield int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big"), body[4:8]


def frames(stream: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        if at + 4 + size > len(stream):
            return
        yield stream[at + 4 : at + 4 + size]
        at += 4 + size


Step = Callable[[Conversation], None]


def steps(given: Bytes) -> Iterator[Step | None]:
    """The input as what a client does, one after the other; None: it waits until the node has done what it can."""
    while given:
        match given.number() % 10:
            case 8 | 9:
                yield None
            case 0:
                yield sending(given.piece(given.number()))
            case 1:
                yield sending(foreign(given))
            case 2:
                yield Conversation.choke
            case 3:
                yield Conversation.read_on
            case 4:
                yield asking(given, tampered)
            case 5:
                yield asking(given, cut)
            case _:
                yield asking(given, lambda data, where, value: data)


def sending(data: bytes) -> Step:
    return lambda talk: talk.send(data)


def foreign(given: Bytes) -> bytes:
    """A frame of the right length with a known key, and whatever the input has for a body."""
    key = APIS[given.number() % len(APIS)].key
    body = key.to_bytes(2, "big") + given.piece(6).rjust(6, b"\0") + given.piece(given.number())
    return len(body).to_bytes(4, "big") + body


def asking(given: Bytes, change: Callable[[bytes, int, int], bytes]) -> Step:
    name, version = SERVED[given.number(2) % len(SERVED)]
    seed, how, where = given.number(2), given.number(), given.number(2)
    return lambda talk: talk.ask(
        name, version, seed, as_told=how % 4 != 0, tamper=lambda data: change(data, where % len(data), how)
    )


def tampered(data: bytes, where: int, value: int) -> bytes:
    """The same with one byte set otherwise, the length excepted."""
    at = max(where, 4)
    return data[:at] + bytes([value]) + data[at + 1 :]


def cut(data: bytes, where: int, value: int) -> bytes:
    """Its beginning; what comes next is taken for the rest."""
    return data[:where]


TARGETS: Final = {"codec": codec, "connection": connection, "judged": judged}
