"""A shard of a watching node that was lost knows its groups again: they are read once more."""

import asyncio
import lzma
from pathlib import Path

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.core.watched.watched_shard import WatchedShard
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.watch_backend import watch_backend
from muster.coordinator.watch import segment_workers

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
    """Group -> generations that its ledger tells of; nothing while the shard does not answer."""
    core = node.engine.core(0)
    if node.engine.status(0) is not ShardStatus.ACTIVE or not isinstance(core, WatchedShard) or core.excuse:
        return {}
    return {
        group: [entry.generation for entry in core.ledgers[group].entries.values()]
        for group in core.state.groups
        if group in core.ledgers
    }


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
