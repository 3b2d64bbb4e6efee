"""A tap between clients and the proxy: with every API in every version that it tells of, no byte of an answer is a real
broker's address. The broker calls itself by a name that nobody else has, which only the node can resolve."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from kio.serial.errors import OutOfBoundValue

from muster.coordinator.config import Address
from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE
from muster.coordinator.zookeeper.local_ensemble import free_port
from tests.interop.kafka_broker import kafka_broker
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.every_request import OTHER, TOPIC, read, requests, written
from tests.support.kafka_backend.proxied import Proxied
from tests.support.kafka_backend.served import make_topics
from tests.support.pace import pace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

REAL: Final = "real-broker-1.invalid.example"
BROKER: Final = 1
"""The id of the tests' broker."""
ANSWER_S: Final = 30.0
AT_ONCE: Final = 8
NOT_UNDERSTOOD: Final = {35, 42}
"""UNSUPPORTED_VERSION, INVALID_REQUEST: then nothing was asked that an answer could tell."""

PROPERTIES = """
listeners=PLAINTEXT://127.0.0.1:{port},INSIDE://127.0.0.1:{inside},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://{real}:{port},INSIDE://127.0.0.1:{inside}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INSIDE
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
delegation.token.secret.key=secret
group.min.session.timeout.ms=500
"""


class Upstream(NamedTuple):
    """A broker's port for clients, all its ports, and where its log is."""

    port: int
    ports: tuple[int, ...]
    log_dir: str

    def leaks(self, answer: bytes) -> bool:
        words = [REAL.encode(), *(b":%d" % port for port in self.ports), self.port.to_bytes(4, "big")]
        return any(word in answer for word in words)


@pytest.fixture(scope="module")
def upstream(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    place = Path(tmp_path_factory.mktemp("tapped")) / "kafka"
    inside = free_port()
    more = PROPERTIES.replace("{inside}", str(inside)).replace("{real}", REAL)
    with kafka_broker(kafka_classpath, place, more) as address:
        make_topics(f"127.0.0.1:{inside}", {TOPIC: 1, OTHER: 1})
        port = int(address.rpartition(":")[2])
        voters = (place / "server.properties").read_text().partition("@127.0.0.1:")[2].split()[0]
        yield Upstream(port, (port, inside, int(voters)), f"{place}/logs")


@pytest.fixture(autouse=True)
def only_we_know_where_it_is(resolve_here: Callable[[str], None]) -> None:
    resolve_here(REAL)


class Tap:
    """Asks all there is at one port; `leaking`: the APIs whose answers named the broker."""

    def __init__(self, upstream: Upstream, port: int) -> None:
        self._upstream, self._port = upstream, port
        self._room = asyncio.Semaphore(AT_ONCE)
        self._given = requests(BROKER, "nowhere", upstream.log_dir)
        self.leaking: set[str] = set()
        self.asked: set[tuple[str, int]] = set()
        self.taken: set[tuple[str, int]] = set()
        """Requests as they were asked, and those that were understood."""

    async def ask_all(self) -> "Tap":
        async with KafkaClient("127.0.0.1", self._port) as client:
            told = (await client.ask("ApiVersions", 0)).api_keys
        names = {key: api.name for key, (api, _) in TABLE.items()}
        asked = [
            self._ask(names[row.api_key], version)
            for row in told
            if row.api_key in names  # the broker itself tells of more
            for version in range(row.min_version, min(row.max_version, TABLE[row.api_key][0].last) + 1)
            if (row.api_key, version) not in OLD
        ]
        await asyncio.gather(*asked)
        return self

    async def _ask(self, name: str, version: int) -> None:
        self.asked.add((name, version))
        for given in self._given[name]:
            async with self._room:
                answer = await self._answer(written(name, version, given))
            if self._upstream.leaks(answer):
                self.leaking.add(name)
            if answer and not refused(name, version, answer):
                self.taken.add((name, version))

    async def _answer(self, request: bytes) -> bytes:
        """Nothing where the connection was closed instead."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            async with asyncio.timeout(ANSWER_S * pace()):
                return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            writer.close()


OLD: Final = {(0, 0), (0, 1), (0, 2), (17, 0)}
"""Produce of these is told of and taken by no broker (KAFKA-18659); SaslHandshake 0 only where clients log in."""


def refused(name: str, version: int, answer: bytes) -> bool:
    try:
        return not codes(read(name, version, answer)).isdisjoint(NOT_UNDERSTOOD)
    except OutOfBoundValue:  # kio has no word for "no time", which is told of tokens that are not made
        return name not in {"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"}


def codes(answer: Any) -> set[int]:
    found: set[int] = set()
    for each in fields(answer):
        value = getattr(answer, each.name)
        if each.name == "error_code":
            found.add(int(value))
        for inner in value if isinstance(value, tuple) else (value,):
            if is_dataclass(inner):
                found |= codes(inner)
    return found


def test_every_api_of_the_table_has_a_request_here(upstream: Upstream) -> None:
    assert set(requests(BROKER, "nowhere", upstream.log_dir)) == {api.name for api, _ in TABLE.values()}


def test_no_answer_names_a_real_broker(upstream: Upstream) -> None:
    async def story() -> None:
        servers = (Address("127.0.0.1", upstream.port),)
        settings = {"engine.kafka.groups": "ours-.*", "engine.kafka.broker.id.first": str(BROKER)}
        async with Proxied(servers, {TOPIC: 1}, brokers=1, **settings) as proxied:
            for port in (proxied.door.bound.port, proxied.ports[0]):
                tap = await Tap(upstream, port).ask_all()
                assert tap.leaking == set()
                assert {name for name, _ in tap.asked} == {api.name for api, _ in TABLE.values()}
                assert tap.asked - tap.taken == set()
            assert proxied.node.bugs == []

    asyncio.run(story())


def test_the_broker_itself_names_itself_in_these(upstream: Upstream) -> None:
    """What the tap would see if the proxy changed nothing: an API more, in a later Kafka, is to be looked at."""

    async def story() -> None:
        tap = await Tap(upstream, upstream.port).ask_all()
        assert tap.leaking == {"Metadata", "FindCoordinator", "DescribeCluster", "DescribeConfigs"}

    asyncio.run(story())
