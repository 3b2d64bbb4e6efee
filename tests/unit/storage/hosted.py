"""Topics of a cluster of which a part is held here, as tests make them."""

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.logs import replica
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch

META = "/data/meta.properties"
CATALOG = "/data/topics.json"
ID, OTHER_ID = bytes(range(16)), bytes(16)


def topic(*held: int, name: str = "t", topic_id: bytes = ID, partitions: int = 6, **configs: str) -> Topic:
    return Topic(name, topic_id, partitions, configs, False, held)


def put(broker: Broker, partition: int, text: bytes, name: str = "t") -> None:
    log = broker.log(name, partition)
    replica.append_as_follower(log, batch(text, base_offset=log.end_offset, leader_epoch=1), T0)
    broker.flush([(name, partition)])
    log.tell_high_watermark(log.end_offset)


def numbers(broker: Broker, name: str = "t") -> list[int]:
    return sorted(log.partition[1] for log in broker.logs() if log.partition[0] == name)


def open_with(disk: MemoryFiles, number: int, settings: LogSettings | None = None) -> Broker:
    """What is drawn at random is `number`, sixteen times."""
    return Broker(
        "/data", settings or LogSettings(), disk, clock_ms=lambda: T0, random_bytes=lambda n: bytes([number]) * n
    )
