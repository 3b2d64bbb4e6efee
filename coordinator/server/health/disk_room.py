"""The room that is left where the data directory lies: told before it is none."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Usage(Protocol):
    """As `shutil.disk_usage` tells it, in bytes: `free` is what this process may still take."""

    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...


class DiskRoom:
    """Looks how much room is left. It is short below `least_bytes` (0: never), and until a tenth more is free again.

    Segments come and go all the time, and must not begin and end the same trouble each second.
    """

    def __init__(self, directory: Path, least_bytes: int, look: Callable[[Path], Usage] = shutil.disk_usage) -> None:
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


def size(count: int) -> str:
    """Bytes for people.

    >>> size(512), size(3 << 20), size(1 << 30)
    ('512 B', '3.0 MiB', '1.0 GiB')
    """
    number, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"
