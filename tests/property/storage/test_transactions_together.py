"""Transactional batches and markers of several producers, appended together, end up as if each had come alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import append_each
from muster.storage.errors import StorageError
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.types import Appended
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all

PRODUCERS = 4


class Sent(NamedTuple):
    """Records of a producer. how: whether they come in order, and whether its coordinator was asked."""

    producer: int
    count: int
    how: str


class Ended(NamedTuple):
    producer: int
    commit: bool
    ahead: int
    """Of the epoch of its producer's records."""
    level: int
    coordinator_epoch: int


Turn: TypeAlias = Sequence[Sent] | Sequence[Ended]

NUMBERS = st.integers(1, PRODUCERS)
SENT = st.builds(
    Sent, NUMBERS, st.integers(1, 3), st.sampled_from(["next", "next", "next", "unasked", "repeated", "gap", "plain"])
)
ENDED = st.builds(
    Ended, NUMBERS, st.booleans(), st.sampled_from([0, 1, 1, 1, -1]), st.sampled_from([0, 2, 2]), st.integers(0, 1)
)
TURNS = st.lists(st.one_of(st.lists(SENT, max_size=8), st.lists(ENDED, max_size=6)), max_size=8)


class Producers:
    """What each sends next: an epoch, and the sequence in it."""

    def __init__(self) -> None:
        self._epochs = dict.fromkeys(range(1, PRODUCERS + 1), 0)
        self._next: dict[int, int] = {}

    def made(self, sent: Sent) -> tuple[bytes, tuple[int, int, int]]:
        number, count, how = sent
        sequence = self._next.get(number, 0)
        if how == "repeated":
            sequence = max(0, sequence - count)
        elif how == "gap":
            sequence += 1
        else:
            self._next[number] = sequence + count
        epoch = self._epochs[number]
        data = batch(
            *[b"x" * 20] * count,
            producer_id=number,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=how != "plain",
        )
        return data, (number, epoch, sequence)

    def marker(self, ended: Ended) -> MarkerToWrite:
        number, commit, ahead, level, coordinator_epoch = ended
        epoch = max(0, self._epochs[number] + ahead)
        if ahead > 0:
            self._epochs[number], self._next[number] = epoch, 0
        return MarkerToWrite(number, epoch, commit, coordinator_epoch, level)


def opened(disk: MemoryFiles, *, together: bool) -> Broker:
    # Small segments and dense indexes, so that rolls and entries fall between the batches.
    broker = open_broker(disk, log__segment__bytes=700, log__index__interval__bytes=150)
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    assert log._short_way is not None
    if not together:
        log._short_way = log._own_short_way = None
    return broker


def guards_for(log: Log, sent: Sequence[Sent], heads: Sequence[tuple[int, int, int]]) -> dict[int, TransactionGuard]:
    made = {
        place: log.make_guard(number, epoch, sequence=sequence, level=2)
        for place, (each, (number, epoch, sequence)) in enumerate(zip(sent, heads, strict=True))
        if each.how not in ("unasked", "plain")
    }
    return {place: guard for place, guard in made.items() if guard is not None}


def told(results: Sequence[Appended | StorageError | OSError]) -> list[Any]:
    return [result if isinstance(result, Appended) else (type(result), str(result)) for result in results]


def each_by_itself(count: int, append: Callable[[int], Appended]) -> list[Appended | StorageError | OSError]:
    results: list[Appended | StorageError | OSError] = []
    for place in range(count):
        try:
            results.append(append(place))
        except StorageError as error:
            results.append(error)
    return results


def take_turn(broker: Broker, turn: Turn, producers: Producers, *, together: bool) -> list[Any]:
    log = broker.log("t", 0)
    sent = [each for each in turn if isinstance(each, Sent)]
    if not sent:
        markers = [producers.marker(each) for each in turn if isinstance(each, Ended)]
        if together:
            return told(log.append_markers(markers, T0))
        return told(each_by_itself(len(markers), lambda place: log.append_marker(markers[place], T0)))
    made = [producers.made(each) for each in sent]
    batches = [data for data, _ in made]
    guards = guards_for(log, sent, [head for _, head in made])
    if together:
        results = told(append_each(broker, "t", 0, batches, T0, guards=guards))
    else:
        results = told(
            each_by_itself(len(batches), lambda place: log.append(batches[place], T0, guard=guards.get(place)))
        )
    for guard in guards.values():
        log.drop_guard(guard)
    return results


def state_of(broker: Broker) -> dict[str, Any]:
    log = broker.log("t", 0)
    return {
        "end": log.end_offset,
        "stable": log.last_stable_offset,
        "open": log.open_transactions(),
        "producers": log.list_producers(),
        "guards": log.producers.guards.count,
        "aborted": [list(segment.aborted) for segment in log.segment_list.all],
        "records": read_all(log),
    }


@settings(max_examples=150)
@given(TURNS)
def test_together_is_as_one_by_one(turns: list[Turn]) -> None:
    disks = MemoryFiles(), MemoryFiles()
    together, alone = opened(disks[0], together=True), opened(disks[1], together=False)
    known = Producers(), Producers()
    for turn in turns:
        assert take_turn(together, turn, known[0], together=True) == take_turn(alone, turn, known[1], together=False)
        for broker in (together, alone):
            broker.flush()
        assert state_of(together) == state_of(alone)
    contents = []
    for broker, disk in zip((together, alone), disks, strict=True):
        broker.close()
        contents.append({name: disk.content(f"/data/t-0/{name}") for name in disk.names("/data/t-0")})
    logs = [{name: data for name, data in files.items() if not name.endswith("index")} for files in contents]
    assert logs[0] == logs[1]


def test_markers_of_many_producers_are_one_write() -> None:
    disk = MemoryFiles()
    broker, writes = opened(disk, together=True), list[str]()
    broker.append("t", 0, batch(b"before"), T0)

    def note_write(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            writes.append(path)

    disk.fault = note_write
    markers = [MarkerToWrite(number, 1, True, 0, 2) for number in range(1, 6)]
    done = broker.append_markers("t", 0, markers, T0)
    assert [each.base_offset for each in done if isinstance(each, Appended)] == [1, 2, 3, 4, 5]
    assert len(writes) == 1
