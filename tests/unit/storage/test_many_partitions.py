"""Many partitions at once: whole or not there after a crash, and flushed together, not one by one."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from muster.storage.broker import group_commit
from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import PARTITIONS_PER_TURN, GroupCommit
from muster.storage.errors import StorageError
from muster.storage.topics.log_directories import TOLD_AT_ONCE
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.unit.storage.test_crashes import dice
from tests.unit.storage.workload import Killed

MANY = 12
HUNDREDS = 300


def stopped_at(files: MemoryFiles, number: int, work: Callable[[], object]) -> bool:
    """Do the work until its call of that number; whether it went through."""
    before = files.calls

    def fault(operation: str, path: str) -> None:
        if files.calls - before == number:
            raise Killed

    files.fault = fault
    try:
        work()
    except Killed:
        return False
    finally:
        files.fault = None
    return True


def ends(files: MemoryFiles, number: int) -> list[Callable[[], None]]:
    return [files.kill, files.crash, lambda: files.crash(dice(number))]


def counted(files: MemoryFiles, work: Callable[[], object]) -> Counter[str]:
    found: Counter[str] = Counter()
    files.fault = lambda operation, path: found.update([operation])
    work()
    files.fault = None
    return found


@pytest.mark.parametrize("end", range(3))
def test_a_crash_while_a_topic_is_made_leaves_none_of_it_or_all(end: int) -> None:
    for number in range(1, 200):
        files = MemoryFiles()
        broker = open_broker(files)
        broker.create_topic("before", 1)
        done = stopped_at(files, number, lambda broker=broker: broker.create_topic("many", MANY))
        ends(files, number)[end]()
        again = open_broker(files)
        assert again.recovered() == {}
        if "many" in again.topics():
            assert [again.end_offset("many", each) for each in range(MANY)] == [0] * MANY
        else:
            assert not done
            again.create_topic("many", MANY)  # What was left of it is in nobody's way.
        again.close()
        if done:
            return
    raise AssertionError("the topic was never made")


@pytest.mark.parametrize("end", range(3))
def test_a_crash_while_a_topic_is_removed_leaves_all_of_it_or_none(end: int) -> None:
    for number in range(1, 300):
        files = MemoryFiles()
        broker = open_broker(files)
        broker.create_topic("many", MANY)
        for each in range(MANY):
            broker.append("many", each, batch(b"kept"), T0)
        broker.flush()
        done = stopped_at(files, number, lambda broker=broker: broker.delete_topic("many"))
        ends(files, number)[end]()
        again = open_broker(files)
        if "many" in again.topics():
            assert not done
            assert [values(read_all(again.log("many", each))) for each in range(MANY)] == [[b"kept"]] * MANY
        else:
            assert [name for name in files.names("/data") if name.startswith("many-")] == []
        again.close()
        if done:
            return
    raise AssertionError("the topic was never removed")


def test_topics_made_in_one_call_are_refused_one_by_one() -> None:
    files = MemoryFiles()
    broker = open_broker(files)

    def fault(operation: str, path: str) -> None:
        if operation == "make_dir" and path.startswith("/data/bad"):
            raise OSError(28, "No space left on device")

    files.fault = fault
    plans = [broker.plan_topic(name, 2) for name in ("good", "bad", "fine")]
    made = broker.make(plans)
    assert [isinstance(each, StorageError) for each in made] == [False, True, False]
    assert set(broker.topics()) == {"good", "fine"}
    files.fault = None
    files.kill()
    assert set(open_broker(files).topics()) == {"good", "fine"}


def test_making_and_opening_many_partitions_flushes_once() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    made = counted(files, lambda: broker.create_topic("many", HUNDREDS))
    assert made["sync_all"] == 1
    assert made["sync"] + made["sync_dir"] < 10
    for each in range(HUNDREDS):
        broker.append("many", each, batch(b"never flushed"), T0)
    files.kill()
    opening = counted(files, lambda: open_broker(files))
    assert opening["sync_all"] == 1
    assert opening["sync"] + opening["sync_dir"] < 10
    assert opening["names"] <= HUNDREDS + 5


def test_opening_many_partitions_reads_two_files_of_each_and_keeps_none_open() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    broker.create_topic("many", HUNDREDS)
    for each in range(HUNDREDS):
        broker.append("many", each, batch(b"kept"), T0)
    broker.flush()
    files.kill()
    again: list[Broker] = []
    opening = counted(files, lambda: again.append(open_broker(files)))
    # Whose log it is, and the log; once read for all that is asked of it.
    assert opening["open"] <= 2 * HUNDREDS + 10
    assert opening["read"] <= 2 * HUNDREDS + 10
    assert opening["open"] - opening["close"] < 10
    again[0].append("many", 7, batch(b"more"), T0)
    again[0].flush()
    assert values(read_all(again[0].log("many", 7))) == [b"kept", b"more"]


def test_a_power_cut_after_opening_takes_nothing_that_the_dead_process_left() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    broker.create_topic("many", MANY)
    for each in range(MANY):
        broker.append("many", each, batch(b"never flushed"), T0)
    files.kill()
    assert open_broker(files).high_watermark("many", 0) == 1
    files.crash()
    again = open_broker(files)
    assert [values(read_all(again.log("many", each))) for each in range(MANY)] == [[b"never flushed"]] * MANY


def closed(files: MemoryFiles) -> Broker:
    broker = open_broker(files)
    broker.create_topic("many", MANY)
    for each in range(MANY):
        broker.append("many", each, batch(b"kept"), T0)
    broker.flush()
    return broker


@pytest.mark.parametrize("end", range(3))
def test_a_crash_while_many_logs_are_closed_loses_nothing(end: int) -> None:
    for number in range(1, 400):
        files = MemoryFiles()
        broker = closed(files)
        done = stopped_at(files, number, broker.close)
        ends(files, number)[end]()
        again = open_broker(files)
        assert again.recovered() == {}
        assert [values(read_all(again.log("many", each))) for each in range(MANY)] == [[b"kept"]] * MANY
        again.close()
        if done:
            return
    raise AssertionError("the node was never closed")


def test_what_did_not_change_is_not_written_down_again() -> None:
    files = MemoryFiles()
    first = counted(files, closed(files).close)
    again = open_broker(files)
    assert again.log("many", 0).segments[0].checked[1] == 0  # Believed, not read.
    second = counted(files, again.close)
    assert first["write"] >= 3 * MANY
    assert second["write"] < 10
    third = open_broker(files)
    assert third.log("many", 0).segments[0].checked[1] == 0
    assert values(read_all(third.log("many", 3))) == [b"kept"]


def test_whoever_cares_hears_of_logs_that_are_made_some_at_a_time_and_that_go() -> None:
    """Not at the end of all: what it does about them would take long, and hold others up."""
    broker, heard = open_broker(MemoryFiles()), list[int]()
    broker.on_logs_changed(heard.append)
    broker.create_topic("wide", 2 * TOLD_AT_ONCE + 3)
    broker.create_topic("narrow", 1)
    assert heard == [TOLD_AT_ONCE, TOLD_AT_ONCE, 3, 1]
    broker.delete_topic("wide")
    assert heard[4:] == [-(2 * TOLD_AT_ONCE + 3)]


def test_a_turn_appends_to_so_many_partitions_and_others_have_theirs_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 2 * PARTITIONS_PER_TURN + 7
    turn, appended = 0, Counter[int]()
    append_each = group_commit.append_each

    def counting(broker: Broker, *what: Any, **how: Any) -> Any:
        appended[turn] += 1
        return append_each(broker, *what, **how)

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def story() -> None:
        broker = open_broker(MemoryFiles())
        broker.create_topic("t", many, {})
        commit = GroupCommit(broker, lambda: T0)
        beside = asyncio.create_task(others())
        begun = [commit.append(("t", number), batch(b"x")) for number in range(many)]
        await asyncio.sleep(0)
        assert not begun[-1].done()
        later = commit.append(("t", many - 1), batch(b"y"))  # whoever comes meanwhile keeps his place
        assert {done.base_offset for done in await asyncio.gather(*begun)} == {0}
        assert (await later).base_offset == 1
        beside.cancel()
        await commit.close()

    monkeypatch.setattr(group_commit, "append_each", counting)
    asyncio.run(story())
    assert list(appended.values()) == [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN, 7]


def test_closing_appends_to_all_partitions_first() -> None:
    async def story() -> None:
        broker = open_broker(MemoryFiles())
        broker.create_topic("t", 3 * PARTITIONS_PER_TURN, {})
        commit = GroupCommit(broker, lambda: T0)
        begun = [commit.append(("t", number), batch(b"x")) for number in range(3 * PARTITIONS_PER_TURN)]
        await commit.close()
        assert [(await done).base_offset for done in begun] == [0] * len(begun)

    asyncio.run(story())
