"""`muster produce`: sends one record per line, and names by number the lines that did not arrive.

Lines come from a file, from standard input or, for demos, from every source file of this Python's standard library;
a regular expression over bytes finds the key in a line. In transactions, the lines of one count together or not at all.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from muster.cli.common.commands import CommandError, Exit, exit_code_of
from muster.cli.common.options import client_options, client_properties, repeated_option, require_listener
from muster.cli.common.output import notice
from muster.coordinator.observability.views.formatting import plural, spans

if TYPE_CHECKING:
    from muster.client import Producer, RecordMetadata


# Sources of lines
# ----------------

MAX_LINE_BYTES = 64 << 10
"""Longer lines are refused by name: a demo is no way to test message.max.bytes."""


class SourceLine(NamedTuple):
    key: bytes | None
    value: bytes


class LineSource(NamedTuple):
    """Where lines come from, in words and as an iterator that can be made again."""

    description: str
    keyed_by: str
    files: tuple[Path, ...]
    pattern: re.Pattern[bytes] | None

    def lines(self) -> Iterator[SourceLine]:
        """Every line, without its end; the key is the expression's first group, or the file's name."""
        for file in self.files:
            name = file_key(file, self.files)
            for number, value in enumerate(read_whole_lines(file), start=1):
                if len(value) > MAX_LINE_BYTES:
                    raise CommandError(
                        f"{file}:{number} has {len(value)} bytes",
                        f"expected at most {MAX_LINE_BYTES} a line",
                        "cut the line, or choose another --input",
                        code=Exit.USAGE,
                    )
                yield SourceLine(key_of(value, self.pattern) if self.pattern else name, value)


def choose_source(file: Path | None, key_regex: str | None) -> LineSource:
    """The demo's input. Raises CommandError when FILE cannot be read or the expression is none."""
    pattern = compile_expression(key_regex) if key_regex is not None else None
    keyed_by = f"what matches {key_regex}" if key_regex is not None else "file"
    if file is None:
        files = standard_library_files()
        return LineSource(f"{len(files)} source files of the Python standard library", keyed_by, files, pattern)
    try:
        with file.open("rb") as opened:
            empty = not opened.read(1)
    except OSError as error:
        raise CommandError(
            f"cannot read {file}: {error.strerror}", "expected a readable text file", "check --input", code=Exit.USAGE
        ) from error
    if empty:
        raise CommandError(f"{file} is empty", "expected at least one line", "choose another --input", code=Exit.USAGE)
    return LineSource(str(file), keyed_by, (file,), pattern)


def compile_expression(expression: str) -> re.Pattern[bytes]:
    """A regular expression over bytes. Raises CommandError."""
    try:
        return re.compile(expression.encode(errors="surrogateescape"))
    except re.error as error:
        raise CommandError(
            f"{expression!r} is not a regular expression ({error})",
            r"expected one such as 'sshd\[(\d+)\]', whose first group is the key",
            "check --key-regex",
            code=Exit.USAGE,
        ) from error


def key_of(line: bytes, pattern: re.Pattern[bytes]) -> bytes | None:
    r"""The first group (or, without groups, the whole match); None where nothing matches.

    >>> key_of(b"sshd[24200]: closed", re.compile(rb"sshd\[(\d+)\]"))
    b'24200'
    """
    found = pattern.search(line)
    if found is None:
        return None
    return found.group(1) if pattern.groups else found.group()


def standard_library_files() -> tuple[Path, ...]:
    """Its .py files, in a fixed order; what pip added beside them does not belong to it."""
    root = Path(sysconfig.get_path("stdlib"))
    foreign = {"site-packages", "dist-packages", "__pycache__"}
    return tuple(
        sorted(
            path for path in root.rglob("*.py") if path.is_file() and foreign.isdisjoint(path.relative_to(root).parts)
        )
    )


def file_key(file: Path, files: tuple[Path, ...]) -> bytes | None:
    """A single file's name would put every line into one partition: without an expression its lines have no key."""
    if len(files) == 1:
        return None
    root = Path(sysconfig.get_path("stdlib"))
    return str(file.relative_to(root)).encode(errors="surrogateescape")


def read_whole_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for line in opened:
            yield line.rstrip(b"\r\n")


# `muster produce`
# ----------------

MAX_NAMED = 1_000
"""So many lines that did not arrive are remembered by number, and all of them are counted."""
MAX_NAMED_CHARACTERS = 200
ANY = -1
"""By the key, or to whichever partition is being filled."""


