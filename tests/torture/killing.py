"""Kill a writing process with SIGKILL again and again; nothing that it acknowledged may be missing or wrong."""

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from muster.storage.broker.broker import Broker
from muster.storage.records.batch import decode_records, read_batches
from tests.torture.appender import value_at

ROOT = Path(__file__).parents[2]


def kill_once(directory: Path, rng: random.Random, size: int) -> int:
    """One life of the writer: killed after a random number of acknowledgements. The end it had acknowledged."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.torture.appender", str(directory), str(size)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert child.stdout is not None
    acknowledged = int(child.stdout.readline().split()[1])
    for _ in range(rng.randrange(1, 20)):
        acknowledged = int(child.stdout.readline())
    # Right after an answer the writer is between two writes; a moment later it may be in the middle of one.
    threading.Event().wait(rng.random() * 0.006)
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().splitlines()
    child.wait()
    child.stdout.close()
    whole = [line for line in rest if line.isdigit()]
    # The last line may itself be cut short; the one before it is certain.
    return max([acknowledged, *map(int, whole[:-1])])


def check(directory: Path, acknowledged: int, size: int) -> int:
    """Read everything back; how many bytes a torn tail had."""
    broker = Broker(directory)
    try:
        torn = sum(state.truncated_bytes for state in broker.recovered().values())
        log = broker.log("t", 0)
        assert log.end_offset >= acknowledged, f"{acknowledged} acknowledged, {log.end_offset} left"
        offset = 0
        while offset < log.end_offset:
            data = log.fetch(offset, 1 << 20).records
            for record in decode_records(data, offset):
                assert record.offset == offset, f"offset {record.offset} where {offset} belongs"
                assert record.value == value_at(offset, size), f"wrong value at offset {offset}"
                offset += 1
            assert offset == list(read_batches(data))[-1].next_offset
        return torn
    finally:
        broker.close()


def loop(directory: Path, rounds: int, seed: int) -> tuple[int, int]:
    """That many kills, one directory: records acknowledged, and how often a tail was torn. Failures name the seed."""
    rng = random.Random(seed)
    acknowledged = torn = 0
    # Large writes are torn far more often, small ones are many.
    size = rng.choice((2000, 250_000))
    for number in range(rounds):
        try:
            acknowledged = kill_once(directory, rng, size)
            torn += check(directory, acknowledged, size) > 0
        except Exception as error:
            raise AssertionError(f"seed {seed}, round {number}: {error}") from error
    return acknowledged, torn
