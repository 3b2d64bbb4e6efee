"""What a node asks of its C library: large blocks that are freed and made again cost no page faults."""

import subprocess
import sys

import pytest

from muster.coordinator.allocator import keep_freed_memory

ROUNDS = 50
BLOCK = 4 << 20
PAGES_OF_A_BLOCK = BLOCK // 4096

SCRIPT = f"""
import resource, sys
from muster.coordinator.allocator import keep_freed_memory

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
