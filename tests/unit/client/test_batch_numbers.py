"""Numbered batches: a retried one is written once, and one that was given up never arrives late (KIP-98, KIP-360)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.aio.producer import AsyncProducer
from muster.client.config import ProducerConfig, load
from muster.client.errors import ConfigError, DeliveryFailed
from muster.client.records import accumulator, sender
from muster.client.records.accumulator import LAST_CLIENT_EPOCH, NumberedOwnership, ProducerNumbering
from muster.client.types import RecordMetadata, TopicPartition
from muster.storage.records.batch import read_batches
from tests.fakes.numbered_log import Fate, NumberedLog

PLACE = TopicPartition("t", 0)
PATIENCE_S = 30
DELIVERY_MS = 1_000


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


def fates(given: Sequence[Fate | str], clock: list[int]) -> Iterator[Fate]:
    """One per request; "give up": the request is late, and delivery.timeout.ms is over."""
    for fate in given:
        if isinstance(fate, Fate):
            yield fate
        else:
            clock[0] += DELIVERY_MS
            yield Fate.LATE


class Sending:
    """A producer that sends to a `NumberedLog`, and what it heard of each record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, given: Sequence[Fate | str], **properties: Any) -> None:
        clock = [0]
        for module in (accumulator, sender):
            monkeypatch.setattr(module, "steady_ms", lambda: clock[0])
        settings = {
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 1,
            "delivery_timeout_ms": DELIVERY_MS,
            "linger_ms": 0,
        }
        self.producer = AsyncProducer(**(settings | properties))
        self.log = NumberedLog(fates(given, clock))
        core = self.producer._core
        monkeypatch.setattr(core.transport, "call", self.log.call)
        monkeypatch.setattr(core.catalog, "remembered", lambda topic: 4)
        self.delivered: dict[bytes, int] = {}
        self.given_up: list[bytes] = []

    async def send(self, value: bytes, partition: int = 0) -> None:
        """One record in a batch of its own; wait until it is delivered or given up."""

        def heard(error: Exception | None, metadata: RecordMetadata | None) -> None:
            if metadata is None:
                self.given_up.append(value)
            else:
                self.delivered[value] = metadata.offset

        await self.producer.produce("t", value, partition=partition, on_delivery=heard)
        try:
            await self.producer.flush()
        except DeliveryFailed:
            assert value in self.given_up

    def numbers(self) -> list[tuple[int, int, int]]:
        """Producer id, epoch and first sequence of each batch sent."""
        parts = [part for request in self.log.requests for topic in request.topic_data for part in topic.partition_data]
        return [
            (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            for part in parts
            for batch in read_batches(part.records)
        ]


Story = Callable[[Sending], Coroutine[Any, Any, None]]


def play_with(monkeypatch: pytest.MonkeyPatch, given: Sequence[Fate | str], story: Story, **properties: Any) -> Sending:
    made: list[Sending] = []

    async def run() -> None:
        sending = Sending(monkeypatch, given, **properties)
        made.append(sending)
        await story(sending)
        await sending.producer.close()

    play(run())
    return made[0]


def send_all(*values: bytes) -> Story:
    async def story(sending: Sending) -> None:
        for value in values:
            await sending.send(value)

    return story


def test_a_batch_whose_answer_was_lost_is_sent_again_with_its_number_and_has_its_first_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sending = play_with(monkeypatch, [Fate.ANSWERED, Fate.ANSWER_LOST], send_all(b"a", b"b", b"c"))
    assert sending.numbers() == [(1, 0, 0), (1, 0, 1), (1, 0, 1), (1, 0, 2)]
    assert sending.log.values[PLACE] == [b"a", b"b", b"c"]
    assert sending.delivered == {b"a": 0, b"b": 1, b"c": 2}


def test_without_idempotence_the_same_is_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    sending = play_with(monkeypatch, [Fate.ANSWER_LOST], send_all(b"a"), enable_idempotence=False)
    assert sending.log.values[PLACE] == [b"a", b"a"]
    assert (sending.numbers()[0], sending.log.given_ids) == ((-1, -1, -1), 0)


def test_after_a_record_is_given_up_its_partition_goes_on_under_the_next_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the log refuses it, when it arrives after all; other partitions keep their epoch, and no node is asked."""

    async def story(sending: Sending) -> None:
        await sending.send(b"other", 1)
        for value in (b"a", b"lost", b"b", b"c"):
            await sending.send(value)
        await sending.send(b"other again", 1)

    sending = play_with(monkeypatch, [Fate.ANSWERED, Fate.ANSWERED, "give up"], story)
    assert sending.log.values[PLACE] == [b"a", b"b", b"c"]
    assert sending.given_up == [b"lost"]
    assert sending.numbers()[2:] == [(1, 0, 1), (1, 1, 0), (1, 1, 1), (1, 0, 1)]
    assert sending.log.given_ids == 1


def test_a_log_that_has_forgotten_the_producer_gets_the_batch_under_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER or UNKNOWN_PRODUCER_ID: it was not written."""
    sending = play_with(monkeypatch, [Fate.ANSWERED, Fate.OUT_OF_ORDER], send_all(b"a", b"b", b"c"))
    assert sending.log.values[PLACE] == [b"a", b"b", b"c"]
    assert sending.numbers() == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]


