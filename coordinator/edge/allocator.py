"""Memory that was freed is kept for the next large answer or given back, where the C library lets us say so."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""The numbers of M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX in glibc's malloc.h."""

ARENAS = 2
"""One for the loop's thread, one for all others."""

LARGEST_BYTES = 32 << 20
"""The most that glibc takes for blocks out of its own heap; larger ones are mapped and unmapped as ever."""


def keep_freed_memory(most_bytes: int) -> bool:
    """Ask glibc to keep so much freed memory at the end of its heap; whether it agreed.

    A node makes answers of megabytes and frees them, again and again, and so does who reads them. By default each one's
    pages are given back to the system and faulted in anew for the next, which costs more than all copies of the records
    together. Other C libraries, and other systems, are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, most_bytes))


def share_arenas() -> bool:
    """Ask glibc to let all threads beside the first share one arena; whether it agreed. Before any of them is started.

    By default it makes one for each thread that allocates, up to eight for each processor. What a thread frees is free
    for its own arena alone, and a node's threads take turns: each comes to hold what the largest work of all once took,
    and memory grows for as long as there is a thread that has not met it (a soak: from 8 to 12 MiB in five minutes).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(_ARENA_MAX, ARENAS))


def release_free_memory() -> bool:
    """Give what is free back to the system at once; whether anything was. Takes milliseconds: not on an event loop."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    return bool(trim(0))
