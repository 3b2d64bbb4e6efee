"""Ctrl-C and SIGTERM, for commands that have something to finish first."""

import signal
import threading
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_interrupted = threading.Event()


def stop_on_signal() -> threading.Event:
    """An event that the first Ctrl-C or SIGTERM sets; a second one interrupts at once."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        for ending in STOP_SIGNALS:
            signal.signal(ending, handle_interrupt)

    for ending in STOP_SIGNALS:
        signal.signal(ending, stop)
    return stopping


def interrupt_on_signals() -> None:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt. Who works for long calls `raise_if_interrupted` now and then."""
    _interrupted.clear()
    signal.signal(signal.SIGTERM, handle_interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle_interrupt)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt when a signal has come, also one whose exception nobody heard.

    A signal's handler runs between any two steps of the main thread. Where that is in the callback of a weak reference,
    or in a finalizer, Python prints what the handler raises and goes on.
    """
    if _interrupted.is_set():
        raise KeyboardInterrupt


def handle_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _interrupted.set()
    raise KeyboardInterrupt
