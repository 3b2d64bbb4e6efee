"""Stop the node at the calls it makes to the file system, and see that nothing acknowledged is lost.

`make torture` does the same at every call and with many seeds.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence

import pytest

from muster.storage.errors import StorageError
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.unit.storage.workload import SMALL, Killed, Promise, check, live, survive


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


def test_an_error_at_close_is_said_costs_nothing_and_makes_the_next_start_check() -> None:
    files = MemoryFiles()
    broker = open_broker(files, **SMALL)
    broker.create_topic("t", 1)
    for number in range(12):
        broker.append("t", 0, batch(b"value %03d" % number), T0)
    broker.flush()
    log = broker.log("t", 0)
    assert len(log.segments) > 2
    closed: list[str] = []

    def fault(operation: str, path: str) -> None:
        if operation == "close" and path.endswith(".log"):
            closed.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.fault = fault
    broker.close()
    assert closed == [segment.path() for segment in log.segments]
    with pytest.raises(StorageError, match=r"Could not close the files of /data/t-0: Input/output error"):
        log.append(batch(b"too late"), T0)
    files.crash()
    assert not files.exists("/data/.kafka_cleanshutdown")
    again = open_broker(files, **SMALL)
    assert values(read_all(again.log("t", 0))) == [b"value %03d" % number for number in range(12)]
    again.close()


def test_what_is_kept_beside_a_segment_is_flushed_by_the_next_flush_and_nothing_rests_on_it() -> None:
    files = MemoryFiles()
    broker = open_broker(files, **SMALL)
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"first"), T0)
    rolled: list[tuple[str, str]] = []
    files.fault = lambda *call: rolled.append(call)
    broker.log("t", 0).roll(T0)
    assert [path for operation, path in rolled if "sync" in operation] == ["/data/t-0/00000000000000000000.log"]

    def fault(operation: str, path: str) -> None:
        if "sync" in operation and path.endswith((".timeindex", "segments-checkpoint.tmp")):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.fault = fault
    broker.append("t", 0, batch(b"second"), T0)
    broker.flush([("t", 0)])
    assert ["Nothing is lost" in trouble.sentence for trouble in broker.troubles.current()] == [True]
    files.fault = None
    files.crash()
    assert values(read_all(open_broker(files, **SMALL).log("t", 0))) == [b"first", b"second"]


def test_what_a_start_found_and_let_readers_see_outlives_a_power_cut_behind_it() -> None:
    """A process that is killed after a roll, and before the next flush, has not flushed that the new segment exists."""
    files = MemoryFiles()
    broker = open_broker(files, **SMALL)
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"first"), T0)
    broker.log("t", 0).roll(T0)
    broker.append("t", 0, batch(b"second"), T0)
    files.kill()
    assert values(read_all(open_broker(files, **SMALL).log("t", 0))) == [b"first", b"second"]
    files.crash()
    assert values(read_all(open_broker(files, **SMALL).log("t", 0))) == [b"first", b"second"]


@pytest.mark.parametrize("configs", [{}, {"cleanup.policy": "compact"}])
def test_what_was_written_down_of_a_segment_before_it_grew_is_not_believed(configs: dict[str, str]) -> None:
    """A stop in order, more records, a roll, and a kill before the flush that writes the segment down anew."""
    files = MemoryFiles()
    broker = open_broker(files, **SMALL)
    broker.create_topic("t", 1, configs)
    broker.append("t", 0, batch(b"first", key=b"1"), T0)
    broker.close()
    broker = open_broker(files, **SMALL)
    broker.append("t", 0, batch(b"second", key=b"2"), T0)
    broker.log("t", 0).roll(T0)
    broker.append("t", 0, batch(b"third", key=b"3"), T0)
    files.kill()
    assert values(read_all(open_broker(files, **SMALL).log("t", 0))) == [b"first", b"second", b"third"]


def test_an_error_when_a_side_file_is_closed_refuses_the_append_and_the_next_one_goes_on() -> None:
    files = MemoryFiles()
    broker = open_broker(files, **SMALL)
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    failing = [".index", ".timeindex"]

    def fault(operation: str, path: str) -> None:
        if operation == "close" and failing and path.endswith(failing[0]):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.fault = fault
    acked, refusals = [], []
    for number in range(12):
        try:
            broker.append("t", 0, batch(b"value %03d" % number), T0)
            broker.flush()
        except StorageError as error:
            refusals.append(str(error))
            failing.pop(0)
        else:
            acked.append(b"value %03d" % number)
    assert len(acked) == 10
    assert all("The records are not in the log" in refusal for refusal in refusals)
    assert values(read_all(log)) == acked
    files.crash()
    assert values(read_all(open_broker(files, **SMALL).log("t", 0))) == acked
