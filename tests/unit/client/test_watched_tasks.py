"""What a client runs in the background: if it ends by a mistake of the program, the next call raises; nothing hangs."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from muster.client.aio.consumer import AsyncConsumer
from muster.client.aio.producer import AsyncProducer
from muster.client.aio.worker import WorkerCore
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.topic_calls import PartitionCounts
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, WorkerConfig, load
from muster.client.errors import ClientError, DeliveryFailed
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.membership.central_membership import CentralStream
from muster.client.membership.member_driver import ConsumerParticipation, MemberDriver, build_member_settings
from muster.client.records.fetcher import FetchPoll
from muster.client.records.positions import ConsumerCommits, PositionResolver
from muster.client.records.sender import BatchSender
from muster.client.twins import BackgroundTasks

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
PATIENCE_S = 30


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


def mistaken(*args: object, **given: object) -> Any:
    raise ZeroDivisionError


async def mistaken_work(*args: object, **given: object) -> Any:
    raise ZeroDivisionError


def test_an_owner_hears_of_a_task_that_ends_by_a_mistake() -> None:
    async def story() -> None:
        heard: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        tasks = BackgroundTasks(heard.set_result)
        tasks.start(mistaken_work())
        assert isinstance(await heard, ZeroDivisionError)
        assert not tasks

    play(story())


@pytest.mark.parametrize(
    ("owner", "method"),
    [(PositionResolver, "_find_positions"), (FetchPoll, "_run"), (ConsumerCommits, "commit_now_and_then")],
)
def test_a_consumer_raises_it_at_the_next_poll(owner: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def one(*args: object) -> int:
        return 1

    monkeypatch.setattr(PartitionCounts, "count", one)
    monkeypatch.setattr(owner, method, mistaken_work)

    async def story() -> None:
        consumer = AsyncConsumer(NOWHERE, group_id="g")
        await consumer.assign([("t", 0)])
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(PATIENCE_S)
        await consumer.close()

    play(story())


def test_a_producer_gives_up_what_waits_and_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchSender, "_dispatch_all", mistaken)

    async def story() -> None:
        producer = AsyncProducer(NOWHERE)
        core = producer._core
        ends: list[Exception | None] = []

        def add() -> None:
            core.add("t", 1, b"v", None, 0, 0, (), lambda error, metadata: ends.append(error), 0)

        add()
        core.bind(asyncio.get_running_loop())
        with pytest.raises(DeliveryFailed, match="sends no more"):
            await producer.flush()
        assert [type(error) for error in ends] == [ClientError]
        with pytest.raises(ClientError, match="ZeroDivisionError"):
            add()
        assert await producer.flush() == 0
        await producer.close()

    play(story())


def member(woken: asyncio.Event) -> MemberDriver:
    config = load(ConsumerConfig, {"group.id": "g", **NOWHERE}, {})
    transport = Transport(config)
    wish = ConsumerParticipation(RequestedSubscription(frozenset({"t"})))
    return MemberDriver(transport, GroupCalls(transport, "g"), config, wish, woken.set)


def test_a_member_whose_machine_fails_at_an_answer_tells_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        woken = asyncio.Event()
        driver = member(woken)
        monkeypatch.setattr(driver.machine, "step", mistaken)

        async def answer() -> Any:
            return ev.CoordinatorFound(1)

        driver._start_call(1, answer())
        await woken.wait()
        assert isinstance(driver.failure, ZeroDivisionError)
        await driver.abort()

    play(story())


def test_a_member_whose_machine_fails_at_a_deadline_tells_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        woken = asyncio.Event()
        driver = member(woken)
        monkeypatch.setattr(driver.machine, "step", mistaken)
        driver._wake_at(0)
        await woken.wait()
        assert isinstance(driver.failure, ZeroDivisionError)
        await driver.abort()

    play(story())


def test_a_stream_of_orders_that_cannot_be_read_ends_and_its_member_hears_so() -> None:
    """Before, it stayed open and silent, and whoever waited for the registration waited until its deadline."""

    async def story() -> None:
        config = load(ConsumerConfig, {"group.id": "g", "group.protocol": "central", **NOWHERE}, {})
        transport = Transport(config)
        heard: list[object] = []
        stream = CentralStream(
            transport,
            GroupCalls(transport, "g", "central"),
            build_member_settings(config),
            lambda _, event: heard.append(event),
        )
        waiting = stream._registered = asyncio.get_running_loop().create_future()
        stream.listen()
        stream._background.start(mistaken_work())
        with pytest.raises(ZeroDivisionError):
            await waiting
        assert len(heard) == 1
        await stream.close()

    play(story())


def test_a_worker_raises_it_when_it_is_asked_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerCore, "_watch_topics", mistaken_work)

    async def story() -> None:
        core = WorkerCore(load(WorkerConfig, {"group.id": "g", **NOWHERE}, {}))
        await core.join(["t"], [])
        with pytest.raises(ZeroDivisionError):
            await core.next_callback(PATIENCE_S)
        await core.finish_close()

    play(story())
