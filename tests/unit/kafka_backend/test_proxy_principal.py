"""Clients with certificates come to the brokers by credentials of the proxy's own, which are nobody's with Muster's
rights: the settings, what is asked as them, and what passes behind their login (KB-X10)."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.cli.security import certificate_authority
from muster.coordinator.config import load_settings
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.protocol import (
    ALTER,
    CREATE,
    DELETE,
    DESCRIBE,
    OPERATIONS_NOT_REQUESTED,
    READ,
    WRITE,
    operation_bits,
)
from muster.coordinator.kafka_backend.backend_settings import proxy_address_of
from muster.coordinator.kafka_backend.proxy.allowed_apis import TOKENS
from muster.coordinator.kafka_backend.proxy.client_connection import START
from muster.coordinator.kafka_backend.proxy.proxy_principal import ProxyPrincipalCheck
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamCredentials
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.kafka_backend.upstream_diagnostics import UpstreamDiagnostics
from tests.fakes.upstream_broker import UpstreamBroker, metadata
from tests.support.certificates import authority, client, server, stranger, write
from tests.support.complaints import complaint
from tests.support.kafka.memory_node import until
from tests.support.kafka_backend.proxied import Proxied

OVER = {"engine": "kafka://b1:9092"}
ASKS = {
    "kafka.listeners": "SSL://127.0.0.1:0",
    "engine.kafka.broker.ports": "9100",
    "authorizer": "acl",
    "ssl.keystore.location": "server.pem",
    "ssl.truststore.location": "ca.pem",
    "listener.name.kafka.ssl.client.auth": "required",
}
SASL = {
    "engine.kafka.security.protocol": "SASL_SSL",
    "engine.kafka.sasl.mechanism": "SCRAM-SHA-512",
    "engine.kafka.sasl.username": "muster",
    "engine.kafka.sasl.password": "correct-horse",
}
APPS = {
    "engine.kafka.proxy.principal": "User:apps",
    "engine.kafka.proxy.sasl.username": "apps",
    "engine.kafka.proxy.sasl.password": "correct-staple",
}
KEYS = {
    "engine.kafka.security.protocol": "SSL",
    "engine.kafka.ssl.keystore.location": "me.pem",
    "engine.kafka.proxy.principal": "User:CN=apps",
    "engine.kafka.proxy.ssl.keystore.location": "apps.pem",
}
TOKEN = {
    "engine.kafka.proxy.sasl.mechanism": "OAUTHBEARER",
    "engine.kafka.proxy.sasl.oauthbearer.token.file": "apps.token",
}
ILLEGAL_SASL_STATE = 34
UNKNOWN_TOPIC, TOPIC_DENIED, GROUP_DENIED, ID_DENIED, FAILED = 3, 29, 30, 53, 58


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_listener_with_certificates_has_credentials_for_all_that_come_by_it() -> None:
    reach = proxy_address_of(load_settings(None, OVER | ASKS | SASL | APPS))
    assert reach is not None
    assert reach.login == UpstreamCredentials("SCRAM-SHA-512", "apps", "correct-staple", of="engine.kafka.proxy.")
    assert reach.certificates is not None, "TLS below it is as the node's own"
    by_token = proxy_address_of(load_settings(None, OVER | ASKS | SASL | APPS | TOKEN))
    assert by_token is not None
    assert by_token.login is not None
    assert (by_token.login.mechanism, by_token.login.token_file) == ("OAUTHBEARER", "apps.token")
    by_key = proxy_address_of(load_settings(None, OVER | ASKS | KEYS))
    assert by_key is not None
    assert by_key.certificates is not None
    assert (by_key.login, by_key.certificates.keystore) == (None, "apps.pem")
    assert proxy_address_of(load_settings(None, OVER)) is None


def test_commands_that_serve_nobody_want_no_listener() -> None:
    assert load_settings(None, OVER | SASL | APPS).engine_kafka_proxy_principal == "User:apps"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (ASKS | SASL, "or engine.kafka.proxy.principal with the credentials with which the node"),
        (
            ASKS | SASL | APPS | {"engine.kafka.proxy.principal": "muster"},
            "expected TYPE:NAME, such as User:apps, or nothing (clients come to the brokers by credentials of their",
        ),
        (ASKS | SASL | APPS | {"engine.kafka.proxy.principal": "apps"}, "principal is 'apps', expected TYPE:NAME"),
        (
            ASKS | SASL | APPS | {"engine.kafka.proxy.principal": "User:muster"},
            "engine.kafka.proxy.principal is User:muster, as engine.kafka.sasl.username: whoever comes in by a",
        ),
        (
            ASKS | SASL | APPS | {"engine.kafka.proxy.sasl.username": "muster"},
            "engine.kafka.proxy.sasl.username is muster, as engine.kafka.sasl.username: whoever comes in",
        ),
        (
            ASKS | SASL | APPS | {"engine.kafka.proxy.sasl.username": ""},
            "engine.kafka.proxy.principal is User:apps, but engine.kafka.proxy.sasl.username is empty: with nothing",
        ),
        (
            ASKS | SASL | APPS | {"engine.kafka.proxy.sasl.mechanism": "OAUTHBEARER"},
            "but engine.kafka.proxy.sasl.oauthbearer.token.file is empty",
        ),
        (
            ASKS
            | SASL
            | {"engine.kafka.sasl.mechanism": "OAUTHBEARER", "engine.kafka.sasl.oauthbearer.token.file": "./apps.token"}
            | APPS
            | TOKEN,
            "token.file is apps.token, as engine.kafka.sasl.oauthbearer.token.file: whoever comes in",
        ),
        (ASKS | SASL | APPS | {"engine.kafka.proxy.sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported here"),
        (
            ASKS | SASL | APPS | {"engine.kafka.proxy.ssl.keystore.location": "apps.pem"},
            "engine.kafka.proxy.ssl.keystore.location is set, but engine.kafka.security.protocol is SASL_SSL: brokers",
        ),
        (
            ASKS | KEYS | {"engine.kafka.proxy.ssl.keystore.location": "./me.pem"},
            "engine.kafka.proxy.ssl.keystore.location is ./me.pem, as engine.kafka.ssl.keystore.location: whoever",
        ),
        (
            ASKS | KEYS | {"engine.kafka.proxy.ssl.keystore.location": ""},
            "engine.kafka.proxy.ssl.keystore.location is empty: with nothing to show",
        ),
        (
            ASKS | KEYS | {"engine.kafka.proxy.sasl.password": "correct-staple"},
            "engine.kafka.proxy.sasl.password is set, but engine.kafka.security.protocol is SSL",
        ),
        (
            ASKS | {"engine.kafka.proxy.principal": "User:apps"},
            "but engine.kafka.security.protocol is PLAINTEXT: brokers ask nobody who he is there",
        ),
        (
            SASL | {"engine.kafka.proxy.sasl.username": "apps"},
            "engine.kafka.proxy.sasl.username is set, but engine.kafka.proxy.principal is empty: say whose",
        ),
        (
            ASKS | SASL | APPS | {"listener.name.kafka.ssl.client.auth": "requested"},
            "ssl.client.auth is requested, but engine.kafka.proxy.principal is User:apps: who shows no certificate",
        ),
        (
            ASKS | SASL | APPS | {"listener.name.kafka.ssl.client.auth": "none"},
            "ssl.client.auth is none, but engine.kafka.proxy.principal is User:apps: who shows no certificate",
        ),
        (
            SASL | APPS | {"kafka.listeners": "127.0.0.1:0", "engine.kafka.broker.ports": "9100"},
            "kafka.listeners is 127.0.0.1:0 (PLAINTEXT), but engine.kafka.proxy.principal is User:apps: who shows no",
        ),
        (
            ASKS
            | SASL
            | APPS
            | {"kafka.listeners": "SASL_SSL://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"},
            "(SASL_SSL), but engine.kafka.proxy.principal is User:apps: either clients log in at the brokers",
        ),
    ],
)
def test_nobody_comes_in_who_should_not(given: dict[str, str], sentence: str) -> None:
    assert sentence in complaint(OVER | given)


# -- what is asked as them --------------------------------------------------------------------------------------------


class Rights:
    """What a broker says of the rights of whoever asks."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.address = broker.address
        self.topics = {
            "muster.state": (TOPIC_DENIED, OPERATIONS_NOT_REQUESTED),
            "muster.security": (TOPIC_DENIED, OPERATIONS_NOT_REQUESTED),
        }
        self.cluster = operation_bits(DESCRIBE)
        self.ids: set[str] = set()
        self.group: int | None = None
        self.login = 0
        self.lifetime_ms = 0
        broker.answers |= {
            "Metadata": self._metadata,
            "FindCoordinator": self._coordinator,
            "DescribeGroups": lambda request: struct("DescribeGroupsResponse")(
                groups=[struct("DescribeGroupsResponse.groups")(group_id="g", authorized_operations=self.group)]
            ),
            "SaslHandshake": lambda request: struct("SaslHandshakeResponse")(mechanisms=["PLAIN"]),
            "SaslAuthenticate": lambda request: struct("SaslAuthenticateResponse")(
                error_code=self.login, session_lifetime_ms=self.lifetime_ms
            ),
        }

    def _metadata(self, request: Any) -> Any:
        answer = metadata({1: self.address}, {each.name: {} for each in request.topics})
        for topic in answer.topics:
            topic.error_code, topic.topic_authorized_operations = self.topics[topic.name]
        answer.cluster_authorized_operations = self.cluster
        return answer

    def _coordinator(self, request: Any) -> Any:
        if request.key_type:
            code = 0 if request.key in self.ids else ID_DENIED
        else:
            code = GROUP_DENIED if self.group is None else 0
        host, port = self.address
        return struct("FindCoordinatorResponse")(error_code=code, node_id=1, host=host, port=port)


