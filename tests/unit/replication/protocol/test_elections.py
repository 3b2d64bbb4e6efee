"""Who leads, who is in sync, who is eligible (CL-C2 to CL-C7), by a controller that writes."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, ClusterNodeStatus
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings, NodeRegistry
from tests.support.controller_story import ControllerStory, node, nodes, place, topic


@pytest.fixture
def three() -> ControllerStory:
    return ControllerStory().begin(topic("t", (1, 2, 3)), on=nodes(1, 2, 3))


def test_a_new_unit_is_led_by_its_first_replica(three: ControllerStory) -> None:
    assert three.led("t-0") == (1, 0, (1, 2, 3), ())
    assert three.state("t-0").directories == {1: "d1", 2: "d2", 3: "d3"}


def test_the_first_in_order_that_is_live_and_in_sync_leads_c2(three: ControllerStory) -> None:
    three.see(gone=(1,))
    assert three.led("t-0") == (2, 1, (2, 3), ())
    assert three.state("t-0").cause == "node 1's session expired"
    [note] = three.notes
    assert (note.before, note.after, note.epoch, note.clean) == (1, 2, 1, ef.ElectionKind.ISR)


def test_causes_tell_a_session_that_expired_from_a_node_that_shut_down_section_11() -> None:
    """A registration is gone in both cases; who closes its session in order has said before that it shuts down."""
    known = NodeRegistry()
    known.load_registrations(nodes(1, 2, 3), None)
    known.stop(1)
    assert known.seen(nodes(3)).gone == {1: "node 1 shut down", 2: "node 2's session expired"}
    assert known.seen({3: node(3, 203)}).gone == {3: "node 3 registered anew"}
    known.take_in(3)
    assert known.seen({3: node(3, 303, "another")}).gone == {3: "node 3's disk was replaced"}


@pytest.mark.parametrize("seen_gone", [False, True], ids=["before anybody looked", "seen to be gone"])
def test_causes_tell_a_disk_that_was_replaced_section_11(seen_gone: bool) -> None:
    story = ControllerStory().begin(topic("t", (1, 2), min_insync_replicas="2"), on=nodes(1, 2))
    story.see(gone=(2,))
    assert story.led("t-0") == (1, 0, (1,), (2,))
    if seen_gone:
        story.see(gone=(1,))
        assert (story.led("t-0")[0], story.state("t-0").cause) == (NO_NODE_ID, "node 1's session expired")
    story.see(n1=node(1, 201, "another"), n2=node(2, 202))
    assert (story.led("t-0")[0], story.state("t-0").cause) == (2, "node 1's disk was replaced")


def test_a_follower_that_dies_is_in_sync_no_more_and_the_epoch_stays_c2(three: ControllerStory) -> None:
    three.see(gone=(3,))
    assert three.led("t-0") == (1, 0, (1, 2), ())


def test_who_leaves_below_the_minimum_is_eligible_c5(three: ControllerStory) -> None:
    three.see(gone=(1,))
    three.see(gone=(2,))
    assert three.led("t-0") == (3, 2, (3,), (2,))


def test_in_sync_remains_who_was_last_c4(three: ControllerStory) -> None:
    three.see(gone=(1,))
    three.see(gone=(2,))
    three.see(gone=(3,))
    assert three.led("t-0") == (NO_NODE_ID, 3, (3,), (2,))
    assert three.notes[-1].clean is ef.ElectionKind.OFFLINE


def test_all_that_die_at_one_time_remain_in_sync_c4(three: ControllerStory) -> None:
    three.see(gone=(1, 2, 3))
    assert three.led("t-0") == (NO_NODE_ID, 1, (1, 2, 3), ())
    three.see(n2=node(2, 202))
    assert three.led("t-0") == (2, 2, (2,), (1, 3))


def test_who_is_eligible_leads_while_the_last_in_sync_is_away_c2(three: ControllerStory) -> None:
    for each in (1, 2, 3):
        three.see(gone=(each,))
    three.see(n2=node(2, 202))
    assert three.led("t-0") == (2, 4, (2,), (3,))
    assert three.notes[-1].clean is ef.ElectionKind.ELR


def test_who_is_neither_in_sync_nor_eligible_does_not_lead_c2(three: ControllerStory) -> None:
    for each in (1, 2, 3):
        three.see(gone=(each,))
    three.see(n1=node(1, 201))
    assert three.led("t-0")[0] == NO_NODE_ID
    three.see(n3=node(3, 203))
    assert three.led("t-0") == (3, 4, (3,), (2,))


def test_unclean_by_setting_c2() -> None:
    story = ControllerStory().begin(topic("t", (1, 2, 3), unclean_leader_election_enable="true"), on=nodes(1, 2, 3))
    for each in (1, 2, 3):
        story.see(gone=(each,))
    story.see(n1=node(1, 201))
    state = story.state("t-0")
    assert (state.leader, state.isr, state.elr, state.unclean_epoch) == (1, (1,), (), state.leader_epoch)
    assert (story.notes[-1].clean, story.notes[-1].cause) == (ef.ElectionKind.UNCLEAN, "unclean by setting")


def test_an_eligible_one_that_is_back_goes_before_an_unclean_one_c2() -> None:
    story = ControllerStory().begin(topic("t", (1, 2, 3), unclean_leader_election_enable="true"), on=nodes(1, 2, 3))
    for each in (1, 2, 3):
        story.see(gone=(each,))
    story.see(n1=node(1, 201), n2=node(2, 202))
    assert story.led("t-0")[0] == 2
    assert story.state("t-0").unclean_epoch == -1


def test_another_disk_is_another_replica_c3(three: ControllerStory) -> None:
    three.see(gone=(1,))
    three.see(gone=(2,))
    assert three.led("t-0") == (3, 2, (3,), (2,))
    three.see(n2=node(2, 202, "new disk"))
    assert three.led("t-0") == (3, 2, (3,), ())
    three.see(gone=(3,))
    assert three.led("t-0")[0] == NO_NODE_ID


def test_the_last_in_sync_with_another_disk_does_not_lead_c3() -> None:
    story = ControllerStory().begin(topic("t", (1, 2)), on=nodes(1, 2))
    story.see(gone=(2,))
    story.see(gone=(1,))
    story.see(n1=node(1, 201, "new disk"))
    assert story.led("t-0") == (NO_NODE_ID, 1, (1,), (2,))
    story.see(n2=node(2, 202))
    assert story.led("t-0") == (2, 2, (2,), ())


def test_a_log_that_is_offline_does_not_lead_c3(three: ControllerStory) -> None:
    broken = (ev.OfflineReplica(three.topics["t"].topic_id, 0, "EIO"),)
    three.poll(1, offline=broken)
    assert three.led("t-0") == (2, 1, (2, 3), ())
    assert three.state("t-0").cause == "log offline on node 1"
    assert three.result(three.ask(2, "t-0", (1, 2, 3))).error is ErrorCode.INELIGIBLE_REPLICA
    three.poll(1)
    assert three.result(three.ask(2, "t-0", (1, 2, 3))).error is ErrorCode.NONE


def test_who_lost_power_with_loose_flushing_lost_what_counted_c3_c5() -> None:
    story = ControllerStory().begin(topic("t", (1, 2, 3), flush_messages="1000"), on=nodes(1, 2, 3))
    story.see(gone=(1,))
    story.see(gone=(2,))
    story.see(n2=node(2, 202, unclean=True))
    assert story.led("t-0") == (3, 2, (3,), ())


def test_losing_power_takes_nothing_where_each_record_was_flushed_c3(three: ControllerStory) -> None:
    three.see(gone=(1,))
    three.see(gone=(2,))
    three.see(n2=node(2, 202, unclean=True))
    assert three.led("t-0") == (3, 2, (3,), (2,))


def test_last_known_c2() -> None:
    """Found while it was built: who is elected so may lack what followers have, so it needs an unclean epoch (CL-F6),
    and it has to count as live from then on, though its registration stays what it is."""
    story = ControllerStory().begin(topic("t", (1,), flush_messages="1000"), on=nodes(1, 2))
    story.see(gone=(1,))
    story.see(n1=node(1, 201, unclean=True))
    state = story.state("t-0")
    assert (state.leader, state.isr, state.unclean_epoch) == (1, (1,), state.leader_epoch)
    assert story.notes[-1].clean is ef.ElectionKind.LAST_KNOWN
    story.see(gone=(2,))
    assert story.state("t-0") == state


def test_last_known_waits_for_an_eligible_one_that_is_away_c2() -> None:
    story = ControllerStory().begin(topic("t", (1, 2), flush_messages="1000"), on=nodes(1, 2))
    story.see(gone=(2,))
    story.see(gone=(1,))
    assert story.led("t-0") == (NO_NODE_ID, 1, (1,), (2,))
    story.see(n1=node(1, 201, unclean=True))
    assert story.led("t-0")[0] == NO_NODE_ID
    story.see(n2=node(2, 202))
    assert story.led("t-0")[:3] == (2, 2, (2,))


def test_who_lost_power_may_join_again_and_then_counts_c3() -> None:
    """Found while it was built: `unclean` stays in the registration, but what was fetched since is not lost."""
    story = ControllerStory().begin(topic("t", (1, 2), flush_messages="1000"), on=nodes(1, 2))
    story.see(n2=node(2, 202, unclean=True))
    assert story.led("t-0") == (1, 0, (1,), ())
    assert story.result(story.ask(1, "t-0", (1, 2))).error is ErrorCode.NONE
    assert story.led("t-0") == (1, 0, (1, 2), ())
    story.see(gone=(1,))
    assert story.led("t-0") == (2, 1, (2,), (1,))


def test_who_bounced_is_dead_first_in_a_write_of_its_own_c7(three: ControllerStory) -> None:
    three.writes.clear()
    three.see(n1=node(1, 201))
    dead, *_ = three.writes
    assert [
        (each.state.leader, each.state.isr) for each in dead.operations if isinstance(each, ef.PutPartitionState)
    ] == [(2, (2, 3))]
    assert three.led("t-0") == (2, 1, (2, 3), ())


def test_who_bounced_alone_leads_again_in_a_new_epoch_c7() -> None:
    story = ControllerStory().begin(topic("t", (1,)), on=nodes(1))
    story.see(n1=node(1, 201))
    assert story.led("t-0") == (1, 2, (1,), ())
    assert [note.after for note in story.notes] == [NO_NODE_ID, 1]


def test_who_bounced_hears_77_until_it_is_written_c7(three: ControllerStory) -> None:
    three.hold = True
    three.see(n1=node(1, 201))
    early = three.poll(1)
    assert early not in three.answers
    three.later(500)
    assert (three.told(early).error, three.told(early).nodes) == (ErrorCode.STALE_BROKER_EPOCH, ())
    waits = three.poll(1)
    three.release()
    assert three.told(waits).full


def test_a_former_life_is_told_that_it_is_over(three: ControllerStory) -> None:
    three.see(n1=node(1, 201))
    late = three.told(three.poll(1, epoch=101))
    assert (late.error, late.nodes[0].status) == (ErrorCode.STALE_BROKER_EPOCH, ClusterNodeStatus.GONE)


def test_a_shard_is_one_unit_and_both_its_states_are_one_write() -> None:
    pair = (topic("__consumer_offsets", (1, 2), (2, 1)), topic("__rebalances", (1, 2), (2, 1)))
    story = ControllerStory().begin(*pair, on=nodes(1, 2))
    story.writes.clear()
    story.see(gone=(1,))
    [write] = story.writes
    assert len(write.operations) == 4
    for number in (0, 1):
        one, other = (story.states[place(f"{name}-{number}")] for name in ("__consumer_offsets", "__rebalances"))
        assert one == other
        assert one.leader == 2


def test_halves_of_a_shard_that_differ_are_mended_with_a_warning() -> None:
    pair = (topic("__consumer_offsets", (1, 2)), topic("__rebalances", (1, 2)))
    story = ControllerStory().begin(*pair, on=nodes(1, 2))
    later = ControllerStory()
    later.epoch = 2
    later.states = dict(story.states)
    del later.states[place("__rebalances-0")]
    later.begin(*pair, on=nodes(1, 2))
    one, other = (later.states[place(f"{name}-0")] for name in ("__consumer_offsets", "__rebalances"))
    assert (other.leader, other.isr, other.partition_epoch) == (one.leader, one.isr, 0)
    assert any(isinstance(each, ef.WarnOperator) and "shard 0 differ" in each.text for each in later.others)


def test_a_state_that_cannot_be_read_stops_nothing_else_c13() -> None:
    story = ControllerStory()
    story.topics["t"] = topic("t", (1, 2), (1, 2))
    story.say(ev.ControllerElected(9, 1, 1, story.version))
    story.nodes = nodes(1, 2)
    story.say(ev.NodesRead(nodes(1, 2)))
    story.say(ev.TopicsRead(tuple(story.topics.values()), complete=True))
    story.say(ev.StatesRead({}, story.version, (place("t-0"),)))
    assert list(story.states) == [place("t-1")]
    assert any(isinstance(each, ef.WarnOperator) and "t-0" in each.text for each in story.others)


def test_another_minimum_empties_the_elr_before_it_is_told_c5(three: ControllerStory) -> None:
    three.see(gone=(1,))
    three.see(gone=(2,))
    told = three.told(three.poll(3))
    three.hold = True
    three.see_topic(topic("t", (1, 2, 3), min_insync_replicas="1"))
    waits = three.poll(3, three.controller.term.controller_state.publisher.known)
    assert waits not in three.answers
    assert told.topics[0].configs == {}
    three.release()
    new = three.told(waits).topics[0]
    assert (new.configs, new.partitions[0].elr) == ({"min.insync.replicas": "1"}, ())


def test_a_minimum_that_is_not_reached_leaves_the_elr_c5(three: ControllerStory) -> None:
    """Who is eligible by 2 is so by 3: one alone commits by neither. Else a node that dies after the change would leave
    nobody who may lead, though another one has all."""
    three.see(gone=(1,))
    three.see(gone=(2,))
    assert three.led("t-0")[2:] == ((3,), (2,))
    three.see_topic(topic("t", (1, 2, 3), min_insync_replicas="3"))
    assert three.led("t-0")[2:] == ((3,), (2,))
    three.hear()
    three.see(n2=node(2, 202))
    three.see(gone=(3,))
    assert (three.led("t-0")[0], three.led("t-0")[2:]) == (2, ((2,), (3,)))


def test_who_joins_up_to_the_minimum_that_the_leader_may_still_go_by_empties_the_elr_c5() -> None:
    """Found by walks with minima of 3: a leader that had not heard of 3 committed by 2 with the one who had joined, and
    who was eligible lacked that."""
    story = ControllerStory().begin(topic("t", (1, 2, 3), min_insync_replicas="2"), on=nodes(1, 2, 3))
    story.see(gone=(3,))
    story.see(n3=node(3, 303))
    story.hear()
    story.see_topic(topic("t", (1, 2, 3), min_insync_replicas="3"))
    story.see(gone=(2,))
    assert story.led("t-0")[2:] == ((1,), (2,))
    refused = story.result(story.ask(1, "t-0", (1, 3)))
    assert (refused.error, story.led("t-0")[2:]) == (ErrorCode.NOT_CONTROLLER, ((1,), (2,))), "it has not heard of 3"
    story.hear()
    assert story.result(story.ask(1, "t-0", (1, 3))).error is ErrorCode.NONE
    assert story.led("t-0")[2:] == ((1, 3), (2,)), "two commit nothing by 3"


def test_a_higher_minimum_makes_nobody_eligible_before_leaders_go_by_it_c5() -> None:
    """Found while it was built: a leader that has not heard of it commits alone, and who left lacks that."""
    story = ControllerStory().begin(topic("t", (1, 2), min_insync_replicas="1"), on=nodes(1, 2))
    story.see_topic(topic("t", (1, 2), min_insync_replicas="2"))
    assert story.result(story.ask(1, "t-0", (1,))).error is ErrorCode.NOT_CONTROLLER
    story.see(gone=(2,))
    assert story.led("t-0") == (1, 0, (1,), ())
    story.see(n2=node(2, 202))
    story.hear()
    assert story.result(story.ask(1, "t-0", (1, 2))).error is ErrorCode.NONE
    story.see(gone=(2,))
    assert story.led("t-0") == (1, 0, (1,), (2,))


def test_shards_go_first_and_at_most_a_hundred_states_go_in_one_write_z5() -> None:
    settings = ControllerSettings(auto_rebalance=False, offsets_replicas=99)
    replicas = [(1, 2)] * 130
    story = ControllerStory(settings).begin(
        topic("a", *replicas), topic("__consumer_offsets", *replicas), topic("__rebalances", *replicas), on=nodes(1, 2)
    )
    story.writes.clear()
    story.see(gone=(1,))
    sizes = [len(write.operations) for write in story.writes]
    assert sizes == [100, 100, 100, 90]
    names = [
        each.place.topic
        for write in story.writes
        for each in write.operations
        if isinstance(each, ef.PutPartitionState)
    ]
    assert names[:260] == ["__consumer_offsets", "__rebalances"] * 130


def test_many_partitions_are_decided_in_slices() -> None:
    """5,000 of them: more than are looked at in one step."""
    story = ControllerStory().begin(topic("t", *[(1, 2, 3)] * 5_000), on=nodes(1, 2, 3))
    story.writes.clear()
    story.see(gone=(1,))
    assert len(story.writes) == 50
    assert {state.leader for state in story.states.values()} == {2}
