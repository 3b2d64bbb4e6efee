"""Requests about transactions between nodes: whatever comes in whatever order, each ticket is answered exactly once."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.node_requests import (
    NETWORK_EXCEPTION,
    AdditionQueue,
    MarkerQueue,
    is_later,
)
from muster.coordinator.transactions.records import TopicPartition

FENCED, LOADING, LOST = 47, 14, 6
PLACES = [(topic, number) for topic in "tu" for number in range(6)]
SOME_PLACES = st.lists(st.sampled_from(PLACES), min_size=1, max_size=8, unique=True).map(tuple)
ADDITIONS = st.builds(
    PartitionAddition,
    st.sampled_from("aaab"),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([0, 0, 0, 1]),
    st.lists(st.sampled_from(PLACES), min_size=1, max_size=3, unique=True).map(tuple),
    st.booleans(),
)
"""Mostly of one transaction, so that some go together."""


class PlainMarker(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def content(self) -> "PlainMarker":
        return self


MARKERS = st.builds(PlainMarker, st.integers(0, 3), st.integers(0, 1))


# Additions
# ---------


class AdditionModel:
    """What waits, as a list; and what each ticket was answered."""

    def __init__(self, most_transactions: int, most_partitions: int, most_waiting: int) -> None:
        self.most = most_transactions, most_partitions, most_waiting
        self.queue = AdditionQueue(
            max_transactions=most_transactions, max_partitions=most_partitions, max_waiting=most_waiting
        )
        self.waiting: dict[int, PartitionAddition] = {}
        self.answered: Counter[int] = Counter()

    def add(self, ticket: int, addition: PartitionAddition) -> None:
        older = {
            number: each for number, each in self.waiting.items() if each.transactional_id == addition.transactional_id
        }
        refused = dict(self.queue.add(ticket, addition))
        self.answered.update(refused.keys())
        if sum(map(size, self.waiting.values())) + size(addition) > self.most[2]:
            assert refused == {ticket: LOADING}
        elif any(is_later(each, addition) for each in older.values()):
            assert refused == {ticket: FENCED}
        else:
            kept = {
                number
                for number, each in older.items()
                if (each.producer_id, each.epoch, each.verify_only)
                == (addition.producer_id, addition.epoch, addition.verify_only)
                and not set(each.partitions) & set(addition.partitions)
            }
            assert refused == {
                number: FENCED if is_later(addition, each) else NETWORK_EXCEPTION
                for number, each in older.items()
                if number not in kept
            }
            for number in refused:
                del self.waiting[number]
            self.waiting[ticket] = addition

    def take(self) -> None:
        before = dict(self.waiting)
        request = self.queue.take_request()
        names = [each.transactional_id for each in request.additions]
        assert len(set(names)) == len(names) <= self.most[0]
        assert list(request.tickets) == list(before)[: len(request.tickets)], "the longest waiting go first"
        assert bool(request.tickets) == bool(before), "whoever has waited longest always goes"
        count = sum(map(size, request.additions))
        assert count <= self.most[1] or len(request.tickets) == 1
        left = list(before)[len(request.tickets) :]
        if left:
            after = before[left[0]]
            full = len(names) == self.most[0] and after.transactional_id not in names
            assert full or count + size(after) > self.most[1], "there was room for the next"
        by_name = {each.transactional_id: each for each in request.additions}
        told = {name: dict.fromkeys(each.partitions, 0) for name, each in by_name.items()}
        for ticket, codes in request.answers(told, NETWORK_EXCEPTION):
            mine = before[ticket]
            asked = by_name[mine.transactional_id]
            assert codes == dict.fromkeys(mine.partitions, 0)
            assert (asked.producer_id, asked.epoch, asked.verify_only) == (
                mine.producer_id,
                mine.epoch,
                mine.verify_only,
            )
            self.answered[ticket] += 1
            del self.waiting[ticket]
        assert Counter(place for each in request.additions for place in each.partitions) == Counter(
            place for ticket in request.tickets for place in before[ticket].partitions
        )


def size(addition: PartitionAddition) -> int:
    return len(addition.partitions)


@given(
    st.lists(st.one_of(ADDITIONS, st.sampled_from(["take", "withdraw"])), max_size=40),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(8, 60),
)
def test_every_addition_is_asked_or_refused_once_and_none_that_is_repeated_or_fenced(
    steps: list[PartitionAddition | str], most_transactions: int, most_partitions: int, most_waiting: int
) -> None:
    model = AdditionModel(most_transactions, most_partitions, most_waiting)
    withdrawn = 0
    for ticket, step in enumerate(steps):
        match step:
            case PartitionAddition():
                model.add(ticket, step)
            case "take":
                model.take()
            case "withdraw" if model.waiting:
                gone = list(model.waiting)[len(model.waiting) // 2]
                model.queue.withdraw(gone)
                del model.waiting[gone]
                withdrawn += 1
        assert len(model.queue) == len(model.waiting)
    while model.waiting:
        model.take()
    assert not model.queue
    assert set(model.answered.values()) <= {1}
    assert len(model.answered) + withdrawn == sum(isinstance(step, PartitionAddition) for step in steps)


def test_an_addition_that_is_verified_does_not_go_with_one_that_is_made() -> None:
    queue = AdditionQueue()
    assert queue.add(1, PartitionAddition("a", 1, 0, (("t", 0),), verify_only=True)) == []
    assert queue.add(2, PartitionAddition("a", 1, 0, (("t", 1),), verify_only=False)) == [(1, NETWORK_EXCEPTION)]
    assert [each.partitions for each in queue.take_request().additions] == [(("t", 1),)]


def test_a_partition_that_nobody_waits_for_any_more_is_asked_for_again() -> None:
    queue = AdditionQueue()
    for ticket, place in ((1, ("t", 0)), (2, ("t", 1))):
        assert queue.add(ticket, PartitionAddition("a", 1, 0, (place,), verify_only=True)) == []
    queue.withdraw(2)
    assert queue.add(3, PartitionAddition("a", 1, 0, (("t", 1),), verify_only=True)) == []
    assert list(queue.take_request().tickets) == [1, 3]


@given(SOME_PLACES, st.sets(st.sampled_from(PLACES)))
def test_a_partition_that_the_answer_leaves_out_was_not_answered(
    places: tuple[TopicPartition, ...], told: set[TopicPartition]
) -> None:
    queue = AdditionQueue()
    queue.add(1, PartitionAddition("a", 1, 0, places, verify_only=True))
    request = queue.take_request()
    ((_, codes),) = request.answers({"a": dict.fromkeys(told, 0)}, NETWORK_EXCEPTION)
    assert codes == {place: 0 if place in told else NETWORK_EXCEPTION for place in places}


# Markers
# -------


class MarkerModel:
    def __init__(self, most_markers: int, most_partitions: int, share: int, most_waiting: int) -> None:
        self.most = most_markers, most_partitions, share, most_waiting
        self.queue: MarkerQueue[PlainMarker] = MarkerQueue(
            max_markers=most_markers, max_partitions=most_partitions, max_waiting=most_waiting, max_share=share
        )
        self.given: dict[int, tuple[PlainMarker, tuple[TopicPartition, ...]]] = {}
        self.sent: Counter[tuple[int, TopicPartition]] = Counter()
        self.told: dict[int, dict[TopicPartition, int]] = {}
        self.done: dict[int, Mapping[TopicPartition, int]] = {}

    def rest(self, ticket: int) -> int:
        return sum(not self.sent[ticket, place] for place in self.given[ticket][1])

    def add(self, ticket: int, marker: PlainMarker, places: tuple[TopicPartition, ...]) -> None:
        waits = sum(self.rest(each) for each in self.given if each not in self.done)
        taken = self.queue.add(ticket, marker, places)
        assert taken == (waits + len(places) <= self.most[3])
        if taken:
            self.given[ticket] = marker, places

    def round(self, code: int) -> None:
        """One request, and its answer: this code for every partition."""
        open_before = [ticket for ticket in self.given if ticket not in self.done]
        request = self.queue.take_request()
        assert bool(request.tickets) == bool(open_before)
        producers = [marker.producer_id for marker in request.markers]
        assert len(set(producers)) == len(producers) <= self.most[0]
        assert sum(map(len, request.markers.values())) <= self.most[1]
        left = {marker: list(places) for marker, places in request.markers.items()}
        for ticket in request.tickets:
            marker, places = self.given[ticket]
            mine = [place for place in places if not self.sent[ticket, place]][: self.most[2]]
            mine = mine[: len(left[marker])]
            assert left[marker][: len(mine)] == mine
            del left[marker][: len(mine)]
            self.sent.update((ticket, place) for place in mine)
            self.told.setdefault(ticket, {}).update(dict.fromkeys(mine, code))
        assert not any(left.values()), "only what somebody waits for is sent"
        told = {marker.producer_id: dict.fromkeys(places, code) for marker, places in request.markers.items()}
        for ticket, codes in self.queue.take_answer(request, told, LOST):
            assert ticket not in self.done
            self.done[ticket] = codes


@given(
    st.lists(st.one_of(st.tuples(MARKERS, SOME_PLACES), st.sampled_from([0, LOST])), max_size=40),
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(8, 60),
)
def test_every_marker_goes_to_each_of_its_partitions_once_and_hears_what_became_of_it(
    steps: list[tuple[PlainMarker, tuple[TopicPartition, ...]] | int],
    most_markers: int,
    most_partitions: int,
    share: int,
    most_waiting: int,
) -> None:
    model = MarkerModel(most_markers, most_partitions, share, most_waiting)
    for ticket, step in enumerate(steps):
        if isinstance(step, int):
            model.round(step)
        else:
            model.add(ticket, *step)
    while len(model.done) < len(model.given):
        model.round(0)
    assert not model.queue
    assert set(model.sent.values()) <= {1}
    assert {ticket: dict(codes) for ticket, codes in model.done.items()} == model.told
    assert {ticket: set(codes) for ticket, codes in model.done.items()} == {
        ticket: set(places) for ticket, (_, places) in model.given.items()
    }


@given(st.lists(st.tuples(MARKERS, SOME_PLACES), min_size=1, max_size=8), st.booleans(), st.integers(1, 20))
def test_what_a_broken_connection_has_not_answered_is_told_as_lost_for_everybody(
    asked: list[tuple[PlainMarker, tuple[TopicPartition, ...]]], begun: bool, most: int
) -> None:
    queue: MarkerQueue[PlainMarker] = MarkerQueue(max_share=2)
    for ticket, (marker, places) in enumerate(asked):
        assert queue.add(ticket, marker, places)
    if begun:
        first = queue.take_request()
        told = {marker.producer_id: dict.fromkeys(places, 0) for marker, places in first.markers.items()}
        early = dict(queue.take_answer(first, told, LOST))
        queue.take_request()
    else:
        early = {}
    late: dict[int, Mapping[TopicPartition, int]] = {}
    while queue:
        some = queue.take_some(LOST, most)
        assert sum(len(codes) for _, codes in some[:-1]) < most, "one has made it enough, and is the last"
        late.update(some)
    assert sorted([*early, *late]) == list(range(len(asked)))
    for ticket, codes in late.items():
        assert set(codes) == set(asked[ticket][1])
        assert set(codes.values()) <= {0, LOST}
        assert LOST in codes.values()


def test_a_small_transaction_does_not_wait_for_a_large_one() -> None:
    queue: MarkerQueue[PlainMarker] = MarkerQueue(max_partitions=10, max_share=8)
    large = tuple(("t", number) for number in range(1_000))
    queue.add(1, PlainMarker(1, 0), large)
    queue.add(2, PlainMarker(2, 0), (("t", 0),))
    request = queue.take_request()
    assert request.markers == {PlainMarker(1, 0): large[:8], PlainMarker(2, 0): (("t", 0),)}
    queue.take_answer(request, {}, LOST)
    queue.add(3, PlainMarker(3, 0), (("t", 5),))
    assert queue.take_request().tickets == (1, 3)


def test_large_transactions_take_turns() -> None:
    queue: MarkerQueue[PlainMarker] = MarkerQueue(max_partitions=16, max_share=8)
    for number in (1, 2, 3):
        queue.add(number, PlainMarker(number, 0), [("t", partition) for partition in range(100)])
    turns = []
    for _ in range(3):
        request = queue.take_request()
        turns.append(request.tickets)
        queue.take_answer(request, {}, LOST)
    assert turns == [(1, 2), (3, 1), (2, 3)]


def test_whoever_no_longer_waits_is_not_sent_for_and_makes_room() -> None:
    queue: MarkerQueue[PlainMarker] = MarkerQueue(max_waiting=2)
    assert queue.add(1, PlainMarker(1, 0), (("t", 0), ("t", 1)))
    assert not queue.add(2, PlainMarker(2, 0), (("t", 0),))
    queue.withdraw(1)
    queue.withdraw(1)
    assert queue.add(2, PlainMarker(2, 0), (("t", 0),))
    assert queue.take_request().tickets == (2,)
