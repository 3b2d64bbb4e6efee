"""No step makes a record that the log cannot take: requests are refused, plans fail, explanations are cut."""

from dataclasses import replace

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model import effects, events, records
from muster.coordinator.core.model.plan import LAST_GENERATION, entry_bytes, shorten_entry, shorten_settlement
from muster.coordinator.core.model.records import GroupStored, MemberRecord
from muster.coordinator.core.model.types import (
    Cause,
    Limits,
    MemberPlan,
    Outcome,
    PartitionMove,
    Protocol,
    RebalanceEntry,
    Settlement,
)
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.kafka_records import encode

LIMIT = 20_000
LIMITS = Limits(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0, max_group_bytes=LIMIT)


def subscription(user_data: int = 0) -> bytes:
    return encode_subscription(Subscription(version=1, topics=("t",), user_data=bytes(user_data)))


def static_group() -> Shard:
    """Four static members, Stable, of a group of which the log holds 16 kB."""
    shard = Shard(LIMITS, 0)
    members = tuple(
        MemberRecord(f"m{number}", f"i{number}", "c", "h", 60_000, 30_000, subscription(4_000), b"")
        for number in range(4)
    )
    shard.apply(GroupStored("g", "consumer", 1, "range", "m0", 0, members))
    shard.step(events.TopicsChanged({"t": 0}, ids={"t": b"t" * 16}), 0)
    shard.step(events.Loaded(), 0)
    return shard


def takeover(user_data: int) -> events.JoinGroup:
    return events.JoinGroup(
        request_id=1,
        group_id="g",
        member_id="",
        group_instance_id="i3",
        client_id="c",
        client_host="h",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(Protocol("range", subscription(user_data)),),
        fresh_id="new",
    )


def test_a_static_member_that_brings_too_much_is_refused_and_keeps_its_old_place() -> None:
    shard = static_group()
    refused = shard.step(takeover(8_000), 1)
    assert [reply.code for _, reply in refused.replies] == [ErrorCode.INVALID_REQUEST]
    assert (refused.records, refused.timers) == ([], {})
    assert shard.groups["g"].static["i3"] == "m3"
    taken = shard.step(takeover(4_000), 2)
    assert [reply.code for _, reply in taken.replies] == [ErrorCode.NONE]
    (stored,) = encode(taken.records).groups
    assert len(stored.value or b"") <= LIMIT


def test_after_the_last_generation_comes_the_first() -> None:
    shard = Shard(LIMITS, 0)
    shard.apply(GroupStored("g", "consumer", LAST_GENERATION, None, None, 0, ()))
    shard.step(events.Loaded(), 0)
    request = takeover(0)
    request.group_instance_id, request.require_known_member_id = None, False
    asked = shard.step(request, 1)
    at_ms = asked.timers["join", "g"]
    assert at_ms is not None
    joined = shard.step(events.TimerFired(("join", "g"), at_ms), at_ms)
    ((_, reply),) = joined.replies
    assert isinstance(reply, effects.JoinReply)
    assert (reply.code, reply.generation) == (ErrorCode.NONE, 1)
    synced = shard.step(
        events.SyncGroup(2, "g", reply.member_id, None, 1, None, None, ((reply.member_id, b""),)), at_ms
    )
    assert encode(synced.records).groups


def test_a_target_too_large_for_the_log_is_a_failure_of_the_plan() -> None:
    shard = Shard(LIMITS, 0)
    shard.step(events.TopicsChanged({"t": 1_900}, ids={"t": b"t" * 16}), 0)
    join = events.ConsumerHeartbeat(1, "g", "m", 0, rebalance_timeout_ms=60_000, topic_names=("t",), owned={})
    done = shard.step(join, 1)
    assert [reply.code for _, reply in done.replies] == [ErrorCode.NONE]
    group = shard.consumer_groups["g"]
    assert group.target_epoch < group.epoch
    assert all(len(stored.value or b"") <= LIMIT for stored in encode(done.records).groups)
    grown = shard.step(events.TopicsChanged({"t": 100}, ids={"t": b"t" * 16}), 5_000)
    assert grown.records
    assert group.target_epoch == group.epoch


def entry(moves: int, shares: int, snapshot: int) -> RebalanceEntry:
    return RebalanceEntry(
        1, 0, 1, "consumer", "range", Cause.MEMBER_JOINED, "m", "c", "h", "joined", "", Outcome.COMPLETED, 0, 1,
        members=(MemberPlan("m", "c", "h", None, (("t", tuple(range(shares))),)),),
        moves=tuple(PartitionMove("t", number, "a", "b", -1, "rebalanced") for number in range(moves)),
        snapshot_json='"' * snapshot,
        snapshot_source="leader",
    )  # fmt: skip


def test_an_entry_too_large_is_cut_and_says_so() -> None:
    for moves, shares, snapshot in ((20_000, 20_000, 0), (20_000, 3, 0), (3, 20_000, 0), (3, 3, 50_000), (3, 3, 3)):
        whole = entry(moves, shares, snapshot)
        cut = shorten_entry(whole, LIMIT)
        (stored,) = encode([decided(cut)]).ledger
        assert len(stored.value or b"") <= entry_bytes(cut) <= LIMIT
        assert (cut == whole) == (moves == shares == snapshot == 3)
        assert cut == whole or "left out" in cut.also[-1]


def test_an_entry_is_cut_before_it_is_decided() -> None:
    """Six hundred moves would be a record of 150,000 bytes, where the log takes a quarter of that for one group."""
    shard, many = Shard(replace(LIMITS, max_group_bytes=40_000), 0), 600
    shard.step(events.TopicsChanged({"t": many}, (), {"t": bytes(15) + b"\1"}), 0)
    joins = events.ConsumerHeartbeat(1, "g", "m", 0, rebalance_timeout_ms=60_000, topic_names=("t",), owned={})
    out = shard.step(joins, 0)
    (kept,) = [record.entry for record in out.records if isinstance(record, records.RebalanceDecided)]
    assert 0 < len(kept.moves) < many
    assert entry_bytes(kept) <= 40_000


def decided(kept: RebalanceEntry) -> records.RebalanceDecided:
    return records.RebalanceDecided("g", kept)


def test_a_settlement_too_large_keeps_its_sum() -> None:
    whole = Settlement(1, 100, ("m",), tuple(("t" * 200, number, 5) for number in range(5_000)), 25_000)
    cut = shorten_settlement(whole, LIMIT)
    (stored,) = encode([records.RebalanceSettled("g", cut)]).ledger
    assert len(stored.value or b"") <= LIMIT
    assert 0 < len(cut.unowned) < 5_000
    assert cut.unowned_partition_ms == 25_000
    synced = tuple(("m" * 100 + str(number), 1_700_000_000_000) for number in range(5_000))
    many = shorten_settlement(replace(whole, synced=synced), LIMIT)
    assert many == cut
    few = shorten_settlement(replace(whole, synced=synced[:20]), LIMIT)
    (stored,) = encode([records.RebalanceSettled("g", few)]).ledger
    assert len(stored.value or b"") <= LIMIT
    assert few.synced == synced[:20]
    assert 0 < len(few.unowned) < len(cut.unowned)
    small = Settlement(1, 100, ("m",), (("t", 0, 5),), 5, (("m", 90),))
    assert shorten_settlement(small, LIMIT) == small
