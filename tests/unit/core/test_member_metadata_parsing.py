"""What members exchange is read once, however long it is: for its topics, its claims, the ledger and the moves."""

from collections import Counter
from typing import Any

import pytest

from muster.assignors.data import consumer_protocol
from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model import events, plan
from muster.coordinator.core.model.types import Limits, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode

MEMBERS, PARTITIONS = 4, 2_000
TOPICS = ("topic", *(f"a-topic-of-many-{number}" for number in range(100)))


def said(number: int, round_: int) -> bytes:
    owned = {"topic": range(number, PARTITIONS, MEMBERS)} if round_ else {}
    return encode_subscription(Subscription(3, TOPICS, None, owned, round_))


def share(number: int, round_: int) -> bytes:
    return encode_assignment({"topic": range((number + round_) % MEMBERS, PARTITIONS, MEMBERS)})


def rebalanced(shard: Shard, round_: int) -> None:
    """All of them join, the leader first, and get what it says."""
    known = list(shard.groups["g"].members) if round_ else [""] * MEMBERS
    for number, member_id in enumerate(known):
        protocols = (Protocol("range", said(number, round_)),)
        told = (number, "g", member_id, None, "c", "h", 600_000, 600_000, "consumer", protocols)
        shard.step(events.JoinGroup(*told, fresh_id=f"f{number}", require_known_member_id=False), 10 + round_)
    while ("join", "g") in shard.state.deadlines:
        at_ms = shard.state.deadlines["join", "g"]
        shard.step(events.TimerFired(("join", "g"), at_ms), at_ms)
    group = shard.groups["g"]
    plan_of = tuple((member_id, share(number, round_)) for number, member_id in enumerate(group.members))
    for number, member_id in enumerate(group.members):
        given = plan_of if member_id == group.leader else ()
        sync = events.SyncGroup(100 + number, "g", member_id, None, group.generation, None, None, given)
        answers = shard.step(sync, 20_000 + round_).replies
    assert [reply.code for _, reply in answers] == [ErrorCode.NONE]


def test_a_long_blob_is_read_once_in_all_rounds_it_is_part_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions over a kilobyte were read three times each, shares eight."""
    reads: Counter[bytes] = Counter()

    def counted(read: Any) -> Any:
        def reading(blob: bytes) -> Any:
            reads[blob] += 1
            return read(blob)

        return reading

    for name in ("parse_subscription", "parse_assignment"):
        monkeypatch.setattr(plan, name, counted(getattr(plan, name)))
    shard = Shard(Limits(initial_rebalance_delay_ms=1_000), 0)
    shard.step(events.TopicsChanged(dict.fromkeys(TOPICS, PARTITIONS)), 0)
    for round_ in range(3):
        rebalanced(shard, round_)
    long = {blob: times for blob, times in reads.items() if len(blob) > plan.REMEMBERED_BYTES}
    assert len(long) == MEMBERS * 3 + 1, "what all say first, two rounds of claims, and shares that go around"
    assert Counter(long.values()) == {1: len(long)}


class TestRemembered:
    def test_it_reads_once_while_there_is_room(self) -> None:
        lengths = plan.BlobCache(len, 8)
        assert [lengths(blob) for blob in (b"abc", b"abc", b"d", b"abc")] == [3, 3, 1, 3]
        assert lengths.reads == 2

    def test_it_never_keeps_more_than_its_bytes(self) -> None:
        lengths = plan.BlobCache(len, 100)
        for number in range(1_000):
            lengths(b"x" * (number % 60))
        kept = [*lengths._young, *lengths._old]
        assert sum(map(len, kept)) <= 100
        assert max(map(len, kept)) <= 50

    def test_what_is_raised_is_raised_again(self) -> None:
        readings = plan.BlobCache(consumer_protocol.parse_subscription, 100)
        for _ in range(2):
            with pytest.raises(ValueError, match="subscription"):
                readings(b"\xff" * 10)
        assert readings.reads == 2
