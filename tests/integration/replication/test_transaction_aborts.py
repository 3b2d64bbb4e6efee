"""`__aborts` of a cluster: whichever node ends a transaction by itself, every node knows why, also after it is gone."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.observability.views.transactions import FENCED
from muster.coordinator.replication.io.wire.node_api import AbortRecord, AbortsQuery
from muster.coordinator.replication.protocol.cluster_metadata import (
    ABORTS,
    ClusterTopic,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.runtime.abort_records import AbortEntry
from muster.coordinator.server.cluster_backend.cluster_aborts import MOST_TAKEN
from tests.support.sides import SideNode
from tests.support.transaction_sides import NOT_YET, PAUSE_S, StoryProducer, TransactionSides, play, shard_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PLACES = [TopicPartition("t", number) for number in range(3)]
TWO_COPIES = ClusterTopic(ABORTS, b"x" * 16, (ReplicaAssignment((1, 2)),), {"min.insync.replicas": "1"}, version=0)
"""Node 3 has none."""


def id_of_shard(shard: int) -> str:
    """A transactional id of this shard: node `shard + 1` coordinates it at first."""
    return next(name for name in map(str, count()) if shard_of(name).partition == shard)


async def fence(sides: TransactionSides, name: str) -> None:
    """A producer with an open transaction is replaced by a new instance."""
    old = StoryProducer(sides, name)
    assert await old.init() == 0
    for place in PLACES:
        assert await old.send(place, b"a") == 0
    assert await StoryProducer(sides, name).init() == 0


async def known_at(sides: TransactionSides, node: SideNode, name: str) -> list[AbortEntry]:
    """What the node knows of the aborts of this id; waits for the first one."""
    while not (found := await sides.ids[node.id].service.aborts.latest_of(name, 5)):  # noqa: ASYNC110  # no event tells
        await asyncio.sleep(PAUSE_S)
    return found


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_tx_n7_every_node_knows_what_one_coordinator_ended_whether_it_has_a_copy_or_not(
    tmp_path: Path, shard: int
) -> None:
    async def story(sides: TransactionSides) -> None:
        name = id_of_shard(shard)
        await fence(sides, name)
        found = [await known_at(sides, node, name) for node in sides.up]
        assert found[0] == found[1] == found[2]
        ((entry,), *_) = found
        assert (entry.transactional_id, entry.cause, entry.partition_count) == (name, FENCED, 3)
        assert [sides.ids[number].service.aborts.unread for number in sides.ids] == [""] * 3

    play(tmp_path, story, notes=TWO_COPIES)


def test_tx_n7_the_next_coordinator_explains_what_the_one_before_ended(tmp_path: Path) -> None:
    async def story(sides: TransactionSides) -> None:
        name = id_of_shard(0)
        await fence(sides, name)
        for node in sides.up:
            await known_at(sides, node, name)
        before = await sides.coordinator_of(name)
        await sides.kill(before)
        after = await sides.coordinator_of(name)
        assert after is not before
        known = None
        while known is None:
            try:
                _, known, sentences = await sides.ids[after.id].service.history.read(name)
            except CoordinatorError as error:
                if error.code not in NOT_YET:
                    raise
                await asyncio.sleep(PAUSE_S)
        assert [end.cause for end in known.ended] == [FENCED]
        assert "these for 30 days in __aborts" in sentences[-1]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: (), ErrorCode.INVALID_REQUEST),
        (lambda: (AbortRecord(b"", b"x"),) * (MOST_TAKEN + 1), ErrorCode.INVALID_REQUEST),
        (lambda: (AbortRecord(b"", b"x" * (5 << 20)),), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_leader_takes_no_more_than_it_can_at_once(
    tmp_path: Path, make: Callable[[], tuple[AbortRecord, ...]], code: ErrorCode
) -> None:
    async def story(sides: TransactionSides) -> None:
        leader = await sides.leader(TopicPartition(ABORTS, 0))
        assert await sides.ids[leader.id].service.note_aborts(make()) == code
        other = next(node for node in sides.up if node is not leader)
        assert await sides.ids[other.id].service.note_aborts(make()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        read = await sides.ids[other.id].service.read_aborts(AbortsQuery("A", 5))
        assert read.error == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, story)
