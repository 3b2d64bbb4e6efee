"""CL-F9: a log that fails is offline, and one that works again goes on, without a restart."""

from collections.abc import Iterable

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, PartitionView, TopicView
from muster.coordinator.replication.protocol.hosted_copies import LOOK_AGAIN_MS
from muster.coordinator.replication.protocol.node_replicas import ROOM_TO_LEAD, ROOM_TO_WRITE
from muster.coordinator.replication.protocol.replica_fetch import STORAGE_ERROR
from tests.unit.replication.protocol.test_node_replicas import (
    HERE,
    ID,
    OTHER_ID,
    PLACE,
    THERE,
    Pair,
    copy_once,
    node,
    orders,
    two,
)


def breaks(follower: Pair, leader: Pair) -> None:
    """The follower has two records, flushed, and breaks by the third."""
    leader.writes(2)
    leader.flushes()
    copy_once(leader, follower)
    leader.writes(1)
    leader.flushes()
    follower.disk.failing.add(PLACE)
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request)
    follower.replicas.answered(HERE, request, answer, 0)
    assert list(follower.replicas.offline) == [PLACE]


def looks(node_: Pair, moments: Iterable[int]) -> None:
    for now_ms in moments:
        node_.replicas.check_replicas(now_ms)


def test_a_log_that_works_again_copies_on() -> None:
    leader, follower = two()
    breaks(follower, leader)
    looks(follower, (0, LOOK_AGAIN_MS))
    assert list(follower.replicas.offline) == [PLACE]
    follower.disk.failing.clear()
    looks(follower, (LOOK_AGAIN_MS + 1, 2 * LOOK_AGAIN_MS - 1))
    assert list(follower.replicas.offline) == [PLACE]
    looks(follower, (2 * LOOK_AGAIN_MS,))
    assert follower.replicas.offline == {}
    copy_once(leader, follower, 2 * LOOK_AGAIN_MS)
    assert follower.log().end == 3


def test_a_leader_whose_log_broke_waits_until_the_controller_has_heard() -> None:
    leader, _ = two()
    leader.writes(2)
    leader.flushes()
    leader.replicas.broke(PLACE, "EIO")
    looks(leader, (0, LOOK_AGAIN_MS))
    assert list(leader.replicas.offline) == [PLACE]
    assert not leader.replicas.leaders
    leader.hears(orders(NO_NODE_ID, 2, (HERE,)))
    looks(leader, (2 * LOOK_AGAIN_MS,))
    assert leader.replicas.offline == {}
    leader.hears(orders(HERE, 3, (HERE,)))
    assert leader.replicas.leaders[PLACE].epoch == 3


def test_a_log_that_lacks_what_it_had_stays_offline() -> None:
    leader, follower = two()
    breaks(follower, leader)
    follower.disk.failing.clear()
    follower.log().cut(1)
    looks(follower, (0, LOOK_AGAIN_MS))
    _, why = follower.replicas.offline[PLACE]
    assert "ends at offset 1" in why
    assert "up to 2" in why


def test_an_epoch_that_begins_meanwhile_looks_at_it_too() -> None:
    leader, follower = two()
    breaks(follower, leader)
    follower.hears(orders(HERE, 2))
    assert list(follower.replicas.offline) == [PLACE]
    follower.disk.failing.clear()
    follower.hears(orders(HERE, 3))
    assert follower.replicas.offline == {}
    assert follower.replicas.copies[PLACE].follower.epoch == 3


def test_two_logs_that_disagree_about_committed_records_stay_apart_until_an_unclean_election() -> None:
    leader, follower = two()
    leader.writes(2)
    leader.flushes()
    for _ in range(3):
        copy_once(leader, follower)
    assert follower.log().high_watermark == 2
    leader.log().cut(0)
    leader.hears(orders(HERE, 2))
    follower.hears(orders(HERE, 2))
    leader.writes(3)
    leader.flushes()
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request)
    follower.replicas.answered(HERE, request, answer, 0)
    assert "disagree" in follower.replicas.offline[PLACE][1]
    looks(follower, (0, LOOK_AGAIN_MS, 2 * LOOK_AGAIN_MS))
    follower.hears(orders(HERE, 3))
    assert "disagree" in follower.replicas.offline[PLACE][1]
    assert PLACE not in follower.replicas.copies
    view = PartitionView(HERE, 4, 4, (HERE,), (), (HERE, THERE), unclean_epoch=4)
    follower.hears(TopicView(ID, "orders", {"min.insync.replicas": "1"}, {0: view}))
    assert follower.replicas.offline == {}


@pytest.mark.parametrize("deleted", [True, False])
def test_a_topic_that_goes_takes_its_outage_along(deleted: bool) -> None:
    """The controller names units by their topic's name: what was said of a former topic held for the one made after
    it."""
    leader, follower = two()
    breaks(follower, leader)
    if deleted:
        follower.hears(TopicView(ID, "orders", deleted=True))
    else:
        follower.disk.failing.clear()
        follower.hears(orders(HERE, 1, topic_id=OTHER_ID), nodes=(node(HERE), node(THERE)), full=True)
    assert follower.replicas.offline == {}


