"""Topics that come, change and go: CL-C12, CL-A3, CL-A8, CL-A11."""

from dataclasses import replace as with_

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    ELECTIONS,
    LEDGER,
    OFFSETS,
    ClusterImage,
    ClusterTopic,
    ReplicaAssignment,
    TopicView,
)
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller import metadata_publisher
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from tests.support.controller_story import DRAWN, ControllerStory, node, nodes, place, topic


def made(story: ControllerStory) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {
        each.name: tuple(assignment.replicas for assignment in each.partitions)
        for write in story.writes
        for each in write.operations
        if isinstance(each, ef.CreateInternalTopic)
    }


def test_internal_topics_are_made_when_there_are_nodes_enough_c12() -> None:
    story = ControllerStory(ControllerSettings(offsets_partitions=4)).begin(on=nodes(1, 2))
    assert made(story) == {}
    story.see(n3=node(3))
    found = made(story)
    assert list(found) == [OFFSETS, LEDGER, ELECTIONS]
    assert found[OFFSETS] == found[LEDGER]
    assert len(found[OFFSETS]) == 4
    assert {len(replicas) for topic_ in found.values() for replicas in topic_} == {3}
    story.writes.clear()
    story.see(n4=node(4))
    assert made(story) == {}


def test_the_count_in_zookeeper_holds_c12() -> None:
    story = ControllerStory(ControllerSettings(offsets_partitions=4)).begin(
        topic(OFFSETS, (3, 1), (2, 3)), on=nodes(1, 2, 3)
    )
    assert made(story)[LEDGER] == ((3, 1), (2, 3))


def test_internal_topics_that_could_not_be_made_are_made_later_c12() -> None:
    story = ControllerStory(ControllerSettings(offsets_partitions=1))
    story.hold = True
    story.begin(on=nodes(1, 2, 3))
    [write] = story.held
    story.held.clear()
    story.say(ev.WriteFailed(write.sequence, ev.WriteFailure.VERSION))
    story.say(ev.TopicsRead((topic(OFFSETS, (1, 2, 3)),), complete=True))
    story.say(ev.StatesRead({}, story.version))
    story.hold = False
    story.release()
    assert list(made(story)) == [LEDGER, ELECTIONS]


@pytest.fixture
def story() -> ControllerStory:
    return ControllerStory().begin(topic("t", (1, 2, 3), (2, 3, 1)), on=nodes(1, 2, 3, 4, 5))


def test_partitions_that_are_added_get_a_state(story: ControllerStory) -> None:
    story.see_topic(topic("t", (1, 2, 3), (2, 3, 1), (3, 4, 5), version=1))
    assert story.led("t-2") == (3, 0, (3, 4, 5), ())
    assert story.led("t-0") == (1, 0, (1, 2, 3), ())


def test_a_unit_without_a_live_replica_waits_for_one_c11() -> None:
    story = ControllerStory().begin(topic("t", (4, 1)), on=nodes(2))
    assert story.states == {}
    story.see(n1=node(1))
    assert story.led("t-0") == (1, 0, (1,), ())


def test_a_deleted_topic_is_told_and_its_znodes_go_a3(story: ControllerStory) -> None:
    image = ClusterImage()
    image.apply(story.told(story.poll(1)))
    story.writes.clear()
    story.say(ev.TopicDeletionsRead(("t",)))
    assert story.topics == {}
    assert story.states == {}
    [write] = story.writes
    assert [type(each) for each in write.operations] == [
        ef.DeletePartitionState,
        ef.DeletePartitionState,
        ef.DeleteTopicZnode,
    ]
    changes = image.apply(story.told(story.poll(1, image.known)))
    assert changes is not None
    assert changes.deleted == {b"t".ljust(16, b"-"): "t"}


def test_a_big_topic_goes_in_slices_a3() -> None:
    story = ControllerStory().begin(topic("t", *[(1, 2)] * 230), on=nodes(1, 2))
    story.writes.clear()
    story.say(ev.TopicDeletionsRead(("t",)))
    assert [len(write.operations) for write in story.writes] == [100, 100, 31]
    assert story.states == {}
    assert story.topics == {}


