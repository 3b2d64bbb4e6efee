"""KB-F7: until when a node may answer."""

from muster.coordinator.kafka_backend.shard_ownership.lease import Lease, lease_ms_of
from muster.coordinator.kafka_backend.shard_ownership.shard_log import NEVER

SESSION = 10_000


def test_f7_it_counts_from_the_sending_of_what_was_answered_0() -> None:
    lease = Lease(SESSION)
    assert not lease.is_valid(0)
    lease.synced(100)
    assert lease.until_ms == 100 + lease_ms_of(SESSION)
    lease.heartbeat_answered(2_000, 0)
    assert lease.is_valid(2_000 + 8_999)
    assert not lease.is_valid(2_000 + 9_000)


def test_f7_a_rebalance_under_way_does_not_renew_it() -> None:
    lease = Lease(SESSION)
    lease.synced(100)
    for code in (27, 25, 22, 16, 15, 14):
        lease.heartbeat_answered(3_000, code)
    assert lease.until_ms == 100 + lease_ms_of(SESSION)


def test_f7_answers_out_of_order_take_nothing_away() -> None:
    lease = Lease(SESSION)
    lease.heartbeat_answered(2_000, 0)
    lease.synced(1_000)
    assert lease.until_ms == 2_000 + lease_ms_of(SESSION)


def test_f7_what_was_sent_before_the_membership_was_lost_brings_nothing_back() -> None:
    lease = Lease(SESSION)
    lease.synced(100)
    lease.lost(500)
    assert lease.until_ms == NEVER
    lease.heartbeat_answered(499, 0)
    assert not lease.is_valid(600)
    lease.synced(700)
    assert lease.is_valid(800)
