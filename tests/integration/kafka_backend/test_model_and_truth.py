"""13.3: the model of a partition that the simulator rests on, and a real broker: the same scripts, the same answers."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest

from muster.coordinator.config import parse_address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_ownership.shard_log import BatchResult, ProducerEpoch
from muster.coordinator.kafka_backend.upstream import record_requests, topic_requests
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.storage.records.batch import BatchView, encode_batch
from muster.workshop.bench.kafka_load import KEYS, LoadConnection
from muster.workshop.bench.kafka_peer import KAFKA, JarsUnavailable, find_jars
from tests.fakes.kafka_partition import Partition, TransactionCoordinator
from tests.interop.kafka_broker import kafka_broker

EXPIRATION_MS = 10_000
AHEAD_MS = 30 * 60_000
"""A broker counts from the time stamps of a producer's records: in scripts that take long nobody is to be forgotten."""
FORGETS = f"producer.id.expiration.ms={EXPIRATION_MS}\nproducer.id.expiration.check.interval.ms=500\n"
RETRIED = {3, 5, 6, 14, 15, 16, 51}
TRIES = 150


class Desk(Protocol):
    """What a script asks for."""

    async def init(self, transactional_id: str) -> ProducerEpoch: ...
    async def append(
        self, producer: ProducerEpoch, sequence: int, count: int = 1, *, txn: str | None = None
    ) -> BatchResult: ...
    async def add(self, transactional_id: str, producer: ProducerEpoch) -> int: ...
    async def ends(self, transactional_id: str, producer: ProducerEpoch, *, commits: bool) -> int: ...
    async def forgets(self, producer: ProducerEpoch) -> None: ...
    async def log(self) -> list[tuple[Any, ...]]: ...


class Model:
    def __init__(self) -> None:
        self.partition = Partition(expiration_ms=EXPIRATION_MS)
        self.transactions = TransactionCoordinator()
        self.now_ms = 0

    async def init(self, transactional_id: str) -> ProducerEpoch:
        return self.transactions.init_producer(transactional_id, self.now_ms)

    async def append(
        self, producer: ProducerEpoch, sequence: int, count: int = 1, *, txn: str | None = None
    ) -> BatchResult:
        pairs = [(b"k", b"v")] * count
        acked = self.partition.append(producer, sequence, pairs, self.now_ms, transactional=txn is not None)
        self.partition.commit()
        return acked

    async def add(self, transactional_id: str, producer: ProducerEpoch) -> int:
        self.partition.added.add(producer.id)
        return 0

    async def ends(self, transactional_id: str, producer: ProducerEpoch, *, commits: bool) -> int:
        code = self.partition.mark(producer, self.now_ms, commits=commits).code
        self.partition.commit()
        return code

    async def forgets(self, producer: ProducerEpoch) -> None:
        self.now_ms += EXPIRATION_MS

    async def log(self) -> list[tuple[Any, ...]]:
        return [
            (s.seen.base_offset, s.seen.producer, s.sequence, s.seen.transactional, s.seen.marker)
            for s in self.partition.log
        ]


