"""KB-F3 to KB-F9, KB-S7: how a shard is taken, kept, lost and let go of; each story over a model of Kafka."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.shard_ownership.lease import Stage
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import AssignedNode, ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    KEPT_KEY,
    BatchResult,
    ProducerEpoch,
    TransactionalClient,
    decode_owner_record,
)
from tests.support.owning import SESSION, Kafka, OwningNode


def taken(kafka: Kafka, node: int = 1) -> OwningNode:
    owner = OwningNode(kafka, node)
    owner.assign_shards()
    assert owner.serves
    return owner


def records(kafka: Kafka) -> list[tuple[bytes | None, bytes | None]]:
    return [(r.key, r.value) for stored in kafka.partitions[0].log for r in stored.seen.records]


def test_f3_each_step_in_its_order() -> None:
    node = taken(Kafka())
    steps = [type(effect) for effect in node.seen if not isinstance(effect, fx.WakeShardsAt)]
    assert steps == [
        fx.FindLogEnd,
        fx.InitProducer,
        fx.FindLeaders,
        fx.Produce,
        fx.FetchLog,
        fx.FinishLoad,
        fx.ServeShard,
    ]
    [batch] = node.of(fx.Produce)[0].batches
    assert batch.sequence == 0
    report = node.of(fx.ServeShard)[0].report
    assert (report.owner.turn, report.before, report.cause) == (1, None, fx.TakeoverCause.FIRST)


@pytest.mark.parametrize("code", [51, 14, 15, 16])
def test_f3_each_step_is_tried_again(code: int) -> None:
    kafka = Kafka()
    node = OwningNode(kafka, 1)
    node.codes = {fx.InitProducer: code, fx.FindLogEnd: 6, fx.FetchLog: 6, fx.Produce: 7}
    node.assign_shards()
    for kind in (fx.FindLogEnd, fx.InitProducer, fx.Produce, fx.FetchLog):
        node.passes(2_000)
        assert len(node.of(kind)) > 1
        assert not node.serves
        del node.codes[kind]
    node.passes(2_000)
    assert node.serves
    owners = [decode_owner_record(r) for stored in kafka.partitions[0].log for r in stored.seen.records]
    assert [owner and owner.turn for owner in owners] == [1]


def test_a_tick_that_comes_a_moment_too_early_is_wished_for_again() -> None:
    """Clocks are cut to milliseconds, and loops wake on time: then nothing is due yet, and must not be for good."""
    node = OwningNode(Kafka(), 1)
    node.codes = {fx.InitProducer: 51}
    node.assign_shards()
    wishes = node.of(fx.WakeShardsAt)
    at_ms = min(wish.at_ms for wish in wishes)
    node.kafka.now_ms = at_ms - 1
    node.tell(ev.ShardsTick())
    assert [again.at_ms for again in node.of(fx.WakeShardsAt)[len(wishes) :]] == [at_ms]


def test_f3_nobody_is_fenced_without_a_lease() -> None:
    node = OwningNode(Kafka(), 1)
    node.tell(ev.ShardsAssigned(frozenset({0}), ShardAssignment()))
    assert not node.of(fx.InitProducer)
    node.passes(500)
    assert node.serves


def test_f4_what_the_old_owner_writes_until_the_owner_record_counts() -> None:
    kafka = Kafka()
    old, new = taken(kafka, 1), OwningNode(kafka, 2)
    new.hold = {fx.Produce}
    new.assign_shards()
    old.writes(b"a", b"between")
    assert old.of(fx.ReleaseAnswers)[-1].position == 1
    new.releases()
    assert new.serves
    assert new.state == {b"a": b"between"}


def test_f5_who_is_fenced_is_unloaded_and_asks_the_group_before_it_takes_it_again() -> None:
    kafka = Kafka()
    old, new = taken(kafka, 1), taken(kafka, 2)
    old.writes(b"a", b"late")
    assert [effect.shard for effect in old.of(fx.UnloadShard)] == [0]
    assert not old.of(fx.ReleaseAnswers)
    for _ in range(4):
        kafka.now_ms += 500
        old.tell(ev.ShardsTick())
    assert len(old.of(fx.InitProducer)) == 1
    old.tell(ev.LeaseHeartbeatAnswered(kafka.now_ms, 25), ev.MembershipLost("put out"))
    assert len(old.of(fx.InitProducer)) == 1
    new.writes(b"a", b"1")
    assert new.of(fx.ReleaseAnswers)[-1].position == 1


def test_f5_a_foreign_newer_owner_record_that_is_seen_ends_it_too() -> None:
    kafka = Kafka()
    old = taken(kafka, 1)
    kafka.transactions.forget("shard-0")
    new = OwningNode(kafka, 2)
    new.assign_shards()
    kafka.partitions[0].added.add(50)
    old.commits(TransactionalClient("app", ProducerEpoch(50, 0)), b"a", b"1")
    [unload] = old.of(fx.UnloadShard)
    assert unload.other.node == 2


def test_f6_where_nobody_is_fenced_the_owner_waits_and_reads_what_came_behind() -> None:
    kafka = Kafka()
    old = taken(kafka, 1)
    old.writes(b"a", b"1")
    kafka.transactions.forget("shard-0")
    new = OwningNode(kafka, 2)
    new.assign_shards()
    assert new.shards.stages() == {0: Stage.WAIT}
    partition = kafka.partitions[0]
    partition.append(ProducerEpoch(7, 0), 2, [(b"a", b"late")], kafka.now_ms)
    partition.commit()
    new.passes(SESSION - 500)
    assert not new.serves
    new.passes(500)
    assert new.serves
    assert new.state == {b"a": b"1"}
    report = new.of(fx.ServeShard)[0].report
    assert (report.fenced_records, report.repaired, report.waited_ms) == (1, 1, SESSION)
    assert records(kafka)[-3:] == [(b"a", b"1"), (b"\xffowner 1 7 0", None), (KEPT_KEY, b"settled")]


def test_f6_what_the_wait_is_for() -> None:
    """A late write that nobody saw hides what counts from the cleaner; the next owner would find neither."""
    kafka = Kafka()
    old = taken(kafka, 1)
    old.writes(b"a", b"1")
    kafka.transactions.forget("shard-0")
    new = OwningNode(kafka, 2)
    new.assign_shards()
    kafka.partitions[0].append(ProducerEpoch(7, 0), 2, [(b"a", b"late")], kafka.now_ms)
    kafka.partitions[0].commit()
    new.passes(SESSION)
    kafka.partitions[0].clean(kafka.now_ms + 1, 0)
    assert taken(kafka, 3).state == {b"a": b"1"}


def test_f6_the_next_owner_waits_where_the_one_before_had_not_done_so() -> None:
    kafka = Kafka()
    taken(kafka, 1)
    kafka.transactions.forget("shard-0")
    second, third = OwningNode(kafka, 2), OwningNode(kafka, 3)
    second.assign_shards()
    third.assign_shards()
    assert third.shards.stages() == {0: Stage.WAIT}
    third.passes(SESSION)
    assert third.serves
    assert taken(kafka, 1).of(fx.ServeShard)[0].report.waited_ms == 0


def test_f6_an_owner_that_writes_nothing_is_not_forgotten_and_its_log_stays_whole_when_cleaned() -> None:
    """The owner record itself, written again, would move: what its owner wrote before it would be void."""
    kafka = Kafka()
    taken(kafka, 2).writes(b"a", b"0")
    node = taken(kafka, 1)
    node.writes(b"a", b"1")
    node.kafka.now_ms += 21_600_000
    node.tell(ev.LeaseHeartbeatAnswered(kafka.now_ms, 0))
    assert records(kafka)[-1] == (KEPT_KEY, b"kept")
    for _ in range(2):
        kafka.partitions[0].clean(kafka.now_ms + 1, 0)
    after = taken(kafka, 2)
    assert after.state == {b"a": b"1"}
    assert after.of(fx.ServeShard)[0].report.fenced_records == 0


def test_two_that_take_the_same_turn_the_later_takes_another() -> None:
    kafka = Kafka()
    first, second = OwningNode(kafka, 1), OwningNode(kafka, 2)
    first.hold = second.hold = {fx.Produce}
    first.assign_shards()
    second.assign_shards()
    first.hold = set()
    first.releases()
    assert first.serves
    second.releases()
    assert not second.serves
    second.passes(500)
    assert second.serves
    assert second.of(fx.ServeShard)[0].report.owner.turn == 2


def test_f7_without_a_lease_nothing_is_answered_and_nothing_written() -> None:
    kafka = Kafka()
    node = taken(kafka)
    at_ms = kafka.now_ms
    node.passes(8_999, beats=False)
    assert node.shards.may_answer(0, kafka.now_ms)
    kafka.now_ms = at_ms + 9_000
    assert not node.shards.may_answer(0, kafka.now_ms)
    sent = len(node.of(fx.Produce))
    node.writes(b"a", b"1")
    assert len(node.of(fx.Produce)) == sent
    node.tell(ev.LeaseHeartbeatAnswered(kafka.now_ms, 0))
    assert node.of(fx.ReleaseAnswers)[-1].position == 1
    assert not node.of(fx.UnloadShard)


def test_f7_a_gap_of_two_seconds_unloads_and_the_shard_is_taken_anew_when_the_lease_is_back() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.passes(10_500, beats=False)
    assert not node.of(fx.UnloadShard)
    node.passes(500, beats=False)
    assert node.of(fx.UnloadShard)[0].again
    assert not node.serves
    node.passes(500)
    assert node.serves
    assert node.of(fx.ServeShard)[-1].report.owner.turn == 2


def test_f8_a_shard_is_let_go_of_when_all_it_wrote_is_acknowledged() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.hold = {fx.Produce}
    node.writes(b"a", b"1")
    node.tell(ev.RevokeShards(5, frozenset({0}), kafka.now_ms + 5_000))
    assert node.of(fx.RefuseRequests)
    assert not node.shards.takes(0)
    assert not node.of(fx.ShardsLetGo)
    node.releases()
    assert node.of(fx.ReleaseAnswers)
    assert node.shards.may_answer(0, kafka.now_ms), "what is acknowledged may be told before it goes"
    kafka.now_ms = node.of(fx.WakeShardsAt)[-1].at_ms
    node.tell(ev.ShardsTick())
    ends = [type(effect) for effect in node.seen if not isinstance(effect, fx.WakeShardsAt)][-3:]
    assert ends == [fx.ReleaseAnswers, fx.UnloadShard, fx.ShardsLetGo]


def test_f8_a_shard_that_is_being_taken_is_let_go_of_at_once_and_never_served() -> None:
    kafka = Kafka(2)
    kafka.partitions[1].elect(1)  # one broker's requests do not wait for the other's
    node = OwningNode(kafka, 1)
    node.assign_shards((0,))
    node.hold = {fx.Produce}
    node.writes(b"a", b"1")
    node.hold |= {fx.FinishLoad}
    node.assign_shards((0, 1))
    while held := [each for each in node.held if isinstance(each, fx.Produce) and each.batches[0].shard == 1]:
        node.held = [each for each in node.held if each not in held]
        for each in held:
            node.perform(each)
    (finish,) = [each for each in node.held if isinstance(each, fx.FinishLoad)]
    node.tell(ev.RevokeShards(5, frozenset({0, 1}), kafka.now_ms + 5_000))
    node.perform(finish)
    assert [each.shard for each in node.of(fx.ServeShard)] == [0]
    assert not node.of(fx.ShardsLetGo), "what shard 0 wrote is waited for"


def test_f8_after_the_deadline_it_goes_anyhow_and_what_comes_then_is_nobodys() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.hold = {fx.Produce}
    node.writes(b"a", b"1")
    node.tell(ev.RevokeShards(5, frozenset({0}), kafka.now_ms + 5_000))
    node.passes(5_000)
    assert [effect.token for effect in node.of(fx.ShardsLetGo)] == [5]
    node.releases()
    assert not node.of(fx.ReleaseAnswers)


def test_f8_what_is_being_taken_is_let_go_of_at_once() -> None:
    node = OwningNode(Kafka(), 1)
    node.hold = {fx.FetchLog, fx.FindLogEnd}
    node.assign_shards()
    node.tell(ev.RevokeShards(1, frozenset({0}), 99_000))
    assert node.of(fx.ShardsLetGo)
    node.releases()
    assert not node.of(fx.InitProducer)


@pytest.mark.parametrize(
    ("there", "cause"),
    [
        ([], fx.TakeoverCause.NODE_LOST),
        ([AssignedNode(1, "1/1")], fx.TakeoverCause.NODE_JOINED),
        ([AssignedNode(1, "1/1", draining=True)], fx.TakeoverCause.NODE_DRAINING),
    ],
)
def test_f9_why_a_shard_moved(there: list[AssignedNode], cause: fx.TakeoverCause) -> None:
    kafka = Kafka()
    taken(kafka, 1)
    node = OwningNode(kafka, 2)
    node.assign_shards(nodes=there)
    assert node.of(fx.ServeShard)[0].report.cause is cause


def test_f9_a_node_that_came_back_says_so() -> None:
    kafka = Kafka()
    taken(kafka, 1)
    node = OwningNode(kafka, 1, instance="1/2")
    node.assign_shards()
    assert node.of(fx.ServeShard)[0].report.cause is fx.TakeoverCause.NODE_RESTARTED


def test_f2_the_fenced_one_of_two_processes_stops_and_names_the_other() -> None:
    node = taken(Kafka())
    node.tell(ev.NodeFenced("host:9290"))
    assert "host:9290" in node.of(fx.StopProcess)[0].sentence
    assert not node.shards.may_answer(0, node.kafka.now_ms)


def test_a2_the_same_bytes_again_after_a_lost_answer_are_in_the_log_once() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.hold = {fx.Produce}
    node.writes(b"a", b"1")
    [produce] = node.held
    node.held, node.hold = [], set()
    node.produce(produce)
    node.tell(ev.ProduceLost(produce.broker, produce.request))
    node.passes(500)
    assert node.of(fx.Produce)[-1].batches[0] is produce.batches[0]
    assert node.of(fx.ReleaseAnswers)[-1].position == 1
    assert records(kafka).count((b"a", b"1")) == 1


def test_a2_out_of_order_takes_the_shard_anew() -> None:
    kafka = Kafka()
    node = taken(kafka)
    node.codes = {fx.Produce: 45}
    node.writes(b"a", b"1")
    assert node.of(fx.UnloadShard)[0].again
    node.codes = {}
    node.passes(500)
    assert node.of(fx.ServeShard)[-1].report.owner.turn == 2


def test_a4_what_is_not_acknowledged_in_time_drops_the_shard() -> None:
    kafka = Kafka()
    node = OwningNode(kafka, 1, limits=AppendLimits(delivery_timeout_ms=3_000))
    node.assign_shards()
    node.codes = {fx.Produce: 19}
    node.writes(b"a", b"1")
    node.passes(2_500)
    assert not node.of(fx.UnloadShard)
    node.passes(500)
    assert "delivery.timeout.ms" in node.of(fx.UnloadShard)[0].why
    node.codes = {}
    node.passes(1_500)
    assert node.serves
    assert node.state == {}


def test_a2_a_shard_that_is_taken_anew_for_what_was_answered_is_so_in_time() -> None:
    """With an answer about what was written only the shards are looked at that do not go on as before."""
    kafka = Kafka(2)
    node = OwningNode(kafka, 1)
    node.assign_shards((0, 1))
    node.hold = {fx.Produce}
    node.writes(b"k", b"1")
    [produce] = node.held
    node.seen.clear()
    node.tell(ev.BatchesProduced(produce.broker, produce.request, {0: BatchResult(45)}))
    assert [type(effect) for effect in node.seen] == [fx.UnloadShard, fx.WakeShardsAt]
    assert node.seen[-1].at_ms == kafka.now_ms + AppendLimits().retry_ms
