"""CL-C6 and CL-C8: a leader asks for other in-sync replicas."""

from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller import node_requests
from tests.support.controller_story import ControllerStory, node, nodes, place, topic


@pytest.fixture
def story() -> ControllerStory:
    """Node 3 is not in sync: it died, and is back."""
    story = ControllerStory().begin(topic("t", (1, 2, 3), (1, 2, 3)), on=nodes(1, 2, 3))
    story.see(gone=(3,))
    story.see(n3=node(3, 203))
    assert story.led("t-0") == (1, 0, (1, 2), ())
    return story


def test_joining_and_leaving_c8(story: ControllerStory) -> None:
    joined = story.result(story.ask(1, "t-0", (1, 2, 3)))
    assert joined.error is ErrorCode.NONE
    assert joined.state is not None
    assert joined.state.partition_epoch == story.state("t-0").partition_epoch
    assert story.led("t-0") == (1, 0, (1, 2, 3), ())
    assert story.result(story.ask(1, "t-0", (3, 1))).error is ErrorCode.NONE
    assert story.led("t-0") == (1, 0, (1, 3), ())
    assert story.result(story.ask(1, "t-0", (1,))).error is ErrorCode.NONE
    assert story.led("t-0") == (1, 0, (1,), (3,))


@pytest.mark.parametrize(
    ("isr", "other", "code"),
    [
        ((1, 2, 3), {"sender_epoch": 7}, ErrorCode.STALE_BROKER_EPOCH),
        ((1, 2, 3), {"topic_id": b"?" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, 2, 3), {"partition": 2}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, 2, 3), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1, 2, 3), {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((1, 2, 3), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2, 3), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((2, 1), {"partition_epoch": 0}, ErrorCode.NONE),
        ((1, 2, 4), {}, ErrorCode.INELIGIBLE_REPLICA),
        ((1, 2, 3), {"epochs": {3: 103}}, ErrorCode.INELIGIBLE_REPLICA),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
    ],
    ids=[
        "old registration of the sender",
        "no such topic",
        "no such partition",
        "leader epoch above",
        "partition epoch above",
        "leader epoch below",
        "partition epoch below",
        "so already",
        "not live",
        "a former life",
        "without the leader",
    ],
)
def test_what_speaks_against_it_in_this_order_c8(
    story: ControllerStory, isr: tuple[int, ...], other: dict[str, Any], code: ErrorCode
) -> None:
    before = story.state("t-0")
    request = story.ask(1, "t-0", isr, **other)
    answer = story.answers[request]
    assert (answer.error or answer.results[0].error) is code
    assert story.state("t-0") == before


def test_who_asks_for_the_present_set_as_it_is_gets_another_partition_epoch_c8(story: ControllerStory) -> None:
    """A leader that was not answered asks so, to know that what it asked before will not be done any more."""
    before = story.state("t-0")
    answer = story.result(story.ask(1, "t-0", (1, 2)))
    assert answer.error is ErrorCode.NONE
    assert answer.state is not None
    assert answer.state.partition_epoch == before.partition_epoch + 1
    late = story.ask(1, "t-0", (1, 2, 3), partition_epoch=before.partition_epoch)
    assert story.result(late).error is ErrorCode.INVALID_UPDATE_VERSION
    assert story.led("t-0") == (1, 0, (1, 2), ())


def test_only_replicas_and_only_by_the_leader_c8(story: ControllerStory) -> None:
    story.see(n4=node(4))
    assert story.result(story.ask(1, "t-0", (1, 2, 4))).error is ErrorCode.INVALID_REQUEST
    assert story.result(story.ask(2, "t-0", (1, 2, 3))).error is ErrorCode.INVALID_REQUEST


def test_who_shuts_down_does_not_join_and_hinders_nobody_c8() -> None:
    """Found while it was built: with CL-C8's letter a leader could ask for nothing while one in sync shuts down, nobody
    could join, and so nobody could take its place."""
    story = ControllerStory().begin(topic("t", (1, 2, 3)), on=nodes(1, 2, 3))
    story.see(gone=(3,))
    story.say(ev.ShutdownRequested(900, 2, 102))
    assert story.led("t-0")[2] == (1, 2)
    story.see(n3=node(3, 203))
    assert story.result(story.ask(1, "t-0", (1, 2, 3))).error is ErrorCode.NONE
    assert story.led("t-0")[2] == (1, 3)
    assert story.result(story.ask(1, "t-0", (1, 2, 3))).error is ErrorCode.INELIGIBLE_REPLICA


