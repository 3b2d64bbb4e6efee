"""Memory that was freed is kept for the next large answer or given back, where the C library lets us say so."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in glibc's malloc.h."""

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


def give_back() -> bool:
    """Give what is free back to the system at once; whether anything was. Takes milliseconds: not on an event loop."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    return bool(trim(0))
