"""The upstream client at a real broker's other listeners: TLS, with certificates for both, and tokens."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.cli.security import certificate_authority
from muster.coordinator.config import load_settings
from muster.coordinator.kafka_backend.backend_settings import upstream_address_of
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.security.access_model import Operation, ResourceType
from muster.coordinator.zookeeper.local_ensemble import free_port
from tests.interop.kafka_broker import kafka_broker
from tests.support.certificates import authority, client, server, stranger, write
from tests.support.kafka_backend.secured import Member, SecuredNode, allow, until
from tests.support.kafka_backend.served import make_topics

PASSWORD = "opens-the-key"
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SECURED = """
listeners=PLAINTEXT://127.0.0.1:{port},OPEN://127.0.0.1:{open},TLS://127.0.0.1:{tls},MUTUAL://127.0.0.1:{mutual},TOKEN://127.0.0.1:{token},\\
  PLAIN://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OPEN:PLAINTEXT,TLS:SSL,MUTUAL:SSL,TOKEN:SASL_PLAINTEXT,PLAIN:SASL_SSL,\\
  CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
group.min.session.timeout.ms=1000
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
listener.name.mutual.ssl.client.auth=required
listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.plain.sasl.enabled.mechanisms=PLAIN
listener.name.token.oauthbearer.sasl.jaas.config=\\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
listener.name.plain.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \\
  required user_muster="secret";
"""


class Listeners(NamedTuple):
    open: int
    tls: int
    mutual: int
    token: int
    plain: int


@pytest.fixture(scope="module")
def listeners(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    place: Path = tmp_path_factory.mktemp("secured")
    ports = Listeners(*(free_port() for _ in Listeners._fields))
    told = {name: str(port) for name, port in ports._asdict().items()}
    told["keystore"] = write(place, "broker.pem", server().pem())
    told["truststore"] = write(place, "ca.pem", authority().certificate_pem)
    more = SECURED
    for name, value in told.items():
        more = more.replace(f"{{{name}}}", value)
    with kafka_broker(kafka_classpath, place / "kafka", more):
        yield ports


def tried(port: int, **given: str) -> str:
    """What comes of a node's settings at that listener."""
    named = {f"engine.kafka.{name.replace('_', '.')}": value for name, value in given.items()}
    reach = upstream_address_of(load_settings(None, {"engine": f"kafka://127.0.0.1:{port}", **named}))

    async def asked() -> str:
        upstream = Upstream(reach)
        try:
            return f"{len((await upstream.refresh([])).brokers)} broker"
        except UpstreamError as error:
            return str(error)
        finally:
            upstream.close()

    return asyncio.run(asked())


def pem(place: Path, name: str, data: bytes) -> str:
    return write(place, name, data)


def test_a_broker_is_believed_by_the_truststore_alone(listeners: Listeners, tmp_path: Path) -> None:
    trusted = pem(tmp_path, "ca.pem", authority().certificate_pem)
    assert tried(listeners.tls, security_protocol="SSL", ssl_truststore_location=trusted) == "1 broker"
    other = pem(tmp_path, "other.pem", stranger().certificate_pem)
    assert "certificate verify failed" in tried(listeners.tls, security_protocol="SSL", ssl_truststore_location=other)
    assert "certificate verify failed" in tried(listeners.tls, security_protocol="SSL"), "nor by the system's"


def test_a_node_shows_its_certificate_by_a_key_that_is_encrypted_or_not(listeners: Listeners, tmp_path: Path) -> None:
    own = client("muster")
    given = {
        "security_protocol": "SSL",
        "ssl_truststore_location": pem(tmp_path, "ca.pem", authority().certificate_pem),
    }
    plain = pem(tmp_path, "own.pem", own.pem())
    assert tried(listeners.mutual, **given, ssl_keystore_location=plain) == "1 broker"
    encrypted = pem(tmp_path, "locked.pem", own.pem(PASSWORD))
    opened = tried(listeners.mutual, **given, ssl_keystore_location=encrypted, ssl_key_password=PASSWORD)
    assert opened == "1 broker"
    wrong = tried(listeners.mutual, **given, ssl_keystore_location=encrypted, ssl_key_password="wrong")
    assert "the certificates for the upstream cannot be used" in wrong
    assert "1 broker" not in tried(listeners.mutual, **given), "the broker wants one"
    foreign = certificate_authority.issue_client_certificate(stranger(), "muster", 30).pem()
    strange = pem(tmp_path, "strange.pem", foreign)
    assert "1 broker" not in tried(listeners.mutual, **given, ssl_keystore_location=strange)


def test_a_login_over_tls(listeners: Listeners, tmp_path: Path) -> None:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "muster",
        "ssl_truststore_location": pem(tmp_path, "ca.pem", authority().certificate_pem),
    }
    assert tried(listeners.plain, **given, sasl_password="secret") == "1 broker"
    told = tried(listeners.plain, **given, sasl_password="wrong")
    assert "refuses the login by PLAIN: SASL_AUTHENTICATION_FAILED (58)" in told


def token(**claims: object) -> bytes:
    parts = [{"alg": "none"}, claims]
    said = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*said, b""])


def test_a_token_of_a_file(listeners: Listeners, tmp_path: Path) -> None:
    now = int(time.time())
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    good = pem(tmp_path, "token", token(sub="muster", iat=now - 10, exp=now + 600) + b"\n")
    assert tried(listeners.token, **given, sasl_oauthbearer_token_file=good) == "1 broker"
    over = pem(tmp_path, "over", token(sub="muster", iat=now - 600, exp=now - 300))
    told = tried(listeners.token, **given, sasl_oauthbearer_token_file=over)
    assert "refuses" in told
    missing = tried(listeners.token, **given, sasl_oauthbearer_token_file=str(tmp_path / "none"))
    assert "the token for the upstream cannot be read" in missing


def test_a_client_s_token_passes_a_node_where_tls_ends(listeners: Listeners, tmp_path: Path) -> None:
    """KB-X10: whom the token speaks of, once the broker believes it."""
    now = int(time.time())
    own = pem(tmp_path, "token", token(sub="muster", iat=now - 10, exp=now + 600))
    make_topics(f"127.0.0.1:{listeners.open}", {"guarded": 1})
    node = SecuredNode(
        f"127.0.0.1:{listeners.token}",
        "tokens",
        1,
        tmp_path,
        "",
        engine_kafka_sasl_mechanism="OAUTHBEARER",
        engine_kafka_sasl_username="",
        engine_kafka_sasl_password="",
        engine_kafka_sasl_oauthbearer_token_file=own,
        sasl_enabled_mechanisms="OAUTHBEARER",
        kafka_listeners="SASL_SSL://127.0.0.1:0",
    )
    node.start()
    members = []
    try:
        with node.admin() as root:
            root.create_acls(
                [
                    allow("alice", Operation.READ, ResourceType.GROUP, "hers"),
                    allow("alice", Operation.READ, ResourceType.TOPIC, "guarded"),
                ]
            )
        for name in ("alice", "bob"):
            given = {
                "bootstrap.servers": node.kafka_address,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(tmp_path / "ca.pem"),
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": f"principal={name}",
            }
            members.append(Member(given, "hers", "guarded"))
        alice, bob = members
        until(lambda: alice.joined, "alice is in", node)
        until(lambda: bob.refused, "bob is refused", node)
    finally:
        for member in members:
            member.close()
        node.stop()