def looked(change: Callable[[Rights], Any]) -> str:
    """What comes of a look, after `change` was made."""

    async def whole() -> str:
        async with UpstreamBroker() as broker:
            rights = Rights(broker)
            reach = UpstreamAddress(
                (broker.address,), UpstreamCredentials("PLAIN", "apps", "correct-staple", of="engine.kafka.proxy.")
            )
            principal = ProxyPrincipalCheck(load_settings(None, OVER | SASL | APPS), Upstream(reach), on_bug=raised)
            await principal.check()
            change(rights)
            await principal.check_rights()
            await principal.stop()
            assert bytes(broker.of("SaslAuthenticate")[0].auth_bytes) == b"\0apps\0correct-staple"
            return principal.sentence

    return asyncio.run(whole())


def raised(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "change",
    [
        lambda rights: None,
        lambda rights: rights.topics.update({"muster.state": (0, operation_bits(READ, DESCRIBE))}),
        lambda rights: rights.topics.update({"muster.security": (UNKNOWN_TOPIC, operation_bits(DESCRIBE))}),
        lambda rights: setattr(rights, "group", operation_bits(DESCRIBE)),
        lambda rights: setattr(rights, "cluster", operation_bits(CREATE, DESCRIBE)),
    ],
)
def test_who_may_change_nothing_of_muster_s_is_let_be(change: Callable[[Rights], Any]) -> None:
    assert looked(change) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda rights: rights.topics.update({"muster.state": (0, operation_bits(WRITE, DESCRIBE, DELETE))}),
            "allow WRITE and DELETE on the topic muster.state by",
        ),
        (
            lambda rights: rights.topics.update({"muster.state": (UNKNOWN_TOPIC, operation_bits(WRITE))}),
            "allow WRITE on the topic muster.state by",
        ),
        (
            lambda rights: rights.topics.update({"muster.security": (0, operation_bits(READ, DESCRIBE))}),
            "allow READ on the topic muster.security by",
        ),
        (lambda rights: setattr(rights, "cluster", operation_bits(ALTER)), "allow ALTER on the cluster by"),
        (
            lambda rights: rights.ids.add("muster.shard-0"),
            "allow WRITE or DESCRIBE on the transactional id muster.shard-0 by",
        ),
        (lambda rights: rights.ids.add("muster.security"), "on the transactional id muster.security by"),
        (lambda rights: setattr(rights, "group", operation_bits(READ)), "allow READ on the group muster.nodes by"),
        (
            lambda rights: rights.topics.update({"muster.state": (0, OPERATIONS_NOT_REQUESTED)}),
            "the upstream does not tell the rights to muster.state",
        ),
    ],
)
def test_who_may_change_what_is_muster_s_is_named(change: Callable[[Rights], Any], told: str) -> None:
    sentence = looked(change)
    assert told in sentence
    assert "User:apps" in sentence


