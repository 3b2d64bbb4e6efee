"""What the core is told of positions in clients' transactions, made of records by short ways."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka_backend import transaction_log
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import TransactionEnded, TransactionPending
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, ShardRecordRead
from muster.coordinator.kafka_backend.transaction_log import (
    ClientTransactions,
    decode_offset,
    entries,
    pending_events,
    split_keys,
)
from muster.long_work import AT_ONCE

PLACES = st.tuples(st.sampled_from(["t", "topic-2", "ü"]), st.integers(0, 2**31 - 1))
VALUES = st.builds(
    StoredOffset,
    st.integers(0, 2**60),
    st.just(-1),
    st.sampled_from(["", "note"]),
    st.just(5),
    st.none(),
    st.sampled_from([b"", b"1" * 16]),
)
WHOLE = st.tuples(st.sampled_from(["g", "group 2"]), PLACES, VALUES).map(
    lambda each: entries(each[0], {each[1]: each[2]})[0][:2]
)
STRANGE = st.tuples(
    st.binary(max_size=20).map(lambda key: b"\0\1" + key) | st.binary(max_size=20), st.none() | st.binary(max_size=30)
)
"""Whoever may write to the topic may have put it there."""

BROKEN = st.tuples(WHOLE, st.integers(0, 40)).map(lambda each: (each[0][0][: each[1]], each[0][1]))
"""A key that ends too early, before a value that is one of a position."""
WORTHLESS = WHOLE.map(lambda each: (each[0], b"nothing"))

RECORDS = st.lists(WHOLE | STRANGE | BROKEN | WORTHLESS, max_size=12).map(
    lambda made: [ShardRecordRead(key, value, 2 * at) for at, (key, value) in enumerate(made)]
)


@given(RECORDS)
def test_short_ways_say_what_the_long_one_does(records: Sequence[ShardRecordRead]) -> None:
    known = [found for record in records if (found := decode_offset(record)) is not None]
    told = list(pending_events(TransactionPending(3, 50, records)))
    assert [(each.group_id, *place, value) for each in told for place, value in each.offsets.items()] == [
        (each.group_id, each.topic, each.partition, each.value) for each in known
    ]
    assert split_keys(records) >= {(each.group_id, each.topic, each.partition) for each in known}


@given(st.lists(WHOLE, max_size=12))
def test_keys_are_those_of_positions_and_no_others(made: list[tuple[bytes, bytes]]) -> None:
    records = [ShardRecordRead(key, value, at) for at, (key, value) in enumerate(made)]
    known = [found for record in records if (found := decode_offset(record)) is not None]
    assert len(known) == len(records)
    assert split_keys(records) == {(each.group_id, each.topic, each.partition) for each in known}


# Markers that end very many
# --------------------------


class Owner:
    """Of all shards; notes what the core is told, and in which thread positions were read."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int]] = []
        """Shard, offset of the marker, and how many positions count."""
        self.groups: list[tuple[int, set[str]]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def submit(self, shard: int, event: Any) -> None:
        self.told.append((shard, event.at, len(event.counts)))

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def noted(self, shard: int, groups: set[str]) -> None:
        self.groups.append((shard, groups))


def ended(shard: int, at: int, positions: int) -> TransactionEnded:
    records = [ShardRecordRead(*entries("g", {("t", number): StoredOffset(1, -1, "", 5)})[0][:2], number)
               for number in range(positions)]  # fmt: skip
    return TransactionEnded(shard, ProducerEpoch(7, 0), True, records, at)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    threads: list[threading.Thread] = []

    def noted(records: Sequence[ShardRecordRead]) -> Any:
        threads.append(threading.current_thread())
        return split_keys(records)

    monkeypatch.setattr(transaction_log, "split_keys", noted)
    return threads


def made(owner: Owner) -> ClientTransactions:
    return ClientTransactions(owner, None, SimpleNamespace(on_positions=owner.noted), "x.state", lambda: 0)  # type: ignore[arg-type]


def test_positions_that_a_marker_ends_are_read_beside_the_loop_where_they_are_many(
    readers: list[threading.Thread],
) -> None:
    async def story() -> None:
        owner = Owner()
        transactions = made(owner)
        for each in (ended(1, 10, AT_ONCE + 1), ended(1, 11, 3), ended(2, 12, AT_ONCE), ended(1, 13, AT_ONCE + 2)):
            transactions.ended(each)
        assert owner.told == [(2, 12, AT_ONCE)]
        await asyncio.gather(*owner.tasks)
        assert owner.told[1:] == [(1, 10, AT_ONCE + 1), (1, 11, 3), (1, 13, AT_ONCE + 2)]
        assert owner.groups == [(shard, {"g"}) for shard, _, _ in owner.told]
        here = threading.current_thread()
        assert [each is here for each in readers] == [True, False, True, False]
        transactions.ended(ended(1, 14, 1))
        assert owner.told[-1] == (1, 14, 1)

    asyncio.run(story())


@pytest.mark.usefixtures("readers")
def test_the_core_is_told_nothing_of_a_shard_that_has_gone_meanwhile() -> None:
    async def story() -> None:
        owner = Owner()
        transactions = made(owner)
        transactions.ended(ended(1, 10, AT_ONCE + 1))
        transactions.gone(1)
        transactions.ended(ended(1, 20, AT_ONCE + 3))
        await asyncio.gather(*owner.tasks)
        assert owner.told == [(1, 20, AT_ONCE + 3)]

    asyncio.run(story())
