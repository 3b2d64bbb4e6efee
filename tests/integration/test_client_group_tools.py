"""Workers, the admin client, bad plugins, the asyncio twins and unreachable nodes, against a real node."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import Admin, Consumer, FencingToken, Producer, RebalanceEvent, TopicPartition, Worker, aio
from coordinator.client.errors import (
    BufferFull,
    ClientError,
    DeliveryFailed,
    FencedInstance,
    GroupNotEmpty,
    GroupNotFound,
    IllegalState,
    InvalidTopic,
    MessageTooLarge,
    Refused,
    TopicExists,
    UnknownTopic,
    Unreachable,
)
from coordinator.client.loop import shared_loop
from coordinator.client.types import RecordMetadata
from tests.support.client_stories import PATIENCE_S, poll_until, read
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
names = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("tools") / "data")) as running:
        yield running


@pytest.fixture
def admin(node: NodeProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.address) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"tools-{next(names)}"
    admin.create_topic(name, 4)
    return name


def member(node: NodeProcess, group: str, **more: object) -> Consumer:
    properties = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    return Consumer(bootstrap_servers=node.address, group_id=group, **(properties | more))


def fill(node: NodeProcess, topic: str, records: int, partition: int = 0) -> None:
    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(records):
            producer.produce(topic, b"%d" % number, partition=partition)


# Workers


def until(condition: Callable[[], bool], *workers: Worker, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        for worker in workers:
            worker.poll(0.02)


def test_workers_share_named_resources_and_their_tokens_rise(node: NodeProcess) -> None:
    resources = ["ledger", "mail", "search", "stock"]
    heard: list[tuple[str, str]] = []

    def worker() -> Worker:
        return Worker(
            bootstrap_servers=node.address,
            group_id="w-1",
            heartbeat_interval_ms=100,
            scheduled_rebalance_max_delay_ms=0,
        )

    def lose(worker: Worker, resource: TopicPartition, event: RebalanceEvent) -> None:
        assert worker.fencing_token(resource).topic == resource.topic
        heard.append((resource.topic, event.kind))

    one, two = worker(), worker()
    one.join(resources=resources, on_lose=lose)
    until(lambda: len(one.owned()) == 4, one, what="the first worker owns all")
    first = one.fencing_token(("mail", 0))
    assert first == FencingToken("w-1", "mail", 0, 1)
    two.join(resources=resources)
    until(lambda: len(two.owned()) == 2, one, two, what="the second worker gets half")
    assert sorted(heard) == sorted((tp.topic, "revoked") for tp in two.owned())
    assert not one.owned() & two.owned()
    one.close()
    until(lambda: len(two.owned()) == 4, two, what="the second takes over")
    assert two.fencing_token(("mail", 0)).generation > first.generation
    two.close()
    with pytest.raises(IllegalState, match="not owned"):
        two.fencing_token(("mail", 0))


def test_a_worker_over_a_topic_gets_each_partition_once(node: NodeProcess, topic: str) -> None:
    gained: list[int] = []
    with Worker(bootstrap_servers=node.address, group_id=topic) as worker:
        worker.join(topics=[topic], on_gain=lambda _, tp: gained.append(tp.partition))
        until(lambda: len(worker.owned()) == 4, worker, what="all partitions")
    assert sorted(gained) == [0, 1, 2, 3]


def test_an_error_in_one_callback_does_not_keep_the_others_from_being_told(node: NodeProcess) -> None:
    told: list[str] = []

    def gain(worker: Worker, resource: TopicPartition) -> None:
        told.append(resource.topic)
        if resource.topic == "a":
            raise ZeroDivisionError("a")

    with Worker(bootstrap_servers=node.address, group_id="w-2") as worker:
        worker.join(resources=["a", "b"], on_gain=gain)
        with pytest.raises(ZeroDivisionError):
            worker.poll(PATIENCE_S)
        assert told == ["a", "b"]
        assert len(worker.owned()) == 2


def test_a_worker_wants_topics_or_resources(node: NodeProcess) -> None:
    with Worker(bootstrap_servers=node.address, group_id="w-3") as worker:
        with pytest.raises(IllegalState, match="exactly one"):
            worker.join(topics=["t"], resources=["r"])
        with pytest.raises(IllegalState, match="join"):
            worker.poll(0)


# Plugins that cannot be trusted


@pytest.mark.parametrize(
    ("plugin", "says"), [("Raises", "out of cheese"), ("Forgets", "forgets"), ("Hangs", "not done after 300 ms")]
)
def test_a_bad_assignor_is_named_in_the_ledger_and_the_group_goes_on(
    node: NodeProcess, admin: Admin, topic: str, plugin: str, says: str
) -> None:
    strategy = f"tests.support.plugins:{plugin}"
    with member(node, topic, partition_assignment_strategy=strategy, partition_assignment_deadline_ms=300) as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="dealt out nevertheless")
        newest = admin.explain(topic, limit=1, include_snapshots=True)[0]
    options = json.loads(newest.snapshot_json)["options"]
    assert options["fallback"] == "range"
    assert says in options["reason"]


def test_the_lag_assignor_is_given_the_lags(node: NodeProcess, admin: Admin, topic: str) -> None:
    fill(node, topic, 30, partition=2)
    fill(node, topic, 10, partition=0)
    admin.alter_offsets(topic, {(topic, 2): 5})
    with member(node, topic, partition_assignment_strategy="lag") as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="assigned")
        newest = admin.explain(topic, limit=1, include_snapshots=True)[0]
    assert json.loads(newest.snapshot_json)["lags"] == {topic: [10, 0, 25, 0]}


# Operators


def test_topics_are_made_found_grown_and_deleted(admin: Admin) -> None:
    made = admin.create_topic("admin-topic", 3, {"retention.ms": "1000"})
    assert (made.name, made.partitions) == ("admin-topic", 3)
    with pytest.raises(TopicExists, match="admin-topic"):
        admin.create_topic("admin-topic", 3)
    with pytest.raises(InvalidTopic):
        admin.create_topic("no spaces allowed")
    described = admin.describe_topic("admin-topic")
    assert (described.topic_id, described.configs["retention.ms"]) == (made.topic_id, "1000")
    assert admin.create_partitions("admin-topic", 5) == 5
    assert admin.list_topics()["admin-topic"] == 5
    admin.delete_topics(["admin-topic"])
    assert "admin-topic" not in admin.list_topics()
    with pytest.raises(UnknownTopic, match="admin-topic"):
        admin.describe_topic("admin-topic")


def test_records_below_an_offset_can_be_dropped(node: NodeProcess, admin: Admin, topic: str) -> None:
    fill(node, topic, 10)
    assert admin.delete_records({(topic, 0): 4}) == {TopicPartition(topic, 0): 4}
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 1)[0].offset == 4


def test_groups_are_seen_and_removed_only_when_empty(node: NodeProcess, admin: Admin, topic: str) -> None:
    fill(node, topic, 10)
    consumer = member(node, topic, client_id="seen")
    consumer.subscribe([topic])
    read(consumer, 10)
    consumer.commit()
    found = admin.describe_group(topic)
    assert (found.state, found.assignor, len(found.members)) == ("Stable", "range", 1)
    assert (found.members[0].client_id, found.members[0].topics) == ("seen", (topic,))
    assert len(found.members[0].assignment) == 4
    lags = {lag.partition.partition: (lag.committed, lag.log_end, lag.lag) for lag in admin.group_lag(topic)}
    assert lags[0] == (10, 10, 0)
    with pytest.raises(GroupNotEmpty):
        admin.delete_groups([topic])
    with pytest.raises(Refused):
        admin.alter_offsets(topic, {(topic, 0): 1})
    consumer.close()

    assert [g.state for g in admin.list_groups() if g.group_id == topic] == ["Empty"]
    admin.alter_offsets(topic, {(topic, 0): 3})
    assert admin.group_offsets(topic)[TopicPartition(topic, 0)].offset == 3
    admin.delete_offsets(topic, [(topic, 0)])
    assert TopicPartition(topic, 0) not in admin.group_offsets(topic)
    admin.delete_groups([topic])
    with pytest.raises(GroupNotFound, match=topic):
        admin.describe_group(topic)


def test_a_watcher_hears_of_a_rebalance(node: NodeProcess, admin: Admin, topic: str) -> None:
    changes = admin.watch(topic)
    with member(node, topic) as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="assigned")
        consumer.commit(offsets={(topic, 0): 0})
        changes_seen = [next(changes)]
        while changes_seen[-1].group_state != "Stable":
            changes_seen.append(next(changes))
    changes.close()  # type: ignore[attr-defined]
    assert changes_seen[-1].generation_id == 1


# Producers


def test_a_record_that_is_too_large_is_refused_before_it_is_sent(node: NodeProcess, topic: str) -> None:
    with Producer(bootstrap_servers=node.address, max_request_size=1_000) as producer:
        with pytest.raises(MessageTooLarge, match=r"max\.request\.size=1000"):
            producer.produce(topic, b"x" * 2_000)
        with pytest.raises(UnknownTopic, match="partitions 0 to 3; 4 is not one"):
            producer.produce(topic, b"x", partition=4)
        with pytest.raises(TypeError, match="the value is int"):
            producer.produce(topic, 5)  # type: ignore[arg-type]


def test_a_refused_record_is_reported_by_its_listener_and_by_flush(node: NodeProcess, admin: Admin) -> None:
    admin.create_topic("small", 1, {"max.message.bytes": "200"})
    reasons: list[Exception | None] = []
    producer = Producer(bootstrap_servers=node.address)
    producer.produce("small", b"x" * 1_000, on_delivery=lambda error, metadata: reasons.append(error))
    with pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):
        producer.flush()
    assert isinstance(reasons[0], MessageTooLarge)
    producer.close()


def test_a_batch_that_is_too_large_for_its_topic_is_split_and_only_a_record_that_is_by_itself_is_refused(
    node: NodeProcess, admin: Admin
) -> None:
    admin.create_topic("narrow", 1, {"max.message.bytes": "1000"})
    sent = [b"%03d" % number * (1_000 if number == 37 else 20) for number in range(90)]
    told: dict[int, tuple[Exception | None, RecordMetadata | None]] = {}

    def note(number: int) -> Callable[[Exception | None, RecordMetadata | None], None]:
        return lambda error, metadata: told.update({number: (error, metadata)})

    with Producer(bootstrap_servers=node.address, linger_ms=60_000, batch_size=1 << 20) as producer:
        for number, value in enumerate(sent):
            producer.produce("narrow", value, on_delivery=note(number))
        with pytest.raises(DeliveryFailed, match=r"^1 record\(s\).*one record is too large by itself.*max\.message"):
            producer.flush()
    refused, _ = told.pop(37)
    assert isinstance(refused, MessageTooLarge)
    assert [metadata.offset for _, (_, metadata) in sorted(told.items()) if metadata] == list(range(89))
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([("narrow", 0)])
        got = read(consumer, 89)
    assert [message.value for message in got] == sent[:37] + sent[38:]


def test_a_full_buffer_says_so(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        producer = Producer(
            bootstrap_servers=node.address, buffer_memory=1 << 16, max_block_ms=50, delivery_timeout_ms=500
        )
        producer.produce("t", b"first")
        producer.flush()
        node.stop()

        def fill_it() -> None:
            for _ in range(1_000):
                producer.produce("t", b"x" * 1_000)

        with pytest.raises(BufferFull, match=r"buffer\.memory"):
            fill_it()
        with pytest.raises(DeliveryFailed, match="no answer from"):
            producer.close()


# Nodes that are not there


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens: the port is taken, but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_an_unreachable_node_is_named_with_how_long_it_was_tried(nobody: str) -> None:
    with Admin(bootstrap_servers=nobody, default_api_timeout_ms=300) as admin:
        with pytest.raises(Unreachable, match=nobody) as caught:
            admin.list_topics()
        assert caught.value.address == nobody
        assert caught.value.waited_ms > 0


def test_a_second_bootstrap_server_is_tried_when_the_first_is_gone(node: NodeProcess, nobody: str) -> None:
    with Admin(bootstrap_servers=[nobody, node.address]) as admin:
        assert isinstance(admin.list_topics(), dict)


def test_polling_needs_something_to_poll_and_no_callback_around_it(node: NodeProcess, topic: str) -> None:
    with member(node, topic) as consumer:
        with pytest.raises(IllegalState, match="nothing to poll"):
            consumer.poll(0)
        consumer.subscribe([topic], on_assign=lambda consumer, partitions: consumer.poll(0))
        with pytest.raises(IllegalState, match="inside a callback"):
            poll_until(lambda: False, consumer, what="the error of the callback")
        assert len(consumer.assignment()) == 4


def test_ctrl_c_leaves_the_group_at_once(node: NodeProcess, admin: Admin, topic: str) -> None:
    script = f"""
