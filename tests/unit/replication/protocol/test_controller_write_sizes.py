"""CL-Z5: a multi is bounded by bytes as well: ZooKeeper closes the connection to who sends more than a megabyte, and
who took that for a lost answer would send the same for ever."""

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import controller_term
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller_term import state_size, topic_size
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from tests.support.controller_story import ControllerStory, nodes, topic

PARTITIONS = 40


def encoded(write: ef.WriteMulti) -> int:
    """Bytes of what it writes, and of where."""
    total = 0
    for each in write.operations:
        match each:
            case ef.PutPartitionState(place, state):
                total += len(paths.partition_state_path(*place)) + len(cluster_layout.state_json(state))
            case ef.PutTopicZnode(changed):
                total += len(paths.topic_path(changed.name)) + len(cluster_layout.topic_json(changed))
            case _:
                raise AssertionError(each)
    return total


def test_topics_with_many_partitions_take_a_write_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_term, "MAX_WRITE_BYTES", 2_500)
    names = [f"t{number}" for number in range(6)]
    story = ControllerStory().begin(*(topic(name, *[(1, 2, 3)] * PARTITIONS) for name in names), on=nodes(1, 2, 3, 4))
    assert len(cluster_layout.topic_json(story.topics["t0"])) > 400
    before = len(story.writes)
    story.say(ev.ReassignmentRequested(900, {TopicPartition(name, 0): (4, 2, 3) for name in names}))
    assert set(story.answers[900].results) == {TopicPartition(name, 0) for name in names}
    assert all(story.topics[name].partitions[0].adding == (4,) for name in names)
    assert len(story.writes) - before >= 2
    before = len(story.writes)
    for name in names:
        story.ask(1, f"{name}-0", (1, 2, 3, 4))
    assert all(story.topics[name].partitions[0] == ReplicaAssignment((4, 2, 3)) for name in names)
    assert all(encoded(write) < 2_500 for write in story.writes)


def test_a_topic_that_is_larger_than_all_that_fits_is_written_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_term, "MAX_WRITE_BYTES", 100)
    story = ControllerStory().begin(topic("t", *[(1, 2)] * PARTITIONS), on=nodes(1, 2, 3))
    story.say(ev.ReassignmentRequested(900, {TopicPartition("t", number): (3, 2) for number in range(3)}))
    assert [story.topics["t"].partitions[number].adding for number in range(3)] == [(3,)] * 3


def test_many_states_with_long_names_take_more_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_term, "MAX_WRITE_BYTES", 10_000)
    story = ControllerStory().begin(topic("n" * 249, *[(1, 2, 3)] * PARTITIONS), on=nodes(1, 2, 3))
    assert len(story.states) == PARTITIONS
    assert len(story.writes) > 2
    assert all(encoded(write) <= 10_000 for write in story.writes)


@pytest.mark.parametrize("number", [0, 2**31 - 1])
def test_sizes_are_never_taken_for_less_than_they_are(number: int) -> None:
    directories = {number: "d" * 22, number - 1: "e" * 33}
    state = PartitionState(
        number, number, (number, number - 1), (number - 2,), directories, number, number, number, "é" * 9
    )
    place = TopicPartition("t" * 9, number)
    path = paths.partition_state_path(*place)
    made = len(path) + len(paths.partition_path(*place)) + len(cluster_layout.state_json(state))
    assert made <= state_size(place, state) <= 2 * made + 200
    assigned = ReplicaAssignment((number, number - 1), (number,), (number - 1,))
    large = ClusterTopic("t" * 9, bytes(16), (assigned,) * 50)
    made = len(paths.topic_path(large.name)) + len(cluster_layout.topic_json(large))
    assert made <= topic_size(large) <= 2 * made
