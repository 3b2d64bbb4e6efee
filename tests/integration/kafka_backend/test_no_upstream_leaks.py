"""Everything that a node over a Kafka answers, searched for where that Kafka is and how the node logs in to it.

Every API of Kafka's listener in every version that is told of, every gRPC method, every HTTP path; the first two also
while that Kafka is away. What passes from a real broker: test_proxy_tap.py.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import pytest
from google.protobuf import message_factory
from pydantic import SecretStr

from muster.cli.security import certificate_authority
from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.web.api.routes import ALL_READING_ENDPOINTS
from tests.fakes.upstream_broker import HANG_UP
from tests.support.certificates import authority, write
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.every_request import requests, written
from tests.support.kafka_backend.faked import BROKER, FakeKafka, broker_port, fake_kafka, node_over
from tests.support.pace import pace
from tests.unit.security.test_grpc_matrix import DESCRIPTORS
from tests.unit.security.test_hidden_names import choices, planted

pytestmark = pytest.mark.integration

MARK: Final = "zq7"
HOST: Final = f"{MARK}-broker.invalid.example"
PASSWORD: Final = f"{MARK}-pass"
SECRETS: Final = {
    **{f"engine_kafka_{of}sasl_username": f"{MARK}-user" for of in ("", "proxy_")},
    **{f"engine_kafka_{of}sasl_password": SecretStr(f"{PASSWORD}word") for of in ("", "proxy_")},
    **{f"engine_kafka_{of}sasl_oauthbearer_token_file": f"/{MARK}/token" for of in ("", "proxy_")},
    **{f"engine_kafka_{of}ssl_key_password": SecretStr(f"{PASSWORD}phrase") for of in ("", "proxy_")},
    "engine_kafka_proxy_ssl_keystore_location": f"/{MARK}/proxy.pem",
}
ALLOWED: Final = {
    "/storage.rpc.v1.Broker/DescribeConfigs": "an operator's look at all settings (DESCRIBE_CONFIGS on the cluster)",
    "/api/v1/settings": "the same",
    "/coordinator.rpc.v1.GroupCoordinator/DescribeNode": "conditions, for operators (DESCRIBE on the cluster)",
    "/storage.rpc.v1.Broker/": "clients of gRPC are told where their records are (records_bootstrap)",
}
"""How methods and paths begin that may tell where that Kafka is, and why; none tells a password."""
NODE: Final = 1_000_001
"""As clients know it."""
ANSWER_S: Final = 20.0
FIRST_S: Final = 0.3
"""A stream that says nothing for so long has nothing to say."""


class Leaks:
    """What was asked and answered; `found`: who named what."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._port = kafka.broker.address.port
        self.answers = 0
        self.found: list[str] = []

    def look(self, who: str, answer: bytes) -> None:
        self.answers += bool(answer)
        words = [PASSWORD.encode()]
        if not who.startswith(tuple(ALLOWED)):
            words += [MARK.encode(), b":%d" % self._port]
        if any(word in answer for word in words):
            at = min(answer.find(word) for word in words if word in answer)
            self.found.append(f"{who}: {answer[max(at - 60, 0) : at + 60]!r}")


@pytest.fixture(autouse=True)
def only_the_node_knows_where_it_is(resolve_here: Callable[[str], None]) -> None:
    resolve_here(HOST)


def secrets(directory: Path) -> dict[str, Any]:
    ours = certificate_authority.issue_client_certificate(authority(), "muster", 30)
    return {**SECRETS, "engine_kafka_ssl_keystore_location": write(directory, f"{MARK}-key.pem", ours.pem())}


def upstream_tls(directory: Path) -> Any:
    shown = certificate_authority.issue_server_certificate(authority(), (HOST,), 30)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(write(directory, "broker.pem", shown.pem()))
    return context


