"""Staged records come into the log exactly once, wherever the node crashes and whatever the writer tries again."""

import asyncio
import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.config import LogSettings
from muster.storage.errors import StorageError
from muster.storage.records.batch import decode_records, encode_batch
from muster.storage.rpc.v1 import staging_service_pb2 as pb
from muster.storage.service.staging_service import StagingService
from muster.storage.staging.staging import Staging
from tests.fakes.memory_files import MemoryFiles

NOW_MS = 1_700_000_000_000
TOPIC = "t"
PARTITIONS = 2


class Disk:
    """A node's disk; `node()` is one life of the node on it."""

    def __init__(self, **settings: int) -> None:
        self.files = MemoryFiles()
        self.files.now_ms = NOW_MS
        self.settings = LogSettings.model_validate(settings)

    def open(self) -> Broker:
        broker = Broker("/data", self.settings, self.files, clock_ms=lambda: NOW_MS, random_bytes=bytes)
        if TOPIC not in broker.topics():
            broker.create_topic(TOPIC, PARTITIONS)
        return broker

    def records(self) -> list[list[bytes | None]]:
        """The values in each partition, as any reader sees them."""
        broker = self.open()
        try:
            return [
                [record.value for record in decode_records(broker.fetch(TOPIC, number, 0, 1 << 20).records)]
                for number in range(PARTITIONS)
            ]
        finally:
            broker.close()


class Life:
    """The service of one life of the node, on the running loop."""

    def __init__(self, disk: Disk, clock_ms: Callable[[], int] = lambda: NOW_MS) -> None:
        self.broker = disk.open()
        self.flushes = GroupCommit(self.broker, clock_ms, workers=1)
        self.staging = Staging(self.broker, files=disk.files)
        self.service = StagingService(self.staging, self.flushes, clock_ms)
        self._upkeep = asyncio.create_task(self.service.keep_up())

    async def end(self, *, orderly: bool = True) -> None:
        self._upkeep.cancel()
        await self.service.close()
        await self.flushes.close()
        if orderly:
            self.broker.close()

    async def stage(self, batch: int, attempt: str, values: dict[int, list[bytes]], sink: str = "s") -> int:
        """Stage a batch for each value; each call twice, as after a lost answer. The attempt's size; -1: settled."""
        position = 0
        calls = [(number, values[number], False) for number in sorted(values)]
        calls[-1] = (*calls[-1][:2], True)
        for number, some, last in calls:
            for _ in range(2):
                request = pb.StageRecordsRequest(sink=sink, batch=batch, attempt=attempt, position=position, last=last)
                data = b"".join(encode_batch([(NOW_MS, None, value, ())]) for value in some)
                request.topic_data.add(name=TOPIC).partition_data.add(index=number, records=data)
                answer = await self.service.stage_records(request, None)
                if answer.error_code:
                    raise Refused(answer.error_code, answer.error_message)
                if answer.settled:
                    return -1
            position = answer.position
        return position

    async def go_on(self, batch: int, attempt: str, position: int) -> None:
        """The next call of an attempt, at this position."""
        request = pb.StageRecordsRequest(sink="s", batch=batch, attempt=attempt, position=position)
        answer = await self.service.stage_records(request, None)
        if answer.error_code:
            raise Refused(answer.error_code, answer.error_message)

    async def commit(self, batch: int, attempts: dict[str, int], sink: str = "s") -> bool:
        request = pb.CommitStagedRequest(sink=sink, batch=batch)
        for name, size in attempts.items():
            request.attempts.add(attempt=name, size=size)
        answer = await self.service.commit_staged(request, None)
        if answer.error_code:
            raise Refused(answer.error_code, answer.error_message)
        return bool(answer.settled)


class Refused(Exception):
    pass


def batch_values(batch: int, task: int) -> dict[int, list[bytes]]:
    return {number: [b"%d/%d/%d/%d" % (batch, task, number, n) for n in range(3)] for number in range(PARTITIONS)}


