"""A demo worker, as a process of its own: consumes, reports what it consumed, commits, in this order.

Killed between report and commit it leaves lines that the next owner consumes again: at least once, never less.
"""

import os
import signal
import struct
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from muster.cli.common.options import NumberRange, client_options, client_properties
from muster.cli.common.plugins import find_plugins_here

if TYPE_CHECKING:
    from muster.client import Consumer, Message

POLL_S = 0.1
COMMIT_EVERY_S = 0.1
MAX_BATCH = 5_000


@click.command("demo-worker")
@client_options
@click.option("--topic", required=True)
@click.option("--group", required=True)
@click.option("--name", required=True)
@click.option("--report", required=True, metavar="FILE")
@click.option("--pace", type=NumberRange(min=0, min_open=True), required=True, metavar="LINES_PER_SECOND")
def demo_worker(
    bootstrap: str, overrides: dict[str, str], topic: str, group: str, name: str, report: str, pace: float
) -> None:
    """One worker of `muster demo`."""
    from muster.cli.common.orphan import stop_with_stdin
    from muster.client import Consumer

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    stop_with_stdin()
    find_plugins_here()
    given = client_properties(
        bootstrap,
        overrides,
        client_id=name,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    )
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        with Consumer(given) as consumer:
            consumer.subscribe(topic, on_revoke=lambda consumer, partitions: commit_reported(consumer))
            work_until_stopped(consumer, descriptor, pace, stopping)
            commit_reported(consumer)
    finally:
        os.close(descriptor)


def work_until_stopped(consumer: "Consumer", report: int, pace: float, stopping: threading.Event) -> None:
    """Until told to stop: a batch, its report, and now and then a commit; not faster than `pace` lines a second."""
    batch = max(1, min(MAX_BATCH, int(pace * POLL_S)))
    due = committed = time.monotonic()
    while not stopping.is_set():
        messages = consumer.consume(batch, POLL_S)
        if messages:
            os.write(report, pack_reports(messages))
        now = time.monotonic()
        if now - committed >= COMMIT_EVERY_S:
            commit_reported(consumer)
            committed = now
        due = max(due, now - POLL_S) + len(messages) / pace
        stopping.wait(max(0.0, due - time.monotonic()))


def pack_reports(messages: "Sequence[Message]") -> bytes:
    from muster.cli.demo.proof import REPORT_STRUCT, checksum

    pack = struct.Struct(REPORT_STRUCT).pack
    return b"".join(
        pack(message.partition, message.offset, checksum(message.key, message.value or b"")) for message in messages
    )


def commit_reported(consumer: "Consumer") -> None:
    """Commit all that was reported. While the group rebalances it may say no; the lines are read again then."""
    from muster.client.errors import CommitFailed

    try:
        consumer.commit()
    except CommitFailed:
        return
