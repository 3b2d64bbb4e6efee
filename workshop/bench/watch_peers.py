"""Other readers of `__consumer_offsets`, on the same broker and the same records: a plain consumer, and kminion.

Positions are written into the topic itself of a real Kafka, as its own tools may, so all read what they would read
anywhere. Processor time counts, of all threads. kminion is built from its published Go module where there is Go; where
there is not, that is said.
"""

import asyncio
import contextlib
import os
import shutil
import struct
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from muster.coordinator.config.values import parse_address
from muster.coordinator.kafka.codec.codec import struct as message
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.watch.offsets_topic_reader import OFFSETS_TOPIC, OffsetsTopicReader, ReadingProgress
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.kafka_peer import (
    LOOK_AGAIN_S,
    cache_folder,
    check_code,
    classpath,
    free_ports,
    has_leader,
    produce_batch,
    running_broker,
)
from muster.workshop.bench.processes import BenchFailed, cpu_s
from muster.workshop.bench.report import BenchRow, at_least
from muster.workshop.bench.watch_load import CountedEntries, LoadShape, made_batches

READ_POSITIONS, BATCH, AT_ONCE = 400_000, 10, 100
ROUNDS = 3
"""The best of each counts."""
FIND_COORDINATOR = 3
ADMIN_CLIENT = "__admin_client"
"""What Kafka calls the one client that may write its own topics."""
READ_S = 120.0
KMINION = "github.com/cloudhut/kminion/v2@latest"
BUILD_S = 900
KMINION_CONSUMED = "kminion_kminion_offset_consumer_records_consumed_total"
KMINION_SETTINGS = {
    "MINION_CONSUMERGROUPS_SCRAPEMODE": "offsetsTopic",
    "MINION_TOPICS_ENABLED": "false",
    "MINION_LOGDIRS_ENABLED": "false",
    "LOGGER_LEVEL": "error",
}


class PeerMissing(Exception):
    """A peer that cannot be had here; the text says why."""


