"""A client of librdkafka's for which some names lead to loopback: it asks the system where a name leads, so the system
has to say so, to this process alone (a mount namespace with a hosts file of its own).

Run by `named_client(...)`: `python -m tests.support.kafka_backend.named_client SETTINGS TOPIC COUNT`, SETTINGS as JSON.
It produces so many records, reads them as a member of a group, commits and says what is committed and whom it spoke to.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.pace import Patience

PATIENCE_S: Final = 60.0
UNSHARED: Final = ("unshare", "--map-root-user", "--mount")
MOUNTED: Final = 'mount --bind "$0" /etc/hosts && exec "$@"'


def can_have_names() -> bool:
    """Whether a process may have a hosts file of its own on this machine."""
    trial = [*UNSHARED, "sh", "-c", "mount --bind /etc/hosts /etc/hosts"]
    return (
        shutil.which("unshare") is not None and not subprocess.run(trial, check=False, capture_output=True).returncode
    )


def named_client(names: Sequence[str], place: Path, settings: dict[str, Any], topic: str, count: int) -> dict[str, Any]:
    """What the client says: `committed`, by partition, and `brokers`, HOST:PORT by id, as it knows them."""
    hosts = place / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {name}\n" for name in names))
    program = [
        sys.executable,
        "-m",
        "tests.support.kafka_backend.named_client",
        json.dumps(settings),
        topic,
        str(count),
    ]
    command = [*UNSHARED, "sh", "-c", MOUNTED, str(hosts), *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def main(settings: dict[str, Any], topic: str, count: int) -> None:
    from confluent_kafka import Consumer, Producer

    group = settings.pop("group.id")
    producer = Producer(settings)
    for number in range(count):
        producer.produce(topic, f"{group} {number}".encode())
    assert producer.flush(PATIENCE_S) == 0
    member = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings | member)
    consumer.subscribe([topic])
    wanted, patience = {f"{group} {number}".encode() for number in range(count)}, Patience(PATIENCE_S)
    while wanted:
        assert patience.lasts(), f"{len(wanted)} records were not read"
        wanted -= {message.value() for message in consumer.consume(100, 0.2) if message.error() is None}
    consumer.commit(asynchronous=False)
    committed = {each.partition: each.offset for each in consumer.committed(consumer.assignment(), PATIENCE_S)}
    brokers = {
        each.id: f"{each.host}:{each.port}" for each in consumer.list_topics(timeout=PATIENCE_S).brokers.values()
    }
    consumer.close()
    print(json.dumps({"committed": committed, "brokers": brokers}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
