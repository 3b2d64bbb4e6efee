"""CL-G9: a shard's diary of its coordinators."""

from muster.coordinator.core.model.events import CutFound, TookOver
from muster.coordinator.core.model.records import TakeoverForgotten, TakeoverRecorded
from muster.coordinator.core.model.types import Limits, Takeover
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
