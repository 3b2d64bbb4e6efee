"""Server logs of brokers that are still being written: read to their ends, and from there on as they grow.

A log is followed by its path: the `server.log` of a folder, or a file that was named. When it is rotated, what is left
of the file that was followed is read first, then the one that took its place from its begin. One that is cut back is
read from its begin. Compressed files and pipes are read once.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from muster.coordinator.core.watched.broker_sentences import BrokerSentence, read_sentence
from muster.coordinator.watch.broker_log import (
    GZIP_MAGIC,
    MAX_LINE_BYTES,
    STDIN,
    NoBrokerLog,
    chain_lines,
    find_logs,
    first_time,
)

ACTIVE: Final = "server.log"
"""What a broker's log is called as long as it is written."""

READ_BYTES: Final = 1 << 20
"""Of one log at a time."""


class FileIdentity(NamedTuple):
    """What stays the same when a file is renamed."""

    device: int
    inode: int


def identity_of(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_dev, status.st_ino)


class FollowedLog:
    """One log, by its path. There may be no file yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        """Of a line whose end has not been written."""

    @property
    def identity(self) -> FileIdentity | None:
        """Of the file that is being read; it is opened, if there is one. Raises OSError."""
        if self._file is None:
            try:
                self._file = self.path.open("rb")
            except FileNotFoundError:
                return None
        return identity_of(os.fstat(self._file.fileno()))

    def read_lines(self) -> tuple[list[str], bool]:
        """Whole lines that have been written since, at most so many bytes at a time, and whether there may be more.
        Raises OSError."""
        mine = self.identity
        if mine is None or self._file is None:
            return [], False
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._rest = b""
        data = self._file.read(READ_BYTES)
        if data:
            return self._split(data), True
        try:
            replaced = identity_of(self.path.stat()) != mine
        except FileNotFoundError:
            return [], False  # it is being rotated
        if not replaced:
            return [], False
        last = [self._rest.decode("utf-8", "replace")] if self._rest else []
        self.close()
        return last, True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""

    def _split(self, data: bytes) -> list[str]:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE_BYTES]
        return [line[:MAX_LINE_BYTES].decode("utf-8", "replace") for line in lines]


def followed_paths(names: Sequence[str]) -> list[Path]:
    """Those of the logs that may still be written."""
    found = []
    for path in (Path(name) for name in names if name != STDIN):
        if path.is_dir():
            found.append(path / ACTIVE)
        elif path.exists() and stat.S_ISREG(path.stat().st_mode) and not is_compressed(path):
            found.append(path)
    return list(dict.fromkeys(found))


def is_compressed(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    except OSError:
        return False  # whoever reads it says why it cannot be read


class FollowedLogs:
    """All logs that are named: files, folders (their `server.log*`), or `-`. trouble: why one of them cannot be
    followed just now, as a sentence; empty: all can."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._logs = [FollowedLog(path) for path in followed_paths(names)]
        self.trouble = ""

    def lines(self) -> Iterator[str]:
        """All lines that there are, the oldest log first. Raises NoBrokerLog if one cannot be read."""
        opened: dict[FileIdentity, FollowedLog] = {}
        for log in self._logs:
            try:
                if (known := log.identity) is not None:
                    opened[known] = log
            except OSError as error:
                raise NoBrokerLog(f"{log.path} cannot be read: {error}") from error
        files = [file for name in self._names if name != STDIN for file in find_logs(Path(name))]
        paths = {log.path for log in self._logs}
        for file in sorted(dict.fromkeys(files), key=first_time):
            log_of_file = opened.pop(identity_of(file.stat()), None)
            if log_of_file is not None:
                yield from self._rest_of(log_of_file)
            elif file not in paths:
                yield from chain_lines([file], standard_input=False)
        yield from chain_lines([], STDIN in self._names)

    def more(self) -> tuple[list[BrokerSentence], bool]:
        """What the logs have said since, and whether there may be more at once."""
        sentences: list[BrokerSentence] = []
        trouble, more = "", False
        for log in self._logs:
            try:
                lines, unread = log.read_lines()
            except OSError as error:
                trouble = trouble or f"the broker's log {log.path} cannot be read on: {error}"
                log.close()
                continue
            more = more or unread
            sentences += [said for line in lines if (said := read_sentence(line)) is not None]
        self.trouble = trouble
        return sentences, more

    def close(self) -> None:
        for log in self._logs:
            log.close()

    @staticmethod
    def _rest_of(log: FollowedLog) -> Iterator[str]:
        more = True
        while more:
            try:
                lines, more = log.read_lines()
            except OSError as error:
                raise NoBrokerLog(f"{log.path} cannot be read to its end: {error}") from error
            yield from lines
