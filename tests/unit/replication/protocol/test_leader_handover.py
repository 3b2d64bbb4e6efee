"""Leaders that are wanted elsewhere: shutdown, drain, preferred, by order, evicted (CL-A5, CL-A6, CL-A7, CL-C9,
CL-C10)."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    ImageVersion,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from tests.support.controller_story import SMALL, ControllerStory, node, nodes, place, topic


@pytest.fixture
def story() -> ControllerStory:
    return ControllerStory().begin(topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2)), on=nodes(1, 2, 3))


def hear(story: ControllerStory, *ids: int) -> None:
    """Nodes apply all there is, and say so."""
    known = story.controller.term.controller_state.publisher.known
    for each in ids:
        story.poll(each, known)


def leaders(story: ControllerStory, name: str = "t") -> list[int]:
    return [state.leader for place, state in sorted(story.states.items()) if place.topic == name]


def test_who_shuts_down_leads_nothing_and_is_in_sync_no_more_a7(story: ControllerStory) -> None:
    story.say(ev.ShutdownRequested(900, 1, 101))
    assert story.answers[900] == ef.ShutdownResult(ErrorCode.NONE)
    assert story.led("t-0") == (2, 1, (2, 3), ())
    assert story.led("t-1") == (2, 0, (2, 3), ())
    assert story.state("t-0").cause == "shut down"
    assert {each.status for each in story.told(story.poll(2)).nodes if each.id == 1} == {
        ClusterNodeStatus.SHUTTING_DOWN
    }
    story.see(gone=(2,))
    assert [each for each in leaders(story) if each != 3] == []


def test_in_sync_stays_who_is_needed_for_the_minimum_a7() -> None:
    story = ControllerStory().begin(topic("t", (1, 2), (2, 1)), on=nodes(1, 2))
    story.say(ev.ShutdownRequested(900, 1, 101))
    assert story.led("t-0") == (2, 1, (1, 2), ())
    assert story.led("t-1") == (2, 0, (2, 1), ())


def test_what_nobody_else_may_lead_is_named_a7() -> None:
    story = ControllerStory().begin(topic("t", (1,), (1, 2)), on=nodes(1, 2))
    story.say(ev.ShutdownRequested(900, 1, 101))
    assert 900 not in story.answers
    hear(story, 2)
    assert story.answers[900].remaining == (place("t-0"),)
    assert leaders(story) == [1, 2]


def test_nobody_is_elected_where_a_node_shuts_down_a7() -> None:
    story = ControllerStory().begin(topic("t", (1, 2)), on=nodes(1, 2))
    story.say(ev.ShutdownRequested(900, 2, 102))
    story.see(gone=(1,))
    assert story.led("t-0")[0] == NO_NODE_ID


def test_a_former_life_shuts_nothing_down_a7(story: ControllerStory) -> None:
    story.say(ev.ShutdownRequested(900, 1, 77))
    assert story.answers[900].error is ErrorCode.STALE_BROKER_EPOCH
    assert leaders(story) == [1, 2, 3]


def test_who_comes_back_shuts_down_no_more_a7(story: ControllerStory) -> None:
    story.say(ev.ShutdownRequested(900, 1, 101))
    story.see(n1=node(1, 201))
    story.ask(2, "t-0", (1, 2, 3))
    story.see(gone=(2,))
    story.see(gone=(3,))
    assert story.led("t-0")[0] == 1


def test_units_go_twenty_at_a_time_when_the_new_leaders_have_heard_a6() -> None:
    story = ControllerStory().begin(topic("t", *[(1, 2, 3)] * 45), on=nodes(1, 2, 3))
    story.say(ev.ShutdownRequested(900, 1, 101))
    assert leaders(story).count(1) == 25
    hear(story, 1, 3)
    assert leaders(story).count(1) == 25
    hear(story, 2)
    assert leaders(story).count(1) == 5
    assert 900 not in story.answers
    hear(story, 2)
    assert leaders(story).count(1) == 0
    assert story.answers[900].remaining == ()


def test_shutdown_waits_so_long_and_no_longer_a7() -> None:
    story = ControllerStory().begin(topic("t", *[(1, 2, 3)] * 45), on=nodes(1, 2, 3))
    story.say(ev.ShutdownRequested(900, 1, 101))
    story.later(999)
    assert 900 not in story.answers
    story.later(1)
    assert len(story.answers[900].remaining) == 25
    story.say(ev.ShutdownRequested(901, 1, 101))
    hear(story, 2)
    hear(story, 2)
    assert story.answers[901].remaining == ()


def test_a_new_leader_that_dies_is_not_waited_for_a6() -> None:
    story = ControllerStory().begin(topic("t", *[(1, 2, 3)] * 30), on=nodes(1, 2, 3))
    story.say(ev.ShutdownRequested(900, 1, 101))
    story.see(gone=(2,))
    assert set(leaders(story)) == {3}


def test_a_drained_node_follows_and_leads_when_nobody_else_can_a7(story: ControllerStory) -> None:
    story.say(ev.DrainedNodesRead(frozenset({1})))
    assert story.led("t-0") == (2, 1, (1, 2, 3), ())
    story.see(gone=(2,))
    assert leaders(story) == [3, 3, 3]
    story.see(gone=(3,))
    assert leaders(story) == [1, 1, 1]
    story.see(n3=node(3, 203))
    story.ask(1, "t-0", (1, 3))
    assert story.led("t-0")[0] == 3, "as soon as another can"
    assert story.state("t-0").cause == "drained"
    assert leaders(story)[1:] == [1, 1]
    story.say(ev.DrainedNodesRead(frozenset()))
    story.see(gone=(3,))
    assert leaders(story) == [1, 1, 1]


BALANCING = ControllerSettings(offsets_replicas=99, imbalance_check_ms=60_000)


def test_preferred_leaders_get_back_what_is_theirs_c10() -> None:
    story = ControllerStory(BALANCING).begin(topic("t", *[(1, 2)] * 5, (2, 1)), on=nodes(1, 2))
    story.see(gone=(1,))
    story.see(n1=node(1, 201))
    for number in range(4):
        story.ask(2, f"t-{number}", (1, 2))
    story.later(59_999)
    assert set(leaders(story)) == {2}
    story.later(1)
    assert leaders(story) == [1, 1, 1, 1, 2, 2]
    assert story.state("t-0").cause == "preferred"


def test_a_little_imbalance_is_left_alone_c10() -> None:
    story = ControllerStory(BALANCING).begin(topic("t", *[(1, 2)] * 10), on=nodes(1, 2))
    controller_state = story.controller.term.controller_state
    story.poll(1, offline=(ev.OfflineReplica(story.topics["t"].topic_id, 3, "EIO"),))
    story.poll(1)
    story.ask(2, "t-3", (1, 2))
    story.later(60_000)
    assert leaders(story).count(2) == 1
    assert len(controller_state.leads[1]) == 9


@pytest.mark.parametrize("off", [ControllerSettings(offsets_replicas=99, auto_rebalance=False, imbalance_check_ms=1)])
def test_balancing_can_be_off_c10(off: ControllerSettings) -> None:
    story = ControllerStory(off).begin(topic("t", (1, 2)), on=nodes(1, 2))
    story.see(n1=node(1, 201))
    story.ask(2, "t-0", (1, 2))
    story.later(100_000)
    assert leaders(story) == [2]


def test_election_of_the_preferred_leader_by_order_a5(story: ControllerStory) -> None:
    story.see(n1=node(1, 201))
    assert leaders(story) == [2, 2, 3]
    story.ask(2, "t-0", (1, 2, 3))
    unknown = TopicPartition("t", 9)
    story.say(ev.ElectLeadersRequested(900, (place("t-0"), place("t-1"), place("t-2"), unknown)))
    assert story.answers[900].results == {
        place("t-0"): ErrorCode.NONE,
        place("t-1"): ErrorCode.ELECTION_NOT_NEEDED,
        place("t-2"): ErrorCode.ELECTION_NOT_NEEDED,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(story) == [1, 2, 3]


def test_a_preferred_leader_that_is_not_in_sync_a5(story: ControllerStory) -> None:
    story.see(n1=node(1, 201))
    story.say(ev.ElectLeadersRequested(900, (place("t-0"),)))
    assert story.answers[900].results == {place("t-0"): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_what_a_tool_left_in_zookeeper_is_taken_in_and_removed_a5(story: ControllerStory) -> None:
    story.see(n1=node(1, 201))
    story.ask(2, "t-0", (1, 2, 3))
    story.say(ev.ElectLeadersRequested(None, (place("t-0"),)))
    assert leaders(story)[0] == 1
    assert story.others.count(ef.RemoveMarker(ef.AdminMarker.PREFERRED)) == 1


def test_unclean_by_an_operator_a5() -> None:
    story = ControllerStory().begin(topic("t", (1, 2)), on=nodes(1, 2, 3))
    story.see(gone=(2,))
    story.say(ev.ElectLeadersRequested(900, (place("t-0"),), ev.ElectionType.UNCLEAN))
    assert story.answers[900].results == {place("t-0"): ErrorCode.ELECTION_NOT_NEEDED}
    story.see(gone=(1,))
    story.say(ev.ElectLeadersRequested(901, (place("t-0"),), ev.ElectionType.UNCLEAN))
    assert story.answers[901].results == {place("t-0"): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    story.see(n2=node(2, 202, "new disk"))
    assert leaders(story) == [NO_NODE_ID]
    story.say(ev.ElectLeadersRequested(902, (place("t-0"),), ev.ElectionType.UNCLEAN))
    assert story.answers[902].results == {place("t-0"): ErrorCode.NONE}
    state = story.state("t-0")
    assert (state.leader, state.isr, state.unclean_epoch) == (2, (2,), state.leader_epoch)
    assert state.directories[2] == "new disk"
    assert state.cause == "unclean by operator"
    story.see(gone=(3,))
    assert story.state("t-0") == state


def test_a_node_that_refuses_is_dead_at_once_c9(story: ControllerStory) -> None:
    assert ef.ProbeNode(1, 101) in story.say(ev.ConnectionBroken(1))
    assert story.say(ev.ConnectionBroken(1)) == []
    story.say(ev.ConnectionsRefused(1, 101, (1_000, 1_100, 1_300)))
    assert story.led("t-0") == (2, 1, (2, 3), ())
    assert story.state("t-0").cause == "node 1 evicted"
    told = story.told(story.poll(1))
    assert (told.error, told.nodes[0].status) == (ErrorCode.STALE_BROKER_EPOCH, ClusterNodeStatus.GONE)
    story.see()
    assert story.led("t-0")[2] == (2, 3)
    story.see(n1=node(1, 201))
    assert story.told(story.poll(1)).full


@pytest.mark.parametrize(
    ("epoch", "times"),
    [(101, ()), (101, (1_000, 1_100)), (101, (1_000, 1_200, 1_301)), (99, (1_000, 1_001, 1_002))],
    ids=["it listens", "twice", "not within 300 ms", "another life"],
)
def test_what_is_no_proof_of_death_c9(story: ControllerStory, epoch: int, times: tuple[int, ...]) -> None:
    story.say(ev.ConnectionBroken(1))
    story.say(ev.ConnectionsRefused(1, epoch, times))
    assert leaders(story) == [1, 2, 3]
    assert ef.ProbeNode(1, 101) in story.say(ev.ConnectionBroken(1))


def test_eviction_can_be_off_c9() -> None:
    story = ControllerStory(ControllerSettings(offsets_replicas=99, eviction=False)).begin(
        topic("t", (1, 2)), on=nodes(1, 2)
    )
    assert story.say(ev.ConnectionBroken(1)) == []
    story.say(ev.ConnectionsRefused(1, 101, (1, 2, 3)))
    assert leaders(story) == [1]


def test_shards_move_too_a6() -> None:
    pair = (topic(OFFSETS, *[(1, 2)] * 30), topic("__rebalances", *[(1, 2)] * 30))
    story = ControllerStory(SMALL).begin(*pair, on=nodes(1, 2))
    story.say(ev.ShutdownRequested(900, 1, 101))
    assert leaders(story, OFFSETS).count(2) == 20
    assert leaders(story, OFFSETS) == leaders(story, "__rebalances")
    hear(story, 2)
    assert leaders(story, OFFSETS).count(2) == 30
    assert story.told(story.poll(2)).sequence == ImageVersion(*story.version.known).sequence


@pytest.mark.parametrize("stops", [False, True])
def test_what_was_on_its_way_to_a_node_that_goes_goes_on_to_another_a7(story: ControllerStory, stops: bool) -> None:
    story.hold = True
    story.say(ev.DrainedNodesRead(frozenset({1})))
    assert len(story.held) == 1, "t-0 is on its way to node 2"
    request = story.request()
    story.say(ev.ShutdownRequested(request, 2, 102) if stops else ev.DrainedNodesRead(frozenset({1, 2})))
    story.hold = False
    story.release()
    hear(story, 1, 2, 3)
    hear(story, 1, 2, 3)
    assert leaders(story) == [3, 3, 3]
    if stops:
        assert story.answers[request] == ef.ShutdownResult(ErrorCode.NONE)


def test_who_is_drained_leads_nothing_under_the_next_controller_a7(story: ControllerStory) -> None:
    """It stands in ZooKeeper, and is told before the topics: nobody is elected there in between."""
    after = ControllerStory()
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.nodes = nodes(1, 2, 3)
    after.say(ev.ControllerElected(9, 2, 2, after.version))
    after.say(ev.DrainedNodesRead(frozenset({1})))
    after.say(ev.NodesRead(after.nodes))
    after.say(ev.TopicsRead(tuple(after.topics.values()), complete=True))
    after.say(ev.StatesRead(dict(after.states), after.version))
    after.hear()
    assert 1 not in leaders(after)


def test_what_a_drained_node_leads_already_goes_when_the_next_controller_begins_a7(story: ControllerStory) -> None:
    image = ClusterImage()
    image.apply(story.told(story.poll(1)))
    after = ControllerStory()
    after.epoch, after.version, after.topics, after.states = 2, story.version, story.topics, story.states
    after.nodes = nodes(1, 2, 3)
    after.say(ev.ControllerElected(9, 2, 2, after.version, image))
    after.say(ev.DrainedNodesRead(frozenset({1})))
    after.say(ev.NodesRead(after.nodes))
    after.say(ev.TopicsRead(tuple(after.topics.values()), complete=True))
    after.hear()
    assert 1 not in leaders(after)