class Truth:
    def __init__(self, upstream: Upstream, address: str, topic: str, ahead_ms: int) -> None:
        self.upstream, self.address, self.topic, self.ahead_ms = upstream, address, topic, ahead_ms

    async def init(self, transactional_id: str) -> ProducerEpoch:
        given = await tried(lambda: record_requests.init_producer(self.upstream, f"{self.topic}-{transactional_id}"))
        return ProducerEpoch(given.producer_id, given.epoch)

    async def append(
        self, producer: ProducerEpoch, sequence: int, count: int = 1, *, txn: str | None = None
    ) -> BatchResult:
        batch = encode_batch(
            [(int(time.time() * 1000) + self.ahead_ms, b"k", b"v", ())] * count,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=txn is not None,
        )
        name = None if txn is None else f"{self.topic}-{txn}"

        async def once() -> record_requests.ProduceResult:
            broker = self.upstream.leader(self.topic, 0)
            told = await record_requests.produce(self.upstream, broker, {(self.topic, 0): batch}, 5_000, name)
            return told[self.topic, 0]

        written = await tried(once)
        return BatchResult(written.code, written.offset)

    async def add(self, transactional_id: str, producer: ProducerEpoch) -> int:
        name = f"{self.topic}-{transactional_id}"

        async def once() -> Any:
            code = await record_requests.add_partition_to_transaction(self.upstream, name, producer, (self.topic, 0))
            return BatchResult(code)

        return int((await tried(once)).code)

    async def ends(self, transactional_id: str, producer: ProducerEpoch, *, commits: bool) -> int:
        name = f"{self.topic}-{transactional_id}"
        request = struct("EndTxnRequest")(
            transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, committed=commits
        )

        async def once() -> Any:
            asked = await LoadConnection.to(self.address)
            try:
                return BatchResult((await asked.send_request("EndTxn", 2, request)).error_code)
            finally:
                asked.close()

        before = len(await self.log())
        code = int((await tried(once)).code)
        for _ in range(TRIES):
            if code or len(await self.log()) > before:
                break
            await asyncio.sleep(0.1)
        return code

    async def forgets(self, producer: ProducerEpoch) -> None:
        for _ in range(TRIES):
            known = await topic_requests.list_producers(self.upstream, self.topic, 0)
            if all(writer.producer_id != producer.id for writer in known):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"the broker still knows {producer}")

    async def log(self) -> list[tuple[Any, ...]]:
        leader, offset, lines = self.upstream.leader(self.topic, 0), 0, list[tuple[Any, ...]]()
        while True:
            told = (await record_requests.fetch(self.upstream, leader, {(self.topic, 0): offset}))[self.topic, 0]
            lines += [line(batch) for batch in told.batches if batch.base_offset >= offset]
            offset = max([offset, *(batch.next_offset for batch in told.batches)])
            if offset >= told.high_watermark:
                return lines


def line(batch: BatchView) -> tuple[Any, ...]:
    marker = (batch.records()[0].key or b"")[3:4] == b"\x01" if batch.control else None
    producer = ProducerEpoch(batch.producer_id, batch.producer_epoch)
    return batch.base_offset, producer, batch.base_sequence, batch.transactional, marker


async def tried(once: Callable[[], Awaitable[Any]]) -> Any:
    """What is asked for until the broker has come to itself."""
    for _ in range(TRIES):
        try:
            answer = await once()
        except UpstreamError:
            pass  # nobody coordinates yet
        else:
            if answer.code not in RETRIED:
                return answer
        await asyncio.sleep(0.1)
    raise AssertionError("the broker does not come to itself")


# The scripts.


async def an_owner_and_the_next(desk: Desk) -> list[Any]:
    """KB-D3, KB-F4: the old one writes until the new one has."""
    old = await desk.init("shard")
    said: list[Any] = [await desk.append(old, 0), await desk.append(old, 1)]
    new = await desk.init("shard")
    said += [new.id == old.id, new.epoch - old.epoch]
    said += [await desk.append(old, 2), await desk.append(new, 0), await desk.append(old, 3)]
    said += [await desk.append(old, 2), await desk.append(new, 1, 3), await desk.append(new, 4)]
    return said


async def an_owner_of_another_id(desk: Desk) -> list[Any]:
    """KB-F6: it fences nobody."""
    old, new = await desk.init("shard"), await desk.init("another")
    return [await desk.append(old, 0), await desk.append(new, 0), await desk.append(old, 1), await desk.append(new, 1)]


async def sequences(desk: Desk) -> list[Any]:
    """KB-A2: the same again is in the log once; a gap is refused, and so is what is long past (45: not 46)."""
    owner = await desk.init("shard")
    said = [await desk.append(owner, 0, 2), await desk.append(owner, 2), await desk.append(owner, 2)]
    said += [await desk.append(owner, 5), await desk.append(owner, 0, 2)]
    said += [await desk.append(owner, sequence) for sequence in (3, 4, 5, 6, 7)]
    said += [await desk.append(owner, 0, 2), await desk.append(owner, 3), await desk.append(owner, 8)]
    new = await desk.init("shard")
    said += [await desk.append(new, 9), await desk.append(new, 1), await desk.append(new, 0)]
    return said


