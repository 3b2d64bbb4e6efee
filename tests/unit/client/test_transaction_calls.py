"""Our producer's transactions against the real rules of their coordinator, over a network that loses and delays."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.client.aio.producer import AsyncProducer
from muster.client.calls import transport
from muster.client.calls.methods import END_TXN
from muster.client.errors import OutcomeUnknown, ProducerFenced, TransactionAborted
from muster.client.records import accumulator, sender
from muster.client.types import TopicPartition
from tests.fakes.transactional_node import Delivery, TransactionalNode

PATIENCE_S = 60
DELIVERY_MS = 1_000
GIVE_UP = "all patience is over, and the request is late"
Fates = Sequence[Delivery | str]


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


class Writing:
    """A producer of transactions at a `TransactionalNode`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fates: Fates) -> None:
        self.clock = [0]
        for module, name in ((accumulator, "steady_ms"), (sender, "steady_ms"), (transport, "now_ms")):
            monkeypatch.setattr(module, name, lambda: self.clock[0])
        self.node = TransactionalNode(self._deliveries(fates))
        self.monkeypatch = monkeypatch
        self.producer = self.instance()

    def _deliveries(self, fates: Fates) -> Iterator[Delivery]:
        for fate in fates:
            if isinstance(fate, Delivery):
                yield fate
            else:
                self.clock[0] += DELIVERY_MS
                yield Delivery.LATE

    def instance(self) -> AsyncProducer:
        made = AsyncProducer(
            transactional_id="A",
            linger_ms=0,
            retry_backoff_ms=1,
            retry_backoff_max_ms=1,
            delivery_timeout_ms=DELIVERY_MS,
            max_block_ms=10 * DELIVERY_MS,
        )
        self.monkeypatch.setattr(made._core.transport, "call", self.node.call)
        self.monkeypatch.setattr(made._core.catalog, "remembered", lambda topic: 4)
        return made

    def seen(self) -> list[bytes]:
        self.node.write_markers()
        return sorted(value for values in self.node.visible.values() for value in values)


async def write(producer: AsyncProducer, *values: bytes, fails: bool = False) -> None:
    """One transaction with a value to each partition, from 0 on."""
    async with producer.transaction():
        for partition, value in enumerate(values):
            await producer.produce("t", value, partition=partition)
        if fails:
            raise ZeroDivisionError


def test_a_lost_answer_to_a_commit_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        writing = Writing(monkeypatch, [Delivery.ANSWERED, Delivery.ANSWERED, Delivery.ANSWER_LOST])
        await write(writing.producer, b"a")
        # The second one comes before the markers are written, and hears CONCURRENT_TRANSACTIONS.
        assert writing.node.calls == ["InitProducerId", "Produce", "EndTxn", "EndTxn", "EndTxn"]
        assert writing.seen() == [b"a"]
        await writing.producer.close()

    play(story())


def test_a_commit_that_is_late_does_not_end_the_transaction_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        fates = [Delivery.ANSWERED, Delivery.ANSWERED, GIVE_UP]
        writing = Writing(monkeypatch, fates)
        with pytest.raises(OutcomeUnknown):
            await write(writing.producer, b"a")
        await writing.producer.begin()
        await writing.producer.produce("t", b"b", partition=0)
        await writing.producer.flush()
        assert b"b" not in writing.seen()
        await writing.producer.abort()
        assert writing.seen() in ([], [b"a"])
        await writing.producer.close()

    play(story())


