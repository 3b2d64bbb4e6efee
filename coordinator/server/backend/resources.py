"""What the node's process has of what it needs: descriptors, memory, disk, and how late its loop is. For any thread."""

import os
import resource
import shutil
from pathlib import Path
from typing import Protocol

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.metrics import Metrics

PROCESS = Path("/proc/self")
CONTROL_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class LoopLag(Protocol):
    """Knows how late the event loop was when it was last asked."""

    @property
    def lag_ms(self) -> int: ...


class ProcessResources:
    """Looks when it is asked, and not before: a look lists a directory and reads three small files.

    What the operating system does not tell is left out.
    """

    def __init__(
        self,
        data_dir: Path | None,
        started_ms: int,
        loop: LoopLag,
        metrics: Metrics,
        process: Path = PROCESS,
    ) -> None:
        self._data_dir = data_dir
        self._started_ms = started_ms
        self._loop = loop
        self._metrics = metrics
        self._process = process

    def look(self) -> pb.NodeResources:
        free, total = disk_bytes(self._data_dir)
        return pb.NodeResources(
            open_descriptors=open_descriptors(self._process),
            descriptor_limit=descriptor_limit(),
            resident_bytes=resident_bytes(self._process),
            memory_bytes=memory_bytes(),
            disk_free_bytes=free,
            disk_total_bytes=total,
            loop_late_ms=self._loop.lag_ms,
            stalls=self._metrics.stalls,
            stalled_ms=self._metrics.stalled_ms,
            started_at_ms=self._started_ms,
        )


def open_descriptors(process: Path) -> int | None:
    try:
        return len(os.listdir(process / "fd"))
    except OSError:
        return None


def descriptor_limit() -> int | None:
    """The soft limit; None where there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else min(soft, 2**31 - 1)


def resident_bytes(process: Path) -> int | None:
    try:
        pages = (process / "statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def memory_bytes(limits: tuple[Path, ...] = CONTROL_GROUP_LIMITS) -> int | None:
    """The smaller of the control group's limit and the machine's memory."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    for path in limits:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):  # "max" stands for none
            continue
        return min(limit, machine)
    return machine


def disk_bytes(directory: Path | None) -> tuple[int | None, int | None]:
    """Free bytes and all of them. Nobody can tell of no directory."""
    if directory is None:
        return None, None
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None, None
    return usage.free, usage.total
