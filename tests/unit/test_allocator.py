"""What a node asks of its C library: large blocks that are freed and made again cost no page faults."""

import subprocess
import sys

import pytest

from muster.coordinator.edge.overload import ARENAS, keep_freed_memory, share_arenas

ROUNDS = 50
BLOCK = 4 << 20
PAGES_OF_A_BLOCK = BLOCK // 4096

SCRIPT = f"""
import resource, sys
from muster.coordinator.edge.overload import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory(64 << 20)
blocks = [b"x" * {BLOCK} for _ in range(2)]  # what the first ones cost is no matter
del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    block = b"x" * {BLOCK}
    mapped = b"x" * {BLOCK + 12345}
    del block, mapped
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_large_blocks_that_come_again_cost_no_page_faults() -> None:
    if not keep_freed_memory(64 << 20):
        pytest.skip("this C library has no mallopt")
    assert faults("keep") < PAGES_OF_A_BLOCK * ROUNDS // 10


THREADS = 6
SHARING = f"""
import ctypes, sys, tempfile, threading
from muster.coordinator.edge.overload import share_arenas

if sys.argv[1] == "share":
    assert share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.fopen.restype, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
together = threading.Barrier({THREADS})

def work():
    block = libc.malloc(1000)
    together.wait()  # all of them are there at once
    libc.free(block)

threads = [threading.Thread(target=work) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.NamedTemporaryFile() as told:
    stream = libc.fopen(told.name.encode(), b"w")
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(told.read().count(b"<heap nr="))
"""


def arenas(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", SHARING, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_threads_share_one_arena() -> None:
    if not share_arenas():
        pytest.skip("this C library has no mallopt")
    assert arenas("each its own") > ARENAS, "otherwise there is nothing to be asked for"
    assert arenas("share") <= ARENAS
