"""`python -m muster.workshop.bench.loop_probe HOST PORT`: how long a node lets one small request of Kafka's wait.

One request after the other, in a process of its own: what the load's own process does is not mistaken for the node.
Each line on its input asks for what was seen since the last one, as a line of JSON: requests, and milliseconds of the
slowest. It ends with its input. `LoopProbe` is the other side.
"""

import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from muster.workshop.bench.processes import START_S, BenchFailed, stop_process

API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The smallest request: a node answers it on its loop, and looks nothing up for it."""
EVERY_S: Final = 0.01
"""Rarely enough not to be a load itself; what takes longer than this is seen for sure."""
PATIENCE_S: Final = 120.0


class ProbedWait(NamedTuple):
    """Of a number of requests, one after the other."""

    requests: int
    slowest_ms: float


class LoopProbe:
    """Asks the node all the time; `read` says what it saw since it was last asked. Blocks for some milliseconds."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def read(self) -> ProbedWait:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(START_S) else b""
        if not line:
            raise BenchFailed(f"the node let a small request wait for more than {START_S:.0f} s")
        return ProbedWait(*json.loads(line))


@contextmanager
def probing(address: str) -> Iterator[LoopProbe]:
    """`address`: HOST:PORT of the node's Kafka listener."""
    host, _, port = address.rpartition(":")
    command = [sys.executable, "-m", "muster.workshop.bench.loop_probe", host, port]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    probe = LoopProbe(process)
    try:
        probe.read()
        yield probe
    finally:
        stop_process(process)


def probe_node(host: str, port: int) -> None:
    with (
        socket.create_connection((host, port), PATIENCE_S) as line,
        selectors.DefaultSelector() as asked,
        line.makefile("rb") as answers,
    ):
        asked.register(sys.stdin.buffer, selectors.EVENT_READ)
        requests, slowest_s = 0, 0.0
        while True:
            began_s = time.perf_counter()
            line.sendall(API_VERSIONS)
            (size,) = struct.unpack(">i", answers.read(4))
            answers.read(size)
            requests, slowest_s = requests + 1, max(slowest_s, time.perf_counter() - began_s)
            if asked.select(EVERY_S):
                if not sys.stdin.buffer.readline():
                    return
                print(json.dumps([requests, slowest_s * 1e3]), flush=True)
                requests, slowest_s = 0, 0.0


if __name__ == "__main__":
    probe_node(sys.argv[1], int(sys.argv[2]))
