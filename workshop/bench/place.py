"""Where the broker of `--kafka` is: a folder with its jars, or the address of one that runs on this machine."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.workshop.bench.broker import running_broker
from muster.workshop.bench.processes import BenchFailed


@dataclass(frozen=True, slots=True)
class PeerBroker:
    """A broker that answers at `address`, and the process whose time counts."""

    address: str
    pid: int


@contextlib.contextmanager
def find_peer_broker(place: str, home: str, delay_ms: int) -> Iterator[PeerBroker]:
    """Raises BenchFailed for a place that holds no broker, with what was expected there."""
    if ":" in place and not Path(place).exists():
        yield PeerBroker(place, listening_pid(place))
        return
    with running_broker(home, classpath(place), delay_ms) as broker:
        yield PeerBroker(broker.address, broker.pid)


def classpath(folder: str) -> str:
    """Of a distribution of Kafka, whose jars lie in `libs`, or of a folder of jars."""
    jars = sorted(Path(folder).glob("libs/*.jar")) or sorted(Path(folder).glob("*.jar"))
    if not any(jar.name.startswith("kafka_") for jar in jars):
        raise BenchFailed(
            f"no broker in {folder!r}: expected a folder of Kafka 4 with libs/kafka_2.13-*.jar, a folder with these "
            "jars, or the HOST:PORT of a broker that runs on this machine"
        )
    return os.pathsep.join(map(str, jars))


def listening_pid(address: str) -> int:
    """Of the process that listens at HOST:PORT here: its processor time is half of the comparison."""
    import psutil

    _, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise BenchFailed(f"{address!r} is no address; expected HOST:PORT, such as 127.0.0.1:9092")
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.pid and each.laddr and each.laddr.port == int(port):
            return int(each.pid)
    raise BenchFailed(
        f"no process that can be seen listens at {address}; its processor time is measured, so it has to run on this "
        "machine, as the same user"
    )
