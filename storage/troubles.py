"""What is wrong with the logs of a node, by name, for whoever watches over it. Reported from any thread.

A sentence is the error's own: who produces or reads hears the same as who asks after the node's health.
"""

import errno
import threading
from typing import NamedTuple

from muster.storage.types import TopicPartition

DISK_FULL = "disk-full"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class StorageTrouble(NamedTuple):
    """One trouble: "disk-full", or "<kind>:<topic>-<partition>"."""

    name: str
    sentence: str
    times: int
    """How often it was met."""
    passing: bool
    """Whether it is over when it is not met again; else it lasts until a restart, or until the topic goes."""
    wanted: int = 0
    """How many bytes found no room."""


class StorageTroubles:
    """Those of one node: for each name the newest sentence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, StorageTrouble] = {}

    def current(self) -> tuple[StorageTrouble, ...]:
        with self._lock:
            return tuple(self._known.values())

    def fenced(self, tp: TopicPartition, error: Exception) -> None:
        """The log takes no appends until it is opened again."""
        self._report(_name("log-fenced", tp), error)

    def damaged(self, tp: TopicPartition, error: Exception) -> None:
        """Records that were durable cannot be read."""
        self._report(_name("log-damaged", tp), error)

    def cut(self, tp: TopicPartition, loss: Exception) -> None:
        """Records that may have been acknowledged were cut off at the start."""
        self._report(_name("log-cut", tp), loss)

    def gone(self, tp: TopicPartition, error: Exception) -> None:
        """The partition's directory is not there, or not its own."""
        self._report(_name("log-gone", tp), error)

    def refused(self, tp: TopicPartition, refusal: Exception, cause: OSError, size: int = 0) -> None:
        """The system would not write or read (so many bytes); what was asked for may be asked for again."""
        name = DISK_FULL if cause.errno in _FULL else _name("log-io", tp)
        self._report(name, refusal, passing=True, wanted=size)

    def forget(self, tp: TopicPartition) -> None:
        """The partition has been removed."""
        with self._lock:
            self._known = {name: each for name, each in self._known.items() if not name.endswith(_name("", tp))}

    def _report(self, name: str, error: Exception, *, passing: bool = False, wanted: int = 0) -> None:
        with self._lock:
            before = self._known.get(name)
            self._known[name] = StorageTrouble(name, str(error), before.times + 1 if before else 1, passing, wanted)


def _name(kind: str, tp: TopicPartition) -> str:
    return f"{kind}:{tp[0]}-{tp[1]}"
