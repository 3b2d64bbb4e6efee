"""What nodes ask each other about transactions: what waits for one node, and what goes into the next request. Pure.

`AdditionQueue` holds what leaders of partitions ask the coordinators on one node, `MarkerQueue` the markers that
coordinators have for the leaders on one node (TX-N20 to TX-N23). Of each queue one request is under way at a time;
what comes meanwhile goes together in the next. A ticket is the number of whoever waits.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from muster.coordinator.errors import ErrorCode
from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.records import TopicPartition

Ticket: TypeAlias = int
Codes: TypeAlias = Mapping[TopicPartition, int]
"""Kafka's error numbers by partition, 0 for none."""

NETWORK_EXCEPTION: Final = 13
"""Kafka's number for an answer that did not come: nobody knows whether the partitions were added."""

MAX_TRANSACTIONS: Final = 1_000
"""Transactions, or markers, in one request: as many as its reader takes."""
MAX_PARTITIONS: Final = 500
"""Partitions in one request: to write or to read as many takes 1 to 3 ms."""
MAX_WAITING: Final = 100_000
"""Partitions that wait for one node, of additions and of markers each; what comes on top is refused at once."""
MAX_SHARE: Final = 100
"""Partitions that one marker has in a request while others wait behind it."""


# Additions
# ---------


class AdditionRefusal(NamedTuple):
    """Whoever has the ticket is answered without having been asked for."""

    ticket: Ticket
    code: int


class AdditionRequest(NamedTuple):
    """One request: at most one addition for each transactional id, and the tickets that it answers."""

    additions: tuple[PartitionAddition, ...]
    tickets: Mapping[Ticket, PartitionAddition]

    def answers(self, told: Mapping[str, Codes], missing: int) -> Iterator[tuple[Ticket, Codes]]:
        """What each ticket hears. told: by transactional id; missing: the code of what is not in it."""
        for ticket, addition in self.tickets.items():
            codes = told.get(addition.transactional_id, {})
            yield ticket, {place: codes.get(place, missing) for place in addition.partitions}


@dataclass(slots=True)
class WaitingId:
    """What waits of one transactional id: of one producer and epoch, and each partition once.

    tickets: in the order in which they came. owners: the ticket of each partition.
    """

    tickets: dict[Ticket, None] = field(default_factory=dict)
    owners: dict[TopicPartition, Ticket] = field(default_factory=dict)


