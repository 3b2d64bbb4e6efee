"""Elections (CL-A5) and reassignments (CL-A8) as the image shows them: what is refused at once, and when they are
done."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin import cluster_admin
from muster.coordinator.replication.io.admin.cluster_admin import (
    ClusterAdmin,
    ImageWaits,
    deadline_after,
    explain_no_election,
    explain_no_reassignment,
)
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    ClusterImage,
    ClusterNodeStatus,
    ImageChanges,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.long_work import AT_ONCE

UNIT = TopicPartition("t", 0)
THREE = (1, 2, 3)


def image(view: PartitionView | None, *, gone: tuple[int, ...] = (), stopping: tuple[int, ...] = ()) -> ClusterImage:
    known = ClusterImage()
    for node in THREE:
        status = (
            ClusterNodeStatus.GONE
            if node in gone
            else ClusterNodeStatus.SHUTTING_DOWN
            if node in stopping
            else ClusterNodeStatus.LIVE
        )
        known.nodes[node] = NodeView(node, 1, status)
    if view is not None:
        known.topics["t"] = TopicView(bytes(16), "t", {}, {0: view})
    return known


def led_by(leader: int, isr: tuple[int, ...] = THREE) -> PartitionView:
    return PartitionView(leader, 1, 1, isr, (), THREE)


@pytest.mark.parametrize(
    ("known", "drained", "code"),
    [
        (image(None), (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (image(led_by(1)), (), ErrorCode.ELECTION_NOT_NEEDED),
        (image(led_by(2)), (), None),
        (image(led_by(2, (2, 3))), (), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (image(led_by(2), gone=(1,)), (), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (image(led_by(2), stopping=(1,)), (), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (image(led_by(2)), (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ],
)
def test_whether_the_preferred_leader_can_be_elected(
    known: ClusterImage, drained: tuple[int, ...], code: ErrorCode | None
) -> None:
    assert cluster_admin.preferred_refusal(known, UNIT, drained) is code
    came = cluster_admin.election_outcome(known, UNIT, drained, unclean=False)
    assert came is (ErrorCode.NONE if code is ErrorCode.ELECTION_NOT_NEEDED else code)


@pytest.mark.parametrize(
    ("known", "code"),
    [
        (image(None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (image(led_by(2)), ErrorCode.ELECTION_NOT_NEEDED),
        (image(led_by(NO_NODE_ID)), None),
        (image(led_by(NO_NODE_ID), gone=THREE), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_whether_somebody_can_be_elected_whatever_it_costs(known: ClusterImage, code: ErrorCode | None) -> None:
    assert cluster_admin.unclean_refusal(known, UNIT) is code


def test_an_unclean_election_is_done_when_somebody_leads() -> None:
    assert cluster_admin.election_outcome(image(led_by(NO_NODE_ID)), UNIT, (), unclean=True) is None
    assert cluster_admin.election_outcome(image(led_by(3)), UNIT, (), unclean=True) is ErrorCode.NONE
    gone = image(led_by(NO_NODE_ID), gone=THREE)
    assert cluster_admin.election_outcome(gone, UNIT, (), unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def moving(replicas: tuple[int, ...], adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> PartitionView:
    return PartitionView(1, 1, 1, (1, 2), (), replicas, adding, removing)


@pytest.mark.parametrize(
    ("view", "target", "code"),
    [
        (None, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (moving((1, 2)), (2, 3), None),
        (moving((1, 9)), (9, 1), None),  # it has a copy, and is only away
        (moving((1, 2)), (2, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (moving((1, 2)), (2, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (moving((1, 2)), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (moving((1, 2)), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (moving((3, 1, 2), adding=(3,)), None, None),
    ],
)
def test_what_speaks_against_a_reassignment(
    view: PartitionView | None, target: tuple[int, ...] | None, code: ErrorCode | None
) -> None:
    assert cluster_admin.reassignment_refusal(image(view), view, target) is code


def test_a_reassignment_is_done_when_it_is_written_who_comes_and_goes() -> None:
    before = moving((1, 2))
    wish = cluster_admin.wanted_replicas(before, (2, 3))
    assert cluster_admin.reassignment_outcome(image(before), before, wish) is None
    assert (
        cluster_admin.reassignment_outcome(image(None, gone=(3,)), before, wish) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert cluster_admin.reassignment_outcome(image(None), moving((2, 3, 1), (3,), (1,)), wish) is ErrorCode.NONE
    assert cluster_admin.reassignment_outcome(image(None), moving((2, 3)), wish) is ErrorCode.NONE
    assert cluster_admin.reassignment_outcome(image(None), None, wish) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_cancelled_one_goes_back_and_one_that_was_over_before_does_not() -> None:
    before = moving((2, 3, 1), (3,), (1,))
    wish = cluster_admin.wanted_replicas(before, None)
    assert cluster_admin.reassignment_outcome(image(None), before, wish) is None
    assert cluster_admin.reassignment_outcome(image(None), moving((2, 1, 3), removing=(3,)), wish) is ErrorCode.NONE
    assert cluster_admin.reassignment_outcome(image(None), moving((2, 1)), wish) is ErrorCode.NONE
    assert (
        cluster_admin.reassignment_outcome(image(None), moving((2, 3)), wish) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    )


def test_what_was_refused_is_told_with_who_it_is_about() -> None:
    not_available, not_needed = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED

    def preferred(known: ClusterImage, code: ErrorCode = not_available) -> str:
        return explain_no_election(known, UNIT, code, unclean=False)

    assert preferred(image(led_by(2), gone=(1,))) == "t-0: its first replica, node 1, is gone"
    assert preferred(image(led_by(2, (2, 3)))) == "t-0: its first replica, node 1, is not in sync"
    assert "cannot use its log" in preferred(image(led_by(2)))
    assert preferred(image(led_by(1)), not_needed) == "t-0: its first replica, node 1, leads it already"
    assert explain_no_election(image(led_by(2)), UNIT, not_needed, unclean=True).startswith("t-0: node 2 leads it; ")
    none = explain_no_election(image(led_by(NO_NODE_ID)), UNIT, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, unclean=True)
    assert none == "t-0: of its replicas 1,2,3 none is up; bring one of these nodes back"
    known = image(led_by(2), gone=(3,))
    assert explain_no_reassignment(known, UNIT, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT) == (
        "t-0 to 1,9: expected nodes that are up, each once; up are 1,2"
    )
    late = ErrorCode.REQUEST_TIMED_OUT
    assert "for a controller, of which none is known right now, and did not" in preferred(known, late)
    known.controller = 2
    assert "for node 2, the controller, and did not come in time" in preferred(known, late)
    assert preferred(image(None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == "t-0: the cluster has no such partition"


def test_many_partitions_of_one_request_are_looked_at_in_turns_with_others() -> None:
    async def story() -> None:
        known = image(moving((1, 2)))
        admin = ClusterAdmin(cast(ZooKeeperSession, None), ImageWaits(known, lambda listener: None))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        serving = asyncio.create_task(others())
        found = await admin.reassign({TopicPartition("t", number): (9,) for number in range(3 * AT_ONCE)})
        assert (len(found), found[UNIT]) == (3 * AT_ONCE, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        assert turns >= 3
        serving.cancel()

    asyncio.run(story())


def test_what_has_come_is_not_asked_again_with_each_change() -> None:
    """It is asked on the loop, of each partition that somebody waits for."""

    async def story() -> None:
        known = image(moving((1, 2)))
        listeners: list[Callable[[ImageChanges], None]] = []
        asked: list[int] = []
        admin = ClusterAdmin(cast(ZooKeeperSession, None), ImageWaits(known, listeners.append))
        units = {TopicPartition("t", number): None for number in range(4)}
        done: set[int] = set()

        def came(unit: TopicPartition) -> ErrorCode | None:
            asked.append(unit.partition)
            return ErrorCode.NONE if unit.partition in done else None

        waiting = asyncio.create_task(admin._request_changes("", (), units, came, deadline_after(60_000)))
        for done_now in ({0, 2}, {1}, {3}):
            await asyncio.sleep(0)
            done |= done_now
            for listener in listeners:
                listener(ImageChanges())
        assert await waiting == dict.fromkeys(units, ErrorCode.NONE)
        assert asked == [0, 0, 1, 1, 2, 3, 3]

    asyncio.run(story())
