"""`muster produce`: one record per line, and by number the lines that did not arrive."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import click

from coordinator.cli.errors import CommandError, Exit, exit_code_of
from coordinator.cli.options import client_options, properties
from coordinator.cli.output import notice
from coordinator.cli.words import plural, spans

if TYPE_CHECKING:
    from coordinator.client import Producer, RecordMetadata

MAX_NAMED = 1_000
"""So many lines that did not arrive are remembered by number, and all of them are counted."""
MAX_NAMED_CHARACTERS = 200


@click.command()
@client_options
@click.option("--topic", required=True, metavar="T", help="Where to send the lines; it has to exist.")
@click.option(
    "--key-regex", metavar="RE", help="The key is the expression's first group, or its match; no match, no key."
)
@click.argument("file", type=click.File("rb"), default="-")
def produce(bootstrap: str, overrides: dict[str, str], topic: str, key_regex: str | None, file: BinaryIO) -> None:
    """Send each line of FILE (or standard input) as a record; equal keys go to the same partition, in order.

    A line ends with a line feed; every other byte, a carriage return too, belongs to the record.
    """
    from coordinator.cli.demo.lines import compiled, key_of
    from coordinator.client import Producer
    from coordinator.client.errors import DeliveryFailed

    pattern = compiled(key_regex) if key_regex is not None else None
    sending = Sending()
    with Producer(properties(bootstrap, overrides, linger_ms=5)) as producer, progress(file) as lines:
        for line in lines:
            value = line.removesuffix(b"\n")
            if not sending.send(producer, topic, value, key_of(value, pattern) if pattern else None):
                break
        with suppress(DeliveryFailed):  # Each line has said it by itself.
            producer.flush()
    sending.check()
    notice(f"{plural(sending.arrived, 'line')} to {topic}")


class Sending:
    """What became of each line: how many arrived, which ones did not and why, and which one ended it."""

    def __init__(self) -> None:
        self.arrived = 0
        self.lost = 0
        self.lost_lines: list[int] = []
        self.reason: Exception | None = None
        self.number = 0
        self.end: Exception | None = None

    def send(self, producer: "Producer", topic: str, value: bytes, key: bytes | None) -> bool:
        """Whether to go on with the next line. What is wrong from the start has nothing to do with lines: it raises."""
        from coordinator.client.errors import ClientError, MessageTooLarge

        self.number += 1
        try:
            producer.produce(topic, value, key, on_delivery=partial(self.settled, self.number))
        except ClientError as error:
            if self.number == 1 and not isinstance(error, MessageTooLarge):
                raise
            self.end = error
            return False
        return True

    def settled(self, number: int, error: Exception | None, metadata: "RecordMetadata | None") -> None:
        """Called from the client's thread, for one line after the other."""
        if error is None:
            self.arrived += 1
            return
        self.lost += 1
        self.reason = self.reason or error
        if len(self.lost_lines) < MAX_NAMED:
            self.lost_lines.append(number)

    def check(self) -> None:
        """Raises CommandError unless every line arrived: what to mend, and from where to go on."""
        faults = []
        if self.lost:
            faults.append(f"{self.named()} did not arrive; the first because: {self.reason}")
        if self.end is not None:
            remedy = f"nothing from there on was sent: mend it and go on with line {self.number}"
            faults.append(f"line {self.number}: {self.end}; {remedy}")
        if faults:
            faults[-1] += f"; {plural(self.arrived, 'line')} arrived"
            first = self.reason or self.end
            code = exit_code_of(first) if first is not None else None
            raise CommandError("\n".join(faults), code=code or Exit.FAILURE)

    def named(self) -> str:
        """The lines that did not arrive, as far as they can be listed."""
        listed = spans(self.lost_lines)
        if self.lost == len(self.lost_lines) and len(listed) <= MAX_NAMED_CHARACTERS:
            return f"{'line' if self.lost == 1 else 'lines'} {listed}"
        return f"{plural(self.lost, 'line')}, from line {min(self.lost_lines)} on,"


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