from coordinator.client import Consumer
with Consumer(bootstrap_servers={node.address!r}, group_id={topic!r}) as consumer:
    consumer.subscribe([{topic!r}], on_assign=lambda consumer, partitions: print(len(partitions), flush=True))
    for message in consumer:
        pass
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"4\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    # Its session would have lasted for 45 seconds.
    assert admin.describe_group(topic).state == "Empty"
    assert admin.explain(topic)[0].client_reason == "the consumer is being closed"


# asyncio


def on_the_loop(story: Coroutine[Any, Any, None]) -> None:
    """On the loop that the synchronous clients use: one loop per process."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story

    shared_loop().run(bounded())


def test_the_asyncio_twins_do_the_same(node: NodeProcess) -> None:
    async def story() -> None:
        told: list[str] = []

        async def assigned(consumer: aio.Consumer, partitions: list[TopicPartition], event: RebalanceEvent) -> None:
            await asyncio.sleep(0)
            told.append(f"{event.kind} {len(partitions)}")

        async def revoked(consumer: aio.Consumer, partitions: list[TopicPartition]) -> None:
            await consumer.commit()
            told.append(f"revoked {len(partitions)}")

        async with aio.Admin(bootstrap_servers=node.address) as admin:
            await admin.create_topic("aio", 2)
            async with aio.Producer(bootstrap_servers=node.address) as producer:
                sent = [await producer.send("aio", f"{number}", key="k") for number in range(20)]
                assert [(await future).offset for future in sent] == list(range(20))
            async with aio.Consumer(
                bootstrap_servers=node.address, group_id="aio", auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer:
                await consumer.subscribe("aio", assigned, revoked)
                values = []
                async for message in consumer:
                    values.append(int(message.value or b"-1"))
                    if len(values) == 20:
                        break
                assert values == list(range(20))
                assert consumer.fencing_token(("aio", 0)).generation == 1
            assert told == ["assigned 2", "revoked 2"]
            assert sum(offset.offset for offset in (await admin.group_offsets("aio")).values()) == 20

    on_the_loop(story())


def test_the_asyncio_worker_runs_until_it_is_closed(node: NodeProcess) -> None:
    async def story() -> None:
        events: list[str] = []
        worker = aio.Worker(bootstrap_servers=node.address, group_id="aio-worker")

        async def gained(worker: aio.Worker, resource: TopicPartition) -> None:
            events.append(f"gained {resource.topic}")
            if len(events) == 2:
                closing.append(asyncio.create_task(worker.close()))

        closing: list[asyncio.Task[None]] = []
        await worker.join(resources=["a", "b"], on_gain=gained, on_lose=lambda _, tp: events.append(f"lost {tp.topic}"))
        await worker.run()
        await asyncio.gather(*closing)
        assert events == ["gained a", "gained b", "lost a", "lost b"]

    on_the_loop(story())


# Trouble that an application is told of


def test_a_group_that_cannot_be_reached_at_all_is_an_error_after_the_api_timeout(nobody: str) -> None:
    with Consumer(bootstrap_servers=nobody, group_id="g", default_api_timeout_ms=200) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(Unreachable, match=f"joining group 'g': no answer from {nobody}"):
            poll_until(lambda: False, consumer, what="the error")
    with Worker(bootstrap_servers=nobody, group_id="g", default_api_timeout_ms=200) as worker:
        worker.join(resources=["r"])
        with pytest.raises(Unreachable, match=nobody):
            worker.run()


def test_a_second_process_under_the_same_instance_id_fences_the_first(node: NodeProcess, topic: str) -> None:
    lost: list[str] = []
    first = member(node, topic, group_instance_id="same")
    first.subscribe([topic], on_lost=lambda _, __, event: lost.append(event.cause.name))
    poll_until(lambda: len(first.assignment()) == 4, first, what="assigned")
    second = member(node, topic, group_instance_id="same")
    second.subscribe([topic])
    poll_until(lambda: len(second.assignment()) == 4, second, what="taken over")
    with pytest.raises(FencedInstance, match="same"):
        poll_until(lambda: False, first, what="the error")
    assert lost == ["MEMBER_FENCED"]
    assert first.assignment() == set()
    first.close()
    second.close(leave="leave")


def test_records_that_were_not_delivered_in_time_fail_their_futures(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        producer = Producer(bootstrap_servers=node.address)
        producer.send("t", b"first").result(timeout=30)
        node.kill()
        future = producer.send("t", b"second")
        with pytest.raises(ClientError, match="not delivered within"):
            producer.close(0.1)
        with pytest.raises(ClientError, match="closed before"):
            future.result(timeout=30)


def test_an_error_is_not_hidden_by_a_producer_that_cannot_deliver(tmp_path: Path) -> None:
    def interrupted(node: NodeProcess) -> None:
        with Producer(bootstrap_servers=node.address) as producer:
            producer.send("t", b"first").result(timeout=30)
            node.kill()
            producer.produce("t", b"second")
            raise KeyboardInterrupt

    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        with pytest.raises(KeyboardInterrupt):
            interrupted(node)


def test_a_process_that_forgets_to_close_ends_by_itself_and_quietly(node: NodeProcess, topic: str) -> None:
    script = f"""
from coordinator.client import Consumer, Producer
producer = Producer(bootstrap_servers={node.address!r})
producer.send({topic!r}, b"x").result(timeout=30)
consumer = Consumer(bootstrap_servers={node.address!r}, group_id={topic!r}, auto_offset_reset="earliest")
consumer.subscribe({topic!r})
print(consumer.poll(30).value.decode())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"x\n", b"")


def test_polling_without_waiting_still_lets_an_asyncio_consumer_work(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 1)

    async def story() -> None:
        async with aio.Consumer(
            bootstrap_servers=node.address, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe(topic)
            while await consumer.poll(0) is None:
                pass

    on_the_loop(story())