async def written(life: Life, batch: int, try_number: int) -> None:
    """One run of a batch by a driver: two tasks, one of which failed once and left an attempt behind."""
    sizes = {}
    for task in range(2):
        if task == 1:
            await life.stage(batch, f"1-{try_number}-failed", batch_values(batch, task))
        name = f"{task}-{try_number}"
        size = await life.stage(batch, name, batch_values(batch, task))
        if size >= 0:
            sizes[name] = size
    await life.commit(batch, sizes)


EXPECTED = [
    sorted(value for batch in range(3) for task in range(2) for value in batch_values(batch, task)[number])
    for number in range(PARTITIONS)
]


def sorted_records(disk: Disk) -> list[list[bytes]]:
    return [sorted(value for value in some if value is not None) for some in disk.records()]


def test_only_the_attempts_that_are_named_count() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        for batch in range(3):
            await written(life, batch, 0)
        await life.end()

    asyncio.run(story())
    assert sorted_records(disk) == EXPECTED
    assert disk.files.names("/data/staged/s") == ["sink.json"]


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_anywhere_neither_loses_nor_doubles_anything(seed: int) -> None:
    """Every second operation on the disk fails, in a life of its own; the writer does its unfinished batch again."""
    rng = random.Random(seed)
    calls = count_calls()
    for crash_at in range(2 * seed, calls, 16):
        disk = Disk()
        asyncio.run(crashed_and_redone(disk, crash_at, rng))
        assert sorted_records(disk) == EXPECTED, f"crash at operation {crash_at}"


def count_calls() -> int:
    disk = Disk()
    disk.open().close()
    disk.files.calls = 0

    async def story() -> None:
        life = Life(disk)
        for batch in range(3):
            await written(life, batch, 0)
        await life.end()

    asyncio.run(story())
    return disk.files.calls


async def crashed_and_redone(disk: Disk, crash_at: int, rng: random.Random) -> None:
    disk.open().close()
    disk.files.calls = 0
    dead = False

    def fault(operation: str, path: str) -> None:
        nonlocal dead
        dead = dead or disk.files.calls > crash_at
        if dead:
            raise OSError(errno.EIO, "the machine has stopped", path)

    disk.files.fault = fault
    done = 0
    with suppress(Refused, OSError, StorageError):
        life = Life(disk)
        with suppress(Refused, OSError, StorageError):
            for batch in range(3):
                await written(life, batch, 0)
                done = batch + 1
        await life.end(orderly=False)
    disk.files.crash(rng.choice)
    # A driver that starts anew does its last batch again: it cannot know whether that was finished.
    life = Life(disk)
    for batch in range(max(0, done - 1), 3):
        await written(life, batch, 1)
    await life.end()


def test_a_batch_that_is_closed_stays_closed() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        await written(life, 0, 0)
        await life.end()
        life = Life(disk)
        assert await life.stage(0, "other", {0: [b"again"]}) == -1
        assert await life.commit(0, {}) is True
        assert life.staging.last_batch("s") == 0
        await life.end()

    asyncio.run(story())
    assert sum(map(len, disk.records())) == 12


def test_an_attempt_that_a_crash_cut_short_cannot_go_on() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        size = await life.stage(0, "a", {0: [b"x"]})
        with pytest.raises(Refused, match=r"goes on at byte .* a crash took the others"):
            await life.go_on(0, "a", size + 1)
        await life.end()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sink", "batch", "attempts", "wanted"),
    [
        ("s", 0, {"never": 10}, "was never staged here"),
        ("../s", 0, {}, "expected 1 to 200 of"),
        ("s", -1, {}, "expected 0 or more"),
    ],
)
def test_what_cannot_be_committed_is_refused(sink: str, batch: int, attempts: dict[str, int], wanted: str) -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        with pytest.raises(Refused, match=wanted):
            await life.commit(batch, attempts, sink)
        await life.end()

    asyncio.run(story())