def test_a_refused_batch_takes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sending = play_with(monkeypatch, [Fate.ANSWERED, Fate.TOO_LARGE], send_all(b"a", b"large", b"b"))
    assert sending.numbers() == [(1, 0, 0), (1, 0, 1), (1, 0, 1)]
    assert (sending.log.values[PLACE], sending.given_up) == ([b"a", b"b"], [b"large"])


def test_a_batch_refused_after_an_answer_was_lost_leaves_its_number_to_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was written, and the topic's limit lowered since: the log would take the next batch for this one."""
    given_fates = [Fate.ANSWERED, Fate.ANSWER_LOST, Fate.TOO_LARGE]
    sending = play_with(monkeypatch, given_fates, send_all(b"a", b"doubtful", b"b"))
    assert sending.log.values[PLACE] == [b"a", b"doubtful", b"b"]
    assert (sending.given_up, sending.delivered) == ([b"doubtful"], {b"a": 0, b"b": 2})
    assert sending.numbers() == [(1, 0, 0), (1, 0, 1), (1, 0, 1), (1, 1, 0)]


FATES = st.lists(
    st.sampled_from([Fate.ANSWERED, Fate.REQUEST_LOST, Fate.ANSWER_LOST, Fate.LATE, Fate.TOO_LARGE, "give up"]),
    max_size=12,
)


@given(FATES, st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_whatever_is_lost_or_late_a_delivered_record_is_there_once_and_in_order(
    given_fates: list[Fate | str], partitions: list[int]
) -> None:
    async def story(sending: Sending) -> None:
        for number, partition in enumerate(partitions):
            await sending.send(b"%d" % number, partition)

    with pytest.MonkeyPatch.context() as monkeypatch:
        sending = play_with(monkeypatch, given_fates, story)
    for partition in range(3):
        written = sending.log.values.get(TopicPartition("t", partition), [])
        sent = [b"%d" % number for number, each in enumerate(partitions) if each == partition]
        assert written == sorted(written, key=sent.index), "in order"
        assert len(set(written)) == len(written), "once"
        for value in sent:
            if value in sending.delivered:
                assert written[sending.delivered[value]] == value, "where it was said to be"
            else:
                assert value in sending.given_up


def test_after_the_last_epoch_the_partition_goes_on_under_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        producer = AsyncProducer()
        log = NumberedLog(iter(()))
        monkeypatch.setattr(producer._core.transport, "call", log.call)
        numbers = ProducerNumbering(producer._core.transport)
        other = TopicPartition("t", 1)
        await numbers.claim([PLACE, other])
        for _ in range(LAST_CLIENT_EPOCH):
            numbers.doubt(PLACE)
        assert numbers.ownership_of(PLACE) == NumberedOwnership(1, LAST_CLIENT_EPOCH)
        numbers.doubt(PLACE)
        assert numbers.ownership_of(PLACE) is None
        await numbers.claim([PLACE, other])
        assert (numbers.ownership_of(PLACE), numbers.ownership_of(other)) == (
            NumberedOwnership(2, 0),
            NumberedOwnership(1, 0),
        )
        await producer.close()

    play(story())


def test_a_producer_is_idempotent_unless_it_is_told_not_to_be_or_does_not_hear_of_all_that_is_written() -> None:
    assert load(ProducerConfig, None, {}).numbers_batches
    assert not load(ProducerConfig, None, {"acks": "1"}).numbers_batches
    assert not load(ProducerConfig, None, {"enable_idempotence": False}).numbers_batches
    assert not load(ProducerConfig, None, {"enable_idempotence": False, "acks": 0}).numbers_batches
    with pytest.raises(ConfigError, match=r"enable\.idempotence=true .* acks is 1; use acks=all"):
        load(ProducerConfig, {"enable.idempotence": "true", "acks": "1"}, {})
