"""What a type checker is told of callbacks and of `commit`. mypy reads this file with the package (pyproject.toml):
a line that ought to be refused and is not is an unused `type: ignore`, which is an error, too."""

import concurrent.futures
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_type, get_overloads

from muster import Consumer, Producer, RebalanceEvent, RecordMetadata, TopicPartition, Worker, aio


def why(consumer: Consumer, partitions: list[TopicPartition], event: RebalanceEvent) -> None: ...


def what(consumer: Consumer, partitions: Sequence[tuple[str, int]]) -> str:
    return "what is returned is not looked at"


async def awaited(consumer: aio.Consumer, partitions: list[TopicPartition], event: RebalanceEvent) -> None: ...


def one(worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None: ...


def arrived(error: Exception | None, metadata: RecordMetadata | None) -> None: ...


def offsets(consumer: Consumer, partitions: list[int]) -> None: ...


if TYPE_CHECKING:

    def callbacks(consumer: Consumer, twin: aio.Consumer, worker: Worker, producer: Producer) -> None:
        consumer.subscribe("t", on_assign=why, on_revoke=what, on_lost=lambda consumer, partitions, event: None)
        consumer.subscribe("t", on_assign=lambda *told: print(told))
        consumer.subscribe("t", on_assign=offsets)  # type: ignore[arg-type]
        consumer.subscribe("t", on_assign=one)  # type: ignore[arg-type]
        consumer.subscribe("t", on_assign=awaited)  # type: ignore[arg-type]
        worker.join(["t"], on_gain=one, on_lose=lambda worker, partition: None)
        worker.join(["t"], on_gain=why)  # type: ignore[arg-type]
        producer.produce("t", b"1", on_delivery=arrived)
        producer.produce("t", b"1", on_delivery=what)  # type: ignore[arg-type]

    async def twins(twin: aio.Consumer) -> None:
        await twin.subscribe("t", on_assign=awaited)
        await twin.subscribe("t", on_assign=why)  # type: ignore[arg-type]

    def commits(consumer: Consumer, unsure: bool) -> None:
        assert_type(consumer.commit(asynchronous=True), concurrent.futures.Future[None])
        assert_type(consumer.commit(None, None, unsure), concurrent.futures.Future[None] | None)
        consumer.commit().result()  # type: ignore[attr-defined]
        consumer.position(("t", 0)).bit_length()
        consumer.position("t")  # type: ignore[arg-type]


def test_every_form_of_commit_has_parameters_that_it_takes() -> None:
    taken = inspect.signature(Consumer.commit).parameters
    forms = get_overloads(Consumer.commit)
    assert len(forms) == 3
    for form in forms:
        assert list(inspect.signature(form).parameters) == list(taken)
