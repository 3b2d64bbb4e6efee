"""How a child learns that its parent is gone: its standard input ends."""

import os
import signal
import sys
import threading


def stop_with_stdin() -> None:
    """SIGTERM to this process once standard input ends, however the process at its other end died."""
    threading.Thread(target=stop_at_end_of_input, name="stdin", daemon=True).start()


def stop_at_end_of_input() -> None:
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
