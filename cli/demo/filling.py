"""Fills the demo's topic, and remembers what was sent."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from muster.cli.demo.proof import ProducedLines, checksum
from muster.cli.records.lines import LineSource, SourceLine
from muster.client import Producer, RecordMetadata
from muster.client.records.partitioner import choose_partition

LOOK_EVERY = 2_000
"""Lines between two looks at the clock and the bar."""

PROPERTIES = {"client.id": "demo", "linger.ms": 20, "batch.size": 128 << 10, "max.request.size": 4 << 20}


class FilledTopic(NamedTuple):
    produced: ProducedLines
    complete: bool


def fill(topic: str, partitions: int, source: LineSource, address: str, out: Console, deadline: float) -> FilledTopic:
    """Send lines until there are no more, or until `deadline` (monotonic seconds); every one is delivered then."""
    produced = ProducedLines(partitions)

    def delivered(error: Exception | None, where: RecordMetadata | None) -> None:
        if where is not None:
            produced.delivered(where.partition, where.offset)

    columns = (TextColumn("producing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    total = sum(file.stat().st_size for file in source.files)
    with (
        Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar,
        Producer({"bootstrap.servers": address, **PROPERTIES}) as producer,
    ):
        task, sent, complete = bar.add_task("producing", total=total), 0, True
        for number, (partition, line) in enumerate(route_lines(source, partitions), start=1):
            produced.sent(partition, checksum(line.key, line.value))
            producer.produce(topic, line.value, line.key, partition, delivered)
            sent += len(line.value) + 1
            if number % LOOK_EVERY == 0:
                bar.update(task, completed=sent)
                if time.monotonic() > deadline:
                    complete = False
                    break
        producer.flush()
    return FilledTopic(produced, complete)


def route_lines(source: LineSource, partitions: int) -> Iterator[tuple[int, SourceLine]]:
    """Lines with the producer's own choice of partition, made once per key; without a key each takes its turn."""
    known: dict[bytes, int] = {}
    for number, line in enumerate(source.lines()):
        if line.key is None:
            yield number % partitions, line
            continue
        if line.key not in known:
            known[line.key] = choose_partition(line.key, partitions)
        yield known[line.key], line