def test_a_node_that_was_away_hears_of_it_by_the_topic_s_id_a3(story: ControllerStory) -> None:
    story.see(gone=(3,))
    story.say(ev.TopicDeletionsRead(("t",)))
    again = topic("t", (1, 2, 3), topic_id=b"other".ljust(16, b"-"))
    story.see_topic(again)
    story.see(n3=node(3, 203))
    told = story.told(story.poll(3))
    assert told.topics[0] == TopicView(b"t".ljust(16, b"-"), "t", deleted=True)
    assert [(each.topic_id, each.deleted) for each in told.topics[1:]] == [(again.topic_id, False)]


def test_a_deletion_outlives_the_controller_that_did_it_a3(story: ControllerStory) -> None:
    story.say(ev.TopicDeletionsRead(("t",)))
    image = ClusterImage()
    image.apply(story.told(story.poll(1)))
    after = ControllerStory()
    after.epoch, after.version = 2, story.version
    after.begin(on=story.nodes, image=image)
    assert [each.name for each in after.told(after.poll(2)).topics if each.deleted] == ["t"]


def test_a_topic_that_was_read_before_its_deletion_is_not_there_a3(story: ControllerStory) -> None:
    old = story.topics["t"]
    story.say(ev.TopicDeletionsRead(("t",)))
    story.say(ev.TopicsRead((old,)))
    assert story.states == {}


def test_what_cannot_be_deleted_is_said_and_its_marker_goes_a3() -> None:
    story = ControllerStory().begin(topic(OFFSETS, (1,)), topic(LEDGER, (1,)), on=nodes(1))
    story.say(ev.TopicDeletionsRead((OFFSETS, "nothing")))
    assert len(story.states) == 2
    assert story.others[-4:] == [
        ef.WarnOperator(f"topic {OFFSETS} is to be deleted: it is internal"),
        ef.RemoveMarker(ef.AdminMarker.DELETE, OFFSETS),
        ef.WarnOperator("topic nothing is to be deleted: there is none"),
        ef.RemoveMarker(ef.AdminMarker.DELETE, "nothing"),
    ]


def test_a_deletion_whose_write_failed_goes_on_a3(story: ControllerStory) -> None:
    story.hold = True
    story.say(ev.TopicDeletionsRead(("t",)))
    [write] = story.held
    story.held.clear()
    story.say(ev.WriteFailed(write.sequence, ev.WriteFailure.LOST))
    story.hold = False
    story.say(ev.VersionRead(story.version))
    assert story.states == {}
    assert story.topics == {}


@pytest.mark.parametrize("moves", [False, True])
def test_a_deletion_that_came_while_its_states_were_written_goes_by_what_they_are_then_a3(
    story: ControllerStory, moves: bool
) -> None:
    """Held for good: the states went at the versions that they had when the deletion was asked for, which were others
    by then. It was refused, all was read, and the same was asked again, and nothing else written ever after (cluster
    seed 30037)."""
    story.hold = True
    if moves:
        story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2, 3)}))
    else:
        story.ask(1, "t-0", (1, 2))
    story.say(ev.TopicDeletionsRead(("t",)))
    story.release()
    for _ in range(3):
        failed = story.release() if story.held else []
        if ef.ReadPartitionStates() in failed:
            story.say(ev.TopicsRead(tuple(story.topics.values()), complete=True))
            story.say(ev.StatesRead(dict(story.states), story.version))
    assert story.states == {}
    assert story.topics == {}


def test_a_deletion_that_somebody_else_has_finished_is_over_a3(story: ControllerStory) -> None:
    story.hold = True
    story.say(ev.TopicDeletionsRead(("t",)))
    again = topic("t", (1, 2, 3), topic_id=b"other".ljust(16, b"-"))
    story.topics, story.states = {"t": again}, {}
    assert ef.ReadPartitionStates() in story.release()
    story.hold = False
    story.say(ev.TopicsRead((again,), complete=True))
    story.say(ev.StatesRead({}, story.version))
    assert story.topics == {"t": again}
    assert story.led("t-0")[:2] == (1, 0)


