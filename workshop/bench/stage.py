"""What all cases need: a node, topics filled with known records, a small Spark session."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

from muster.client import Admin
from muster.client.calls.methods import PRODUCE
from muster.client.types import TopicPartition
from muster.spark.encode import encode_columns
from muster.spark.rows import EncodedRows
from muster.spark.session import session
from muster.spark.write_calls import SinkNode
from muster.spark.write_calls import fill_request as fill_in
from muster.spark.writing_options import check_write_options
from muster.storage.rpc.v1.broker_service_pb2 import ProduceRequest
from muster.workshop.bench.processes import ServerProcess, stop_process

VALUE_BYTES = 100
RECORDS_OF_A_BATCH = 150
"""What fits into a producer's default batch of 16 KB."""

REQUEST_BATCHES = 100
HEAP = "1g"
JVM_ENDS_S = 60.0


@contextlib.contextmanager
def run_spark_node(home: str) -> Iterator[str]:
    """The address of a node with its data below `home`; the system decides on which cores it runs."""
    with run_timed_node(home) as node:
        yield node.address


@contextlib.contextmanager
def run_timed_node(home: str) -> Iterator[ServerProcess]:
    """The same, with what its processor time is."""
    command = ["-m", "muster.cli", "serve", "--announce", "--until-eof", "--listen", "127.0.0.1:0"]
    command += ["--http", ""]
    process = subprocess.Popen(
        [sys.executable, *command, "--data", f"{home}/node"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield ServerProcess(process)
    finally:
        stop_process(process)


@contextlib.contextmanager
def open_session(cores: int, more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of its own on so many task slots, with `more` settings, in a JVM of its own.

    Jars and memory are told to a JVM when it starts: one that an earlier case left would know nothing of them.
    """
    # Light but for the compiler: long reads are compiled to the end, as they would be in earnest.
    config = {"spark.driver.memory": HEAP, "spark.driver.extraJavaOptions": "-XX:+UseSerialGC", **(more or {})}
    started = session("muster bench", master=f"local[{cores}]", light=True, config=config)
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()
        end_jvm()


def end_jvm() -> None:
    """End the JVM that pyspark started, which it else keeps for the next session. It goes when its input ends."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(JVM_ENDS_S)


def fill_topic(address: str, topic: str, counts: Sequence[int], batches: Sequence[bytes] | None = None) -> None:
    """Make a topic with so many records of 100 bytes, no two alike, in each of its partitions.

    With `batches` each partition gets those, which hold so many.
    """
    with Admin({"bootstrap.servers": address}) as admin:
        admin.create_topic(topic, len(counts))
    node = SinkNode(check_write_options({"bootstrap.servers": address}, streaming=False))
    for partition, count in enumerate(counts):
        tp = TopicPartition(topic, partition)
        sizes = batch_sizes(count)
        for start in range(0, len(sizes), REQUEST_BATCHES):
            places = range(start, min(start + REQUEST_BATCHES, len(sizes)))
            data = [
                EncodedRows(tp, batches[at] if batches else encode_batch_of_values(sizes[at]), sizes[at])
                for at in places
            ]
            request = ProduceRequest(acks=-1)
            fill_in(request.topic_data, data)
            node.run(node.transport.call(PRODUCE, request, doing="filling a topic"))


def batch_sizes(count: int) -> list[int]:
    return [min(RECORDS_OF_A_BATCH, count - start) for start in range(0, count, RECORDS_OF_A_BATCH)]


def record_batches(count: int) -> Iterator[bytes]:
    """So many records in batches as a producer makes them, for whoever is to have the same bytes as somebody else."""
    return (encode_batch_of_values(size) for size in batch_sizes(count))


def encode_batch_of_values(count: int) -> bytes:
    """A batch of values that no dictionary or compression makes smaller."""
    ends = pa.array(range(0, (count + 1) * VALUE_BYTES, VALUE_BYTES), pa.int32())
    values = pa.Array.from_buffers(
        pa.binary(), count, [None, ends.buffers()[1], pa.py_buffer(os.urandom(count * VALUE_BYTES))]
    )
    return encode_columns(None, values, None, time.time_ns() // 1_000_000, "none")


def time_work(work: Callable[[], object]) -> float:
    """Wall seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def seconds_to_read(table: Callable[[], Any]) -> float:
    """Wall seconds from opening a table to its last row, the whole statement as somebody would write it.

    Spark looks into Parquet's files before there is a DataFrame, and plans a source in Python only after: to start the
    clock in between would leave out a good part of the one and nothing of the other.
    """
    return time_work(lambda: table().write.format("noop").mode("overwrite").save())