def test_a_start_is_refused_for_rights_and_for_a_login_that_fails() -> None:
    async def whole(change: Callable[[Rights], Any]) -> str:
        async with UpstreamBroker() as broker:
            change(Rights(broker))
            reach = UpstreamAddress((broker.address,), UpstreamCredentials("PLAIN", "apps", "correct-staple"))
            principal = ProxyPrincipalCheck(load_settings(None, OVER | SASL | APPS), Upstream(reach), on_bug=raised)
            with pytest.raises(UnusableUpstream) as refused:
                await principal.check()
            await principal.stop()
            assert "correct-staple" not in str(refused.value)
            return str(refused.value)

    assert "allow ALTER on the cluster by" in asyncio.run(
        whole(lambda rights: setattr(rights, "cluster", operation_bits(ALTER)))
    )
    failed = asyncio.run(whole(lambda rights: setattr(rights, "login", FAILED)))
    assert "cannot be asked as engine.kafka.proxy.principal (User:apps), as whom clients come to them: 127." in failed
    assert "refuses the login by PLAIN: SASL_AUTHENTICATION_FAILED (58)" in failed


def test_what_it_comes_to_is_told_as_long_as_the_node_runs() -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            rights = Rights(broker)
            upstream = Upstream(
                UpstreamAddress((broker.address,), UpstreamCredentials("PLAIN", "apps", "correct-staple"))
            )
            principal = ProxyPrincipalCheck(
                load_settings(None, OVER | SASL | APPS), upstream, period_s=0.01, on_bug=raised
            )
            topics = cast(UpstreamTopics, SimpleNamespace(unseen=dict))
            upstream_diagnostics = UpstreamDiagnostics(
                upstream, topics, shards=1, mine=bool, gone_after_ms=1, principal=principal
            )
            conditions = Conditions(lambda: 0)

            def told() -> str | None:
                upstream_diagnostics.report_conditions(conditions)
                return conditions.sentence("proxy-principal")

            assert told() is None
            rights.cluster = operation_bits(ALTER)
            upstream_diagnostics.start()
            await until(lambda: "ALTER on the cluster" in (told() or ""))
            rights.cluster = 0
            await until(lambda: told() is None)
            await upstream_diagnostics.stop()

    asyncio.run(whole())


