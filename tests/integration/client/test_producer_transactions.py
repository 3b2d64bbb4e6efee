"""Our producer's transactions against a real node: what counts, who is fenced, and what a kill in between leaves."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster import aio
from muster.client import Admin, Consumer, OutcomeUnknown, Producer, ProducerFenced, TransactionAborted
from muster.client.errors import ConfigError, IllegalState, MessageTooLarge
from muster.client.types import GroupMetadata
from tests.support.client_stories import fill, member, read
from tests.support.node import NodeProcess, running_node
from tests.support.topics import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """One that a test may freeze and kill, with a topic `t` of two partitions."""
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t", 2)
        yield node


def transactional(node: NodeProcess, name: str = "app", **properties: object) -> Producer:
    return Producer(bootstrap_servers=node.address, transactional_id=name, **properties)


def write_and_fail(
    producer: Producer, *values: bytes, topic: str = "t", during: Callable[[], None] = lambda: None
) -> None:
    """A transaction that its program leaves by an error."""
    with producer.transaction():
        for value in values:
            producer.produce(topic, value, partition=0)
            producer.flush()
        during()
        raise ZeroDivisionError


def committed_values(node: NodeProcess, topic: str = "t", partitions: int = 2) -> list[bytes | None]:
    """All that a reader of committed records gets, once no transaction is open."""
    places = [(topic, number) for number in range(partitions)]
    properties = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=node.address, **properties) as consumer:
        with Consumer(bootstrap_servers=node.address) as uncommitted:
            eventually(
                lambda: consumer.end_offsets(places) == uncommitted.end_offsets(places), "no transaction is open"
            )
        consumer.assign(places)
        ends, values = consumer.end_offsets(places), []
        while any(consumer.position(place) < ends[place] for place in places):
            values += [message.value for message in consumer.consume(500, 0.1)]
    return sorted(values)


def test_a_transaction_counts_as_a_whole_or_not_at_all(node: NodeProcess, topic: str) -> None:
    with transactional(node, topic) as producer:
        with producer.transaction():
            for number in range(4):
                producer.produce(topic, b"kept %d" % number, partition=number)
        with pytest.raises(ZeroDivisionError):
            write_and_fail(producer, b"dropped", topic=topic, during=lambda: producer.produce(topic, b"not sent"))
        producer.begin()
        producer.produce(topic, b"kept last")
        producer.commit()
    assert committed_values(node, topic, 4) == [b"kept 0", b"kept 1", b"kept 2", b"kept 3", b"kept last"]


def test_every_transaction_has_an_epoch_of_its_own_and_an_empty_one_asks_for_none(
    node: NodeProcess, topic: str
) -> None:
    with transactional(node, topic) as producer:
        numbers = producer._core.transactions._numbers  # type: ignore[union-attr]
        epochs = [numbers.ownership.epoch]  # type: ignore[union-attr]
        for values in ((), (b"a",), (b"b",), ()):
            with producer.transaction():
                for value in values:
                    producer.produce(topic, value, partition=0)
            epochs.append(numbers.ownership.epoch)  # type: ignore[union-attr]
    assert epochs == [0, 0, 1, 2, 2]


def test_calls_that_do_not_fit_are_refused(node: NodeProcess, topic: str) -> None:
    with (
        Producer(bootstrap_servers=node.address) as producer,
        pytest.raises(IllegalState, match="transactional_id=NAME"),
    ):
        producer.begin()
    with pytest.raises(ConfigError, match=r"transactional\.id needs an idempotent producer, and acks is 1"):
        Producer(transactional_id="x", acks=1)
    with pytest.raises(ConfigError, match=r"enable\.idempotence is false"):
        Producer(transactional_id="x", enable_idempotence=False)
    with transactional(node, topic) as producer:
        with pytest.raises(IllegalState, match=r"produce\(\) .*begin\(\) one first"):
            producer.produce(topic, b"outside")
        producer.begin()
        producer.commit()
        with pytest.raises(IllegalState, match="no transaction is open"):
            producer.produce(topic, b"outside")
        with pytest.raises(IllegalState, match=r"commit\(\)"):
            producer.commit()


def test_a_record_that_is_given_up_aborts_its_transaction_and_the_next_one_counts(
    node: NodeProcess, admin: Admin
) -> None:
    admin.create_topic("small-transactions", 1, {"max.message.bytes": "300"})
    with transactional(node, "small-transactions") as producer:
        producer.begin()
        producer.produce("small-transactions", b"fits")
        producer.flush()
        producer.produce("small-transactions", b"x" * 1_000)
        with pytest.raises(TransactionAborted, match="too large") as told:
            producer.commit()
        assert isinstance(told.value.reason, MessageTooLarge)
        producer.begin()
        producer.produce("small-transactions", b"x" * 1_000)
        with pytest.raises(TransactionAborted):
            producer.flush()
        for call in (lambda: producer.produce("small-transactions", b"y"), producer.commit):
            with pytest.raises(TransactionAborted):
                call()
        producer.abort()
        with producer.transaction():
            producer.produce("small-transactions", b"counts")
    assert committed_values(node, "small-transactions", 1) == [b"counts"]


def test_a_produce_after_a_record_was_given_up_has_aborted_already(node: NodeProcess, admin: Admin) -> None:
    admin.create_topic("narrow-transactions", 1, {"max.message.bytes": "300"})
    with transactional(node, "narrow-transactions") as producer:
        producer.begin()
        with pytest.raises(MessageTooLarge):
            producer.send("narrow-transactions", b"x" * 1_000).result(timeout=30)
        with pytest.raises(TransactionAborted, match="too large"):
            producer.produce("narrow-transactions", b"y")
        producer.begin()
        producer.produce("narrow-transactions", b"counts")
        producer.commit()
    assert committed_values(node, "narrow-transactions", 1) == [b"counts"]


def test_of_two_producers_with_one_id_only_the_newer_can_commit(node: NodeProcess, topic: str) -> None:
    older = transactional(node, topic)
    older.begin()
    older.produce(topic, b"of the older", partition=0)
    older.flush()
    with transactional(node, topic) as newer:
        newer.init_transactions()
        with pytest.raises(ProducerFenced):
            older.commit()
        for call in (older.begin, older.abort, lambda: older.produce(topic, b"more")):
            with pytest.raises(ProducerFenced):
                call()
        older.close()
        with newer.transaction():
            newer.produce(topic, b"of the newer", partition=1)
    assert committed_values(node, topic, 4) == [b"of the newer"]


def test_to_enter_it_is_to_take_the_transactional_id(node: NodeProcess, topic: str) -> None:
    """Who reads before it writes would wait for what an earlier instance left open, and that for its timeout."""
    with transactional(node, topic) as older, Consumer(bootstrap_servers=node.address, group_id=f"{topic}-g") as reader:
        older.begin()
        older.send_offsets({(topic, 0): 3}, reader.consumer_group_metadata())
        with transactional(node, topic):
            assert reader.committed([(topic, 0)]) == {(topic, 0): None}
        with pytest.raises(ProducerFenced):
            older.commit()


def test_a_fenced_producer_hears_of_it_from_its_records_as_well(node: NodeProcess, topic: str) -> None:
    with (
        transactional(node, topic) as older,
        transactional(node, topic),
        pytest.raises(ProducerFenced),
        older.transaction(),
    ):
        older.produce(topic, b"late", partition=0)
    assert committed_values(node, topic, 4) == []


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_lives_on(
    node: NodeProcess, topic: str
) -> None:
    with transactional(node, topic, transaction_timeout_ms=1_000) as producer:
        producer.begin()
        producer.produce(topic, b"too late", partition=0)
        producer.flush()
        assert committed_values(node, topic, 4) == []
        producer.produce(topic, b"later still", partition=0)
        with pytest.raises(TransactionAborted, match="INVALID_PRODUCER_EPOCH"):
            producer.commit()
        with producer.transaction():
            producer.produce(topic, b"in time", partition=0)
    assert committed_values(node, topic, 4) == [b"in time"]


def test_a_commit_after_the_timeout_is_refused_for_good(node: NodeProcess, topic: str) -> None:
    with transactional(node, topic, transaction_timeout_ms=1_000) as producer:
        producer.begin()
        producer.produce(topic, b"too late", partition=0)
        producer.flush()
        assert committed_values(node, topic, 4) == []
        with pytest.raises(
            ProducerFenced,
            match=r"INVALID_TXN_STATE.*the transaction is aborted.*transaction.timeout.ms of 1000 ms was over",
        ):
            producer.commit()


def test_a_groups_lag_ends_at_the_high_watermark_and_a_readers_own_at_the_last_stable_offset(
    node: NodeProcess, topic: str
) -> None:
    """As in Kafka: its tools ask for ends without an isolation level, its consumers with their own."""
    place = (topic, 0)
    settings = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    with (
        transactional(node, topic) as producer,
        member(node, topic, **settings) as consumer,
        Admin(bootstrap_servers=node.address) as admin,
    ):
        consumer.assign([place])
        consumer.commit(offsets={place: 0})
        producer.begin()
        for _ in range(3):
            producer.produce(topic, b"held", partition=0)
        producer.flush()
        group = consumer.consumer_group_metadata().group_id
        assert consumer.end_offsets([place]) == {place: 0}, "nothing is to be read yet"
        assert [each.lag for each in admin.group_lag(group)] == [3]
        producer.abort()

        def read_past() -> bool:
            assert not consumer.consume(1, 0.1), "it was aborted"
            return consumer.position(place) == 4

        eventually(read_past, "the position is behind the marker")
        consumer.commit()
        assert [each.lag for each in admin.group_lag(group)] == [0]


def test_close_aborts_what_is_open(node: NodeProcess, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with transactional(node, topic) as producer:
        producer.begin()
        producer.produce(topic, b"forgotten", partition=0)
        producer.flush()
    assert "closed with an open transaction" in caplog.text
    assert committed_values(node, topic, 4) == []


def test_positions_of_a_group_move_with_the_transaction(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    with transactional(node, topic) as producer, member(node, topic, enable_auto_commit=False) as consumer:
        consumer.subscribe(topic)
        assert [message.value for message in read(consumer, 5)] == [b"%d" % number for number in range(5)]
        with pytest.raises(ZeroDivisionError):
            write_and_fail(producer, during=lambda: producer.send_offsets(consumer))
        assert consumer.committed([(topic, 0)]) == {(topic, 0): None}
        consumer.seek_to_committed()
        assert [message.value for message in read(consumer, 10)] == [b"%d" % number for number in range(10)]
        with producer.transaction():
            producer.send_offsets(consumer)
        assert consumer.committed([(topic, 0)])[(topic, 0)].offset == 10  # type: ignore[union-attr]
        with producer.transaction():
            producer.send_offsets({(topic, 1): 7}, consumer.consumer_group_metadata())
        assert consumer.committed([(topic, 1)])[(topic, 1)].offset == 7  # type: ignore[union-attr]
        with pytest.raises(IllegalState, match=r"consumer\.consumer_group_metadata"), producer.transaction():
            producer.send_offsets({(topic, 1): 7})


def test_a_member_that_its_group_went_on_without_moves_no_position(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 3)
    with transactional(node, topic) as producer, member(node, topic, enable_auto_commit=False) as consumer:
        consumer.subscribe(topic)
        read(consumer, 3)
        before = consumer.consumer_group_metadata()
        consumer.unsubscribe()
        with pytest.raises(TransactionAborted, match="UNKNOWN_MEMBER_ID"), producer.transaction():
            producer.send_offsets({(topic, 0): 3}, before)
        with member(node, topic) as simple:
            assert simple.committed([(topic, 0)]) == {(topic, 0): None}


def test_a_consumer_that_commits_by_itself_is_refused(node: NodeProcess, topic: str) -> None:
    refused = pytest.raises(IllegalState, match=r"enable\.auto\.commit")
    with transactional(node, topic) as producer, member(node, topic) as consumer, refused, producer.transaction():
        producer.send_offsets(consumer)


def test_a_kill_of_the_node_inside_and_between_transactions_changes_nothing(own_node: NodeProcess) -> None:
    def restart() -> None:
        own_node.kill()
        own_node.start()

    expected = []
    with transactional(own_node) as producer:
        for number in range(4):
            with producer.transaction():
                producer.produce("t", b"first of %d" % number, partition=0)
                producer.flush()
                if number % 2:
                    restart()
                producer.produce("t", b"second of %d" % number, partition=1)
            expected += [b"first of %d" % number, b"second of %d" % number]
            if not number % 2:
                restart()
        with pytest.raises(ZeroDivisionError):
            write_and_fail(producer, b"dropped", during=restart)
        with producer.transaction():
            producer.produce("t", b"last", partition=0)
    assert committed_values(own_node) == sorted([*expected, b"last"])


def test_kills_at_any_moment_neither_tear_nor_lose_nor_repeat_a_transaction(own_node: NodeProcess) -> None:
    """A commit that returned is seen once and completely; one that was aborted, never."""
    over = threading.Event()

    def kill_again_and_again() -> None:
        for kills in range(5):
            while len(committed) <= kills and not over.wait(0.01):
                pass
            own_node.kill()
            own_node.start()

    committed: list[int] = []
    killer = threading.Thread(target=kill_again_and_again)
    with transactional(own_node) as producer:
        killer.start()
        try:
            for number in range(25):
                try:
                    with producer.transaction():
                        for partition in (0, 1):
                            producer.produce("t", b"%03d-%d" % (number, partition), partition=partition)
                    committed.append(number)
                except TransactionAborted:
                    pass
        finally:
            over.set()
            killer.join()
    assert committed, "something came through"
    assert committed_values(own_node) == sorted(b"%03d-%d" % (number, each) for number in committed for each in (0, 1))


def test_records_that_nobody_takes_within_the_delivery_timeout_abort(own_node: NodeProcess) -> None:
    with transactional(own_node, delivery_timeout_ms=1_500, request_timeout_ms=500) as producer:
        producer.begin()
        producer.produce("t", b"before", partition=0)
        producer.flush()
        own_node.freeze()
        try:
            producer.produce("t", b"after", partition=0)
            with pytest.raises(TransactionAborted, match="no answer from"):
                producer.commit()
        finally:
            own_node.thaw()
        with producer.transaction():
            producer.produce("t", b"again", partition=0)
    assert committed_values(own_node) == [b"again"]


@pytest.mark.parametrize("killed", [False, True])
def test_after_an_unknown_outcome_the_next_transaction_settles_it(own_node: NodeProcess, killed: bool) -> None:
    with transactional(own_node, delivery_timeout_ms=1_500, request_timeout_ms=500) as producer:
        producer.begin()
        for partition in (0, 1):
            producer.produce("t", b"perhaps", partition=partition)
        producer.flush()
        own_node.freeze()
        with pytest.raises(OutcomeUnknown, match="unknown"):
            producer.commit()
        if killed:
            own_node.kill()
            own_node.start()
        else:
            own_node.thaw()
        with pytest.raises(IllegalState, match="unknown how the last"):
            producer.commit()
        with producer.transaction():
            producer.produce("t", b"sure", partition=0)
    assert committed_values(own_node) in ([b"sure"], [b"perhaps", b"perhaps", b"sure"])


def test_the_asyncio_twin_does_the_same(node: NodeProcess, topic: str) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=node.address, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.produce(topic, b"kept", partition=0)
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.produce(topic, b"dropped", partition=0)
                    raise ZeroDivisionError
            await producer.begin()
            future = await producer.send(topic, b"kept, too", partition=1)
            await producer.commit()
            assert (await future).partition == 1
            await producer.begin()
            await producer.send_offsets({(topic, 0): 1}, GroupMetadata(topic, -1, "", None))
            await producer.abort()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert committed_values(node, topic, 4) == [b"kept", b"kept, too"]