def test_a_copy_that_is_assigned_to_others_now_is_nobodys_outage() -> None:
    leader, follower = two()
    breaks(follower, leader)
    view = PartitionView(HERE, 2, 2, (HERE,), (), (HERE,))
    follower.hears(TopicView(ID, "orders", {"min.insync.replicas": "1"}, {0: view}))
    assert follower.replicas.offline == {}


def test_a_leader_without_room_is_back_when_there_is_some_or_when_nobody_else_leads() -> None:
    """Where no disk has any, leaders went round and round: one was back as soon as its log could be opened."""
    leader, _ = two()
    leader.writes(2)
    leader.flushes()
    leader.disk.room = ROOM_TO_LEAD
    assert leader.replicas.unwritable(PLACE, "ENOSPC")
    leader.hears(orders(THERE, 2, (THERE,)))
    looks(leader, (0, LOOK_AGAIN_MS, 2 * LOOK_AGAIN_MS))
    assert leader.replicas.offline[PLACE][1] == "no room"
    leader.hears(orders(NO_NODE_ID, 3, (THERE,)))
    looks(leader, (3 * LOOK_AGAIN_MS,))
    assert leader.replicas.offline == {}, "it may be read from here at least"

    leader.hears(orders(HERE, 4))
    leader.disk.room = 0
    assert leader.replicas.unwritable(PLACE, "ENOSPC")
    leader.hears(orders(NO_NODE_ID, 5, (THERE,)))
    looks(leader, (4 * LOOK_AGAIN_MS, 5 * LOOK_AGAIN_MS))
    assert list(leader.replicas.offline) == [PLACE], "it could not even write its epoch down"
    leader.disk.room = ROOM_TO_WRITE
    looks(leader, (6 * LOOK_AGAIN_MS,))
    assert leader.replicas.offline == {}


def test_one_that_could_not_write_down_what_it_leads_waits_for_room_too() -> None:
    leader, _ = two()
    leader.disk.room = 0
    leader.replicas.broke(PLACE, "the leader epochs could not be written down")
    for epoch in (2, 3):
        leader.hears(orders(THERE, epoch, (THERE,)))
        assert list(leader.replicas.offline) == [PLACE], "an epoch that begins meanwhile is no reason to be back"
    leader.disk.room = ROOM_TO_WRITE
    leader.hears(orders(THERE, 4, (THERE,)))
    assert leader.replicas.offline == {}


def in_sync_of(leader: int, epoch: int, least: int, isr: tuple[int, ...] = (HERE, THERE)) -> TopicView:
    view = PartitionView(leader, epoch, epoch, isr, (), (HERE, THERE))
    return TopicView(ID, "orders", {"min.insync.replicas": str(least)}, {0: view})


def test_a_leader_that_turns_out_to_be_damaged_is_offline_until_it_is_copied_anew() -> None:
    """It led on for ever, and consumers got CORRUPT_MESSAGE beside good copies."""
    leader, _ = two()
    assert leader.replicas.corrupt(PLACE, "a batch has a wrong checksum")
    assert (PLACE in leader.replicas.led, leader.replicas.corrupt_halves(PLACE)) == (False, {PLACE})
    for epoch in (2, 3):
        leader.hears(in_sync_of(THERE, epoch, 1, (THERE,)))
        looks(leader, (epoch * LOOK_AGAIN_MS, (epoch + 1) * LOOK_AGAIN_MS))
        assert leader.replicas.offline[PLACE][1] == "a batch has a wrong checksum", "it can be opened, and is no better"
    assert not leader.replicas.is_missed(PLACE)
    leader.replicas.copy_anew(PLACE, 5 * LOOK_AGAIN_MS)
    assert leader.replicas.offline == {}
    assert leader.replicas.copies[PLACE].follower.epoch == 3
    assert leader.replicas.corrupt_halves(PLACE) == frozenset()


def test_a_damaged_copy_is_better_than_none() -> None:
    leader, _ = two()
    leader.replicas.corrupt(PLACE, "a batch has a wrong checksum")
    leader.hears(in_sync_of(NO_NODE_ID, 2, 1))
    looks(leader, (0, LOOK_AGAIN_MS))
    assert leader.replicas.offline == {}
    leader.hears(in_sync_of(HERE, 3, 1, (HERE,)))
    assert not leader.replicas.corrupt(PLACE, "a batch has a wrong checksum"), "there is no other in sync"
    assert PLACE in leader.replicas.led


def test_where_records_wait_for_a_damaged_copy_it_hands_over_and_follows() -> None:
    """Out of the ISR it would be in the ELR, where it may not be taken away, and nothing would be acknowledged."""
    leader = Pair(HERE)
    leader.hears(in_sync_of(HERE, 1, 2), nodes=(node(HERE), node(THERE)))
    assert leader.replicas.corrupt(PLACE, "a batch has a wrong checksum")
    assert list(leader.replicas.offline) == [PLACE]
    leader.hears(in_sync_of(THERE, 2, 2))
    assert leader.replicas.offline == {}
    assert leader.replicas.copies[PLACE].follower.epoch == 2


def test_damage_that_a_follower_s_fetch_finds_is_the_leader_s_too() -> None:
    leader, follower = two()
    leader.writes(2)
    leader.flushes()
    leader.disk.corrupt.add(PLACE)
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request)
    assert [part.code for part in answer.parts] == [STORAGE_ERROR]
    assert leader.replicas.corrupt_halves(PLACE) == {PLACE}
