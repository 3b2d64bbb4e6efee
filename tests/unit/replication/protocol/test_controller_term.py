"""How writes end, how terms begin and end, and what nodes are told (CL-C1, CL-Z5, CL-Z6, CL-Z7, CL-N1)."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_VERSION,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    ImageVersion,
    PartitionState,
)
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller import metadata_publisher
from muster.coordinator.replication.protocol.controller.partition_state_machine import MAX_REVIEWS
from tests.support.controller_story import ControllerStory, as_read, node, nodes, place, topic


@pytest.fixture
def story() -> ControllerStory:
    return ControllerStory().begin(topic("t", (1, 2, 3)), on=nodes(1, 2, 3))


def image_of(story: ControllerStory, node_id: int = 2) -> ClusterImage:
    """What a node knows that has been told all."""
    image = ClusterImage()
    image.apply(story.told(story.poll(node_id)))
    return image


def successor(
    story: ControllerStory, image: ClusterImage | None = None, on: tuple[int, ...] = (1, 2, 3)
) -> ControllerStory:
    """Another controller, over the same ZooKeeper."""
    after = ControllerStory()
    after.epoch = story.epoch + 1
    after.version, after.topics, after.states = story.version, dict(story.topics), dict(story.states)
    return after.begin(on={each: story.nodes[each] for each in on}, image=image)


def test_a_write_checks_all_it_rests_on_z5(story: ControllerStory) -> None:
    version = story.version
    story.see(gone=(1,))
    write = story.writes[-1]
    assert (write.epoch, write.epoch_version, write.cluster_version) == (1, 1, version.version)
    assert write.sequence > version.known.sequence
    assert [(str(each.place), each.at) for each in write.operations if isinstance(each, ef.PutPartitionState)] == [
        ("t-0", 0)
    ]
    assert story.states[place("t-0")].controller_epoch == 1


def test_one_write_at_a_time_and_what_arrives_is_decided_with_the_next(story: ControllerStory) -> None:
    story.hold = True
    story.see(gone=(1,))
    story.see(gone=(2,))
    assert len(story.held) == 1
    story.release()
    assert [each.state.leader for each in story.held[0].operations if isinstance(each, ef.PutPartitionState)] == [3]


def test_another_controller_ends_the_term_z5(story: ControllerStory) -> None:
    story.hold = True
    asked = story.ask(1, "t-0", (1, 2))
    polled = story.poll(2, story.controller.term.controller_state.publisher.known)
    story.epoch = 2
    assert ef.ResignController() in story.release()
    assert story.answers[asked].error is ErrorCode.NOT_CONTROLLER
    assert story.told(polled).error is ErrorCode.NOT_CONTROLLER
    assert story.told(story.poll(2)).error is ErrorCode.NOT_CONTROLLER
    assert story.state("t-0").isr == (1, 2, 3)


def test_a_state_that_is_not_as_it_was_is_read_anew_z5(story: ControllerStory) -> None:
    story.hold = True
    story.see(gone=(1,))
    mine = story.states[place("t-0")]
    story.states[place("t-0")] = other = as_read(mine, mine.partition_epoch + 1)
    assert ef.ReadPartitionStates() in story.release()
    story.hold = False
    assert story.state("t-0") == other
    story.say(ev.TopicsRead(tuple(story.topics.values()), complete=True))
    story.say(ev.StatesRead(dict(story.states), story.version))
    assert story.led("t-0") == (2, 1, (2, 3), ())


@pytest.mark.parametrize("done", [True, False], ids=["after the deed", "before it"])
def test_an_answer_that_got_lost_z6(story: ControllerStory, done: bool) -> None:
    story.hold = True
    story.see(gone=(1,))
    waits = story.poll(2, story.controller.term.controller_state.publisher.known)
    [write] = story.held
    story.held.clear()
    if done:
        story.perform(write)
    assert story.say(ev.WriteFailed(write.sequence, ev.WriteFailure.LOST)) == [ef.ReadClusterVersion()]
    assert waits not in story.answers
    story.hold = False
    story.say(ev.VersionRead(story.version))
    assert story.led("t-0") == (2, 1, (2, 3), ())
    assert [note.after for note in story.notes] == [2]
    assert waits in story.answers
    assert story.told(story.poll(2)).topics[0].partitions[0].leader == 2


def test_a_write_that_may_be_done_yet_is_ruled_out_before_anything_else_is_said_z6(story: ControllerStory) -> None:
    """Found while it was built: an ISR that grows in a write which is believed lost, and is done later. Who asked has
    been refused meanwhile, commits without the one who joined, and the next controller elects that one."""
    story.hold = True
    asked = story.ask(1, "t-0", (1, 2))
    [lost] = story.held
    story.held.clear()
    story.say(ev.WriteFailed(lost.sequence, ev.WriteFailure.LOST))
    story.see(n2=node(2, 202))
    story.say(ev.VersionRead(story.version))
    [fence] = story.held
    assert fence.operations == ()
    assert fence.sequence > lost.sequence
    assert asked not in story.answers
    story.release()
    assert story.refusal(lost) is ev.WriteFailure.VERSION
    while story.held:
        story.release()
    assert story.result(asked).error is not ErrorCode.NONE


def test_a_write_that_is_done_later_after_all_z6(story: ControllerStory) -> None:
    story.hold = True
    story.see(gone=(1,))
    [lost] = story.held
    story.held.clear()
    story.say(ev.WriteFailed(lost.sequence, ev.WriteFailure.LOST))
    story.say(ev.VersionRead(story.version))
    story.perform(lost)
    assert ef.ReadPartitionStates() in story.release()
    story.hold = False
    story.say(ev.TopicsRead(tuple(story.topics.values()), complete=True))
    story.say(ev.StatesRead(dict(story.states), story.version))
    assert story.led("t-0") == (2, 1, (2, 3), ())
    assert story.told(story.poll(2)).topics[0].partitions[0].leader == 2


def test_a_sequence_is_not_told_before_its_states_z7(story: ControllerStory) -> None:
    """Seed 7087 of the walk: what was done late after all was read, and its sequence told before the states that it
    brought. The next controller took an image of that sequence for whole, and refused each leader for good."""
    image = image_of(story)
    story.hold = True
    story.ask(1, "t-0", (1, 2))
    [lost] = story.held
    story.held.clear()
    story.say(ev.WriteFailed(lost.sequence, ev.WriteFailure.LOST))
    story.say(ev.VersionRead(story.version))
    story.perform(lost)
    story.release()
    waits = story.poll(2, image.known)
    story.say(ev.TopicsRead(tuple(story.topics.values()), complete=True))
    story.say(ev.StatesRead(dict(story.states), story.version))
    assert waits not in story.answers
    story.release()
    image.apply(story.told(waits))
    view = image.partition(place("t-0"))
    assert view is not None
    assert (view.isr, view.partition_epoch) == ((1, 2), story.state("t-0").partition_epoch)


def test_an_older_answer_about_a_write_is_nothing(story: ControllerStory) -> None:
    before = story.state("t-0")
    assert story.say(ev.MultiWritten(7_000)) == []
    assert story.say(ev.WriteFailed(7_000, ev.WriteFailure.LOST)) == []
    assert story.say(ev.VersionRead(story.version)) == []
    assert story.state("t-0") == before


def test_a_new_controller_that_knows_all_reads_no_states_z7(story: ControllerStory) -> None:
    image = image_of(story)
    after = successor(story, image)
    assert not [each for each in after.others if isinstance(each, ef.ReadPartitionStates)]
    assert after.writes == []
    after.see(gone=(1,))
    assert after.led("t-0") == (2, 1, (2, 3), ())


def test_a_new_controller_that_knows_the_directories_rules_out_another_disk_z7(story: ControllerStory) -> None:
    image = image_of(story)
    story.nodes[1] = node(1, 201, "new disk")
    after = successor(story, image)
    assert after.led("t-0") == (2, 1, (2, 3), ())


def test_a_new_controller_that_misses_a_write_or_a_directory_reads_all_z7(story: ControllerStory) -> None:
    image = image_of(story)
    bare = image_of(story)
    told = bare.topics["t"].partitions
    assert isinstance(told, dict)
    told[0] = told[0]._replace(directories=None)
    assert [each for each in successor(story, bare).others if isinstance(each, ef.ReadPartitionStates)]
    story.ask(1, "t-0", (1, 2))
    after = successor(story, image)
    assert [each for each in after.others if isinstance(each, ef.ReadPartitionStates)]
    after.see(gone=(1,))
    assert after.led("t-0") == (2, 1, (2,), (1,))


def test_who_may_have_bounced_between_two_terms_leads_in_a_new_epoch_c7(story: ControllerStory) -> None:
    """Found while it was built: a new controller cannot see that a leader was dead in between. Its log may lack a tail
    that others have; in the same epoch it would write other records in its place."""
    image = image_of(story)
    story.nodes[1] = node(1, 201)
    assert successor(story, image).led("t-0") == (1, 1, (1, 2, 3), ())
    assert successor(story, None).led("t-0") == (1, 1, (1, 2, 3), ())


def test_who_may_have_bounced_hears_nothing_before_that_is_written_c7(story: ControllerStory) -> None:
    image = image_of(story)
    story.nodes[1] = node(1, 201)
    after = ControllerStory()
    after.hold = True
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on=story.nodes, image=image)
    one, two = after.poll(1), after.poll(2)
    assert one not in after.answers
    assert after.told(two).topics[0].partitions[0].leader_epoch == 0
    after.release()
    assert after.told(one).topics[0].partitions[0].leader_epoch == 1


def test_who_may_have_bounced_is_told_of_as_live_when_that_is_written_c7(story: ControllerStory) -> None:
    """Seed 526 of the walk: a controller told the others of the new registration first, and died. The next one, which
    knew that registration, took its node for what it was, and it led on in the epoch of its former life."""
    image = image_of(story)
    story.nodes[1] = node(1, 201)
    after = ControllerStory()
    after.hold = True
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on=story.nodes, image=image, heard=False)
    image.apply(after.told(after.poll(2)))
    after.states = story.states
    assert successor(after, image).led("t-0") == (1, 1, (1, 2, 3), ())
    after.release()
    image.apply(after.told(after.poll(2)))
    assert image.nodes[1].epoch == 201


def test_requests_wait_for_all_to_be_read() -> None:
    story = ControllerStory()
    story.nodes = nodes(1, 2)
    story.say(ev.ControllerElected(9, 1, 1, story.version))
    polled = story.poll(1, ImageVersion(0, 5))
    story.say(ev.ShutdownRequested(70, 1, 101))
    story.later(500)
    assert (story.told(polled).error, story.told(polled).full) == (ErrorCode.NONE, False)
    assert 70 not in story.answers
    story.topics["t"] = topic("t", (1, 2))
    story.begin(on=story.nodes)
    assert story.answers[70].error is ErrorCode.NOT_CONTROLLER  # begin() is another election


def test_between_terms_this_is_not_the_controller() -> None:
    story = ControllerStory()
    story.nodes = nodes(1)
    assert story.told(story.poll(1)).error is ErrorCode.NOT_CONTROLLER
    story.say(ev.ShutdownRequested(70, 1, 101))
    assert story.answers[70].error is ErrorCode.NOT_CONTROLLER
    assert story.say(ev.NodesRead({})) == []


def test_what_is_new_is_told_once_to_each_n1(story: ControllerStory) -> None:
    first = story.told(story.poll(1))
    assert first.full
    known = ImageVersion(first.epoch, first.sequence)
    waits = story.poll(1, known)
    assert waits not in story.answers
    story.ask(1, "t-0", (1, 2))
    second = story.told(waits)
    assert (second.full, second.nodes, second.topics[0].partitions.keys()) == (False, (), {0})
    assert second.sequence > first.sequence
    again = story.told(story.poll(2, known))
    assert again.topics == second.topics


def test_a_poll_is_answered_when_it_has_waited_n1(story: ControllerStory) -> None:
    known = ImageVersion(1, story.told(story.poll(1)).sequence)
    waits = story.poll(1, known)
    story.later(499)
    assert waits not in story.answers
    story.later(1)
    answer = story.told(waits)
    assert (answer.error, answer.epoch, answer.sequence, answer.topics) == (ErrorCode.NONE, *known, ())
    assert ClusterImage(known=known).apply(answer) is None


def test_who_asks_twice_has_one_poll_waiting(story: ControllerStory) -> None:
    known = ImageVersion(1, story.told(story.poll(1)).sequence)
    first, second = story.poll(1, known), story.poll(1, known)
    assert story.told(first).topics == ()
    assert second not in story.answers


@pytest.mark.parametrize("known", [ImageVersion(0, 1), NO_VERSION, ImageVersion(1, 10_000)])
def test_who_knows_another_epoch_is_told_all_n1(story: ControllerStory, known: ImageVersion) -> None:
    assert story.told(story.poll(1, known)).full


def test_who_knows_too_little_is_told_all_n1(story: ControllerStory, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ImageVersion(1, story.told(story.poll(1)).sequence)
    story.see_topic(topic("u", *[(1,)] * 30))
    assert not story.told(story.poll(1, known)).full
    monkeypatch.setattr(metadata_publisher, "MAX_CHANGES", 20)
    story.ask(1, "t-0", (1, 2))
    assert story.told(story.poll(2, known)).full


def test_a_node_that_dies_is_told_of_n1(story: ControllerStory) -> None:
    known = ImageVersion(1, story.told(story.poll(1)).sequence)
    waits = story.poll(2, known)
    story.see(gone=(1,))
    assert [(each.id, each.status) for each in story.told(waits).nodes] == [(1, ClusterNodeStatus.GONE)]


def test_an_image_that_is_fed_all_deltas_is_the_one_that_is_told_at_once_n1(story: ControllerStory) -> None:
    image = ClusterImage()
    for step in range(6):
        if step == 1:
            story.see_topic(topic("u", (2, 3), (3, 1), retention_ms="5"))
        if step == 2:
            story.see(gone=(3,))
        if step == 3:
            story.see(n3=node(3, 303))
        if step == 4:
            story.say(ev.TopicDeletionsRead(("t",)))
        if step == 5:
            story.ask(2, "u-0", (2, 3))
        image.apply(story.told(story.poll(1, image.known)))
    whole = image_of(story, 1)
    assert (image.nodes, image.topics, image.deleted) == (whole.nodes, whole.topics, whole.deleted)


def test_an_old_reading_of_registrations_changes_nothing(story: ControllerStory) -> None:
    story.see(n1=node(1, 201))
    before = story.state("t-0")
    story.see(n1=node(1, 101))
    assert story.state("t-0") == before


def test_more_is_looked_at_than_one_step_may(story: ControllerStory) -> None:
    story.see_topic(topic("u", *[(1,)] * (MAX_REVIEWS + 10)))
    assert len([each for each in story.states if each.topic == "u"]) == MAX_REVIEWS + 10


def test_a_shard_of_which_a_half_is_missing_waits() -> None:
    story = ControllerStory().begin(topic(OFFSETS, (1, 2)), on=nodes(1, 2))
    assert story.states == {}
    story.see_topic(topic("__rebalances", (1, 2)))
    assert len(story.states) == 2
    assert all(isinstance(each, PartitionState) for each in story.states.values())


def with_an_eligible_one() -> tuple[ControllerStory, ClusterImage]:
    """Node 1 leads, 2 is eligible, by a minimum of 2."""
    story = ControllerStory().begin(topic("t", (1, 2)), on=nodes(1, 2))
    story.ask(1, "t-0", (1,))
    assert story.led("t-0") == (1, 0, (1,), (2,))
    return story, image_of(story, 1)


def test_a_new_controller_tells_of_no_lower_minimum_before_the_elr_is_empty_c5() -> None:
    """Seed 1260 of the walk: the settings were changed, and the controller that was to empty the ELR first died. The
    next one told them at once, the leader committed alone, and the eligible one lacked that."""
    story, image = with_an_eligible_one()
    story.topics["t"] = topic("t", (1, 2), min_insync_replicas="1")
    after = ControllerStory()
    after.hold = True
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on=story.nodes, image=image, heard=False)
    waits = after.poll(1, image.known)
    assert waits not in after.answers
    after.release()
    told = after.told(waits).topics[0]
    assert (told.configs, told.partitions[0].elr) == ({"min.insync.replicas": "1"}, ())


def test_who_becomes_eligible_before_all_have_heard_of_a_term_does_so_in_a_new_epoch_c5(
    story: ControllerStory,
) -> None:
    """What a leader goes by that has heard nothing of this term, nobody knows: in an epoch that it does not know it
    cannot commit alone."""
    image = image_of(story)
    after = ControllerStory()
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on={3: story.nodes[3]}, image=image, heard=False)
    assert after.led("t-0") == (3, 1, (3,), (1, 2))


def test_a_leader_that_has_not_heard_of_a_term_asks_again_c5(story: ControllerStory) -> None:
    image = image_of(story)
    after = ControllerStory()
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.begin(on=story.nodes, image=image, heard=False)
    assert after.result(after.ask(1, "t-0", (1,))).error is ErrorCode.NOT_CONTROLLER
    assert after.led("t-0") == (1, 0, (1, 2, 3), ())
    after.poll(1, after.controller.term.controller_state.publisher.known)
    assert after.result(after.ask(1, "t-0", (1,))).error is ErrorCode.NONE
    assert after.led("t-0") == (1, 0, (1,), (2, 3))


def test_one_lost_answer_is_looked_up_once_z6(story: ControllerStory) -> None:
    story.hold = True
    story.see(gone=(1,))
    [lost] = story.held
    story.say(ev.WriteFailed(lost.sequence, ev.WriteFailure.LOST))
    story.say(ev.WriteFailed(lost.sequence, ev.WriteFailure.LOST))
    story.say(ev.VersionRead(story.version))
    assert len(story.held) == 2
    story.say(ev.VersionRead(story.version))
    assert len(story.held) == 2