# -- what passes ------------------------------------------------------------------------------------------------------

Story = Callable[[Proxied, UpstreamBroker, Rights], Coroutine[Any, Any, None]]
LOGIN = ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]


def run(story: Story) -> None:
    """Over a broker that takes logins, and answers Metadata of no topics."""

    async def whole() -> None:
        async with UpstreamBroker() as broker:
            rights = Rights(broker)
            given = ASKS | SASL | APPS
            given |= {"engine.kafka.security.protocol": "SASL_PLAINTEXT", "engine.kafka.proxy.sasl.mechanism": "PLAIN"}
            given |= {"engine.kafka.broker.id.first": "1", "kafka.advertised.listeners": "127.0.0.1:0"}
            del given["engine.kafka.broker.ports"]
            async with Proxied((broker.address,), brokers=1, **given) as proxied:
                broker.asked.clear()
                await story(proxied, broker, rights)

    asyncio.run(whole())


def apis(broker: UpstreamBroker) -> list[str]:
    return [api for api, _ in broker.asked]


@pytest.mark.parametrize("port", [None, 1])
def test_nothing_of_a_client_passes_before_the_login_for_it(port: int | None) -> None:
    async def story(proxied: Proxied, broker: UpstreamBroker, rights: Rights) -> None:
        async with proxied.client(port) as one:
            await one.ask("Metadata", 10, topics=[])
        assert apis(broker) == [*LOGIN, "Metadata"]
        assert bytes(broker.of("SaslAuthenticate")[0].auth_bytes) == b"\0apps\0correct-staple"

    run(story)


