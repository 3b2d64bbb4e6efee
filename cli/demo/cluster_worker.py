"""A worker of the cluster's demo, as a process of its own: it reports what it consumed, and what it owns since when."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from muster.cli.common.options import NumberRange, client_options, client_properties

if TYPE_CHECKING:
    from muster.client import TopicPartition


@click.command("demo-cluster-worker")
@client_options
@click.option("--topic", required=True)
@click.option("--group", required=True)
@click.option("--name", required=True)
@click.option("--report", required=True, metavar="FILE")
@click.option("--owned", required=True, metavar="FILE")
@click.option("--pace", type=NumberRange(min=0, min_open=True), required=True, metavar="LINES_PER_SECOND")
def demo_cluster_worker(
    bootstrap: str, overrides: dict[str, str], topic: str, group: str, name: str, report: str, owned: str, pace: float
) -> None:
    """One worker of `muster demo --cluster`."""
    from muster.cli.common.orphan import stop_with_stdin
    from muster.cli.demo.worker import commit_reported, work_until_stopped
    from muster.client import Consumer

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    stop_with_stdin()
    given = client_properties(
        bootstrap,
        overrides,
        client_id=name,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    )
    reported, told = open_report(report), open_report(owned)

    def gained(consumer: Consumer, partitions: "Iterable[TopicPartition]") -> None:
        os.write(told, ownership_line("gained", partitions))

    def lost(consumer: Consumer, partitions: "Iterable[TopicPartition]") -> None:
        commit_reported(consumer)
        os.write(told, ownership_line("lost", partitions))

    try:
        with Consumer(given) as consumer:
            consumer.subscribe(topic, on_assign=gained, on_revoke=lost)
            work_until_stopped(consumer, reported, pace, stopping)
            commit_reported(consumer)
    finally:
        os.close(reported)
        os.close(told)


def open_report(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def ownership_line(what: str, partitions: "Iterable[TopicPartition]") -> bytes:
    """By the machine's clock, which all processes share."""
    numbers = sorted(each.partition for each in partitions)
    return json.dumps({"at_ns": time.monotonic_ns(), what: numbers}).encode() + b"\n"
