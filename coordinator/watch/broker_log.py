"""A broker's server log, read line by line: files, rotated and compressed ones, folders of them, or standard input."""

import gzip
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Protocol

STDIN = "-"
MAX_LINE_BYTES = 64 << 10
"""The rest of a longer line is passed over; no sentence on a group is that long."""
MAX_FILES = 10_000
GZIP_MAGIC = b"\x1f\x8b"
TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
LINES_TO_TIME = 1_000
"""A file that has no time in its first lines comes last."""


class NoBrokerLog(ValueError):
    """There is nothing to read; the message says what was expected."""


def read_lines(names: Sequence[str]) -> Iterator[str]:
    """The lines of all logs, the oldest log first. A name is a file, a folder (its `server.log*`), or `-`.

    Raises NoBrokerLog before the first line if one of them is not there or cannot be read.
    """
    files = [file for name in names if name != STDIN for file in find_logs(Path(name))]
    in_order = sorted(dict.fromkeys(files), key=first_time)
    return chain_lines(in_order, STDIN in names)


def chain_lines(files: Sequence[Path], standard_input: bool) -> Iterator[str]:
    for file in files:
        with opened_log(file) as log:
            yield from bounded_lines(log)
    if standard_input:
        yield from bounded_lines(sys.stdin.buffer)


def find_logs(path: Path) -> list[Path]:
    """The logs that this path stands for. Raises NoBrokerLog."""
    if path.is_dir():
        found = sorted(each for each in path.glob("server.log*") if each.is_file())
        if not found:
            raise NoBrokerLog(f"no server.log lies in {path}; expected files such as server.log or server.log.1.gz")
        if len(found) > MAX_FILES:
            raise NoBrokerLog(f"{len(found)} files lie in {path}, more than {MAX_FILES}; name those that matter")
        return found
    if not path.exists():
        raise NoBrokerLog(f"{path} does not exist; expected a broker's server.log, a folder of them, or - for stdin")
    return [path]


class ReadableLog(Protocol):
    """What lines are read from."""

    def readline(self, size: int, /) -> bytes: ...


@contextmanager
def opened_log(file: Path) -> Iterator[ReadableLog]:
    """Decompressed if it is compressed, whatever it is called. Raises NoBrokerLog."""
    try:
        with file.open("rb") as log:
            if log.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
                with gzip.open(log) as plain:
                    yield plain
            else:
                yield log
    except (OSError, EOFError, zlib.error) as error:
        raise NoBrokerLog(f"{file} cannot be read to its end: {error}") from error


def first_time(file: Path) -> tuple[bool, str, str]:
    """A key by which logs come in their order: the first time in it, then its name."""
    if file.is_file():  # a pipe can be read once only
        with opened_log(file) as log:
            for line in islice(bounded_lines(log), LINES_TO_TIME):
                if found := TIME.search(line):
                    return False, found[0].replace("T", " ").replace(".", ","), str(file)
    return True, "", str(file)


def bounded_lines(log: ReadableLog) -> Iterator[str]:
    """Each line, cut off where it is too long, with what is no UTF-8 replaced."""
    while line := log.readline(MAX_LINE_BYTES):
        yield line.decode("utf-8", "replace")
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = log.readline(MAX_LINE_BYTES)
