"""Records for very many partitions in one request: others have their turn meanwhile, and all stays in its order."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import decode_frame, decoder_of, encode, struct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, HangUp, KafkaCall
from muster.coordinator.kafka.handlers.produce_and_fetch import RecordHandlers
from muster.coordinator.kafka.handlers.single_batch_produce import FEW, ProduceReader
from muster.long_work import AT_ONCE
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import UnknownTopicOrPartition
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.listener import CONNECTION, LIMITS, HeldHandlers, client, listening
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0, batch, open_broker

MANY = 3 * AT_ONCE
VERSIONS = 3, 8, 9
ROOM = replace(LIMITS, connection=replace(CONNECTION, max_frame=16 << 20, max_in_flight_bytes=16 << 20))


def produced(places: Sequence[tuple[str, int]], records: bytes, **more: Any) -> Any:
    rows: dict[str, list[Any]] = {}
    for topic, index in places:
        data = struct("ProduceRequest.topic_data.partition_data")(index=index, records=records)
        rows.setdefault(topic, []).append(data)
    topics = [struct("ProduceRequest.topic_data")(name=name, partition_data=each) for name, each in rows.items()]
    return struct("ProduceRequest")(**({"acks": -1, "timeout_ms": 60_000, "topic_data": topics} | more))


def read(version: int, request: Any) -> Any:
    return ProduceReader(version)(b"".join(encode("ProduceRequest", version, request)))[0]


def call(version: int) -> KafkaCall:
    return KafkaCall(version, "tests", ClientPeer("127.0.0.1", asyncio.get_running_loop().create_future()))


def requests(partitions: int) -> LogRequests:
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", partitions, {})
    return LogRequests.standalone(broker, clock_ms=lambda: T0)


@pytest.mark.parametrize("version", VERSIONS)
def test_others_have_their_turn_while_it_is_taken_in_and_a_thread_makes_the_answer(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noting(name: str, version: int, message: object) -> Any:
        threads.append(threading.current_thread())
        return encode(name, version, message)

    monkeypatch.setattr("muster.coordinator.kafka.handlers.produce_and_fetch.encode", noting)

    async def story() -> None:
        log = requests(MANY)
        places = [("t", number) for number in range(MANY)]
        sent = read(version, produced([*places, ("nowhere", 0)], batch(b"x")))
        handlers = RecordHandlers(log)
        assert handlers.produce_now(sent, call(version)) is None
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await handlers.produce(sent, call(version)))

        # Once for each portion at least, beside what the appends give.
        assert await turns_of_others(ask()) >= 2 * MANY // AT_ONCE
        (written,) = answers
        assert isinstance(written, EncodedAnswer)
        there, nowhere = decode_frame("ProduceResponse", version, b"".join(written.body)).responses
        rows = [(row.index, row.error_code, row.base_offset) for row in there.partition_responses]
        assert rows == [(number, 0, 0) for number in range(MANY)]
        assert [row.error_code for row in nowhere.partition_responses] == [UnknownTopicOrPartition.code]
        assert threads != []
        assert threading.main_thread() not in threads
        await log.close()

    asyncio.run(story())


def test_what_this_door_refuses_keeps_its_place() -> None:
    async def story() -> None:
        log = requests(1)
        sent = produced([("t", 0)] * MANY, batch(b"x"))
        for place in (0, 7, MANY - 1):
            sent.topic_data[0].partition_data[place].records = None
        answer = await RecordHandlers(log).produce(read(9, sent), call(9))
        assert answer is not None
        (topic,) = decode_frame("ProduceResponse", 9, b"".join(answer.body)).responses
        codes = [row.error_code for row in topic.partition_responses]
        assert [place for place, code in enumerate(codes) if code] == [0, 7, MANY - 1]
        assert [row.base_offset for row in topic.partition_responses if not row.error_code] == [*range(MANY - 3)]
        await log.close()

    asyncio.run(story())


def test_without_acks_nothing_is_answered_and_a_refusal_ends_the_connection() -> None:
    async def story() -> None:
        log = requests(MANY)
        handlers, places = RecordHandlers(log), [("t", number) for number in range(MANY)]
        assert await handlers.produce(read(9, produced(places, batch(b"x"), acks=0)), call(9)) is None
        with pytest.raises(HangUp, match="nowhere"):
            await handlers.produce(read(9, produced([*places, ("nowhere", 0)], batch(b"x"), acks=0)), call(9))
        await log.close()

    asyncio.run(story())


def test_a_client_that_goes_leaves_what_has_not_begun() -> None:
    async def story() -> None:
        log = requests(MANY)
        places = [("t", number) for number in range(MANY)]
        asking = asyncio.create_task(log.produce([(*place, batch(b"x")) for place in places], -1, 60_000))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await log.close()
        ends = [log.broker.end_offset("t", number) for number in range(MANY)]
        assert ends == [1] * AT_ONCE + [0] * (MANY - AT_ONCE)

    asyncio.run(story())


class Producing(HeldHandlers):
    """Answers requests to produce itself."""

    def __init__(self, log: LogRequests) -> None:
        super().__init__()
        records = RecordHandlers(log)
        self.produce, self.produce_now, self.produce_reader = records.produce, records.produce_now, ProduceReader


def test_those_behind_it_on_its_connection_wait_for_it() -> None:
    """Two requests of one producer enter the log in their order, however long the first one is."""

    async def story() -> None:
        log = requests(MANY)
        async with listening(Producing(log), ROOM) as (_, port), client(port) as connection:
            connection.send("Produce", 9, produced([("t", number) for number in range(MANY)], batch(b"first")))
            connection.send("Produce", 9, produced([("t", MANY - 1)], batch(b"second")))
            first, second = await connection.receive(), await connection.receive()
        last = first.responses[0].partition_responses[-1]
        assert (last.index, last.base_offset) == (MANY - 1, 0)
        assert second.responses[0].partition_responses[0].base_offset == 1
        await log.close()

    asyncio.run(story())


class Watched(HeldHandlers):
    """Notes which threads read requests to produce, of how many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[threading.Thread] = []

    def produce_reader(self, version: int) -> Any:
        noted = self.readers

        class Noting(ProduceReader):
            def __call__(self, frame: Any, position: int = 0) -> tuple[Any, int]:
                noted.append(threading.current_thread())
                return super().__call__(frame, position)

        return Noting(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_one_is_read_in_a_thread_if_it_may_be_for_many_partitions(version: int) -> None:
    large = bytes(100_000)
    few, many = [("t", number) for number in range(3)], [("t", number) for number in range(FEW + 1)]
    told = [
        (produced([("t", 0)], large), True),
        (produced(few, large), True),
        (produced([("t", 0)], large, transactional_id="who"), True),
        (produced(many, large[:2_000]), False),
        (produced([*few, ("u", 0)], large), False),
    ]

    async def story() -> None:
        handlers = Watched()
        async with listening(handlers, ROOM) as (_, port), client(port) as connection:
            for number, (request, _) in enumerate(told):
                connection.send("Produce", version, request)
                await handlers.until_begun(number + 1)
                handlers.answer(number)
                await connection.receive()
        assert [reader is threading.main_thread() for reader in handlers.readers] == [here for _, here in told]

    asyncio.run(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_request_is_never_brief(version: int) -> None:
    whole = b"".join(encode("ProduceRequest", version, produced([("t", 0)], b"x")))
    reader = ProduceReader(version)
    assert reader.brief(whole, 0)
    assert not any(reader.brief(whole[:end], 0) for end in range(10))
    assert not reader.brief(b"\xff" * 40, 0)
    assert decoder_of("ProduceRequest", version)(whole, 0)[0] == produced([("t", 0)], b"x")
