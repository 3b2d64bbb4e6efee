"""Ctrl-C and SIGTERM, for commands that have something to finish first."""

import signal
import threading
from types import FrameType
from typing import NoReturn

ENDINGS = (signal.SIGINT, signal.SIGTERM)


def stop_on_signal() -> threading.Event:
    """An event that the first Ctrl-C or SIGTERM sets; a second one interrupts at once."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        for ending in ENDINGS:
            signal.signal(ending, interrupt)

    for ending in ENDINGS:
        signal.signal(ending, stop)
    return stopping


def interrupt_on_sigterm() -> None:
    """SIGTERM raises what Ctrl-C raises."""
    signal.signal(signal.SIGTERM, interrupt)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
