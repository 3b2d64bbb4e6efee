"""KB-H1: what a shard's log has lost is noticed, said, and never passed over."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.lease import Stage
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    AcceptedLoss,
    LogLosses,
    ProducerEpoch,
    ShardRecordRead,
    decode_accepted_loss,
    encode_accepted_loss,
)
from tests.support.owning import Kafka, OwningNode

NOBODY = ProducerEpoch(-1, -1)
BEHIND_MS = 5_000


def taken(kafka: Kafka, node: int = 1) -> OwningNode:
    owner = OwningNode(kafka, node)
    owner.assign_shards()
    assert owner.serves
    owner.writes(b"a", b"1")
    return owner


def cut(kafka: Kafka, start: int) -> None:
    """Somebody deletes the records before it."""
    partition = kafka.partitions[0]
    partition.log = [stored for stored in partition.log if stored.seen.base_offset >= start]
    kafka.starts[0] = start


def accepts(kafka: Kafka, start: int, token: str = "word") -> None:
    """As `muster engine init --again` does."""
    key, value, _ = encode_accepted_loss(AcceptedLoss(start, token))
    kafka.partitions[0].append(NOBODY, -1, [(key, value)], kafka.now_ms)
    kafka.partitions[0].commit()


def is_lost(node: OwningNode, why: str) -> None:
    assert node.shards.stages() == {0: Stage.LOST}
    assert why in node.shards.lost()[0]
    assert not node.shards.may_answer(0, node.kafka.now_ms)
    assert not node.shards.takes(0)


def test_a_log_that_begins_later_than_at_0_is_not_served_until_an_operator_says_so() -> None:
    kafka = Kafka()
    taken(kafka)
    cut(kafka, 2)
    node = OwningNode(kafka, 2)
    node.assign_shards()
    is_lost(node, "begins at offset 2")
    assert not node.of(fx.InitProducer)
    node.passes(3 * BEHIND_MS)
    is_lost(node, "begins at offset 2")
    accepts(kafka, 2)
    node.passes(BEHIND_MS + 500)
    assert node.serves
    assert node.shards.lost() == {}
    assert node.state == {}


def test_a_word_counts_for_what_was_gone_by_then_and_no_more() -> None:
    kafka = Kafka()
    taken(kafka)
    cut(kafka, 2)
    accepts(kafka, 2)
    OwningNode(kafka, 2).assign_shards()
    cut(kafka, 3)
    node = OwningNode(kafka, 3)
    node.assign_shards()
    is_lost(node, "begins at offset 3")


def test_an_owner_that_hears_that_its_log_is_cut_tells_no_answer_any_more() -> None:
    kafka = Kafka()
    node = taken(kafka)
    released = len(node.of(fx.ReleaseAnswers))
    cut(kafka, 2)
    node.writes(b"a", b"2")
    is_lost(node, "begins at offset 2")
    assert len(node.of(fx.ReleaseAnswers)) == released
    [unload] = node.of(fx.UnloadShard)
    assert unload.again


def test_an_owner_whose_batch_is_put_where_another_one_was_tells_no_answer_any_more() -> None:
    """A topic of the same name, made by somebody: its brokers know no producer, and take any sequence."""
    kafka = Kafka()
    node = taken(kafka)
    released = len(node.of(fx.ReleaseAnswers))
    kafka.partitions[0] = type(kafka.partitions[0])(kafka.partitions[0].leader)
    node.writes(b"a", b"2")
    is_lost(node, "was put at offset 0, and it was acknowledged up to 2")
    assert len(node.of(fx.ReleaseAnswers)) == released


def test_a_process_that_takes_a_log_again_that_is_shorter_than_it_was_does_not_serve_it() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.assign_shards(())
    kafka.partitions[0].log.pop()
    kafka.partitions[0].committed = 1
    node.assign_shards()
    is_lost(node, "ends at offset 1, and it was acknowledged up to 2")
    accepts(kafka, 0)
    node.passes(BEHIND_MS + 500)
    assert node.serves
    node.writes(b"a", b"3")
    assert node.serves


def test_while_the_topic_is_lost_nothing_is_asked_and_afterwards_all_is_taken_anew() -> None:
    kafka = Kafka(2)
    node = OwningNode(kafka, 1)
    node.assign_shards((0,))
    node.writes(b"a", b"1")
    node.tell(ev.TopicLost("somebody deleted it"))
    assert [effect.why for effect in node.of(fx.UnloadShard)] == ["somebody deleted it"]
    asked = len(node.of(fx.FindLogEnd))
    node.tell(ev.TopicLost("somebody deleted it, and made another"))
    node.assign_shards((0, 1))
    node.passes(10 * BEHIND_MS)
    assert node.shards.stages() == {0: Stage.LOST, 1: Stage.LOST}
    assert node.shards.topic_lost == "somebody deleted it, and made another"
    assert len(node.of(fx.FindLogEnd)) == asked
    kafka.partitions = [type(each)(each.leader) for each in kafka.partitions]
    node.tell(ev.TopicFound(another=True))
    assert node.shards.topic_lost == ""
    node.passes(500)
    assert node.shards.stages() == {0: Stage.SERVE, 1: Stage.SERVE}
    assert node.state == {}


def test_a_topic_that_is_the_same_after_all_has_lost_nothing_or_it_is_said() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.tell(ev.TopicLost("nobody knows it"), ev.TopicFound())
    node.passes(500)
    assert node.serves
    assert node.state == {b"a": b"1"}
    node.tell(ev.TopicLost("nobody knows it"))
    kafka.partitions[0] = type(kafka.partitions[0])(kafka.partitions[0].leader)
    node.tell(ev.TopicFound())
    node.passes(500)
    is_lost(node, "ends at offset 0")


def test_what_is_let_go_of_is_let_go_of_though_it_has_lost_something() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.hold = {fx.Produce}
    node.writes(b"a", b"2")
    node.tell(ev.RevokeShards(7, frozenset({0}), kafka.now_ms + 60_000))
    cut(kafka, 2)
    node.releases()
    node.passes(500)
    assert [effect.token for effect in node.of(fx.ShardsLetGo)] == [7]
    assert node.shards.stages() == {}


STRANGE = [b"", b"[]", b"{}", b"\xff", b"[" * 100_000]
"""Whoever may write to the topic may have put it there: it is to stop no node, let alone all."""


@pytest.mark.parametrize(
    "value",
    [*STRANGE, b'{"start":"x","token":""}', b'{"start":Infinity,"token":""}', b'{"start":' + b"9" * 5_000 + b"}"],
)
def test_a_word_that_nobody_can_read_is_none(value: bytes) -> None:
    key, _, _ = encode_accepted_loss(AcceptedLoss(1, "t"))
    assert decode_accepted_loss(ShardRecordRead(key, value, 0)) is None


def test_what_is_not_told_is_not_held_against_anybody() -> None:
    losses = LogLosses()
    assert losses.read(0, 0, 10, None) == ""
    assert losses.acked(0, 10, 2) == ""
    assert losses.acked(0, -1, 2) == ""
    assert losses.acked(0, 12, 1, -1) == ""
    assert losses.read(0, 0, 12, None) != ""
    assert losses.read(0, 0, 13, None) == ""
