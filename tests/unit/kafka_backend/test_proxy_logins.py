"""A client logs in at its broker through the node: what is answered here rests on the broker's yes alone (KB-X10)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.connections import sasl_login
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.security.node_security import NodeSecurity
from muster.coordinator.server.security.security_store import SecurityStore
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker, metadata
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.memory_node import until
from tests.support.kafka_backend.proxied import Proxied

PLAIN = b"\0alice\0secret"
FIRST, SERVER_FIRST = b"n,,n=alice,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"
FINAL, SERVER_FINAL = b"c=biws,r=abcdef,p=cHJvb2Y=", b"v=c2ln"
UNKNOWN_MEMBER, NOT_IN_GROUP, FAILED, NO_MECHANISM = 25, 30, 58, 33


class InMemory(SecurityStore):
    """Lists that alice may read in the group `hers`."""

    keeps_users = False

    def __init__(self) -> None:
        super().__init__(None)
        right = Acl(
            ResourceType.GROUP, PatternType.LITERAL, "hers", "User:alice", "*", Operation.READ, Permission.ALLOW
        )
        self.state.apply([SecurityRecord(AclKey(right), right)])

    def load(self) -> None:
        """It is there."""


def security(settings: Settings) -> NodeSecurity:
    made = NodeSecurity(settings, dict, InMemory())
    made.load()
    return made


class Asks:
    """What a broker says to logins."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.broker = broker
        self.code = 0
        self.lifetime_ms = 0
        self.mechanisms = ["PLAIN", "SCRAM-SHA-256"]
        broker.answers |= {
            "Metadata": lambda request: metadata({1: broker.address}, {}),
            "SaslHandshake": lambda request: struct("SaslHandshakeResponse")(
                error_code=0 if request.mechanism in self.mechanisms else NO_MECHANISM, mechanisms=self.mechanisms
            ),
            "SaslAuthenticate": self._authenticate,
        }

    def _authenticate(self, request: Any) -> Any:
        said = {FIRST: SERVER_FIRST, FINAL: SERVER_FINAL}.get(bytes(request.auth_bytes), b"")
        return struct("SaslAuthenticateResponse")(
            error_code=self.code, auth_bytes=b"" if self.code else said, session_lifetime_ms=self.lifetime_ms
        )


Story = Callable[[Proxied, Asks], Coroutine[Any, Any, None]]


def run(story: Story, **more: str) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            asks = Asks(broker)
            given = {
                "engine.kafka.security.protocol": "SASL_PLAINTEXT",
                "engine.kafka.sasl.mechanism": "PLAIN",
                "engine.kafka.sasl.username": "muster",
                "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "sasl.plain.allow.plaintext": "true",
                "connection.failed.authentication.delay.ms": "0",
                "authorizer": "acl",
                "engine.kafka.broker.id.first": "1",
                **more,
            }
            async with Proxied((broker.address,), brokers=1, security=security, **given) as proxied:
                await story(proxied, asks)

    asyncio.run(whole())


async def log_in(client: KafkaClient, *words: bytes, mechanism: str = "PLAIN") -> Any:
    shaken = await client.ask("SaslHandshake", 1, mechanism=mechanism)
    if shaken.error_code:
        return shaken
    for each in words:
        told = await client.ask("SaslAuthenticate", 2, auth_bytes=each)
    return told


async def beat(client: KafkaClient, group: str) -> int:
    answer = await client.ask("Heartbeat", 4, group_id=group, generation_id=1, member_id="m")
    return int(answer.error_code)


async def is_closed(client: KafkaClient, api: str, version: int, **fields: Any) -> bool:
    client.send(api, version, **fields)
    return await client.closed_by_node()


HEARTBEAT: dict[str, Any] = {"group_id": "hers", "generation_id": 1, "member_id": "m"}


def test_who_the_broker_took_in_is_judged_by_that_name() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            assert (await log_in(client, PLAIN)).error_code == 0
            assert await beat(client, "hers") == UNKNOWN_MEMBER, "she may, and is no member"
            assert await beat(client, "another") == NOT_IN_GROUP
        said = [bytes(each.auth_bytes) for each in asks.broker.of("SaslAuthenticate")]
        assert said == [PLAIN], "the broker heard what she said"

    run(story)