def test_one_that_is_asked_for_while_all_is_read_is_done_a3(story: ControllerStory) -> None:
    story.hold = True
    story.ask(1, "t-0", (1, 2))
    [write] = story.held
    story.held.clear()
    story.hold = False
    assert ef.ReadPartitionStates() in story.say(ev.WriteFailed(write.sequence, ev.WriteFailure.VERSION))
    story.say(ev.TopicsRead(tuple(story.topics.values()), complete=True))
    story.say(ev.TopicDeletionsRead(("t",)))
    story.say(ev.StatesRead(dict(story.states), story.version))
    assert story.states == {}
    assert story.topics == {}


def test_a_topic_that_vanished_is_called_deleted_by_nobody_f11(story: ControllerStory) -> None:
    image = ClusterImage()
    image.apply(story.told(story.poll(1)))
    story.topics.clear()
    story.say(ev.TopicsRead((), complete=True))
    answer = story.told(story.poll(1, image.known))
    assert answer.full
    changes = image.apply(answer)
    assert changes is not None
    assert (changes.deleted, changes.unknown) == ({}, ["t"])
    assert "t" not in story.controller.term.controller_state.topics


def test_settings_are_told(story: ControllerStory) -> None:
    known = story.told(story.poll(1))
    story.see_topic(topic("t", (1, 2, 3), (2, 3, 1), retention_ms="5"))
    image = ClusterImage()
    image.apply(known)
    changes = image.apply(story.told(story.poll(1, image.known)))
    assert changes is not None
    assert (changes.configs, changes.partitions) == (["t"], [])


def assignment(story: ControllerStory, number: int = 0) -> ReplicaAssignment:
    return story.topics["t"].partitions[number]


def test_other_replicas_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 5, 1)}))
    assert story.answers[900].results == {place("t-0"): ErrorCode.NONE}
    assert assignment(story) == ReplicaAssignment((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert story.led("t-0") == (1, 0, (1, 2, 3), ())
    story.ask(1, "t-0", (1, 2, 3, 4))
    assert assignment(story).adding == (4, 5)
    story.ask(1, "t-0", (1, 2, 3, 4, 5))
    assert assignment(story) == ReplicaAssignment((4, 5, 1))
    assert story.led("t-0") == (1, 1, (4, 5, 1), ())
    assert story.state("t-0").directories.keys() == {1, 4, 5}


def test_the_leader_goes_into_the_target_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 5)}))
    story.ask(1, "t-0", (1, 2, 3, 4, 5))
    assert story.led("t-0") == (4, 1, (4, 5), ())
    assert story.state("t-0").cause == "reassigned"
    assert assignment(story) == ReplicaAssignment((4, 5))


def test_state_and_assignment_change_in_one_write_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 5)}))
    story.ask(1, "t-0", (1, 2, 3, 4, 5))
    assert [type(each) for each in story.writes[-1].operations] == [ef.PutTopicZnode, ef.PutPartitionState]


def test_cancelled_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2)}))
    story.ask(1, "t-0", (1, 2, 3, 4)[:3])
    assert assignment(story).adding == (4,)
    story.say(ev.ReassignmentRequested(901, {place("t-0"): None, place("t-1"): None}))
    assert story.answers[901].results == {
        place("t-0"): ErrorCode.NONE,
        place("t-1"): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
    assert assignment(story) == ReplicaAssignment((2, 1, 3))
    assert story.led("t-0")[:2] == (1, 1)


def test_a_new_one_takes_the_place_of_one_that_runs_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2)}))
    story.say(ev.ReassignmentRequested(901, {place("t-0"): (5, 2)}))
    assert assignment(story) == ReplicaAssignment((5, 2, 4, 1, 3), (5,), (4, 1, 3))
    story.ask(1, "t-0", (1, 2, 3, 5))
    assert story.led("t-0") == (5, 1, (5, 2), ())


