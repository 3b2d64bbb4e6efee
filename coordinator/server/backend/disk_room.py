"""The room that is left where the data directory lies: told before it is none, and when it is."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from muster.coordinator.observability.views.formatting import size

TRIED_BYTES = 64 << 10
"""What must still find room: a few turns of commits, with what the ledger tells of them."""

NOTHING = bytes(TRIED_BYTES)

TRIED_BELOW = 16 << 20
"""With more room than that nobody need try."""

TRIED_NAME = "room-probe"


class DiskUsage(Protocol):
    """As `shutil.disk_usage` tells it, in bytes: `free` is what this process may still take."""

    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...


class DiskRoom:
    """Looks how much room is left. It is short below `least_bytes` (0: never), and until a tenth more is free again.

    Segments come and go all the time, and must not begin and end the same trouble each second.
    """

    def __init__(
        self, directory: Path, least_bytes: int, look: Callable[[Path], DiskUsage] = shutil.disk_usage
    ) -> None:
        self._directory = directory
        self._least_bytes = least_bytes
        self._look = look
        self._short = False

    def shortage(self) -> str:
        """One sentence with the figures and what to do; empty while there is room, or nobody can tell. Any thread."""
        if not self._least_bytes:
            return ""
        try:
            usage = self._look(self._directory)
        except OSError:
            return ""  # Whoever reads or writes there will say what is wrong with it.
        enough = self._least_bytes * 11 // 10 if self._short else self._least_bytes
        self._short = usage.free < enough
        if not self._short:
            return ""
        percent = 100 * usage.free / usage.total if usage.total else 0.0
        return (
            f"{size(usage.free)} of {size(usage.total)} ({percent:.1f} %) are free where {self._directory} lies, less "
            f"than log.dirs.free.warn.bytes ({size(self._least_bytes)}): once it is full, appends and commits are "
            "refused; lower retention.ms or retention.bytes of large topics, delete topics, or give the disk more"
        )


class WriteProbe:
    """Tries whether anything can be written at all, once the figures say that little is left, or a log was refused.

    The figures alone do not tell: what is kept for root counts as none, and root may write there.
    """

    def __init__(
        self,
        directory: Path,
        look: Callable[[Path], DiskUsage] = shutil.disk_usage,
        take: Callable[[Path, int], None] | None = None,
    ) -> None:
        """`take` takes so many bytes of room in a directory, and gives them back. Raises OSError."""
        self._directory = directory
        self._look = look
        self._take = take or allocate_bytes

    def refusal(self, wanted: int = 0) -> str:
        """One sentence when the system takes nothing more; empty while it does, or nobody can tell. Any thread.

        `wanted`: so many bytes a log was refused; with them it is tried, whatever the figures say.
        """
        try:
            usage = self._look(self._directory)
            if wanted or usage.free < TRIED_BELOW:
                self._take(self._directory, max(wanted, TRIED_BYTES))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                return ""  # Whoever reads or writes there will say what is wrong with it.
            most = f"{size(wanted)} more" if wanted > TRIED_BYTES else "nothing more"
            can = "cannot" if wanted > TRIED_BYTES else "can"
            return (
                f"{most} {can} be written where {self._directory} lies: {error.strerror} ({size(usage.free)} of "
                f"{size(usage.total)} are free); appends, commits and joins that need more are refused until there is "
                "room: lower retention.ms or retention.bytes of large topics, delete topics, or give the disk more"
            )
        return ""


def allocate_bytes(directory: Path, wanted: int) -> None:
    """Raises OSError when the disk does not have so many bytes to give."""
    path = directory / TRIED_NAME
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for begin in range(0, wanted, TRIED_BYTES):
            if os.write(fd, NOTHING[: wanted - begin]) < min(TRIED_BYTES, wanted - begin):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
        path.unlink()
