"""A node that says what it has: `python -m tests.torture.census FILE serve ...` writes counts to FILE at each SIGUSR1.

Only what the collector of garbage knows is counted by kind; what it was told to pass over is one number.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "groups": ("ClassicGroup", "ConsumerGroup", "CentralGroup", "ObservedGroup"),
    "entries": ("RebalanceEntry",),
    "logs": ("Log",),
    "connections": ("Connection",),
}
"""The classes that are counted, by the name of their column."""

SIGNAL: Final = signal.SIGUSR1


class Heap(ctypes.Structure):
    """What glibc's mallinfo2 answers, in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def heap() -> tuple[int, int]:
    """Bytes of the C library's heap that are in use, and that are free and not given back; zeros without glibc."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0, 0
    ask.restype = Heap
    told = ask()
    return told.uordblks + told.hblkhd, told.fordblks


def census() -> dict[str, int]:
    """How many there are of what could grow, what the collector passes over included."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    objects = gc.get_objects()
    gc.freeze()  # as before: what is garbage among it must not go because it was counted
    kinds = Counter(type(each).__name__ for each in objects)
    used, free = heap()
    counts = {name: sum(kinds[each] for each in classes) for name, classes in KINDS.items()}
    return counts | {
        "tasks": len(asyncio.all_tasks(asyncio.get_running_loop())),
        "objects": len(objects),
        "frozen": frozen,
        "blocks": sys.getallocatedblocks(),
        "heap_kib": used >> 10,
        "free_kib": free >> 10,
    }


def taken(file: Path) -> dict[str, int]:
    """What the node said last; nothing before it was asked."""
    found: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    return found


def main() -> int:
    from muster.cli.main import main as muster

    file = Path(sys.argv.pop(1))

    def write(number: int, frame: object) -> None:
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps(census()))
        os.replace(beside, file)

    signal.signal(SIGNAL, write)
    code: int = muster()
    return code


if __name__ == "__main__":
    sys.exit(main())
