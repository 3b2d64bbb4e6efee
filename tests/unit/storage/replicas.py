"""A log of a cluster, small enough for tests."""

from muster.storage.broker.broker import Broker
from muster.storage.logs.log import Log
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import batch, open_broker

SMALL = {"log__segment__bytes": 350, "log__index__interval__bytes": 80, "log__segment__delete__delay__ms": 0}
EPOCHS = "/data/t-0/leader-epoch-checkpoint"


def held(disk: MemoryFiles | None = None, **configs: str) -> Broker:
    broker = open_broker(disk or MemoryFiles(), **SMALL)
    dotted = {name.replace("__", "."): value for name, value in configs.items()}
    assert broker.host([Topic("t", bytes(16), 3, dotted, False, (0,))]) == {}
    return broker


def sent(*texts: bytes, at: int, epoch: int = 0, **how: object) -> bytes:
    return batch(*texts, base_offset=at, leader_epoch=epoch, **how)


def ends(log: Log) -> tuple[int, int, int]:
    return log.start_offset, log.end_offset, log.high_watermark
