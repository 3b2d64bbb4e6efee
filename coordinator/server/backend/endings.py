"""What a node cannot go on with, and how that is told.

A data directory that is removed, moved or unmounted takes what is written along unnoticed: files that are open can be
written and flushed after they were removed. The node would go on to acknowledge what nobody reads again, and count as
in sync with it.
"""

import os
from pathlib import Path

import structlog

from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.storage.errors import DataDirectoryError
from muster.storage.topics.data_dir import LOCK

log = structlog.get_logger("muster.node")


class DirectoryWatch:
    """Made while the directory is locked: its lock file, which is never made anew, says which directory it is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = directory / LOCK
        self._known = identify_file(self._lock)

    def gone(self) -> DataDirectoryError | None:
        """What the node has to stop for; None while all is well, or nobody can tell. Any thread."""
        try:
            is_there = identify_file(self._lock) == self._known
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        except OSError:
            return None  # Whoever reads or writes there will say what is wrong with it.
        if is_there:
            return None
        return DataDirectoryError(
            f"The data directory {self._directory} was removed, moved or unmounted while the node ran, and what is "
            "written would be lost: the node stops. Bring the directory back and start the node; where it is lost, "
            "start it with an empty one: in a cluster it copies everything from the others, alone it begins anew."
        )


def identify_file(path: Path) -> tuple[int, int]:
    """Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


class NodeIdInUse(Exception):
    """Another process runs as this node; the text says where, and what to do."""


def report_fatal_error(why: BaseException) -> None:
    """The node cannot go on. What happened around it is told in its own words; of a mistake of the program, where."""
    if isinstance(why, DataDirectoryError | ZooKeeperError | NodeIdInUse):
        log.error("the node cannot go on", why=str(why))
    else:
        log.error("the node cannot go on", exc_info=why)