def test_where_brokers_go_by_certificates_it_shows_its_own(tmp_path: Path) -> None:
    """The node's would be believed by nobody here."""

    async def whole() -> None:
        there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        there.load_cert_chain(write(tmp_path, "broker.pem", server().pem()))
        there.load_verify_locations(write(tmp_path, "ca.pem", authority().certificate_pem))
        there.verify_mode = ssl.CERT_REQUIRED
        given = ASKS | KEYS | {"engine.kafka.ssl.truststore.location": str(tmp_path / "ca.pem")}
        strange = certificate_authority.issue_client_certificate(stranger(), "muster", 30).pem()
        given["engine.kafka.ssl.keystore.location"] = write(tmp_path, "me.pem", strange)
        given["engine.kafka.proxy.ssl.keystore.location"] = write(tmp_path, "apps.pem", client("apps").pem())
        given["kafka.advertised.listeners"] = "127.0.0.1:0"
        del given["engine.kafka.broker.ports"]
        async with UpstreamBroker(tls=there) as broker:
            Rights(broker)
            async with Proxied((broker.address,), brokers=1, **given) as proxied, proxied.client() as one:
                assert (await one.ask("Metadata", 10, topics=[])).brokers
            assert apis(broker) == ["ApiVersions", "Metadata"]

    asyncio.run(whole())


def test_with_a_login_that_fails_nothing_passes() -> None:
    async def story(proxied: Proxied, broker: UpstreamBroker, rights: Rights) -> None:
        rights.login = FAILED
        async with proxied.client(1) as one:
            one.send("Metadata", 10, topics=[])
            assert await one.closed_by_node()
        assert apis(broker) == LOGIN

    run(story)


@pytest.mark.parametrize("port", [None, 1])
def test_a_client_s_own_login_is_refused_and_goes_nowhere(port: int | None) -> None:
    async def story(proxied: Proxied, broker: UpstreamBroker, rights: Rights) -> None:
        async with proxied.client(port) as one:
            assert (await one.ask("SaslHandshake", 1, mechanism="PLAIN")).error_code == ILLEGAL_SASL_STATE
            told = await one.ask("SaslAuthenticate", 2, auth_bytes=b"\0muster\0correct-horse")
            assert told.error_code == ILLEGAL_SASL_STATE
            await one.ask("Metadata", 10, topics=[])
        assert apis(broker) == [*LOGIN, "Metadata"]

    run(story)


def test_nobody_gets_a_token_by_which_to_come_without_a_certificate() -> None:
    async def story(proxied: Proxied, broker: UpstreamBroker, rights: Rights) -> None:
        broker.offers |= dict.fromkeys(TOKENS, (0, 3))
        async with proxied.client(1) as one:
            told = await one.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
            keys = {each.api_key for each in told.api_keys}
            assert 3 in keys
            assert not keys & TOKENS
            passed = proxied.door.traffic.up
            one.writer.write(START.pack(10, 41, 0, 1) + b"\xff\xff")  # DescribeDelegationToken of no client id
            assert await one.closed_by_node()
            assert proxied.door.traffic.up == passed

    run(story)


def test_before_a_login_ends_there_is_another_one() -> None:
    """A client of a broker's port comes again, once what it asked is answered; at the node's own port it stays."""

    async def story(proxied: Proxied, broker: UpstreamBroker, rights: Rights) -> None:
        rights.lifetime_ms = 1_000
        held, answer = asyncio.Event(), broker.answers["Metadata"]

        async def later(request: Any) -> Any:
            await held.wait()
            return answer(request)

        async with proxied.client() as own, proxied.client(1) as busy:
            await own.ask("Metadata", 10, topics=[])
            broker.answers["Metadata"] = later
            busy.send("Metadata", 10, topics=[])
            await until(lambda: len(broker.of("Metadata")) == 2)
            async with proxied.client(1) as last:
                assert await last.closed_by_node(), "its login began last, so that those of the others end, too"
            held.set()
            assert (await busy.receive()).brokers
            assert await busy.closed_by_node()
            logins = len(broker.of("SaslAuthenticate"))
            await own.ask("Metadata", 10, topics=[])
            assert len(broker.of("SaslAuthenticate")) == logins + 1

    run(story)
