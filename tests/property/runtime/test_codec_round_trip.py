"""Whatever the core can record comes back from its bytes, and whatever bytes there are, nothing but one error comes."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model import records as consumer
from muster.coordinator.core.model.records import (
    CanaryBaseline,
    CanaryForgotten,
    CanaryGuardRule,
    CanaryState,
    CanaryStored,
    CanaryTally,
    CentralDeleted,
    CentralStored,
    DelayForgotten,
    DelayStored,
    GroupDeleted,
    GroupStored,
    LedgerRecord,
    MemberRecord,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    Record,
    ShadowsForgotten,
    StallForgotten,
    StallRecorded,
    TakeoverForgotten,
    TakeoverRecorded,
)
from muster.coordinator.core.model.types import (
    Protocol,
    RebalanceEntry,
    RebalanceSource,
    Score,
    Settlement,
    StoredOffset,
)
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMEOUT = st.integers(0, 2**31 - 1)
BLOB = st.binary(max_size=40)
TOPIC_ID = st.binary(min_size=16, max_size=16)


@st.composite
def stored_offsets(draw: st.DrawFn) -> StoredOffset:
    expire_ms = draw(st.none() | st.integers(0, 2**63 - 1))
    # Version 1, with its expiry, has no room for the others.
    leader_epoch = draw(INT32) if expire_ms is None else -1
    topic_id = draw(st.just(b"") | TOPIC_ID.filter(any)) if expire_ms is None else b""
    return StoredOffset(draw(INT64), leader_epoch, draw(TEXT), draw(INT64), expire_ms, topic_id)


def without_bounds_of_its_own(entry: RebalanceEntry) -> RebalanceEntry:
    """A coordinator knows how long nobody owned what it moves: only watched entries have bounds."""
    if entry.source is not RebalanceSource.COORDINATOR:
        return entry
    moves = tuple(replace(move, unowned_at_least_ms=None) for move in entry.moves)
    return replace(entry, unowned_at_least_partition_ms=None, moves=moves)


PARTITION = st.integers(0, 2**31 - 1)
SHARES = st.dictionaries(TOPIC_ID, st.frozensets(PARTITION, max_size=4), max_size=3)
EPOCHS = st.dictionaries(TOPIC_ID, st.dictionaries(PARTITION, INT32, max_size=4), max_size=3)
CLASSIC_SIDE = st.builds(consumer.ClassicSide, INT32, st.lists(st.builds(Protocol, TEXT, BLOB), max_size=2).map(tuple))
MAYBE = st.none() | TEXT
NAMES = st.lists(TEXT, max_size=3).map(tuple)
CONSUMER_RECORDS = st.one_of(
    st.builds(
        consumer.ConsumerMemberStored,
        TEXT,
        TEXT,
        MAYBE,
        MAYBE,
        TEXT,
        TEXT,
        NAMES,
        MAYBE,
        INT32,
        MAYBE,
        st.none() | CLASSIC_SIDE,
    ),
    st.builds(consumer.GroupEpochStored, TEXT, INT32, INT64),
    st.builds(consumer.TargetEpochStored, TEXT, INT32, INT64),
    st.builds(consumer.TargetStored, TEXT, TEXT, SHARES),
    st.builds(consumer.CurrentStored, TEXT, TEXT, INT32, INT32, st.integers(-128, 127), EPOCHS, EPOCHS),
    st.builds(consumer.RegexStored, TEXT, TEXT, NAMES, INT64, INT64),
    *(st.builds(kind, TEXT) for kind in (consumer.GroupEpochDeleted, consumer.TargetEpochDeleted)),
    *(
        st.builds(kind, TEXT, TEXT)
        for kind in (
            consumer.ConsumerMemberDeleted,
            consumer.TargetDeleted,
            consumer.CurrentDeleted,
            consumer.RegexDeleted,
        )
    ),
)
MEMBERS = st.builds(MemberRecord, TEXT, st.none() | TEXT, TEXT, TEXT, TIMEOUT, TIMEOUT, BLOB, BLOB)
FIGURE = st.floats(allow_nan=False, allow_infinity=False)
GUARDS = st.lists(st.builds(CanaryGuardRule, TEXT, FIGURE, st.booleans()), max_size=3).map(tuple)
BASELINES = st.builds(CanaryBaseline, INT32, INT64, FIGURE, INT32, FIGURE, FIGURE, INT64)
JSON = st.dictionaries(TEXT, st.none() | st.booleans() | INT32 | TEXT | st.lists(INT32, max_size=3), max_size=3)
CANARIES = st.builds(
    CanaryStored,
    *(TEXT, st.sampled_from(CanaryState), TEXT, JSON, TEXT, TEXT, INT64, INT64, INT64, st.booleans(), GUARDS, INT64),
    *(BASELINES, st.from_type(CanaryTally), TEXT),
)
GROUP_RECORDS = st.one_of(
    st.builds(GroupStored, TEXT, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.tuples(MEMBERS, MEMBERS)),
    st.builds(GroupStored, TEXT, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.just(())),
    st.builds(GroupDeleted, TEXT),
    st.builds(OffsetStored, TEXT, TEXT, INT32, stored_offsets()),
    st.builds(OffsetDeleted, TEXT, TEXT, INT32),
    CONSUMER_RECORDS,
    st.builds(DelayStored, TEXT, TEXT, st.none() | INT64),
    st.builds(DelayForgotten, TEXT),
    st.from_type(CentralStored),
    st.builds(CentralDeleted, TEXT),
    CANARIES,
    st.builds(CanaryForgotten, TEXT),
)
MAYBE_FIGURE = st.none() | FIGURE
st.register_type_strategy(
    Score,
    st.builds(
        Score, TEXT, TEXT, st.none() | INT64, MAYBE_FIGURE, MAYBE_FIGURE, MAYBE_FIGURE, INT32, INT32, INT32, INT32
    ),
)
LEDGER_RECORDS = st.one_of(
    st.builds(RebalanceDecided, TEXT, st.from_type(RebalanceEntry).map(without_bounds_of_its_own)),
    st.builds(RebalanceSettled, TEXT, st.from_type(Settlement)),
    st.from_type(RebalanceShadowed),
    st.builds(ShadowsForgotten, TEXT, st.integers(0, 2**31)),
    st.from_type(StallRecorded),
    st.builds(StallForgotten, st.integers(0, 2**31)),
    st.from_type(TakeoverRecorded),
    st.builds(TakeoverForgotten, st.integers(0, 2**31), st.integers(0, 2**31)),
)


@settings(deadline=None)
@given(GROUP_RECORDS)
def test_group_records_round_trip(record: Record) -> None:
    (stored,) = encode([record]).groups
    assert decode_group(stored) == record


@settings(deadline=None)
@given(TEXT, st.dictionaries(st.tuples(TEXT, INT32), stored_offsets(), max_size=5))
def test_a_commit_is_written_as_its_offsets_one_by_one(
    group_id: str, offsets: dict[tuple[str, int], StoredOffset]
) -> None:
    each = [OffsetStored(group_id, *tp, value) for tp, value in offsets.items()]
    assert encode([OffsetsStored(group_id, offsets)]) == encode(each)


@settings(deadline=None)
@given(LEDGER_RECORDS)
def test_ledger_records_round_trip_with_stable_bytes(record: LedgerRecord) -> None:
    (stored,) = encode([record]).ledger
    again = decode_ledger(stored)
    assert again == record
    assert encode([again]).ledger == [stored]


@settings(deadline=None)
@given(TEXT, st.integers(0, 2**31))
def test_forgotten_entries_round_trip(group_id: str, number: int) -> None:
    record = RebalanceForgotten(group_id, number)
    assert [decode_ledger(half) for half in encode([record]).ledger] == [SkippedRecord("settlement tombstone"), record]


@settings(deadline=None)
@given(st.sampled_from([b"", b"\x00\x00", b"\x00\x01", b"\x00\x02"]), st.binary(max_size=60), st.binary(max_size=120))
@example(b"\x00\x02", b"\x00\x01g", b"\x00\x04\x01\x00\x00\x00\x00\x00\x00" + b"\xff" * 8 + b"\x01\xff\xff\xff\xff\x0f")
def test_any_bytes_are_a_record_or_one_error(kind: bytes, key: bytes, value: bytes) -> None:
    assert isinstance(
        outcome(lambda: decode_group(KeyValue(kind + key, value))),
        MalformedRecord | SkippedRecord | OffsetStored | GroupStored,
    )


@settings(deadline=None)
@given(GROUP_RECORDS, st.integers(0, 10_000), st.integers(0, 255))
def test_one_damaged_byte_is_a_record_or_one_error(record: Record, at: int, byte: int) -> None:
    (stored,) = encode([record]).groups
    value = bytearray(stored.value or b"")
    if value:
        value[at % len(value)] = byte
    damaged = KeyValue(stored.key, bytes(value) if value else None)
    assert isinstance(outcome(lambda: decode_group(damaged)), MalformedRecord | type(record))


@settings(deadline=None)
@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_any_bytes_of_the_ledger_are_a_record_or_one_error(key: bytes, value: bytes | None) -> None:
    assert isinstance(
        outcome(lambda: decode_ledger(KeyValue(key, value))),
        MalformedRecord
        | SkippedRecord
        | RebalanceForgotten
        | DelayForgotten
        | CentralDeleted
        | StallForgotten
        | TakeoverForgotten
        | ShadowsForgotten,
    )


def outcome(decode: Callable[[], object]) -> object:
    try:
        return decode()
    except MalformedRecord as error:
        return error
