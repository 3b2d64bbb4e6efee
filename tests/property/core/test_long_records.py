"""Records that list very many have the same bytes whether they are made in one piece or in portions."""

from collections.abc import Generator
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.model.records import CentralStored, RebalanceDecided, RebalanceSettled
from muster.coordinator.core.model.types import RebalanceEntry, Settlement
from muster.coordinator.runtime.kafka_records import encode, encode_in_portions
from muster.coordinator.runtime.own_records import LongRecord

T = TypeVar("T")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ('"members":[]', '"moves":[', '\\"unowned":[', '"synced":[]', '"owners":[],', '"positions":[', "members", "\\", '"')
)
"""What could be taken for a place in the JSON, if quotes were not escaped."""
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
ENTRIES = st.builds(
    RebalanceEntry, detail=TEXTS, snapshot_json=TEXTS, also=LISTS, phases=..., members=..., moves=..., positions=...,
    topics=..., triggers=..., incarnations=..., source=..., late_fetches=..., shadows=...,
    unowned_at_least_partition_ms=...,
)  # fmt: skip
RECORDS = st.one_of(
    st.builds(RebalanceDecided, TEXTS, ENTRIES),
    st.builds(RebalanceSettled, TEXTS, st.builds(Settlement, waited_for=LISTS, synced=..., waits=...)),
    st.builds(CentralStored, TEXTS, assignor=TEXTS, owners=...),
)


def finish(portions: Generator[None, None, T]) -> T:
    while True:
        try:
            next(portions)
        except StopIteration as end:
            result: T = end.value
            return result


@given(RECORDS, st.integers(1, 5))
def test_portions_come_to_the_bytes_of_one_piece(record: LongRecord, at_once: int) -> None:
    assert finish(encode_in_portions(record, at_once)) == encode([record])