def test_cancelled_while_those_who_come_have_the_copies_a8(story: ControllerStory) -> None:
    """Seed 21298 of the walk: what was cancelled left one in sync, who lost its disk; the other had been sent away."""
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (3, 4, 5)}))
    story.see(gone=(1,))
    story.see(gone=(2,))
    story.ask(3, "t-0", (3, 4))
    story.say(ev.ReassignmentRequested(901, {place("t-0"): None}))
    assert story.led("t-0")[2:] == ((3, 4), ())
    assert assignment(story).removing == (4, 5)
    story.see(n1=node(1, 201))
    story.ask(3, "t-0", (1, 3, 4))
    assert set(story.led("t-0")[2]) == {1, 3}
    assert set(assignment(story).replicas) == {1, 2, 3}


def test_it_goes_on_under_another_controller_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2)}))
    after = ControllerStory()
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on=story.nodes)
    after.ask(1, "t-0", (1, 2, 3, 4))
    assert assignment(after) == ReplicaAssignment((4, 2))
    assert after.led("t-0")[0] == 4


def test_a_shard_s_goes_on_under_a_controller_that_has_seen_no_node_before_a8() -> None:
    """Found by the simulated cluster's seed 1000001: who leads is elected anew once, for it may be another life. While
    its shard was being moved it was elected with each look at it, a hundred times a second, and no other could join."""
    pair = (topic(OFFSETS, (1, 2)), topic(LEDGER, (1, 2)))
    story = ControllerStory().begin(*pair, on=nodes(1, 2, 3))
    story.say(ev.ReassignmentRequested(900, {place(f"{OFFSETS}-0"): (3, 2)}))
    after = ControllerStory()
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on=story.nodes)
    assert after.led(f"{OFFSETS}-0")[:2] == (1, 1)
    after.ask(1, f"{OFFSETS}-0", (1, 2, 3))
    assert after.led(f"{OFFSETS}-0") == (3, 2, (3, 2), ())


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)], ids=["nobody", "twice", "not there"])
def test_replicas_that_cannot_be_a8(story: ControllerStory, target: tuple[int, ...]) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): target}))
    assert story.answers[900].results == {place("t-0"): ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def test_more_replicas_and_fewer_a8() -> None:
    story = ControllerStory().begin(topic("t", (1,)), on=nodes(1, 2, 3))
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (1, 2, 3)}))
    story.ask(1, "t-0", (1, 2, 3))
    assert assignment(story) == ReplicaAssignment((1, 2, 3))
    story.say(ev.ReassignmentRequested(901, {place("t-0"): (2,)}))
    assert story.led("t-0")[0] == 2
    assert story.led("t-0")[2:] == ((2,), ())
    assert assignment(story) == ReplicaAssignment((2,))


def test_what_a_tool_left_in_zookeeper_is_taken_in_and_removed_a8(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(None, {place("t-0"): (4, 2), place("u-0"): (1,)}))
    assert story.others.count(ef.RemoveMarker(ef.AdminMarker.REASSIGN)) == 1
    assert assignment(story).adding == (4,)
    assert any(isinstance(each, ef.WarnOperator) and "u-0" in each.text for each in story.others)


def test_a_shard_s_two_topics_change_together_a8() -> None:
    pair = (topic(OFFSETS, (1, 2)), topic(LEDGER, (1, 2)))
    story = ControllerStory().begin(*pair, on=nodes(1, 2, 3))
    story.say(ev.ReassignmentRequested(900, {place(f"{OFFSETS}-0"): (3, 2)}))
    story.ask(1, f"{OFFSETS}-0", (1, 2, 3))
    assert [each.partitions for each in story.topics.values()] == [(ReplicaAssignment((3, 2)),)] * 2
    assert story.led(f"{OFFSETS}-0") == story.led(f"{LEDGER}-0") == (3, 1, (3, 2), ())
    assert all(isinstance(each, ClusterTopic) and each.version == 2 for each in story.topics.values())


