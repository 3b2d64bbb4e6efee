"""Offsets of a checkpoint: the same text for the same offset, and a clear word about anything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spark.planning import OffsetRange
from muster.spark.stream_offsets import (
    OffsetError,
    PartitionProgress,
    StreamOffset,
    find_end_positions,
    find_positions_ahead,
    parse_offset,
)

NUMBERS = st.integers(0, 2**62)
PARTITIONS = st.dictionaries(
    st.tuples(st.text(min_size=1, max_size=8), st.integers(0, 300)),
    st.builds(PartitionProgress, NUMBERS, NUMBERS, st.integers(-1, 50)),
    max_size=8,
)
OFFSETS = st.builds(
    StreamOffset,
    PARTITIONS,
    st.dictionaries(st.text(min_size=1, max_size=8), st.text("0123456789abcdef", min_size=32, max_size=32), max_size=3),
    st.just("127.0.0.1:9290"),
    st.just("g"),
    st.text(max_size=8),
    st.integers(-1, 99),
)


@given(OFFSETS)
def test_what_is_written_is_read_back_equal(offset: StreamOffset) -> None:
    assert parse_offset(offset.to_dict()) == offset
    assert parse_offset(offset.to_json()) == offset


@given(OFFSETS, st.randoms())
def test_the_text_does_not_depend_on_the_order_of_making(offset: StreamOffset, random: object) -> None:
    rows = list(offset.partitions.items())
    random.shuffle(rows)  # type: ignore[attr-defined]
    other = StreamOffset(
        dict(rows), dict(reversed(offset.topic_ids.items())), offset.servers, "g", offset.member, offset.generation
    )
    assert other.to_json() == offset.to_json()
    # Spark hands back what it parsed; saying it again must give the same text.
    assert json.dumps(json.loads(offset.to_json())) == offset.to_json()


def test_a_batch_reads_what_its_end_says() -> None:
    offset = StreamOffset(
        {("t", 10): PartitionProgress(5, 9), ("t", 2): PartitionProgress(4, 4), ("a", 0): PartitionProgress(0, 1)}
    )
    assert offset.ranges() == [OffsetRange("a", 0, 0, 1), OffsetRange("t", 10, 5, 9)]
    assert find_end_positions(offset) == {("a", 0): 1, ("t", 2): 4, ("t", 10): 9}


def test_a_commit_never_takes_a_group_back() -> None:
    offset = StreamOffset(
        {("t", 0): PartitionProgress(0, 10), ("t", 1): PartitionProgress(0, 10), ("t", 2): PartitionProgress(0, 10)}
    )
    assert find_positions_ahead(offset, {("t", 0): 9, ("t", 1): 50}) == {("t", 0): 10, ("t", 2): 10}


@pytest.mark.parametrize("foreign", ['{"orders": {"0": 5}}', "[]", "no json", '{"muster": {}}', "7"])
def test_offsets_of_another_source_are_refused(foreign: str) -> None:
    with pytest.raises(OffsetError, match="not an offset of the source muster"):
        parse_offset(foreign)


def test_offsets_of_a_later_version_are_refused() -> None:
    later = StreamOffset().to_dict()
    later["muster"]["version"] = 2
    with pytest.raises(OffsetError, match="version 2, known here is 1"):
        parse_offset(later)
