"""`muster produce`: one record per line."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from coordinator.cli.options import client_options, properties
from coordinator.cli.output import notice
from coordinator.cli.words import plural


@click.command()
@client_options
@click.option("--topic", required=True, metavar="T", help="Where to send the lines; it has to exist.")
@click.option(
    "--key-regex", metavar="RE", help="The key is the expression's first group, or its match; no match, no key."
)
@click.argument("file", type=click.File("rb"), default="-")
def produce(bootstrap: str, overrides: dict[str, str], topic: str, key_regex: str | None, file: BinaryIO) -> None:
    """Send each line of FILE (or standard input) as a record; equal keys go to the same partition, in order."""
    from coordinator.cli.demo.lines import compiled, key_of
    from coordinator.client import Producer

    pattern = compiled(key_regex) if key_regex is not None else None
    sent = 0
    with Producer(properties(bootstrap, overrides, linger_ms=5)) as producer, progress(file) as lines:
        for line in lines:
            value = line.rstrip(b"\r\n")
            producer.produce(topic, value, key_of(value, pattern) if pattern else None)
            sent += 1
        producer.flush()
    notice(f"{plural(sent, 'line')} to {topic}")


@contextmanager
def progress(file: BinaryIO) -> Iterator[Iterable[bytes]]:
    """The lines of a file, with a bar on standard error when that is a terminal and the file has a size."""
    size = os.fstat(file.fileno()).st_size if file is not sys.stdin.buffer else 0
    if not size or not sys.stderr.isatty():
        yield file
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from coordinator.cli.output import console

    columns = (TextColumn("producing"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("producing", total=size)

        def counted() -> Iterator[bytes]:
            for line in file:
                bar.advance(task, len(line))
                yield line

        yield counted()