def test_a_restarted_coordinator_does_not_fence_a_producer_that_did_not_hear_of_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not know any more which epoch came before; it still recognizes the commit."""

    async def story() -> None:
        writing = Writing(monkeypatch, [Delivery.ANSWERED, Delivery.ANSWERED, Delivery.ANSWER_LOST, GIVE_UP])
        with pytest.raises(OutcomeUnknown):
            await write(writing.producer, b"a")
        writing.node.write_markers()
        writing.node.desk.reload()
        await write(writing.producer, b"b")
        assert writing.seen() == [b"a", b"b"]
        await writing.producer.close()

    play(story())


def test_after_an_unknown_outcome_a_producer_fences_no_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        writing = Writing(monkeypatch, [Delivery.ANSWERED, Delivery.ANSWERED, Delivery.ANSWER_LOST, GIVE_UP])
        with pytest.raises(OutcomeUnknown):
            await write(writing.producer, b"a")
        newer = writing.instance()
        await write(newer, b"of the newer")
        with pytest.raises(ProducerFenced):
            await writing.producer.begin()
        await write(newer, b"and again")
        assert writing.seen() == [b"a", b"and again", b"of the newer"]
        await newer.close()
        await writing.producer.close()

    play(story())


def test_a_commit_of_a_fenced_producer_says_that_its_transaction_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        writing = Writing(monkeypatch, [])
        await writing.producer.begin()
        await writing.producer.produce("t", b"a", partition=0)
        await writing.producer.flush()
        newer = writing.instance()
        await write(newer, b"of the newer")
        with pytest.raises(ProducerFenced, match=r"the transaction is aborted.*start again with a new one") as told:
            await writing.producer.commit()
        assert "transaction.timeout.ms" not in str(told.value)
        assert writing.seen() == [b"of the newer"]
        await newer.close()
        await writing.producer.close()

    play(story())


def test_a_fenced_commit_whose_first_answer_was_lost_does_not_say_that_nothing_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one came through, and a newer producer has begun since."""

    async def story() -> None:
        writing = Writing(monkeypatch, [Delivery.ANSWERED, Delivery.ANSWERED, Delivery.ANSWER_LOST])
        newer, answering = writing.instance(), writing.node.call

        async def overtaken(method: Any, request: Any, **given: Any) -> Any:
            if method is END_TXN and writing.node.calls[-1] == "EndTxn":
                monkeypatch.setattr(writing.producer._core.transport, "call", answering)
                writing.node.write_markers()
                await newer.init_transactions()
            return await answering(method, request, **given)

        monkeypatch.setattr(writing.producer._core.transport, "call", overtaken)
        with pytest.raises(ProducerFenced, match="or not at all; `muster transactions explain A`"):
            await write(writing.producer, b"a")
        assert writing.seen() == [b"a"]
        await newer.close()
        await writing.producer.close()

    play(story())


def test_a_commit_that_is_cancelled_leaves_nothing_to_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        writing = Writing(monkeypatch, [])
        producer = writing.producer
        await producer.begin()
        asked = asyncio.Event()

        async def silent(*args: Any, **given: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        answering = writing.node.call
        monkeypatch.setattr(producer._core.transport, "call", silent)
        await producer.produce("t", b"a", partition=0)
        committing = asyncio.ensure_future(producer.commit())
        await asked.wait()
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        monkeypatch.setattr(producer._core.transport, "call", answering)
        await write(producer, b"b")
        assert writing.seen() == [b"b"]
        await producer.close()

    play(story())


FATES = st.lists(st.one_of(st.sampled_from(list(Delivery)), st.just(GIVE_UP)), max_size=14)
TRANSACTIONS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


@settings(max_examples=200)
@given(FATES, TRANSACTIONS)
def test_whatever_is_lost_late_or_restarted_a_transaction_counts_as_its_producer_was_told(
    fates: Fates, transactions: list[tuple[int, bool]]
) -> None:
    told: dict[int, str] = {}

    async def story(writing: Writing) -> None:
        for number, (size, fails) in enumerate(transactions):
            values = [b"%d.%d" % (number, place) for place in range(size)]
            try:
                await write(writing.producer, *values, fails=fails)
                told[number] = "committed"
            except (TransactionAborted, ZeroDivisionError):
                told[number] = "aborted"
            except OutcomeUnknown:
                told[number] = "unknown"
            except ConnectionError:
                # Not even begun: the transactional id could not be taken.
                told[number] = "aborted"
        await writing.producer.close()

    with pytest.MonkeyPatch.context() as monkeypatch:
        made: list[Writing] = []

        async def run() -> None:
            made.append(Writing(monkeypatch, fates))
            await story(made[0])

        play(run())
    writing = made[0]
    seen = writing.seen()
    assert len(set(seen)) == len(seen), "once"
    for number, (size, _) in enumerate(transactions):
        wanted = [b"%d.%d" % (number, place) for place in range(size)]
        there = [value for value in wanted if value in seen]
        assert there in ([], wanted), "all of it or nothing"
        if told[number] != "unknown" and size:
            assert bool(there) == (told[number] == "committed"), told[number]
    for place in range(3):
        line = writing.node.visible.get(TopicPartition("t", place), [])
        assert line == sorted(line, key=lambda value: int(value.split(b".")[0])), "in order"
