"""What the core is told of positions in clients' transactions, made of records by short ways."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import TransactionPending
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ShardRecordRead
from muster.coordinator.kafka_backend.transaction_log import decode_offset, entries, pending_events, split_keys

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
