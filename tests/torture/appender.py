"""A process that appends until it is killed, and says over its standard output which offsets were acknowledged."""

import sys

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.records.batch import encode_batch

NOW_MS = 1_700_000_000_000


def value_at(offset: int, size: int) -> bytes:
    """What the record at `offset` must hold: recognisable, and of a size that tears."""
    return (b"%012d " % offset) * (size // 13 + 1)


def main(directory: str, size: int) -> None:
    settings = LogSettings.from_properties({"log.segment.bytes": str(8 << 20), "log.retention.ms": "-1"})
    broker = Broker(directory, settings)
    if "t" not in broker.topics():
        broker.create_topic("t", 1)
    offset = broker.end_offset("t", 0)
    print(f"open {offset}", flush=True)
    while True:
        # Several writes to one flush: a kill in the middle of a flush tears nothing.
        for _ in range(8):
            texts = [value_at(offset + place, size) for place in range(3)]
            broker.append("t", 0, encode_batch([(NOW_MS, None, text, ()) for text in texts]), NOW_MS)
            offset += 3
        broker.flush()
        print(offset, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
