"""What a node that reads copies of segments answers, and when; a shard that was lost knows its groups again."""

import asyncio
import lzma
from pathlib import Path

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.core.model.records import GroupStored
from muster.coordinator.core.watched.watched_shard import WatchedShard
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.watch_backend import watch_backend
from muster.coordinator.server.watch_backend.watch_backend import SegmentsWatchBackend
from muster.coordinator.watch import segment_workers
from tests.support.watched_batches import NOW_MS, batch, facts

RECORDED = Path(__file__).parents[1] / "core" / "watched" / "kafka_4_1_1"
PATIENCE_S = 30.0


def copied_segments(folder: Path) -> Path:
    for number in (0, 1):
        partition = folder / f"__consumer_offsets-{number}"
        partition.mkdir(parents=True)
        data = lzma.decompress((RECORDED / f"offsets-{number}.log.xz").read_bytes())
        (partition / f"{0:020}.log").write_bytes(data)
    return folder


def known(node: CoordinatorNode) -> dict[str, list[int]]:
    """Group -> generations that its ledger tells of; nothing while a shard does not answer."""
    found: dict[str, list[int]] = {}
    for shard in range(node.engine.shards):
        core = node.engine.core(shard)
        if node.engine.status(shard) is not ShardStatus.ACTIVE or not isinstance(core, WatchedShard) or core.excuse:
            return {}
        found |= {
            group: [entry.generation for entry in core.ledgers[group].entries.values()]
            for group in core.state.groups
            if group in core.ledgers
        }
    return found


async def until_known(node: CoordinatorNode) -> dict[str, list[int]]:
    while not (found := known(node)):  # noqa: ASYNC110 - nothing tells when a shard has read all
        await asyncio.sleep(0.01)
    return found


async def lose_and_read_again(settings: Settings) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    node = CoordinatorNode(settings)
    await node.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            before = await until_known(node)
            node.engine._stepper.drop(node.engine._slots[0], "its log cannot be flushed")
            node.driver.wake()
            assert known(node) == {}
            return before, await until_known(node)
    finally:
        await node.stop()


def test_a_shard_that_was_lost_knows_its_groups_again(tmp_path: Path) -> None:
    settings = Settings(
        watch_enable=True,
        watch_segments=str(copied_segments(tmp_path / "copies")),
        listeners="127.0.0.1:0",
        http_listeners="",
    )
    before, after = asyncio.run(lose_and_read_again(settings))
    assert before == after
    assert {"orders", "pay", "audit", "mail"} <= before.keys()


def test_with_a_ledger_of_its_own_nothing_is_told_twice(tmp_path: Path) -> None:
    settings = Settings(
        watch_enable=True,
        watch_segments=str(copied_segments(tmp_path / "copies")),
        watch_ledger_dir=str(tmp_path / "ledger"),
        listeners="127.0.0.1:0",
        http_listeners="",
    )
    before, after = asyncio.run(lose_and_read_again(settings))
    assert before == after


async def read_once(settings: Settings) -> dict[str, list[int]]:
    node = CoordinatorNode(settings)
    await node.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await until_known(node)
    finally:
        await node.stop()


def small_copies(folder: Path, places: dict[str, int]) -> Path:
    """One group in each of these partitions."""
    for group_id, number in places.items():
        place = folder / f"__consumer_offsets-{number}"
        place.mkdir(parents=True)
        stored = GroupStored(group_id, "consumer", 1, "range", "m1", NOW_MS, ())
        (place / f"{0:020}.log").write_bytes(batch(facts(stored), 0))
    return folder


async def answered_while_reading(
    settings: Settings, groups: set[str], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, set[str]]]:
    """After each partition: how many have been read, and the groups of shards that answer."""
    seen: list[tuple[int, set[str]]] = []
    all_noted = asyncio.Event()
    node = CoordinatorNode(settings)
    read_whole = SegmentsWatchBackend._read_whole

    async def noted(backend: SegmentsWatchBackend, partition: int) -> None:
        await read_whole(backend, partition)
        for _ in range(10):  # what was submitted is stepped
            await asyncio.sleep(0)
        cores = [node.engine.core(shard) for shard in range(node.engine.shards)]
        answering = [core for core in cores if isinstance(core, WatchedShard) and not core.excuse]
        seen.append((len(backend._facts.partitions), {group for core in answering for group in core.state.groups}))
        if len(seen) == len(groups):
            all_noted.set()

    monkeypatch.setattr(SegmentsWatchBackend, "_read_whole", noted)
    await node.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert (await until_known_groups(node)) == groups
            await all_noted.wait()  # the last partition may be answered for before it is noted
    finally:
        await node.stop()
    return seen


async def until_known_groups(node: CoordinatorNode) -> set[str]:
    """All groups, once all shards answer."""
    while True:
        cores = [node.engine.core(shard) for shard in range(node.engine.shards)]
        if all(isinstance(core, WatchedShard) and not core.excuse for core in cores):
            return {group for core in cores if core is not None for group in core.state.groups}
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("places", "early"),
    [
        ({"g2": 0, "g0": 1, "g1": 2}, [{"g2"}, {"g2", "g0"}, {"g2", "g0", "g1"}]),
        ({"g2": 0, "g0": 1, "g1": 3}, [set(), set(), set()]),  # one is not there
        ({"g0": 0, "g1": 1, "g2": 2}, [set(), set(), set()]),  # not those of three partitions
        ({"g0": 7}, [set()]),  # nobody knows of how many
    ],
)
def test_groups_are_answered_for_once_their_partition_has_been_read_where_all_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: dict[str, int], early: list[set[str]]
) -> None:
    assert [partition_for(f"g{number}", 3) for number in range(3)] == [1, 2, 0]
    settings = Settings(
        watch_enable=True,
        watch_segments=str(small_copies(tmp_path / "copies", places)),
        listeners="127.0.0.1:0",
        http_listeners="",
    )
    seen = asyncio.run(answered_while_reading(settings, set(places), monkeypatch))
    assert seen == list(enumerate(early, 1))


def test_a_copy_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = small_copies(tmp_path / "copies", {"g1": 0})
    damaged = folder / "__consumer_offsets-0" / f"{1:020}.log"
    damaged.mkdir()  # no file

    async def story() -> str:
        settings = Settings(
            watch_enable=True, watch_segments=str(folder), listeners="127.0.0.1:0", http_listeners=""
        )  # fmt: skip
        node = CoordinatorNode(settings)
        await node.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    core = node.engine.core(0)
                    if isinstance(core, WatchedShard) and "cannot" in core.excuse:
                        return core.excuse
                    await asyncio.sleep(0.01)
        finally:
            await node.stop()

    assert asyncio.run(story()).startswith(f"the segments cannot be read: [Errno 21] Is a directory: '{damaged}'")


def test_one_group_is_told_of_the_same_whether_others_are_read_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        watch_enable=True,
        watch_segments=str(copied_segments(tmp_path / "copies")),
        listeners="127.0.0.1:0",
        http_listeners="",
    )
    whole = asyncio.run(read_once(settings))
    for group in ("orders", "pay"):
        alone = asyncio.run(read_once(settings.model_copy(update={"watch_group": group})))
        assert alone[group] == whole[group]
    monkeypatch.setattr(segment_workers, "LEAST_BYTES", 1)
    monkeypatch.setattr(watch_backend, "usable_processors", lambda: 2)
    assert asyncio.run(read_once(settings)) == whole
