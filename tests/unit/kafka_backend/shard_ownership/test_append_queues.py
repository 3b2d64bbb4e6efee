"""KB-A1 to KB-A4: queues, requests, what is sent again, and how much may wait."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership.append_queues import (
    MAX_SEQUENCE,
    AppendFailure,
    AppendLimits,
    AppendQueues,
    AppendsBroken,
    BatchAcknowledged,
)
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import FindLeaders, Produce
from muster.coordinator.kafka_backend.shard_ownership.shard_log import BatchResult, ProducerEpoch

PRODUCER = ProducerEpoch(7, 0)


def appends(brokers: dict[int, int], limits: AppendLimits | None = None) -> AppendQueues:
    """Shards and who leads them."""
    machine = AppendQueues(limits or AppendLimits())
    for shard in brokers:
        machine.open(shard, PRODUCER)
        machine.append(shard, [(b"first", b"", None)], 5, 1)
    [ask] = machine.pump(0)
    assert isinstance(ask, FindLeaders)
    machine.led(ask.request, brokers, 0)
    return machine


def sent(machine: AppendQueues, now_ms: int = 0) -> list[Produce]:
    return [effect for effect in machine.pump(now_ms) if isinstance(effect, Produce)]


def test_a1_shards_of_one_broker_leave_in_one_request_and_one_is_under_way() -> None:
    machine = appends({0: 1, 1: 1, 2: 2})
    requests = {each.broker: each for each in sent(machine)}
    assert {broker: [batch.shard for batch in each.batches] for broker, each in requests.items()} == {1: [0, 1], 2: [2]}
    for shard in (0, 1, 2):
        machine.append(shard, [(b"next", b"", None)], 4, 2)
    assert sent(machine) == []
    machine.produced(2, requests[2].request, {2: BatchResult(0, 5)}, 1)
    assert [each.broker for each in sent(machine)] == [2]


def test_a1_while_a_request_to_a_broker_is_under_way_nobody_of_its_shards_sends_another() -> None:
    machine = appends({0: 1, 1: 1, 2: 2})
    first = sent(machine)
    machine.produced(
        1, next(each.request for each in first if each.broker == 1), {0: BatchResult(0), 1: BatchResult(0)}, 1
    )
    machine.append(0, [(b"k", b"", None)], 1, 2)
    [under_way] = sent(machine)
    machine.append(1, [(b"k", b"", None)], 1, 2)
    assert sent(machine) == []
    machine.produced(1, under_way.request, {0: BatchResult(0)}, 2)
    [after] = sent(machine)
    assert [batch.shard for batch in after.batches] == [1]


@pytest.mark.parametrize("code", [47, 90, 120])
def test_f5_a1_one_with_another_owner_breaks_alone(code: int) -> None:
    machine = appends({0: 1, 1: 1})
    [request] = sent(machine)
    outcomes = machine.produced(1, request.request, {0: BatchResult(code), 1: BatchResult(0, 3)}, 1)
    assert outcomes[0] == AppendsBroken(0, AppendFailure.FENCED, code)
    assert isinstance(outcomes[1], BatchAcknowledged)
    assert outcomes[1].offset == 3


def test_a1_what_waits_leaves_together() -> None:
    machine = appends({0: 1})
    [first] = sent(machine)
    for position in (2, 3, 4):
        machine.append(0, [(b"k", b"v", None)] * 2, 4, position)
    machine.produced(1, first.request, {0: BatchResult(0)}, 1)
    [second] = sent(machine)
    [batch] = second.batches
    assert (batch.sequence, len(batch.records), batch.position) == (1, 6, 4)
    machine.produced(1, second.request, {0: BatchResult(46)}, 2)
    assert machine.is_empty(0)
    assert machine.unacked(0) == 0


def test_s1_what_is_too_long_for_one_batch_leaves_as_several_and_counts_with_the_last() -> None:
    machine = appends({0: 1}, AppendLimits(batch_bytes=100))
    [request] = sent(machine)
    machine.append(0, [(b"k" * 20, b"v" * 20, None)] * 3, 120, 2)
    positions = []
    for _ in range(4):
        [outcome] = machine.produced(1, request.request, {0: BatchResult(0)}, 1)
        assert isinstance(outcome, BatchAcknowledged)
        positions.append(outcome.batch.position)
        following = sent(machine)
        if following:
            [request] = following
    assert positions == [1, 1, 1, 2]


def test_a2_an_unknown_outcome_asks_for_leaders_first() -> None:
    machine = appends({0: 1})
    [request] = sent(machine)
    machine.produced(1, request.request, {0: BatchResult(6)}, 100)
    [ask] = machine.pump(150)
    assert isinstance(ask, FindLeaders)
    machine.led(ask.request, {0: 2}, 160)
    [again] = sent(machine, 160)
    assert (again.broker, again.batches) == (2, request.batches)


def test_a2_a_late_answer_to_a_request_that_was_given_up_is_nobodys() -> None:
    machine = appends({0: 1})
    [request] = sent(machine)
    machine.lost(1, request.request, "no answer within 6 s", 0)
    assert machine.trouble(0) == (0, "no answer within 6 s")
    assert machine.produced(1, request.request, {0: BatchResult(0)}, 1) == []
    assert not machine.is_empty(0)


def test_a3_more_than_may_wait_is_told() -> None:
    machine = appends({0: 1}, AppendLimits(unacked_bytes=100))
    assert machine.has_room(0)
    machine.append(0, [(b"k" * 100, b"", None)], 100, 2)
    assert not machine.has_room(0)
    assert machine.has_room(1)


def test_a_shard_without_a_leader_is_asked_for_with_a_back_off() -> None:
    machine = appends({0: -1})
    asked = [
        now_ms for now_ms in range(0, 1_000, 10) if any(isinstance(e, FindLeaders) for e in pumped(machine, now_ms))
    ]
    assert asked == [50, 150, 350, 750]


def pumped(machine: AppendQueues, now_ms: int) -> list[object]:
    effects: list[object] = list(machine.pump(now_ms))
    for effect in effects:
        if isinstance(effect, FindLeaders):
            machine.led(effect.request, {}, now_ms)
    return effects


def test_sequences_go_round() -> None:
    machine = appends({0: 1})
    [request] = sent(machine)
    machine._queues[0].sequence = MAX_SEQUENCE
    machine.append(0, [(b"k", b"", None)] * 2, 2, 2)
    machine.append(0, [(b"k", b"", None)], 1, 3, alone=True)
    sequences = []
    for _ in range(2):
        machine.produced(1, request.request, {0: BatchResult(0)}, 1)
        [request] = sent(machine)
        sequences.append(request.batches[0].sequence)
    assert sequences == [MAX_SEQUENCE, 1]
