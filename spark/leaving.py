"""Leaving a group cleanly where Spark lets us: it ends the process of a source by SIGTERM, twice.

Python's own reaction is to die at once, without the `finally` in which Spark calls `stop()`. With a handler that ends
the process in good order the membership is given back at once; without one, when its session ends.
"""

import signal
import sys
import threading
from types import FrameType


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process through its `finally` clauses, unless the application has a handler of its own."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, exit_in_order)


def exit_in_order(number: int, frame: FrameType | None) -> None:
    # The second signal would interrupt what the first one began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
