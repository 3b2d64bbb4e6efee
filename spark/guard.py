"""A process that ends other processes when their owner is gone; it reads their ids on standard input, one per line.

The owner holds the other end of the pipe. However the owner dies, SIGKILL included, the pipe closes: the guard sends
SIGTERM to all processes, and SIGKILL to those that are still alive after a while.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

GRACE_S = 10.0
LOOK_AGAIN_S = 0.05


def main() -> None:
    end_processes({int(line) for line in sys.stdin})


def end_processes(pids: Iterable[int]) -> None:
    there = [pid for pid in pids if signal_process(pid, signal.SIGTERM)]
    deadline = time.monotonic() + GRACE_S
    while there and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_S)
        there = [pid for pid in there if signal_process(pid, 0)]
    for pid in there:
        signal_process(pid, signal.SIGKILL)


def signal_process(pid: int, number: int) -> bool:
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