def header_option(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    """Headers in the order given; a name may come again."""
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not a header; expected NAME=VALUE", ctx, param)
        pairs.append((name, os.fsencode(value)))
    return tuple(pairs)


def split_line(line: bytes, separator: bytes) -> tuple[bytes | None, bytes]:
    """(key, value). A line without separator has no key.

    >>> split_line(b"a:1", b":"), split_line(b"a", b":")
    ((b'a', b'1'), (None, b'a'))
    """
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


@click.command()
@client_options
@click.option("--topic", required=True, metavar="T", help="Write to this topic, which must exist.")
@click.option(
    "--key-regex",
    metavar="RE",
    help="Use the first group of this expression, or its match, as the key; no key without a match.",
)
@click.option("--key-separator", metavar="TEXT", help="Use the part of a line before this separator as the key.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Write all records to this partition.")
@repeated_option("--header", "headers", metavar="NAME=VALUE", callback=header_option, help="Header of each record")
@click.option("--transactional-id", metavar="ID", help="Write in transactions under this name, which no other has.")
@click.option(
    "--commit-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Commit after so many lines, and at the end; default: once, at the end.",
)
@click.argument("file", type=click.File("rb"), default="-")
def produce(
    bootstrap: str,
    overrides: dict[str, str],
    topic: str,
    key_regex: str | None,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[tuple[str, bytes], ...],
    transactional_id: str | None,
    commit_every: int | None,
    file: BinaryIO,
) -> None:
    """Write each line of FILE, or of standard input, to a topic.

    Records with equal keys go to the same partition, in order. A line ends with a line feed; every other byte,
    including a carriage return, belongs to the record. With --transactional-id, readers of committed records see the
    lines of a transaction together, or none of them.
    """
    from muster.client import Producer
    from muster.client.errors import DeliveryFailed

    if key_regex is not None and key_separator is not None:
        raise click.UsageError("--key-regex and --key-separator both say what the key is; expected one")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty; expected what stands between key and value")
    if commit_every is not None and transactional_id is None:
        raise click.UsageError("--commit-every means nothing without --transactional-id; expected both, or neither")
    split = LineSplit(
        compile_expression(key_regex) if key_regex is not None else None,
        os.fsencode(key_separator) if key_separator is not None else None,
    )
    sending = LineDelivery(topic, ANY if partition is None else partition, headers)
    properties = client_properties(bootstrap, overrides, linger_ms=5, transactional_id=transactional_id)
    with Producer(properties) as producer, show_progress(file) as lines:
        require_listener(bootstrap, overrides)
        pairs = map(split.key_and_value, lines)
        if transactional_id is not None:
            CommittedLines(sending, commit_every).send_all(producer, pairs)
        else:
            for key, value in pairs:
                if not sending.send(producer, value, key):
                    break
            with suppress(DeliveryFailed):  # Each line has said it by itself.
                producer.flush()
    sending.check()
    notice(f"{plural(sending.arrived, 'line')} to {topic}")


class LineSplit(NamedTuple):
    """What of a line is the key: what an expression finds, or what stands before a separator."""

    pattern: re.Pattern[bytes] | None
    separator: bytes | None

    def key_and_value(self, line: bytes) -> tuple[bytes | None, bytes]:
        value = line.removesuffix(b"\n")
        if self.separator is not None:
            return split_line(value, self.separator)
        return key_of(value, self.pattern) if self.pattern else None, value


class LineDelivery:
    """What became of each line: how many arrived, which ones did not and why, and which one ended it."""

    def __init__(self, topic: str, partition: int, headers: tuple[tuple[str, bytes], ...]) -> None:
        self.topic = topic
        self.partition = partition
        self.headers = headers
        self.arrived = 0
        self.lost = 0
        self.lost_lines: list[int] = []
        self.reason: Exception | None = None
        self.number = 0
        self.end: Exception | None = None

    def send(self, producer: "Producer", value: bytes, key: bytes | None) -> bool:
        """Whether to go on with the next line. What is wrong from the start has nothing to do with lines: it raises."""
        from muster.client.errors import ClientError, MessageTooLarge

        self.number += 1
        try:
            settled = partial(self.settled, self.number)
            producer.produce(self.topic, value, key, self.partition, settled, headers=self.headers)
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


class CommittedLines:
    """Sends lines in transactions of `commit_every` lines; None: all of them in one."""

    def __init__(self, sending: LineDelivery, commit_every: int | None) -> None:
        self._sending = sending
        self._commit_every = commit_every
        self._committed = 0

    def send_all(self, producer: "Producer", pairs: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Raises CommandError for the first transaction that does not count: its lines, and from where to go on."""
        sending = self._sending
        try:
            for key, value in pairs:
                if sending.number == self._committed:
                    producer.begin()
                sending.number += 1
                settled = partial(sending.settled, sending.number)
                producer.produce(sending.topic, value, key, sending.partition, settled, headers=sending.headers)
                if self._commit_every is not None and sending.number - self._committed == self._commit_every:
                    self._commit(producer)
            if sending.number > self._committed:
                self._commit(producer)
        except Exception as error:
            if (code := exit_code_of(error)) is None:
                raise
            raise self._complaint(error, code) from error

    def _commit(self, producer: "Producer") -> None:
        producer.commit()
        self._committed = self._sending.number

    def _complaint(self, error: Exception, code: Exit) -> CommandError:
        from muster.client.errors import OutcomeUnknown

        first, last = self._committed + 1, self._sending.number
        before = f"{plural(self._committed, 'line')} before them counted" if self._committed else "none before them"
        if last < first:
            return CommandError(f"{error}", remedy=f"go on with line {first}; {before}", code=code)
        lines = f"lines {first}-{last}" if last > first else f"line {first}"
        if isinstance(error, OutcomeUnknown):
            return CommandError(f"{lines}: {error}", remedy=f"look whether they are there; {before}", code=code)
        return CommandError(
            f"{lines} did not count: {error}", remedy=f"mend it and go on with line {first}; {before}", code=code
        )


@contextmanager
def show_progress(file: BinaryIO) -> Iterator[Iterable[bytes]]:
    """The lines of a file, with a bar on standard error when that is a terminal and the file has a size."""
    size = os.fstat(file.fileno()).st_size if file is not sys.stdin.buffer else 0
    if not size or not sys.stderr.isatty():
        yield file
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from muster.cli.common.output import console

    columns = (TextColumn("producing"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("producing", total=size)

        def counted() -> Iterator[bytes]:
            for line in file:
                bar.advance(task, len(line))
                yield line

        yield counted()