def test_limits_are_told() -> None:
    disk = Disk(**{"sink.max.staged.bytes": 1 << 20, "max.sinks": 1})

    async def story() -> None:
        life = Life(disk)
        await life.stage(0, "a", {0: [bytes(600_000)]})
        with pytest.raises(Refused, match=r"exceed sink.max.staged.bytes, which is 1048576"):
            await life.stage(0, "b", {0: [bytes(600_000)]})
        with pytest.raises(Refused, match=r"which is the limit \(max.sinks\)"):
            await life.stage(0, "a", {0: [b"x"]}, sink="another")
        await life.service.abort_staged(pb.AbortStagedRequest(sink="s", batch=0), None)
        await life.stage(0, "c", {0: [bytes(600_000)]})
        await life.end()

    asyncio.run(story())


def test_what_nobody_decides_about_is_removed_in_time() -> None:
    disk = Disk()
    later = NOW_MS + 2 * 86_400_000

    async def story() -> None:
        life = Life(disk)
        await life.stage(0, "a", {0: [b"x"]})
        life.staging.expire(NOW_MS)
        assert disk.files.exists("/data/staged/s/0/a")
        life.staging.expire(later)
        assert not disk.files.exists("/data/staged/s")
        await written(life, 0, 0)
        life.staging.expire(later)
        assert life.staging.last_batch("s") == 0, "a sink is remembered longer than what it staged"
        life.staging.expire(NOW_MS + 8 * 86_400_000)
        assert life.staging.last_batch("s") == -1
        await life.end()

    asyncio.run(story())


def test_a_topic_that_was_made_anew_takes_the_whole_batch() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        size = await life.stage(0, "a", {0: [b"x"], 1: [b"y"]})
        decided = life.staging.decided("s", 0, {"a": size})
        life.staging.save("s", decided)
        life.broker.delete_topic(TOPIC)
        life.broker._random_bytes = lambda size: b"n" * size
        life.broker.create_topic(TOPIC, PARTITIONS)
        await life.end(orderly=False)
        disk.files.kill()
        life = Life(disk)
        assert await life.commit(0, {}) is True
        await life.end()

    asyncio.run(story())
    assert disk.records() == [[b"x"], [b"y"]]


def test_a_topic_that_went_before_the_commit_is_named_and_its_return_lets_the_batch_in() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        size = await life.stage(0, "a", {0: [b"x"]})
        life.broker.delete_topic(TOPIC)
        with pytest.raises(Refused, match="There is no topic 't'"):
            await life.commit(0, {"a": size})
        assert life.staging.last_batch("s") == -1
        life.broker.create_topic(TOPIC, PARTITIONS)
        assert await life.commit(0, {"a": size}) is False
        await life.end()

    asyncio.run(story())
    assert disk.records() == [[b"x"], []]


def test_the_state_of_a_sink_that_is_damaged_stops_that_sink_only() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        await written(life, 0, 0)
        await life.end()
        content = disk.files.content("/data/staged/s/sink.json")
        disk.files.put("/data/staged/s/sink.json", content.replace(b'"batch": 0', b'"batch": 7'))
        life = Life(disk)
        with pytest.raises(Refused, match=r"sink.json, is damaged: its checksum does not match"):
            await life.stage(1, "a", {0: [b"x"]})
        with pytest.raises(Refused, match=r"sink.json, is damaged"):
            await life.commit(1, {})
        size = await life.stage(0, "a", {0: [b"other"]}, sink="other")
        await life.commit(0, {"a": size}, sink="other")
        await life.end()

    asyncio.run(story())
    assert b"other" in disk.records()[0]


def test_a_writer_that_goes_away_in_mid_commit_leaves_a_batch_that_is_whole() -> None:
    disk = Disk()

    async def story() -> None:
        life = Life(disk)
        size = await life.stage(0, "a", batch_values(0, 0))
        commit = asyncio.create_task(life.commit(0, {"a": size}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        commit.cancel()
        assert await life.commit(0, {"a": size}) is True
        await life.end()

    asyncio.run(story())
    assert sorted_records(disk) == [sorted(batch_values(0, 0)[number]) for number in range(PARTITIONS)]
