"""Groups on three nodes over loopback and real logs: nobody hears what one node's end could undo, and members stay."""

from pathlib import Path
from typing import TypeVar

import pytest

from muster.coordinator.core import effects, events
from muster.coordinator.core.types import CommittedOffset
from muster.coordinator.errors import ErrorCode
from tests.support.shard_sides import SHARD, ShardNode, ShardSides, play

pytestmark = pytest.mark.integration

NONE = ErrorCode.NONE
AWAY = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
Wanted = TypeVar("Wanted", bound=effects.Reply)


async def ask(node: ShardNode, event: events.Request, wanted: type[Wanted]) -> Wanted:
    return await node.driver.ask(0, event, wanted)


def commit(node: ShardNode, offset: int, member: str = "", generation: int = -1) -> events.OffsetCommit:
    return events.OffsetCommit(
        node.driver.next_id(), "g", member, None, generation, {("t", 0): CommittedOffset(offset)}
    )


async def committed(node: ShardNode, offset: int) -> ErrorCode:
    return (await ask(node, commit(node, offset), effects.OffsetCommitReply)).code


async def fetched(node: ShardNode) -> tuple[ErrorCode, int | None]:
    reply = await ask(node, events.OffsetFetch(node.driver.next_id(), "g", None), effects.OffsetFetchReply)
    stored = dict(reply.offsets or {}).get(("t", 0))
    return reply.code, None if stored is None else stored.offset


async def until_fetched(sides: ShardSides, node: ShardNode) -> tuple[ErrorCode, int | None]:
    while True:
        code, offset = await fetched(node)
        if code not in AWAY:
            return code, offset
        sides.happened.clear()
        await sides.happened.wait()


def test_a_commit_is_answered_once_it_is_on_two_and_survives_its_coordinator(tmp_path: Path) -> None:
    """G1 to G3."""

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        assert (await until_fetched(sides, old)) == (NONE, None)
        for offset in range(10):
            assert await committed(old, offset) is NONE
            ends = sorted(node.log(SHARD).durable_offset for node in sides)
            assert ends[-2] == old.node.log(SHARD).end_offset, "flushed on a second node"
        await sides.kill(old.node)
        new = await sides.coordinator()
        assert new is not old
        assert (await until_fetched(sides, new)) == (NONE, 9)
        assert await committed(new, 10) is NONE

    play(tmp_path, story)
