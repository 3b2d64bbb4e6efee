"""Security changes that wait in a stopped node's data directory: the node brings them into its cluster when it starts.

The node's own log does not decide rights in its cluster, and its copy of `__security` is not its to write.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from muster.coordinator.security.records import (
    UnreadableSecurityRecord,
    decode_security_record,
    encode_security_record,
    from_base64,
    to_base64,
)
from muster.coordinator.security.state import SecurityRecord, SecurityState
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.errors import DataDirectoryError, StorageError
from muster.storage.files import LockHeld, RealFiles, read_file, replace_file
from muster.storage.topics.data_dir import LOCK, PENDING_SECURITY

DIRECTORY_MODE: Final = 0o700


def read_pending(data_dir: Path) -> list[SecurityRecord]:
    """In their order. Raises StorageError."""
    path = data_dir / PENDING_SECURITY
    try:
        rows = [json.loads(line) for line in read_file(RealFiles(), str(path)).splitlines()]
        return [
            decode_security_record(from_base64(key), None if value is None else from_base64(value))
            for key, value in rows
        ]
    except FileNotFoundError:
        return []
    except (OSError, UnreadableSecurityRecord, ValueError, TypeError) as error:
        raise StorageError(
            f"{path} cannot be read: {error}; what was to be changed is not; remove it, and make the users anew"
        ) from error


def remove_pending(data_dir: Path) -> None:
    """They are in force. Raises OSError."""
    with suppress(FileNotFoundError):
        (data_dir / PENDING_SECURITY).unlink()


@contextmanager
def pending_store(data_dir: Path) -> "Iterator[PendingStore]":
    """Of a node that is stopped; its directory is made where there is none. Raises StorageError."""
    try:
        data_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        lock = RealFiles().lock(f"{data_dir}/{LOCK}")
    except LockHeld as error:
        raise DataDirectoryError(
            f"The data directory {data_dir} is in use by process {error.holder or 'unknown'}. Stop that process.",
            error.holder,
        ) from None
    except OSError as error:
        raise StorageError(f"The data directory {data_dir} cannot be used: {error.strerror or error}.") from error
    try:
        yield PendingStore(data_dir)
    finally:
        lock.release()


class PendingStore(SecurityStore):
    """Knows what waits, and nothing else."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._changes: list[SecurityRecord] = []
        self.state = SecurityState()

    def load(self) -> None:
        """Raises StorageError."""
        self._changes = read_pending(self._data_dir)
        self.state.apply(self._changes)

    async def write(self, changes: Sequence[SecurityRecord]) -> None:
        """Durable on return. Raises StorageError."""
        after = [*self._changes, *changes]
        lines = []
        for change in after:
            key, value = encode_security_record(change)
            lines.append(json.dumps([to_base64(key), None if value is None else to_base64(value)]))
        path = f"{self._data_dir}/{PENDING_SECURITY}"
        try:
            replace_file(RealFiles(), path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
        self._changes = after
        self.state.apply(changes)

    async def write_all(self, changes: Sequence[SecurityRecord]) -> None:
        await self.write(changes)

    def reset(self) -> None:
        """Nothing waits any more."""
        remove_pending(self._data_dir)