class AdditionQueue:
    """Additions that wait for the coordinators on one node."""

    def __init__(
        self,
        *,
        max_transactions: int = MAX_TRANSACTIONS,
        max_partitions: int = MAX_PARTITIONS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._max_transactions = max_transactions
        self._max_partitions = max_partitions
        self._max_waiting = max_waiting
        self._waiting: dict[Ticket, PartitionAddition] = {}
        self._by_id: dict[str, WaitingId] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ticket: Ticket, addition: PartitionAddition) -> list[AdditionRefusal]:
        """Have it asked with the next request that has room. Whoever is answered instead may be the ticket itself
        (TX-N21)."""
        if self._partitions + len(addition.partitions) > self._max_waiting:
            return [AdditionRefusal(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        refused = self._overtaken(addition)
        if refused is None:
            return [AdditionRefusal(ticket, ErrorCode.INVALID_PRODUCER_EPOCH)]
        for refusal in refused:
            self.withdraw(refusal.ticket)
        known = self._by_id.setdefault(addition.transactional_id, WaitingId())
        known.tickets[ticket] = None
        known.owners.update(dict.fromkeys(addition.partitions, ticket))
        self._waiting[ticket] = addition
        self._partitions += len(addition.partitions)
        return refused

    def _overtaken(self, addition: PartitionAddition) -> list[AdditionRefusal] | None:
        """Who gives way to this addition; None: it is fenced itself."""
        known = self._by_id.get(addition.transactional_id)
        if known is None:
            return []
        waiting = self._waiting[next(iter(known.tickets))]  # the others are of the same producer and epoch
        if is_later(waiting, addition):
            return None
        if is_alike(waiting, addition):
            repeated = {known.owners[place]: None for place in addition.partitions if place in known.owners}
            return [AdditionRefusal(number, NETWORK_EXCEPTION) for number in repeated]
        code = ErrorCode.INVALID_PRODUCER_EPOCH if is_later(addition, waiting) else NETWORK_EXCEPTION
        return [AdditionRefusal(number, code) for number in known.tickets]

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for it any more. Nothing happens if it has been asked."""
        addition = self._waiting.pop(ticket, None)
        if addition is None:
            return
        self._partitions -= len(addition.partitions)
        known = self._by_id[addition.transactional_id]
        del known.tickets[ticket]
        for place in addition.partitions:
            known.owners.pop(place, None)
        if not known.tickets:
            del self._by_id[addition.transactional_id]

    def take_request(self) -> AdditionRequest:
        """What to ask now, the longest waiting first; it waits no longer."""
        taken: dict[Ticket, PartitionAddition] = {}
        by_id: dict[str, list[PartitionAddition]] = {}
        partitions = 0
        for ticket, addition in self._waiting.items():
            partitions += len(addition.partitions)
            full = len(by_id) >= self._max_transactions and addition.transactional_id not in by_id
            if taken and (full or partitions > self._max_partitions):
                break
            taken[ticket] = addition
            by_id.setdefault(addition.transactional_id, []).append(addition)
        for ticket in taken:
            self.withdraw(ticket)
        return AdditionRequest(tuple(map(merge_additions, by_id.values())), taken)


def is_later(one: PartitionAddition, other: PartitionAddition) -> bool:
    """Whether `one` is of a later epoch. Of two producer ids nobody but the coordinator knows which one is later."""
    return one.producer_id == other.producer_id and one.epoch > other.epoch


def is_alike(one: PartitionAddition, other: PartitionAddition) -> bool:
    """Whether two additions of a transactional id can be asked as one."""
    return (one.producer_id, one.epoch, one.verify_only) == (other.producer_id, other.epoch, other.verify_only)


def merge_additions(additions: Sequence[PartitionAddition]) -> PartitionAddition:
    """One for all: they go with each other."""
    first = additions[0]
    if len(additions) == 1:
        return first
    places = tuple(place for each in additions for place in each.partitions)
    return PartitionAddition(first.transactional_id, first.producer_id, first.epoch, places, first.verify_only)


# Markers
# -------


class SentMarker(Protocol):
    """Of a marker, what the queue has to know. Two that are equal are one.

    content: what goes into the log. Markers of one producer that have the same go together.
    """

    @property
    def producer_id(self) -> int: ...

    @property
    def content(self) -> Hashable: ...

    def __hash__(self) -> int: ...


Marker = TypeVar("Marker", bound=SentMarker)


@dataclass(slots=True)
class WaitingMarker(Generic[Marker]):
    """rest: partitions that no request had yet. codes: what became of the others, but for those under way."""

    marker: Marker
    rest: deque[TopicPartition]
    codes: dict[TopicPartition, int] = field(default_factory=dict)
    under_way: tuple[TopicPartition, ...] = ()


class MarkerRequest(NamedTuple, Generic[Marker]):
    """One request. No producer has markers of two contents in it, so an answer by producer id is enough."""

    markers: Mapping[Marker, tuple[TopicPartition, ...]]
    tickets: tuple[Ticket, ...]


class MarkerQueue(Generic[Marker]):
    """Markers that wait for the leaders on one node. A large transaction takes turns with the others (TX-N23)."""

    def __init__(
        self,
        *,
        max_markers: int = MAX_TRANSACTIONS,
        max_partitions: int = MAX_PARTITIONS,
        max_waiting: int = MAX_WAITING,
        max_share: int = MAX_SHARE,
    ) -> None:
        self._max_markers = max_markers
        self._max_partitions = max_partitions
        self._max_waiting = max_waiting
        self._max_share = max_share
        self._waiting: dict[Ticket, WaitingMarker[Marker]] = {}
        """Those whose partitions are under way as well; in the order of their turns."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ticket: Ticket, marker: Marker, partitions: Collection[TopicPartition]) -> bool:
        """Have the marker sent with the next requests; False: too much waits already, and nothing is taken in."""
        if self._partitions + len(partitions) > self._max_waiting:
            return False
        self._partitions += len(partitions)
        self._waiting[ticket] = WaitingMarker(marker, deque(partitions))
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for it any more. What is under way is not taken back."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None:
            self._partitions -= len(waiting.rest)

    def take_request(self) -> MarkerRequest[Marker]:
        """What to send now. Whoever has more than its share goes to the end of the queue with the rest."""
        markers: dict[Marker, list[TopicPartition]] = {}
        contents: dict[int, Hashable] = {}
        room, tickets = self._max_partitions, list[Ticket]()
        for ticket, waiting in self._waiting.items():
            if room <= 0 or len(markers) >= self._max_markers:
                break
            content = waiting.marker.content
            if contents.setdefault(waiting.marker.producer_id, content) != content:
                continue  # another one of the same producer goes first
            count = min(len(waiting.rest), self._max_share, room)
            waiting.under_way = tuple(waiting.rest.popleft() for _ in range(count))
            markers.setdefault(waiting.marker, []).extend(waiting.under_way)
            room -= count
            tickets.append(ticket)
        self._partitions -= self._max_partitions - room
        for ticket in tickets:
            self._waiting[ticket] = self._waiting.pop(ticket)
        return MarkerRequest({marker: tuple(places) for marker, places in markers.items()}, tuple(tickets))

    def take_answer(
        self, request: MarkerRequest[Marker], told: Mapping[int, Codes], missing: int
    ) -> list[tuple[Ticket, Codes]]:
        """Whoever knows now what became of all its partitions. told: by producer id; missing: the code of what is not
        in it."""
        done: list[tuple[Ticket, Codes]] = []
        for ticket in request.tickets:
            waiting = self._waiting.get(ticket)
            if waiting is None:
                continue
            codes = told.get(waiting.marker.producer_id, {})
            waiting.codes.update((place, codes.get(place, missing)) for place in waiting.under_way)
            waiting.under_way = ()
            if not waiting.rest:
                del self._waiting[ticket]
                done.append((ticket, waiting.codes))
        return done

    def take_some(self, code: int, most: int = MAX_TRANSACTIONS) -> list[tuple[Ticket, Codes]]:
        """Some of those that wait, of about so many partitions, and at least one: the node does not answer. What it has
        not answered has this code."""
        done: list[tuple[Ticket, Codes]] = []
        count = 0
        for ticket, waiting in self._waiting.items():
            left: Iterable[TopicPartition] = (*waiting.under_way, *waiting.rest)
            done.append((ticket, waiting.codes | dict.fromkeys(left, code)))
            count += len(done[-1][1])
            if count >= most:
                break
        for ticket, _ in done:
            self.withdraw(ticket)
        return done