def test_partitions_that_are_added_meanwhile_are_not_lost_a8(story: ControllerStory) -> None:
    """Somebody else writes the topic's znode while a reassignment does: one of the two loses, and looks again."""
    story.hold = True
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2)}))
    story.topics["t"] = grown = topic("t", (1, 2, 3), (2, 3, 1), (5, 4), version=1)
    assert ef.ReadPartitionStates() in story.release()
    story.hold = False
    story.say(ev.TopicsRead((grown,), complete=True))
    story.say(ev.StatesRead(dict(story.states), story.version))
    assert [each.replicas for each in story.topics["t"].partitions] == [(4, 2, 1, 3), (2, 3, 1), (5, 4)]
    assert story.led("t-2") == (5, 0, (5, 4), ())
    assert story.answers[900].results == {place("t-0"): ErrorCode.NONE}


def test_a_new_one_that_comes_when_the_one_that_runs_is_about_to_end_is_not_lost_a8(story: ControllerStory) -> None:
    """Both were decided in one write: the end of the first took the place of the second, which was told as begun."""
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2)}))
    story.hold = True
    story.ask(1, "t-0", (1, 2, 3, 4))
    story.say(ev.ReassignmentRequested(901, {place("t-0"): (5, 2)}))
    story.hold = False
    story.release()
    assert story.answers[901].results == {place("t-0"): ErrorCode.NONE}
    assert assignment(story).adding == (5,)
    story.ask(1, "t-0", (1, 2, 3, 4, 5))
    assert assignment(story) == ReplicaAssignment((5, 2))


def test_however_many_are_deleted_at_once_all_nodes_hear_of_each_a3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The eldest were forgotten before anybody had asked: they stayed in every image, and their records on disk."""
    monkeypatch.setattr(metadata_publisher, "MAX_DELETED_TOPICS", 2)
    names = [f"t{number}" for number in range(5)]
    story = ControllerStory().begin(*(topic(name, (1, 2)) for name in (*names, "u", "v")), on=nodes(1, 2, 3))
    images = {each: ClusterImage() for each in (1, 2, 3)}
    for each, image in images.items():
        assert image.apply(story.told(story.poll(each))) is not None
    story.say(ev.TopicDeletionsRead(tuple(names)))
    for each in (1, 2):
        changes = images[each].apply(story.told(story.poll(each, images[each].known)))
        assert changes is not None
        assert set(changes.deleted.values()) == set(names)
        story.poll(each, images[each].known)
    deleted = story.controller.term.controller_state.publisher.deleted
    assert len(deleted) == 5, "node 3 has not heard of them"
    changes = images[3].apply(story.told(story.poll(3, images[3].known)))
    assert changes is not None
    assert set(changes.deleted.values()) == set(names)
    story.poll(3, images[3].known)
    story.say(ev.TopicDeletionsRead(("u",)))
    assert list(deleted.values()) == ["t4", "u"]
    # Who was away meanwhile is told all there is, and what is not in it is not there.
    late = ClusterImage()
    late.apply(story.told(story.poll(2)))
    assert set(late.topics) == {"v"}
    for image in (images[1], images[2]):
        image.apply(story.told(story.poll(1, image.known)))
        assert set(image.topics) == {"v"}


# Znodes without an id, as kafka-topics --zookeeper of Kafka before 2.8 writes them (CL-A11)

GROWN = topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), version=1)
T_ID = GROWN.topic_id


def next_controller(story: ControllerStory, image: ClusterImage | None, **copies: bytes) -> ControllerStory:
    """Another node's term over what is in ZooKeeper; it is node 9."""
    after = ControllerStory()
    after.epoch, after.version, after.states = 2, story.version, story.states
    return after.begin(*story.topics.values(), on=story.nodes, image=image, copies=copies)


def test_a_topic_altered_by_an_older_tool_grows_and_keeps_its_id_a11(story: ControllerStory) -> None:
    """Held: it stayed as it was, and vanished at the next change of controller."""
    story.see_without_id(GROWN)
    assert (story.topics["t"].topic_id, len(story.topics["t"].partitions)) == (T_ID, 3)
    assert story.led("t-2") == (3, 0, (3, 1, 2), ())
    story.read_topics()
    writes = len(story.writes)
    story.read_topics()
    assert len(story.writes) == writes
    after = next_controller(story, None)
    assert {place_.partition for place_ in after.states} == {0, 1, 2}


