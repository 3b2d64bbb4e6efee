"""A leader with two followers: the shortest walk through what it is asked and told."""

from muster.coordinator.cluster.facts import State, TopicPartition
from muster.coordinator.cluster.in_sync import IsrAnswer
from muster.coordinator.cluster.leader import ALL, Half, Leader
from muster.coordinator.cluster.lease import NEVER, Peer, lease_of
from muster.coordinator.errors import ErrorCode

UNIT = TopicPartition("orders", 3)


def test_a_record_is_committed_once_all_in_sync_have_kept_it() -> None:
    me, two, three = Peer(1, 11), Peer(2, 12), Peer(3, 13)
    state = State(leader=1, leader_epoch=7, isr=(1, 2), partition_epoch=4)
    leader = Leader(
        me, UNIT, state, (me, two, three), [Half(end=0, high_watermark=0)], min_isr=2, lag_time_ms=10_000, now_ms=0
    )
    assert leader.may_append(ALL) == ErrorCode.NONE
    leader.appended(0, 5)
    assert not leader.kept(0, 5, 1)
    assert leader.parked(0, 5) is None
    two.asks(2, anew=True)
    assert leader.fetched(0, two, 12, 7, 5, 7, 0, lambda _epoch: (-1, -1), 2) is None
    assert leader.high_watermark == 5
    assert leader.parked(0, 5) == ErrorCode.NONE
    assert leader.lease_until(lease_of(6000)) < NEVER + 10_000
    two.answered(1, 3)
    two.asks(4, anew=False)
    assert leader.lease_until(lease_of(6000)) == 3 + 5880
    three.asks(5, anew=True)
    leader.fetched(0, three, 13, 7, 5, 7, 0, lambda _epoch: (-1, -1), 5)
    asked = leader.wants(5)
    assert asked is not None
    assert asked.isr == ((1, 11), (2, 12), (3, 13))
    assert leader.largest_isr == (1, 2, 3)
    leader.altered(asked, IsrAnswer(ErrorCode.NONE, 7, 5, (1, 2, 3)), 6)
    assert leader.isr == (1, 2, 3)
