"""The reader that judges what is lost: one that is slow loses nothing, one that stands still accuses nobody."""

from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.support.cluster_reading import Place, StoodStill, read_all
from tests.support.pace import Patience


class Record:
    def __init__(self, place: Place) -> None:
        self._place = place

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def value(self) -> bytes:
        return b"%d:%d" % self._place


class Scripted:
    """Gives `there` in portions, each of which takes ten seconds; then nothing. ends: what it says of partitions."""

    def __init__(self, there: list[Place], ends: dict[int, int | None], portion: int = 10) -> None:
        self._there, self._ends, self._portion = there, ends, portion
        self.now_s = 0.0

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [(each.topic, each.partition, each.offset) for each in partitions]

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        self.now_s += 10.0
        come, self._there = self._there[: self._portion], self._there[self._portion :]
        return [Record(place) for place in come]

    def get_watermark_offsets(self, partition: Any, timeout: float = -1) -> tuple[int, int]:
        end = self._ends[partition.partition]
        if end is None:
            raise KafkaException("no leader")
        return 0, end

    def patience(self) -> Patience:
        return Patience(60.0, now=lambda: self.now_s, pace=lambda: 1.0)


def places(*ends: int) -> list[Place]:
    return [(partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


def read(reader: Scripted, wanted: list[Place]) -> dict[Place, bytes]:
    return read_all(reader, "orders", 2, wanted, reader.patience)


def test_who_is_slow_reads_all_the_same() -> None:
    reader = Scripted(places(100, 100), {0: 100, 1: 100})
    assert read(reader, places(100, 100)) == {place: b"%d:%d" % place for place in places(100, 100)}
    assert reader.now_s == 200.0, "three times its patience"
    assert reader.assigned == [("orders", 0, 0), ("orders", 1, 0)]


def test_what_is_lost_is_missed_at_the_end() -> None:
    there = [place for place in places(30, 30) if place != (1, 7)]
    found = read(Scripted(there, {0: 30, 1: 30}), places(30, 30))
    assert set(places(30, 30)) - set(found) == {(1, 7)}


@pytest.mark.parametrize("end", [31, None])
def test_who_stands_still_before_the_end_accuses_nobody(end: int | None) -> None:
    with pytest.raises(StoodStill, match="orders-1: the reader"):
        read(Scripted(places(30, 20), {0: 30, 1: end}), places(30, 31))


def test_a_look_costs_nothing_that_grows_with_what_there_is() -> None:
    """It compared all with all for each portion: of half a million records that alone took half of its time."""

    class Counted(list[Place]):
        looks = 0

        def __iter__(self) -> Any:
            Counted.looks += 1
            return super().__iter__()

    wanted = Counted(places(500, 500))
    read(Scripted(places(500, 500), {0: 500, 1: 500}), wanted)
    assert Counted.looks == 1
