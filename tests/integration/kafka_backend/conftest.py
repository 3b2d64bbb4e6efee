"""A real Kafka for the engine's tests: from Maven's jars; without them the tests are skipped, and said by name."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.coordinator.zookeeper.local_ensemble import free_port
from muster.workshop.bench.kafka_peer import KAFKA, JarsUnavailable, find_jars
from tests.interop.kafka_broker import kafka_broker


@pytest.fixture(scope="session")
def kafka_classpath() -> str:
    try:
        if shutil.which("java") is None:
            raise JarsUnavailable("java is not on the PATH")
        return os.pathsep.join(map(str, find_jars(KAFKA)))
    except JarsUnavailable as error:
        why = f"needs a real broker ({KAFKA}): {error}"
        if os.environ.get("MUSTER_ENGINE"):
            pytest.fail(f"{why}; `make engine` wants it")
        pytest.skip(why)


@pytest.fixture
def resolve_here(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a host name that nobody has mean this machine, for this process alone."""
    resolve = socket.getaddrinfo

    def let_resolve(name: str) -> None:
        def known(host: Any, *more: Any, **other: Any) -> Any:
            return resolve("127.0.0.1" if host == name else host, *more, **other)

        monkeypatch.setattr(socket, "getaddrinfo", known)

    return let_resolve


PASSWORD = "correct-horse"
ASKING = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{control}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
group.min.session.timeout.ms=1000
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \\
  required user_muster="{password}" user_alice="{password}" user_bob="{password}";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


class RealKafka(NamedTuple):
    """A broker's addresses: where nobody is asked who he is, and where everybody is."""

    address: str
    asking: str


@pytest.fixture(scope="session")
def real_kafka(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One broker for all tests of a run: each has a cluster name of its own."""
    place: Path = tmp_path_factory.mktemp("upstream") / "kafka"
    sasl = free_port()
    more = ASKING.replace("{sasl}", str(sasl)).replace("{password}", PASSWORD)
    with kafka_broker(kafka_classpath, place, more) as address:
        yield RealKafka(address, f"127.0.0.1:{sasl}")


@pytest.fixture
def kafka(real_kafka: RealKafka) -> str:
    return real_kafka.address