async def ask_kafka(leaks: Leaks, port: int) -> set[str]:
    """The APIs that were answered."""
    given, of_node = (requests(number, "nowhere", "/nowhere") for number in (BROKER, NODE))
    async with KafkaClient("127.0.0.1", port) as client:
        told = (await client.ask("ApiVersions", 0)).api_keys
    answered = set()
    for row in told:
        name = TABLE[row.api_key][0].name
        for version in range(row.min_version, row.max_version + 1):
            for one in given[name] + (of_node[name] if "Config" in name else []):
                answer = await raw_answer(port, written(name, version, one))
                leaks.look(f"{name} {version} at {port}", answer)
                if answer:
                    answered.add(name)
    return answered


async def raw_answer(port: int, request: bytes) -> bytes:
    """Nothing where the connection was closed instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(ANSWER_S * pace()):
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.close()


def grpc_requests(method: str) -> Iterator[bytes]:
    """An empty one, and those with something in each field."""
    yield b""
    rpc = DESCRIPTORS.get(method)
    if rpc is not None:
        of = message_factory.GetMessageClass(rpc.input_type)
        for choice in range(choices(method)):
            yield planted(of(), choice, "orders", "g").SerializeToString()


async def ask_grpc(leaks: Leaks, node: CoordinatorNode) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.bound.port}") as channel:
        for method in sorted(node.methods.stats):
            answers = (grpc_answer(channel, method, request) for request in grpc_requests(method))
            for answer in await asyncio.gather(*answers):
                leaks.look(method, answer)


async def grpc_answer(channel: grpc.aio.Channel, method: str, request: bytes) -> bytes:
    """The first message, or the words of the refusal. How many there may be is not written on the wire."""

    async def said() -> AsyncIterator[bytes]:
        yield request

    call = channel.stream_stream(method)(said())
    try:
        async with asyncio.timeout(FIRST_S):
            answer = await call.read()
            return b"" if answer is grpc.aio.EOF else bytes(answer)
    except grpc.aio.AioRpcError as error:
        return str(error.details()).encode()
    except TimeoutError:
        return b""
    finally:
        call.cancel()


async def ask_http(leaks: Leaks, node: CoordinatorNode) -> None:
    assert node.http_bound is not None
    paths = ["/api/v1" + each.path.format(group="g", topic="orders") for each in ALL_READING_ENDPOINTS]
    paths += ["/", "/topics", "/nodes", "/ledger", "/metrics", "/api/v1/openapi.json", "/readyz", "/livez"]
    async with httpx.AsyncClient(base_url="http://{}:{}".format(*node.http_bound)) as web:
        for path in paths:
            if "events" in path:  # it never ends
                continue
            answer = await web.get(path, timeout=ANSWER_S * pace())
            leaks.look(path, answer.content + str(answer.headers).encode())


def test_no_answer_tells_where_the_kafka_is_and_how_the_node_logs_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with fake_kafka(HOST, upstream_tls(tmp_path)) as kafka:
            address = f"PLAINTEXT://{HOST}:{kafka.broker.address.port}"
            kafka.settings = {"advertised.listeners": address, "controller.quorum.bootstrap.servers": address}
            kafka.refuse_others([api.name for api, _ in TABLE.values()])
            trusted = write(tmp_path, f"{MARK}-ca.pem", authority().certificate_pem)
            given = {"engine_kafka_security_protocol": "SSL", "engine_kafka_ssl_truststore_location": trusted}
            async with node_over(kafka, secrets(tmp_path), **given) as node:
                assert node.kafka_bound is not None
                leaks = Leaks(kafka)
                for port in (node.kafka_bound.port, broker_port(node)):
                    answered = await ask_kafka(leaks, port)
                    assert {"Metadata", "DescribeConfigs", "FindCoordinator", "JoinGroup"} <= answered
                await ask_grpc(leaks, node)
                await ask_http(leaks, node)
                assert leaks.answers > 300
                for api in kafka.broker.answers:
                    kafka.broker.answers[api] = lambda request: HANG_UP
                kafka.broker.hang_up()
                await ask_kafka(leaks, node.kafka_bound.port)
                await ask_grpc(leaks, node)
                assert not leaks.found, "\n".join(leaks.found)

    asyncio.run(story())
