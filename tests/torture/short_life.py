"""A process that lives through everything a node does with its disk and says what came of each turn.

`python -m tests.torture.short_life DIRECTORY [LIMIT VALUE]`: from turn 10 to 19 a resource limit of that name and
value holds, as `RLIMIT_FSIZE 3000`.
"""

import resource
import sys

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import StorageError
from muster.storage.records.batch import encode_batch
from tests.torture.appender import value_at

NOW_MS = 1_700_000_000_000
TURNS = 30
VALUE_BYTES = 400
SETTINGS = {
    "log.segment.bytes": "2000",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.flush.offset.checkpoint.interval.ms": "1",
    "log.segment.delete.delay.ms": "0",
}


def main(directory: str, limit: str = "", value: str = "") -> None:
    try:
        broker = Broker(directory, LogSettings.from_properties(SETTINGS))
    except StorageError as error:
        print(f"closed {error}")
        return
    for topic, configs in (("t", {}), ("keyed", {"cleanup.policy": "compact"})):
        if topic not in broker.topics():
            broker.create_topic(topic, 1, configs)
    for turn in range(TURNS):
        if limit and turn in (10, 20):
            _, most = resource.getrlimit(getattr(resource, limit))
            resource.setrlimit(getattr(resource, limit), (int(value) if turn == 10 else most, most))
        try:
            print(f"acked {put(broker, turn)}", flush=True)
        except StorageError as error:
            print(f"refused {error}", flush=True)
        if turn % 8 == 7:
            broker.tick(NOW_MS + turn)
    broker.close()


def put(broker: Broker, turn: int) -> int:
    """One record to each topic, flushed; the end of the first."""
    offset = broker.end_offset("t", 0)
    broker.append("t", 0, encode_batch([(NOW_MS, None, value_at(offset, VALUE_BYTES), ())]), NOW_MS)
    broker.append("keyed", 0, encode_batch([(NOW_MS, b"%d" % (turn % 3), b"x" * VALUE_BYTES, ())]), NOW_MS)
    broker.flush()
    return offset + 1


if __name__ == "__main__":
    main(*sys.argv[1:])