def test_replicas_that_are_coming_still_come_after_an_older_tool_a11(story: ControllerStory) -> None:
    story.say(ev.ReassignmentRequested(900, {place("t-0"): (4, 2, 3)}))
    before = story.topics["t"].partitions[0]
    assert before.adding == (4,)
    story.see_without_id(topic("t", before.replicas, (2, 3, 1), (3, 1, 2), version=story.topics["t"].version + 1))
    assert story.topics["t"].partitions[0] == before
    assert story.topics["t"].topic_id == T_ID


@pytest.mark.parametrize("how", ["image", "copies"])
def test_a_controller_that_did_not_see_the_change_knows_the_id_a11(story: ControllerStory, how: str) -> None:
    image = ClusterImage()
    image.apply(story.told(story.poll(1)))
    story.topics["t"] = with_(GROWN, topic_id=b"")
    if how == "copies":  # of a node that is in sync
        story.states[place("t-0")] = with_(story.states[place("t-0")], isr=(1, 2, 3, 9))
    after = next_controller(story, image) if how == "image" else next_controller(story, None, t=T_ID)
    assert after.topics["t"].topic_id == T_ID
    assert after.led("t-2")[0] == 3
    [told] = after.told(after.poll(2)).topics
    assert (told.topic_id, len(told.partitions)) == (T_ID, 3)


def test_an_id_that_nobody_knows_is_told_and_nothing_is_taken_for_gone_a11(story: ControllerStory) -> None:
    """A copy that is not in sync may be of a topic of that name that was deleted: its id says nothing."""
    states = dict(story.states)
    story.topics["t"] = with_(GROWN, topic_id=b"")
    after = next_controller(story, None, t=b"former".ljust(16, b"-"))
    after.say(after.all_topics())
    after.say(ev.TopicDeletionsRead(("t",)))
    warnings = [each.text for each in after.others if isinstance(each, ef.WarnOperator)]
    assert len(warnings) == 1
    assert "says no topic_id" in warnings[0]
    assert "on nodes 1, 2, 3" in warnings[0]
    assert after.states == states
    assert after.writes == []
    assert not any(isinstance(each, ef.RemoveMarker) for each in after.others)
    after.see_topic(with_(GROWN, version=2))  # put back by hand
    after.say(after.all_topics())  # the states are there, so that all is read again
    after.say(ev.StatesRead(dict(after.states), after.version))
    assert after.led("t-2")[0] == 3


def test_a_topic_made_by_an_older_tool_gets_an_id_and_takes_effect_a11(story: ControllerStory) -> None:
    story.see_without_id(topic("new", (4, 5)))
    assert story.topics["new"].topic_id == DRAWN
    story.read_topics()
    assert story.led("new-0") == (4, 0, (4, 5), ())
    story.say(ev.TopicDeletionsRead(("new",)))
    assert "new" not in story.topics


def test_a_topic_made_anew_under_a_known_name_is_another_a11(story: ControllerStory) -> None:
    """Removed with all its znodes by hand, and made again: records of the former one are none of this one's."""
    for each in list(story.states):
        del story.states[each]
    story.see_without_id(topic("t", (1, 2)))
    assert story.topics["t"].topic_id == DRAWN
    story.read_topics()
    assert {place_.partition for place_ in story.states} == {0}


def test_a_topic_altered_by_an_older_tool_is_deleted_a11(story: ControllerStory) -> None:
    story.hold = True
    story.say(ev.TopicDeletionsRead(("t",)))
    story.see_without_id(GROWN)
    [write] = story.held
    story.held.clear()
    story.hold = False
    story.do(write)
    story.say(story.all_topics())
    story.say(ev.StatesRead(dict(story.states), story.version))
    assert story.topics == {}
    assert story.states == {}
