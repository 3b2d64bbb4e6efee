"""Topics that edges ask for come and go off the loop, one change after the other, whole for whoever looks meanwhile."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests, NewTopic, TopicRequests
from muster.storage.errors import StorageError, TopicAlreadyExists, UnknownTopicOrPartition
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker

MANY = 40


class Gate:
    """Holds the disk up at the first operation of a kind until it is opened."""

    def __init__(self, files: MemoryFiles, wanted: str) -> None:
        self.held = threading.Event()
        self._open = threading.Event()
        self._wanted = wanted
        files.fault = self._enter

    def _enter(self, operation: str, path: str) -> None:
        if operation == self._wanted and not self._open.is_set():
            assert threading.current_thread() is not threading.main_thread(), f"{operation} of {path} on the loop"
            self.held.set()
            assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()


Story = Callable[[TopicRequests, Broker, MemoryFiles], Awaitable[None]]


def play(story: Story) -> None:
    async def run() -> None:
        files = MemoryFiles()
        broker = open_broker(files)
        requests = LogRequests.standalone(broker, clock_ms=lambda: T0)
        await story(requests.topics, broker, files)
        await requests.close()
        broker.close()

    asyncio.run(run())


async def held(gate: Gate) -> None:
    """While the disk is held up the loop has its turns."""
    assert await asyncio.to_thread(gate.held.wait, 10)


def test_a_topic_that_is_being_made_is_unknown_and_then_whole() -> None:
    async def story(topics: TopicRequests, broker: Broker, files: MemoryFiles) -> None:
        told: list[int] = []
        broker.on_topics_changed(lambda: told.append(broker.topic("t").partitions))
        gate = Gate(files, "sync_all")
        making = asyncio.create_task(topics.create([NewTopic("t", MANY)]))
        await held(gate)
        assert "t" not in broker.topics()
        try:
            broker.append("t", 0, batch(b"early"), T0)
        except UnknownTopicOrPartition:
            pass
        else:
            raise AssertionError("it was there in part")
        # The same again has to wait for the answer, and so has a removal.
        again = asyncio.create_task(topics.create([NewTopic("t", 1)]))
        await asyncio.sleep(0)
        assert not told
        gate.open()
        (made,) = await making
        assert isinstance(made, Topic)
        assert told == [MANY]
        assert [broker.end_offset("t", each) for each in range(MANY)] == [0] * MANY
        assert isinstance((await again)[0], TopicAlreadyExists)

    play(story)


def test_a_topic_that_is_being_removed_is_unknown_before_its_files_are_gone() -> None:
    async def story(topics: TopicRequests, broker: Broker, files: MemoryFiles) -> None:
        await topics.create([NewTopic("t", MANY)])
        gate = Gate(files, "remove_dir")
        removing = asyncio.create_task(topics.delete([broker.topic("t")]))
        await held(gate)
        assert "t" not in broker.topics()
        for partition in (0, MANY - 1):
            try:
                broker.append("t", partition, batch(b"late"), T0)
            except UnknownTopicOrPartition:
                continue
            raise AssertionError("a record was taken that nobody can read")
        anew = asyncio.create_task(topics.create([NewTopic("t", 2)]))
        await asyncio.sleep(0)
        gate.open()
        assert await removing == [None]
        (made,) = await anew
        assert isinstance(made, Topic)
        assert broker.topic("t").partitions == 2

    play(story)


def test_what_was_begun_goes_on_without_whoever_asked() -> None:
    async def story(topics: TopicRequests, broker: Broker, files: MemoryFiles) -> None:
        gate = Gate(files, "sync_all")
        making = asyncio.create_task(topics.create([NewTopic("t", MANY)]))
        await held(gate)
        making.cancel()
        await asyncio.sleep(0)
        assert making.done()
        closing = asyncio.create_task(topics.close())
        await asyncio.sleep(0)
        gate.open()
        await closing
        assert broker.topic("t").partitions == MANY
        (refused,) = await topics.create([NewTopic("late", 1)])
        assert isinstance(refused, StorageError)

    play(story)


def test_one_refusal_hurts_no_other_topic_of_the_request() -> None:
    async def story(topics: TopicRequests, broker: Broker, files: MemoryFiles) -> None:
        wanted = [NewTopic("a.b", 1), NewTopic("a_b", 1), NewTopic("fine", 2), NewTopic("none", 0), NewTopic("fine", 2)]
        made = await topics.create(wanted)
        assert [isinstance(each, Topic) for each in made] == [True, False, True, False, False]
        fine = broker.topic("fine")
        grown = await topics.grow([("fine", 4), ("fine", 3), ("a.b", 2), ("gone", 2)])
        assert [isinstance(each, Topic) for each in grown] == [True, False, True, False]
        assert [broker.end_offset("fine", each) for each in range(4)] == [0] * 4
        assert await topics.delete([fine, fine, broker.topic("a.b")]) == [None, None, None]
        (refusal,) = await topics.delete([fine])
        assert isinstance(refusal, UnknownTopicOrPartition)
        assert broker.topics() == {}

    play(story)


def test_a_topic_of_the_same_name_that_came_later_is_not_removed() -> None:
    async def story(topics: TopicRequests, broker: Broker, files: MemoryFiles) -> None:
        await topics.create([NewTopic("t", 1)])
        seen = Topic("t", b"another id of it", 1, {})
        (refusal,) = await topics.delete([seen])
        assert isinstance(refusal, UnknownTopicOrPartition)
        assert "t" in broker.topics()

    play(story)