@pytest.mark.parametrize("broker", [None, 1])
@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [("Heartbeat", 4, HEARTBEAT), ("DescribeGroups", 5, {"groups": ["hers"]}), ("Metadata", 9, {"topics": None})],
)
def test_nothing_is_asked_before_a_login(broker: int | None, api: str, version: int, fields: dict[str, Any]) -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        before = len(asks.broker.of(api))
        async with proxied.client(broker) as client:
            assert await is_closed(client, api, version, **fields)
        assert len(asks.broker.of(api)) == before, "nor does it pass"

    run(story)


def test_a_step_that_is_not_the_last_is_no_login() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            told = await log_in(client, FIRST, mechanism="SCRAM-SHA-256")
            assert bytes(told.auth_bytes) == SERVER_FIRST
            assert await is_closed(client, "Heartbeat", 4, **HEARTBEAT)
        async with proxied.client() as client:
            told = await log_in(client, FIRST, FINAL, mechanism="SCRAM-SHA-256")
            assert bytes(told.auth_bytes) == SERVER_FINAL
            assert await beat(client, "hers") == UNKNOWN_MEMBER

    run(story)


async def say(client: KafkaClient, words: bytes) -> bytes:
    """A mechanism's words after SaslHandshake 0, one byte of the frame at first; what is answered."""
    frame = len(words).to_bytes(4, "big") + words
    client.writer.write(frame[:1])
    await client.writer.drain()
    client.writer.write(frame[1:])
    return await client.reader.readexactly(int.from_bytes(await client.reader.readexactly(4), "big"))


@pytest.mark.parametrize("broker", [None, 1])
def test_the_frames_of_old_clients_have_no_header(broker: int | None) -> None:
    """librdkafka of Debian logs in nowhere where version 0 of SaslHandshake is not told of."""

    async def story(proxied: Proxied, asks: Asks) -> None:
        asks.broker.offers[17] = (0, 1)
        async with proxied.client(broker) as client:
            told = {each.api_key: each for each in (await client.ask("ApiVersions", 0)).api_keys}
            assert (told[17].min_version, told[17].max_version) == (0, 1)
            assert (await client.ask("SaslHandshake", 0, mechanism="SCRAM-SHA-256")).error_code == 0
            assert await say(client, FIRST) == SERVER_FIRST
            assert await say(client, FINAL) == SERVER_FINAL
            if broker is None:
                assert await beat(client, "hers") == UNKNOWN_MEMBER, "she is who she is by any other frame"
                assert await beat(client, "another") == NOT_IN_GROUP
            assert (await client.ask("Metadata", 9, topics=None)).brokers
        async with proxied.client(broker) as client:
            await client.ask("SaslHandshake", 0, mechanism="PLAIN")
            assert await say(client, PLAIN) == b""
            assert (await client.ask("Metadata", 9, topics=None)).brokers

    run(story)


@pytest.mark.parametrize("size", [0, -1, 70_000])
def test_old_frames_too_large_or_of_nothing_end_a_login(size: int) -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            await client.ask("SaslHandshake", 0, mechanism="PLAIN")
            client.writer.write(size.to_bytes(4, "big", signed=True))
            assert await client.closed_by_node()
        assert asks.broker.of("SaslAuthenticate") == []

    run(story)


def test_whom_the_broker_refuses_after_an_old_handshake_is_out() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        asks.code = FAILED
        async with proxied.client() as client:
            await client.ask("SaslHandshake", 0, mechanism="PLAIN")
            client.writer.write(len(PLAIN).to_bytes(4, "big") + PLAIN)
            assert await client.closed_by_node()

    run(story)


def test_whom_the_broker_refuses_hears_that_and_is_out() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        asks.code = FAILED
        async with proxied.client() as client:
            assert (await log_in(client, PLAIN)).error_code == FAILED
            assert await client.closed_by_node()
        assert proxied.security is not None
        assert sum(proxied.security.failures.by_address.values()) == 1

    run(story)


