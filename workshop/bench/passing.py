"""KB-P5, KB-P6: records that pass a node on their way from Kafka and to it, beside the same at the broker's own port.

Load, node and broker share the machine's cores; rounds alternate, and what counts is the median.
"""

import contextlib
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from muster.storage.records.batch import encode_turn
from muster.workshop.bench.broker import KafkaBroker, fill_broker, free_ports
from muster.workshop.bench.bulk import consume_bytes, fetch_bytes, produce_bytes
from muster.workshop.bench.inside import BENCH, settings_over, start_node_process
from muster.workshop.bench.processes import STOP_S, cpu_ns, read_announcement
from muster.workshop.bench.rows import BenchRow, at_least, at_most

PASSED_TOPIC, SINK = "passing", "passed"
PARTITIONS: Final = 4
RECORD_BYTES, RECORDS = 1_024, 900
BATCHES: Final = 60
"""Of each partition that is read: a fifth of a GB altogether."""
READ: Final = PARTITIONS * BATCHES * RECORDS - 1

PASSING_ROUNDS: Final = 5
FETCHED, PRODUCED = 1 << 30, 128 << 20
"""Bytes of one round."""
GB: Final = 1e9
KEPT: Final = {"retention.ms": "-1"}
"""The records bear no time: a broker that looks at their age would have them gone within the run."""

Load = Callable[[str], float]
"""Given an address, bytes a second."""


class PassingRates(NamedTuple):
    """MB a second through the node and at the broker; processor seconds of the node for a GB."""

    ours: float
    direct: float
    cpu_s: float


class ProxyNode(NamedTuple):
    """A node's process, and the port at which it stands for the broker."""

    pid: int
    address: str


def measure_passing(broker: KafkaBroker, home: str) -> Iterator[BenchRow]:
    batch = encode_turn([(b"%d" % number, bytes(RECORD_BYTES), 0) for number in range(RECORDS)], 0)
    for topic, batches in ((PASSED_TOPIC, [batch] * BATCHES), (SINK, [batch])):
        fill_broker(broker, topic, PARTITIONS, batches, KEPT)
    with run_proxy(broker, Path(home)) as proxy:
        size = READ * RECORD_BYTES
        read = alternate_ports(
            broker, proxy, lambda at: consume_bytes(at, PASSED_TOPIC, PARTITIONS, READ, RECORD_BYTES), size
        )
        moved = alternate_ports(broker, proxy, lambda at: fetch_bytes(at, PASSED_TOPIC, PARTITIONS, FETCHED), FETCHED)
        written = alternate_ports(
            broker, proxy, lambda at: produce_bytes(at, SINK, PARTITIONS, batch, PRODUCED), PRODUCED
        )
    yield from passing_rows("P5 fetch of 1 KB records through a node, librdkafka", read, 0.6, 0.9)
    yield from passing_rows("P5 fetch, a client that only moves bytes", moved, 0.6, 0.9)
    yield from passing_rows("P6 produce, a client that only moves bytes", written, 0.7, 1.2)


def passing_rows(case: str, found: PassingRates, rate: float, cpu_s: float) -> Iterator[BenchRow]:
    yield at_least(rate, case, found.ours, "MB/s", "the broker's own port", found.direct, bench=BENCH)
    yield at_most(1.0, f"{case}: the node", found.cpu_s, "s CPU/GB", "the most it may take", cpu_s, bench=BENCH)


def alternate_ports(broker: KafkaBroker, proxy: ProxyNode, load: Load, size: int) -> PassingRates:
    found: dict[str, list[float]] = {proxy.address: [], broker.address: []}
    spent: list[float] = []
    for number in range(PASSING_ROUNDS + 1):  # the first warms up
        order = [*found] if number % 2 else [*reversed(found)]
        for address in order:
            before = cpu_ns(proxy.pid)
            rate = load(address)
            if number:
                found[address].append(rate / 1e6)
                if address == proxy.address:
                    spent.append((cpu_ns(proxy.pid) - before) / 1e9 / (size / GB))
    ours, direct = map(statistics.median, found.values())
    return PassingRates(ours, direct, statistics.median(spent))


@contextlib.contextmanager
def run_proxy(broker: KafkaBroker, home: Path) -> Iterator[ProxyNode]:
    own, of_broker = free_ports(2)
    settings = settings_over(broker.address, "bench-passing", 1) | {
        "kafka.listeners": f"127.0.0.1:{own}",
        "engine.kafka.broker.ports": str(of_broker),
        "engine.kafka.broker.id.first": "1",
    }
    process = start_node_process(settings, home / "node.log")
    try:
        read_announcement(process)
        yield ProxyNode(process.pid, f"127.0.0.1:{of_broker}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        finally:
            process.kill()
