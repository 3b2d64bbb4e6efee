"""Server processes under measurement: pinned to one core, watched by their processor time, and ended with the run.

Processor time includes all threads and, where a JVM starts Python daemons that fork, everything that came of the
process.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

START_S = 30.0
STOP_S = 10.0
SERVER_CORE, LOAD_CORE = 0, 1
CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
"""Those that this process was given. A server that it starts while it keeps to one of them itself has that one only,
and is to have another."""
PROC = Path("/proc")


class BenchFailed(Exception):
    """The benchmark cannot go on; the text says why and what to do."""


class TimedProcess(Protocol):
    """A process whose processor time can be read; see the functions of the same names."""

    def cpu_s(self) -> float: ...

    def cpu_ns(self) -> int: ...


class ServerProcess:
    """One process that answers on loopback. `host` and `port` are from its announcement."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.said = read_announcement(process)
        self.address = f"{self.said['host']}:{self.said['port']}"

    def kill(self) -> None:
        """It has no time to put anything in order. It is gone at the end of its block."""
        self._process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor seconds used so far, in user and kernel mode, all threads."""
        return cpu_s(self._process.pid)

    def cpu_ns(self) -> int:
        """The same in nanoseconds, of the threads there are: for short times, which `cpu_s` counts too coarsely."""
        return cpu_ns(self._process.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self._process.pid)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far, in user and kernel mode, all threads, those included that have ended."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use and not swapped out."""
    pages = (PROC / str(pid) / "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def cpu_ns(pid: int) -> int:
    """The same in nanoseconds, of the threads there are."""
    used = 0
    for thread in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used += int((thread / "schedstat").read_text().split()[0])
    return used


def read_announcement(process: "subprocess.Popen[bytes]") -> Mapping[str, Any]:
    """The JSON line by which a server says that it answers. Raises BenchFailed."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(START_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        words = " ".join(str(word) for word in process.args) if isinstance(process.args, list) else process.args
        raise BenchFailed(f"no answer within {START_S:.0f} s from {words!r}; start it by hand to see why")
    said: Mapping[str, Any] = json.loads(line)
    return said


@contextlib.contextmanager
def run_server(arguments: Sequence[str]) -> Iterator[ServerProcess]:
    """Run `python ARGUMENTS` pinned to the servers' core for the length of the block; it ends with its input."""
    if not (PROC / "self/stat").exists():
        raise BenchFailed("this benchmark reads processor time from /proc, which is missing here; run it on Linux")
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        with pinned(SERVER_CORE, process.pid):
            yield ServerProcess(process)
    finally:
        stop_process(process)


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def run_node(data: str, settings: Mapping[str, str]) -> "contextlib.AbstractContextManager[ServerProcess]":
    """A node with its data below `data`, and without the HTTP listener where that is not what is measured."""
    settings = {"http.listeners": "", **settings}
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    listen = ["--listen", "127.0.0.1:0", "--data", data]
    return run_server(["-m", "muster.cli", "serve", "--announce", "--until-eof", *listen, *pairs])


@contextlib.contextmanager
def pinned(core: int, pid: int = 0) -> Iterator[None]:
    """Keep a process (0: this one) on one core, where there are two and the system allows it."""
    able = core in CORES and len(CORES) > 1
    before = os.sched_getaffinity(pid) if able else set()
    if able:
        pin_threads(pid, {core})
    try:
        yield
    finally:
        if able:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pin_threads(pid, before)


def pin_threads(pid: int, cores: set[int]) -> None:
    """All threads: affinity is inherited by new threads only."""
    for thread in (PROC / str(pid or os.getpid()) / "task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


class Stopwatch:
    """Wall seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def read(self) -> float:
        return time.perf_counter() - self._started


def process_tree_cpu_s(root: int) -> float:
    """Processor seconds of a process and its descendants so far, those included that have ended and were waited for."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (fields := read_stat_fields(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, rest = 0.0, [root]
    while rest:
        pid = rest.pop()
        total += used.get(pid, 0.0)
        rest += children.get(pid, [])
    return total


def read_stat_fields(process: Path) -> list[str]:
    """What stands behind the name in `stat`, state first; nothing for a process that is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