@pytest.mark.parametrize(("mechanism", "code"), [("SCRAM-SHA-512", NO_MECHANISM), ("GSSAPI", NO_MECHANISM)])
def test_a_mechanism_that_one_of_both_has_not_is_refused(mechanism: str, code: int) -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            assert (await log_in(client, PLAIN, mechanism=mechanism)).error_code == code
            assert await client.closed_by_node()

    run(story)


def test_a_delegation_token_is_refused_before_it_is_passed_on() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            told = await log_in(client, b"n,,n=id,r=abc,tokenauth=true", mechanism="SCRAM-SHA-256")
            assert told.error_code == FAILED
        assert asks.broker.of("SaslAuthenticate") == []

    run(story)


def test_a_frame_too_large_for_a_login_ends_it() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            await client.ask("SaslHandshake", 1, mechanism="PLAIN")
            client.send("SaslAuthenticate", 2, auth_bytes=b"\0" * 70_000)
            assert await client.closed_by_node()
        assert asks.broker.of("SaslAuthenticate") == []

    run(story)


def test_with_its_broker_s_connection_a_login_is_gone() -> None:
    """Another connection would be nobody's."""

    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            await log_in(client, PLAIN)
            assert await beat(client, "hers") == UNKNOWN_MEMBER
            asks.broker.hang_up()
            assert await client.closed_by_node()

    run(story)


def test_a_broker_that_hangs_up_in_the_middle_and_a_client_that_does() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            await client.ask("SaslHandshake", 1, mechanism="PLAIN")
        await until(lambda: proxied.door.connections == 0)
        asks.broker.answers["SaslAuthenticate"] = lambda request: HANG_UP
        async with proxied.client() as client:
            await client.ask("SaslHandshake", 1, mechanism="PLAIN")
            assert await is_closed(client, "SaslAuthenticate", 2, auth_bytes=PLAIN)
        await until(lambda: proxied.door.connections == 0)

    run(story)


@pytest.mark.parametrize(("name", "code"), [("alice", 0), ("admin", FAILED)])
def test_who_logs_in_again_has_to_be_the_same(name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_login, "LEAST_BETWEEN_S", 0.0)

    async def story(proxied: Proxied, asks: Asks) -> None:
        async with proxied.client() as client:
            await log_in(client, PLAIN)
            assert (await log_in(client, f"\0{name}\0secret".encode())).error_code == code
            if code:
                assert await client.closed_by_node()
            else:
                assert await beat(client, "hers") == UNKNOWN_MEMBER

    run(story)


def test_a_login_ends_when_the_broker_says() -> None:
    async def story(proxied: Proxied, asks: Asks) -> None:
        asks.lifetime_ms = 30_000
        async with proxied.client() as client:
            told = await log_in(client, PLAIN)
            assert 29_000 < told.session_lifetime_ms <= 30_000
        asks.lifetime_ms = 150
        async with proxied.client() as client:
            await log_in(client, PLAIN)

            async def goes_on() -> None:
                while True:
                    await beat(client, "hers")

            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await goes_on()

    run(story)


def test_of_a_request_that_is_cut_apart_the_own_part_has_its_judge() -> None:
    """The group `theirs` is the broker's, who judges it; the others are Muster's."""

    async def story(proxied: Proxied, asks: Asks) -> None:
        row = struct("DescribeGroupsResponse.groups")
        asks.broker.answers["DescribeGroups"] = lambda request: struct("DescribeGroupsResponse")(
            groups=[row(group_id=group, group_state="Stable") for group in request.groups]
        )
        async with proxied.client() as client:
            await log_in(client, PLAIN)
            told = await client.ask("DescribeGroups", 5, groups=["hers", "theirs", "hidden"])
        codes = {each.group_id: (each.error_code, each.group_state) for each in told.groups}
        assert codes == {"hers": (0, "Dead"), "theirs": (0, "Stable"), "hidden": (NOT_IN_GROUP, "")}
        assert [each.groups for each in asks.broker.of("DescribeGroups")] == [["theirs"]]

    run(story, **{"engine.kafka.groups.except": "theirs"})
