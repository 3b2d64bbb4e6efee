"""CL-G5: what an answer of a former leader says, and to which epoch."""

from muster.coordinator.core.model.events import TookOver
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.lease_release import released_units
from muster.coordinator.replication.io.shards.takeover_records import ShardTakeovers
from muster.coordinator.replication.io.wire.node_api import EpochEnd
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    NodeView,
    PartitionChange,
    PartitionView,
    TopicPartition,
)
from muster.coordinator.replication.protocol.coordinator_term import CoordinatorTerm
from muster.coordinator.replication.protocol.lease import FetchSource, SilencePromise
from tests.support.led import SHARD, Cluster

FOUR, FIVE = TopicPartition(OFFSETS, 4), TopicPartition(OFFSETS, 5)
NOT_LEADING = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_g5a_who_names_our_epoch_has_let_go() -> None:
    ends = [EpochEnd(*FOUR, NOT_LEADING, 7), EpochEnd(*FIVE, NOT_LEADING, 9)]
    assert released_units([(FOUR, 7), (FIVE, 9)], ends) == [(FOUR, 7), (FIVE, 9)]


def test_g5a_who_names_none_or_another_has_not_said_so() -> None:
    """It leads, or does not know the unit yet, or has a later epoch than we have."""
    for end in (
        EpochEnd(*FOUR, NOT_LEADING, NO_EPOCH),
        EpochEnd(*FOUR, NOT_LEADING, 6),
        EpochEnd(*FOUR, ErrorCode.NONE, 7, 120),
        EpochEnd(*FOUR, ErrorCode.FENCED_LEADER_EPOCH, 7),
        EpochEnd(*FOUR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 7),
        EpochEnd(*FIVE, NOT_LEADING, 7),
    ):
        assert released_units([(FOUR, 7)], [end]) == []


def node(status: ClusterNodeStatus) -> NodeView:
    return NodeView(1, 100, status, None, ())


def view(leader: int, epoch: int) -> PartitionView:
    return PartitionView(leader, epoch, 0, (2, 3), (), (1, 2, 3))


def taken(status: ClusterNodeStatus | None, *, before: int = 1, let_go: bool = False) -> TookOver | None:
    image = ClusterImage()
    if status is not None:
        image.nodes[1] = node(status)
    takeovers = ShardTakeovers(2, image, lambda: 5_000)
    place = TopicPartition(OFFSETS, SHARD.partition)
    others = [
        PartitionChange(TopicPartition("orders", SHARD.partition), None, view(3, 6)),
        PartitionChange(place, None, view(NO_NODE_ID, 6)),
    ]
    takeovers.learned([PartitionChange(place, None, view(before, 6)), *others])
    promise, source = SilencePromise(0), FetchSource(1)
    promise.follow(source)
    source.received_ms = 4_000
    promise.follow(None)
    cluster = Cluster(unit=SHARD, halves=2)
    term = CoordinatorTerm(cluster.leader, promise, 6_000, 5_000)
    takeovers.gained(place.partition, term, 1_700_000_005_000)
    if let_go:
        term.let_go(before)
    told = takeovers.served(place.partition)
    assert takeovers.served(place.partition) is None
    return told


def test_g9_cause_and_times_are_told_as_far_as_they_are_known() -> None:
    told = taken(ClusterNodeStatus.GONE)
    assert told is not None
    assert (told.moved_from, told.moved_to, told.epoch, told.cause) == (1, 2, 7, "node 1 died")
    assert (told.last_heard_ms, told.elected_ms) == (1_700_000_004_000, 1_700_000_005_000)
    for status, cause in (
        (None, "node 1 died"),
        (ClusterNodeStatus.SHUTTING_DOWN, "node 1 shut down"),
        (ClusterNodeStatus.LIVE, "moved"),
    ):
        told = taken(status)
        assert told is not None
        assert told.cause == cause
        assert told.lost == cause.endswith("died")


def test_g7_a_node_that_refuses_connections_keeps_no_member_waiting() -> None:
    told = taken(ClusterNodeStatus.GONE, let_go=True)
    assert told is not None
    assert (told.cause, told.lost) == ("node 1 died", False)


def test_g9_who_led_before_may_not_be_known() -> None:
    told = taken(ClusterNodeStatus.LIVE, before=-1)
    assert told is not None
    assert (told.moved_from, told.last_heard_ms) == (-1, 0)
