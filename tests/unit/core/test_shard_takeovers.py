"""CL-G9: a shard's diary of its coordinators."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from muster.coordinator.core.model.events import (
    CutFound,
    Heartbeat,
    JoinGroup,
    Loaded,
    StoodStill,
    SyncGroup,
    TimerFired,
    TookOver,
)
from muster.coordinator.core.model.records import Record, TakeoverForgotten, TakeoverRecorded
from muster.coordinator.core.model.types import Limits, Protocol, Takeover
from muster.coordinator.core.requests.shard_diary import KEPT_TAKEOVERS
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import KeyValue


def took(epoch: int) -> TookOver:
    return TookOver(3, epoch, 1, 2, "node 1 died", 100, 900)


def test_g9_a_takeover_is_a_record_of_its_own_and_the_diary_is_bounded() -> None:
    shard = Shard(Limits(), 3)
    for epoch in range(1, KEPT_TAKEOVERS + 1):
        effects = shard.step(took(epoch), 1_000)
        assert effects.records == [TakeoverRecorded(Takeover(3, epoch, 1, 2, "node 1 died", 100, 900, 1_000))]
    effects = shard.step(took(99), 2_000)
    assert effects.records[1:] == [TakeoverForgotten(3, 1)]
    assert list(shard.state.takeovers) == [*range(2, KEPT_TAKEOVERS + 1), 99]


@pytest.mark.parametrize(
    ("session_ms", "first_ms"),
    [(6_000, 45_000), (10_000, 45_000), (45_000, 45_000), (60_000, 60_000)],
)
def test_g7_the_first_session_after_a_lost_node_is_longer(session_ms: int, first_ms: int) -> None:
    """Held: whoever waited for the frozen node's answer for a session of its own came too late, and had expired."""
    shard = stable(session_ms)
    again = Shard(Limits(), 3)
    for record in shard.records:
        again.apply(record)
    again.step(Loaded(), 100_000)
    key = ("session", "g", shard.member)
    assert again.deadlines[key] == 100_000 + session_ms
    assert again.step(took(7), 100_000).timers == {}, "the node let go in order"
    again.step(replace(took(8), lost=True), 100_000)
    assert again.deadlines[key] == 100_000 + first_ms
    again.step(Heartbeat(9, "g", shard.member, None, 1), 101_000)
    assert again.deadlines[key] == 101_000 + session_ms, "who is back has its own session"


def test_g7_a_newcomer_does_not_wait_for_first_sessions() -> None:
    """Clients that give up by themselves come under a new id: the group would wait for their former ones."""
    shard = stable(10_000)
    again = Shard(Limits(), 3)
    for record in shard.records:
        again.apply(record)
    again.step(Loaded(), 100_000)
    again.step(replace(took(8), lost=True), 100_000)
    again.step(StoodStill(0, 500), 101_000)
    key = ("session", "g", shard.member)
    assert again.deadlines[key] == 145_500
    again.step(join(10_000, "2"), 104_000)
    assert again.deadlines[key] == 110_500
    later = again.step(join(10_000, "3"), 105_000)
    assert key not in later.timers


class StableGroup(NamedTuple):
    """What the log has of a group, and its one member."""

    records: list[Record]
    member: str


def stable(session_ms: int) -> StableGroup:
    shard, records, member = Shard(Limits(), 3), list[Record](), "c-1"

    for event, now_ms in (
        (join(session_ms, "1"), 0),
        (TimerFired(("join", "g"), 3_000), 3_000),
        (SyncGroup(2, "g", member, None, 1, "consumer", "range", ((member, b"a"),)), 3_000),
    ):
        records += shard.step(event, now_ms).records
    return StableGroup(records, member)


def join(session_ms: int, uuid: str) -> JoinGroup:
    """Of a member that will be called c-UUID."""
    who = JoinGroup(int(uuid), "g", "", None, "c", "h", session_ms, 60_000, "consumer", (Protocol("range", b""),), uuid)
    return replace(who, require_known_member_id=False)


def test_g9_what_an_unclean_election_cut_is_told_when_it_is_known() -> None:
    shard = Shard(Limits(), 3)
    shard.step(took(7), 1_000)
    effects = shard.step(CutFound(3, 7, 13), 9_000)
    assert effects.records == [TakeoverRecorded(Takeover(3, 7, 1, 2, "node 1 died", 100, 900, 1_000, cut=13))]
    assert shard.state.takeovers[7].cut == 13
    for known in (CutFound(3, 7, 13), CutFound(3, 7, 5), CutFound(3, 6, 20)):
        assert shard.step(known, 9_500).records == [], "nothing new, or of a takeover that is told no more"


def test_g9_its_bytes_are_those_of_the_contract() -> None:
    recorded = TakeoverRecorded(Takeover(3, 7, 1, 2, "node 1 died", 100, 900, 1_300, 12, 340))
    ((key, value, _),) = encode([recorded]).ledger
    assert key == b'{"epoch":7,"shard":3}'
    assert value == (
        b'{"from":1,"to":2,"cause":"node 1 died","last_heard_ms":100,"elected_ms":900,"serving_ms":1300,"groups":12,'
        b'"members":340,"cut":0}'
    )
    assert decode_ledger(KeyValue(key, value)) == recorded
    assert decode_ledger(KeyValue(key, None)) == TakeoverForgotten(3, 7)
