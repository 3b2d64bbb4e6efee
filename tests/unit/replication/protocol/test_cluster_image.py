"""What a node makes of the controller's answers (CL-C1, CL-F11, CL-N1)."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    ImageChanges,
    ImageVersion,
    NodeView,
    PartitionChange,
    PartitionView,
    TopicPartition,
    TopicView,
)

T, U = b"t" * 16, b"u" * 16
VIEW = PartitionView(1, 4, 7, (1, 2), (), (1, 2))
MOVED = VIEW._replace(leader=2, leader_epoch=5, partition_epoch=8, isr=(2,))


def full(
    epoch: int, sequence: int, *topics: TopicView, nodes: tuple[NodeView, ...] = (NodeView(1, 11),)
) -> ClusterState:
    return ClusterState(ErrorCode.NONE, 1, epoch, sequence, True, nodes, topics)


def delta(epoch: int, sequence: int, *topics: TopicView, nodes: tuple[NodeView, ...] = ()) -> ClusterState:
    return ClusterState(ErrorCode.NONE, 1, epoch, sequence, False, nodes, topics)


def topic(view: PartitionView = VIEW, topic_id: bytes = T, **configs: str) -> TopicView:
    return TopicView(topic_id, "t", configs, {0: view})


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage()
    assert image.apply(full(3, 10, topic())) is not None
    return image


@pytest.mark.parametrize(
    "late",
    [
        full(2, 99, topic(MOVED)),
        delta(2, 99, topic(MOVED)),
        delta(3, 10, topic(MOVED)),
        delta(3, 9, topic(MOVED)),
        full(3, 9, topic(MOVED)),
        delta(4, 1, topic(MOVED)),
        ClusterState(ErrorCode.STALE_BROKER_EPOCH, 1, 3, 99, True),
    ],
    ids=["lower epoch", "lower epoch, part", "told", "older", "full, but overtaken", "first of an epoch, part", "77"],
)
def test_what_is_not_newer_changes_nothing_c1(image: ClusterImage, late: ClusterState) -> None:
    assert image.apply(late) is None
    assert (image.known, image.partition(TopicPartition("t", 0))) == (ImageVersion(3, 10), VIEW)


def test_a_new_controller_begins_its_own_sequence_c1(image: ClusterImage) -> None:
    assert image.apply(full(4, 1, topic(MOVED))) is not None
    assert (image.known, image.partition(TopicPartition("t", 0))) == (ImageVersion(4, 1), MOVED)


def test_what_changed_is_told_with_what_was_n1(image: ClusterImage) -> None:
    gone = NodeView(1, 11, ClusterNodeStatus.GONE)
    assert image.apply(delta(3, 12, topic(MOVED), nodes=(gone,))) == ImageChanges(
        nodes=[1], partitions=[PartitionChange(TopicPartition("t", 0), VIEW, MOVED)]
    )
    assert image.live() == []


def test_a_full_answer_changes_only_what_is_other_n1(image: ClusterImage) -> None:
    other = TopicView(U, "u", {}, {0: VIEW})
    assert image.apply(full(4, 1, topic(), other)) == ImageChanges(
        partitions=[PartitionChange(TopicPartition("u", 0), None, VIEW)], configs=["u"]
    )


def test_settings_that_change_are_told(image: ClusterImage) -> None:
    changes = image.apply(delta(3, 11, TopicView(T, "t", {"min.insync.replicas": "1"})))
    assert changes == ImageChanges(configs=["t"])
    assert image.partition(TopicPartition("t", 0)) == VIEW


def test_only_the_word_deleted_deletes_f11(image: ClusterImage) -> None:
    assert image.apply(full(4, 1)) == ImageChanges(unknown=["t"])
    assert (image.topics, image.deleted) == ({}, {})
    assert image.apply(delta(4, 2, TopicView(T, "t", deleted=True))) == ImageChanges(deleted={T: "t"})
    assert image.apply(delta(4, 3, TopicView(T, "t", deleted=True))) == ImageChanges()


def test_a_topic_of_the_same_name_is_another_one_a3(image: ClusterImage) -> None:
    changes = image.apply(delta(3, 11, TopicView(T, "t", deleted=True), topic(MOVED, U)))
    assert changes == ImageChanges(
        partitions=[PartitionChange(TopicPartition("t", 0), None, MOVED)], configs=["t"], deleted={T: "t"}
    )
    assert (image.names, image.deleted) == ({U: "t"}, {T: "t"})


def test_a_node_that_is_named_no_more_is_forgotten(image: ClusterImage) -> None:
    changes = image.apply(full(4, 1, topic(), nodes=(NodeView(2, 12),)))
    assert changes is not None
    assert sorted(changes.nodes) == [1, 2]
    assert list(image.nodes) == [2]
