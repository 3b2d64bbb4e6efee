"""A real Kafka broker of version 4 for a test: fresh, on loopback, and small."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.coordinator.zookeeper.local_ensemble import free_port

PATIENCE_S = 150.0

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
log.dirs={place}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=100
"""


ASKING_WHO = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{control}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
sasl.enabled.mechanisms=PLAIN
auto.create.topics.enable=true
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \\
  required {users};
"""
"""A broker with access control lists: to one address nobody comes, who may do all, to the other users."""


ASKING_WHO_BY_TLS = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{control}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
"""
"""Likewise by TLS, and users log in with SCRAM."""


@contextmanager
def kafka_with_scram(classpath: str, place: Path, keystore: str) -> Iterator[tuple[str, str]]:
    """Its two addresses. keystore: of a PEM file."""
    sasl = free_port()
    more = ASKING_WHO_BY_TLS.replace("{sasl}", str(sasl)).replace("{keystore}", keystore)
    with kafka_broker(classpath, place, more) as address:
        yield address, f"127.0.0.1:{sasl}"


@contextmanager
def kafka_with_acls(classpath: str, place: Path, users: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Its two addresses. Each user's password is the name."""
    sasl = free_port()
    more = ASKING_WHO.replace("{sasl}", str(sasl))
    more = more.replace("{users}", " ".join(f'user_{name}="{name}"' for name in users))
    with kafka_broker(classpath, place, more) as address:
        yield address, f"127.0.0.1:{sasl}"


@contextmanager
def kafka_broker(classpath: str, place: Path, more: str = "") -> Iterator[str]:
    """Its address, once it takes connections. `more` properties beat the usual ones."""
    port, control = free_port(), free_port()
    place.mkdir(parents=True)
    properties = place / "server.properties"
    told = {"port": port, "control": control, "place": place}
    properties.write_text(PROPERTIES.format(**told) + more.format(**told))
    storage = [*java_with(classpath), "kafka.tools.StorageTool"]
    cluster = subprocess.run([*storage, "random-uuid"], capture_output=True, text=True, check=True).stdout.split()[-1]
    subprocess.run([*storage, "format", "-t", cluster, "-c", str(properties)], capture_output=True, check=True)
    with started_broker(classpath, place, port):
        yield f"127.0.0.1:{port}"


@contextmanager
def started_broker(classpath: str, place: Path, port: int) -> Iterator[None]:
    """The broker of a place that is formatted, at its port; killed at the end."""
    with (place / "out.log").open("ab") as log:
        command = [*java_with(classpath), "kafka.Kafka", str(place / "server.properties")]
        broker = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until_open(port, broker, place / "out.log")
        yield
    finally:
        broker.kill()
        broker.wait()


def java_with(classpath: str) -> list[str]:
    return [shutil.which("java") or "java", "-Xmx384m", "-cp", classpath]


def until_open(port: int, broker: "subprocess.Popen[bytes]", log: Path, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        assert broker.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.2)
        else:
            return
