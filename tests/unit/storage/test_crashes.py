"""Stop the node at the calls it makes to the file system, and see that nothing acknowledged is lost.

`make torture` does the same at every call and with many seeds.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence

import pytest

from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.workload import Killed, Promise, check, live, survive


def calls_of_a_life() -> int:
    files = MemoryFiles()
    live(files, Promise())
    return files.calls


CALLS = calls_of_a_life()


def at_call(number: int, error: BaseException) -> tuple[MemoryFiles, Callable[[str, str], None]]:
    files = MemoryFiles()

    def fault(operation: str, path: str) -> None:
        if files.calls == number:
            raise error

    files.fault = fault
    return files, fault


def dice(seed: int) -> Callable[[Sequence[str]], str]:
    rng = random.Random(seed)
    return lambda choices: rng.choice(list(choices))


def test_a_life_without_accidents_keeps_its_promise() -> None:
    files, promise = MemoryFiles(), Promise()
    for _ in range(3):
        assert survive(files, promise)
        check(files, promise)


def test_a_kill_at_every_call_loses_nothing_acknowledged() -> None:
    for number in range(1, CALLS + 1):
        files, _ = at_call(number, Killed())
        promise = Promise()
        survive(files, promise)
        files.kill()
        check(files, promise)


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_that_takes_some_of_it_loses_nothing_acknowledged(seed: int) -> None:
    for number in range(1 + seed, CALLS + 1, 4):
        files, _ = at_call(number, Killed())
        promise = Promise()
        survive(files, promise)
        files.crash(dice(seed * 100_003 + number))
        check(files, promise)


def test_a_power_cut_that_takes_all_unsynced_loses_nothing_acknowledged() -> None:
    for number in range(1, CALLS + 1, 2):
        files, _ = at_call(number, Killed())
        promise = Promise()
        survive(files, promise)
        files.crash()
        check(files, promise)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_one_failing_call_is_said_and_loses_nothing_acknowledged(code: int) -> None:
    for number in range(1 + code % 3, CALLS + 1, 3):
        files, _ = at_call(number, OSError(code, os.strerror(code)))
        files.partial = number % 40
        promise = Promise()
        survive(files, promise)
        files.crash(dice(number))
        check(files, promise)