def test_the_directory_of_who_joins_is_kept_and_no_other_c6(story: ControllerStory) -> None:
    story.see(gone=(3,))
    story.see(n3=node(3, 303, "new disk"))
    assert story.state("t-0").directories[3] == "d3"
    story.ask(1, "t-0", (1, 2, 3))
    assert story.state("t-0").directories == {1: "d1", 2: "d2", 3: "new disk"}


def test_who_is_in_already_is_never_known_by_another_directory_c6() -> None:
    """A bounce with an empty disk while it is the last one in sync: nobody may take it for what it was."""
    story = ControllerStory().begin(topic("t", (1, 2)), on=nodes(1, 2))
    story.see(gone=(2,))
    story.see(n1=node(1, 201, "new disk"))
    assert story.state("t-0").directories[1] == "d1"
    assert story.led("t-0")[0] == -1


def test_several_items_are_answered_as_one_and_each_for_itself_c8(story: ControllerStory) -> None:
    items = []
    for number in (1, 0):
        state = story.state(f"t-{number}")
        members = tuple(ev.IsrMember(each, story.nodes[each].epoch) for each in (1, 2, 3))
        items.append(ev.IsrItem(story.topics["t"].topic_id, number, state.leader_epoch, state.partition_epoch, members))
    items[1] = items[1]._replace(leader_epoch=9)
    story.say(ev.AlterPartitionRequested(500, 1, 101, tuple(items)))
    answer = story.answers[500]
    assert [(each.partition, each.error) for each in answer.results] == [
        (1, ErrorCode.NONE),
        (0, ErrorCode.NOT_CONTROLLER),
    ]


def test_either_half_of_a_shard_stands_for_it_c8() -> None:
    pair = (topic("__consumer_offsets", (1, 2)), topic("__rebalances", (1, 2)))
    story = ControllerStory().begin(*pair, on=nodes(1, 2))
    assert story.result(story.ask(1, "__rebalances-0", (1,))).error is ErrorCode.NONE
    for name in ("__consumer_offsets", "__rebalances"):
        assert story.led(f"{name}-0") == (1, 0, (1,), (2,))


def test_two_that_ask_for_one_unit_are_decided_one_after_the_other_c8(story: ControllerStory) -> None:
    story.hold = True
    first = story.ask(1, "t-0", (1, 2, 3))
    second = story.ask(1, "t-0", (1,))
    assert not story.answers.keys() & {first, second}
    story.release()
    assert story.result(first).error is ErrorCode.NONE
    assert story.result(second).error is ErrorCode.INVALID_UPDATE_VERSION


def test_nobody_is_told_of_a_state_before_it_is_written_c1(story: ControllerStory) -> None:
    polled = story.told(story.poll(2))
    story.hold = True
    request = story.ask(1, "t-0", (1, 2, 3))
    late, early = story.poll(3), story.poll(2, story.controller.term.controller_state.publisher.known)
    assert request not in story.answers
    assert early not in story.answers
    assert story.told(late).topics[0].partitions == polled.topics[0].partitions
    [write] = story.held
    story.release()
    assert story.told(early).sequence == write.sequence
    assert story.told(early).topics[0].partitions[0].isr == (1, 2, 3)


def test_too_many_that_wait_are_refused(story: ControllerStory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_requests, "MAX_WAITING", 1)
    story.hold = True
    first = story.ask(1, "t-0", (1, 2, 3))
    assert story.answers[story.ask(1, "t-1", (1, 2, 3))].error is ErrorCode.REQUEST_TIMED_OUT
    story.release()
    assert story.result(first).error is ErrorCode.NONE


def test_asking_does_not_keep_elections_waiting() -> None:
    """A leader that asks for a hundred units leaves half of a write to those who have none."""
    story = ControllerStory().begin(topic("t", *[(1, 2, 3)] * 120, *[(4, 2)] * 60), on=nodes(1, 2, 3, 4))
    story.hold = True
    story.say(ev.AlterPartitionRequested(500, 2, 102, ()))
    members = tuple(ev.IsrMember(each, story.nodes[each].epoch) for each in (1, 2))
    items = [ev.IsrItem(story.topics["t"].topic_id, number, 0, 0, members) for number in range(120)]
    story.ask(1, "t-0", (1, 2))
    story.say(ev.AlterPartitionRequested(501, 1, 101, tuple(items)))
    story.see(gone=(4,))
    story.release()
    [write] = story.held
    puts = [each for each in write.operations if isinstance(each, ef.PutPartitionState)]
    assert [len([each for each in puts if each.state.leader == leader]) for leader in (1, 2)] == [50, 50]
    while story.held:
        story.release()
    assert {result.error for result in story.answers[501].results} == {ErrorCode.NONE}
    assert story.states[place("t-150")].leader == 2