def measure_peers(name: str, home: str, place: str, bench: str) -> Iterator[BenchRow]:
    """place: of Kafka's jars; empty: Maven has them. Raises JarsUnavailable and BenchFailed."""
    shape = LoadShape(groups=100, batch=BATCH, generations=0, until_ms=time.time_ns() // 1_000_000)
    made = made_batches(shape, range(shape.groups), READ_POSITIONS // BATCH)
    batches = [bytes(8) + batch[8:] for batch in made]  # the broker gives them their offsets
    with running_broker(home, classpath(place) if place else "", delay_ms=0) as broker:
        asyncio.run(fill_offsets_topic(broker.address, batches))
        ours = READ_POSITIONS / min(asyncio.run(read_as_muster(broker.address)) for _ in range(ROUNDS))
        keys = READ_POSITIONS / min(read_keys(broker.address) for _ in range(ROUNDS))
        what = f"{name}: all that is read of positions, from a Kafka"
        yield at_least(1.0, what, ours, "positions/s", "confluent-kafka, keys decoded", keys, bench=bench)
        try:
            theirs = READ_POSITIONS / read_by_kminion(broker.address, Path(home))
        except PeerMissing as missing:
            yield BenchRow(bench, f"{name}: skipped, {missing}", 0.0, "", "kminion", 0.0, 0.0, 0.0, True)
        else:
            yield at_least(0.5, what, ours, "positions/s", "kminion", theirs, bench=bench)


async def fill_offsets_topic(address: str, batches: list[bytes]) -> None:
    """Its first partition gets these batches, which its coordinator does not look at."""
    line = await LoadConnection.to(address)
    line.client_id = ADMIN_CLIENT
    try:
        request = message("FindCoordinatorRequest")(key="payments", key_type=0)  # which makes the topic
        await line.send_request("FindCoordinator", FIND_COORDINATOR, request)
        await has_leader(line, OFFSETS_TOPIC, 0, batches[0])
        for start in range(1, len(batches), AT_ONCE):
            sent = [produce_batch(line, OFFSETS_TOPIC, 0, batch) for batch in batches[start : start + AT_ONCE]]
            for code in await asyncio.gather(*sent):
                check_code(code, f"filling {OFFSETS_TOPIC}")
    finally:
        line.close()


# Readers
# -------


class ReadingWatcher:
    """Of the one partition that has records. done: it has been read to its end."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.watched = WatchedPartition(CountedEntries(), {})

    def made_partition(self, partition: int, again: bool = False) -> WatchedPartition:
        return self.watched

    def took_batches(self, partition: int) -> None:
        """Nothing is passed on."""

    def progressed(self, partition: int, progress: ReadingProgress) -> None:
        if progress.records and not progress.behind:
            self.done.set()

    def found_partitions(self, count: int) -> list[int]:
        return [0]

    def may_read(self, allowed: bool) -> None:
        """It may."""

    def troubled(self, partition: int, why: str) -> None:
        """It goes on by itself."""

    def changed(self, what: str) -> None:
        """It goes on by itself."""


async def read_as_muster(address: str) -> float:
    """Seconds of processor time."""
    began_s, watcher = time.process_time(), ReadingWatcher()
    upstream = Upstream(UpstreamAddress((parse_address(address),)))
    reader = OffsetsTopicReader(upstream, [0], watcher)
    reader.start()
    try:
        async with asyncio.timeout(READ_S):
            await watcher.done.wait()
    finally:
        await reader.stop()
        upstream.close()
    if watcher.watched.records < READ_POSITIONS:
        raise BenchFailed(f"{watcher.watched.records} of {READ_POSITIONS} positions were read")
    return time.process_time() - began_s


def read_keys(address: str) -> float:
    """As a program would that wants to know of which group each record is: seconds of processor time."""
    from confluent_kafka import Consumer, TopicPartition

    began_s, read, newest = time.process_time(), 0, {}
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench-keys", "enable.auto.commit": False})
    consumer.assign([TopicPartition(OFFSETS_TOPIC, 0, 0)])
    try:
        deadline_s = time.monotonic() + READ_S
        while read < READ_POSITIONS and time.monotonic() < deadline_s:
            for record in consumer.consume(10_000, 1.0):
                if record.error() is None and (key := record.key()) is not None:
                    newest[decode_key(bytes(key))] = record.value()
                    read += 1
    finally:
        consumer.close()
    if read < READ_POSITIONS:
        raise BenchFailed(f"{read} of {READ_POSITIONS} positions were read")
    return time.process_time() - began_s


def decode_key(key: bytes) -> tuple[str, str, int]:
    """
    >>> decode_key(bytes.fromhex("0001 0001 67 0001 74 00000003"))
    ('g', 't', 3)
    """
    (size,) = struct.unpack_from(">h", key, 2)
    at = 4 + size
    (topic_size,) = struct.unpack_from(">h", key, at)
    (partition,) = struct.unpack_from(">i", key, at + 2 + topic_size)
    return key[4:at].decode(), key[at + 2 : at + 2 + topic_size].decode(), partition


# kminion
# -------


def find_kminion() -> Path:
    """The program, built once and kept. Raises PeerMissing."""
    folder = cache_folder() / "go" / KMINION.replace("/", "_")
    program = folder / "kminion"
    if program.exists():
        return program
    if (go := shutil.which("go")) is None:
        raise PeerMissing("go is not on the PATH, so it cannot be built")
    environment = {**os.environ, "GOBIN": str(folder)}
    try:
        done = subprocess.run(
            [go, "install", KMINION], env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"go did not build it within {BUILD_S} s") from None
    if done.returncode or not program.exists():
        raise PeerMissing(f"go did not build {KMINION}: {done.stderr.strip()}")
    return program


def read_by_kminion(address: str, home: Path) -> float:
    """Seconds of processor time until it has read as many records. Raises PeerMissing."""
    (port,) = free_ports(1)
    environment = {**os.environ, **KMINION_SETTINGS, "KAFKA_BROKERS": address, "EXPORTER_PORT": str(port)}
    with (home / "kminion.log").open("wb") as log:
        process = subprocess.Popen([str(find_kminion())], env=environment, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + READ_S
        while time.monotonic() < deadline_s and process.poll() is None:
            if records_consumed(port) >= READ_POSITIONS:
                return cpu_s(process.pid)
            time.sleep(LOOK_AGAIN_S)
        raise PeerMissing(f"it did not read {READ_POSITIONS} records within {READ_S:.0f} s")
    finally:
        process.kill()
        process.wait()


def records_consumed(port: int) -> float:
    """As its metrics tell; 0: they do not yet."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        rows = (line.split() for line in page.read().decode().splitlines())
        return sum(float(row[1]) for row in rows if row and row[0].startswith(KMINION_CONSUMED))
    return 0.0
