"""Keys of a terminal, one at a time, without waiting for a line end."""

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "pageup", "\x1b[6~": "pagedown", "\r": "enter", "\n": "enter",
    "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace", "\x03": "q",
}  # fmt: skip
MOST_BYTES = 64


@contextmanager
def unbuffered_input() -> Iterator[int]:
    """Standard input as keys; the terminal is as it was afterwards, whatever happens."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_keys(descriptor: int, within_s: float) -> list[str]:
    """The keys that were pressed; none when nobody does within that time. A closed terminal is a `q`."""
    ready, _, _ = select.select([descriptor], [], [], within_s)
    if not ready:
        return []
    data = os.read(descriptor, MOST_BYTES)
    return named(data.decode(errors="replace")) if data else ["q"]


def named(text: str) -> list[str]:
    """
    >>> named("\\x1b[Aq"), named("\\x1b"), named("/ab\\r")
    (['up', 'q'], ['escape'], ['/', 'a', 'b', 'enter'])
    """
    keys: list[str] = []
    while text:
        sequence = next((s for s in sorted(NAMES, key=len, reverse=True) if text.startswith(s)), text[0])
        keys.append(NAMES.get(sequence, sequence))
        text = text[len(sequence) :]
    return keys