async def a_producer_that_is_not_known(desk: Desk) -> list[Any]:
    owner = await desk.init("shard")
    return [await desk.append(owner, 1), await desk.append(owner, 2), await desk.append(owner, 4)]


async def transactions(desk: Desk) -> list[Any]:
    """KB-E1, KB-E2, KB-S5: not without the partition; plain batches go in behind; markers end it."""
    owner, client = await desk.init("shard"), await desk.init("client")
    said: list[Any] = [await desk.append(owner, 0), await desk.append(client, 0, txn="client")]
    for commits in (True, False):
        sequence = 0 if commits else 2
        said += [await desk.add("client", client), await desk.append(client, sequence, txn="client")]
        said += [await desk.append(owner, 1 if commits else 2), await desk.append(client, sequence + 1, txn="client")]
        said.append(await desk.ends("client", client, commits=commits))
    return said


async def a_producer_that_is_forgotten(desk: Desk) -> list[Any]:
    """KB-F6: after producer.id.expiration.ms nothing fences the one before."""
    old = await desk.init("shard")
    said = [await desk.append(old, 0)]
    new = await desk.init("shard")
    said += [await desk.append(new, 0), await desk.append(old, 1)]
    await desk.forgets(new)
    return [*said, await desk.append(old, 1), await desk.append(new, 7)]


SCRIPTS = (
    an_owner_and_the_next,
    an_owner_of_another_id,
    sequences,
    a_producer_that_is_not_known,
    transactions,
    a_producer_that_is_forgotten,
)


def named(log: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Producers by the order they come in: ids are the broker's."""
    ids: list[int] = []
    lines = []
    for offset, producer, sequence, transactional, marker in log:
        if producer.id not in ids:
            ids.append(producer.id)
        epoch = None if marker is not None else producer.epoch
        lines.append((offset, ids.index(producer.id), epoch, sequence, transactional, marker))
    return lines


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That soon forgets who writes nothing."""
    try:
        if shutil.which("java") is None:
            raise JarsUnavailable("java is not on the PATH")
        classpath = os.pathsep.join(map(str, find_jars(KAFKA)))
    except JarsUnavailable as error:
        why = f"needs a real broker ({KAFKA}): {error}"
        if os.environ.get("MUSTER_ENGINE"):
            pytest.fail(f"{why}; `make engine` wants it")
        pytest.skip(why)
    with kafka_broker(classpath, tmp_path_factory.mktemp("truth") / "kafka", FORGETS) as address:
        yield address


@asynccontextmanager
async def truth(address: str, topic: str, ahead_ms: int) -> AsyncIterator[Truth]:
    upstream = Upstream(UpstreamAddress((parse_address(address),)))
    try:
        for _ in range(TRIES):
            try:
                await upstream.refresh([])
                await topic_requests.create_topic(upstream, topic, 1, 1, {})
                view = await upstream.refresh([topic])
                if topic in view.topics and view.topics[topic].parts and upstream.leader(topic, 0) >= 0:
                    break
            except UpstreamError:
                pass
            await asyncio.sleep(0.1)
        yield Truth(upstream, address, topic, ahead_ms)
    finally:
        upstream.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_model_answers_as_a_broker_does(
    script: Callable[[Desk], Awaitable[list[Any]]], broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEYS, "EndTxn", 26)  # nobody of ours ends a client's transaction

    async def both() -> None:
        model = Model()
        wanted = await script(model)
        ahead_ms = 0 if script is a_producer_that_is_forgotten else AHEAD_MS
        async with truth(broker, script.__name__, ahead_ms) as desk:
            assert await script(desk) == wanted
            assert named(await desk.log()) == named(await model.log())

    asyncio.run(both())
