"""Clients that go on fetching partitions which their group has taken from them (EX-F5).

A member that left, or whose session is over, should read nothing more. A fetch names its client id, host and
connection, but no member, so it is compared with the members that groups have lost within the last minute. Nothing is
looked at while there are none.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.events import FetchedAfterLeaving
from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.kafka.dispatch import ClientPeer, KafkaCall

WATCHED_MS = 60_000
"""For that long after a plan has taken them away, fetches of a member's partitions are noticed."""

FIRST_MS = 1_000
"""What is fetched sooner may have been sent before its client knew. Then it is reported after twice the time each."""

MAX_WATCHED = 1_000
"""Departed members that are watched at a time; the oldest give way."""

MAX_CONNECTIONS = 100
"""Connections by which a departed member's partitions are fetched, and that are told apart."""

ClientNames: TypeAlias = tuple[str, str]
"""Client id and host."""


@dataclass(slots=True)
class DepartedReader:
    """A member that a group has lost, and what it had. `due_ms`: connection -> when its next fetch is reported."""

    group_id: str
    number: int
    member_id: str
    names: ClientNames
    partitions: frozenset[tuple[str, int]]
    lost_ms: int
    due_ms: dict[int, int] = field(default_factory=dict)


class DepartedReaders:
    """Of one node. `now_ms` is the clock that entries are written by; `report` takes what is found to the group.

    `all_members_here`: members of all groups that read this node's log join here. In a cluster they do not, and a
    client may go by the names of one that nobody here knows: there, connections alone count.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        report: Callable[[FetchedAfterLeaving], None],
        *,
        all_members_here: bool = True,
    ) -> None:
        self._now_ms = now_ms
        self._report = report
        self._all_members_here = all_members_here
        self._groups: dict[ClientNames, Counter[str]] = {}
        """By which names members of which groups have joined, by connections that are open."""
        self._watched: dict[tuple[str, str], DepartedReader] = {}
        """By group and member id, oldest first."""
        self.by_names: dict[ClientNames, list[DepartedReader]] = {}
        """Empty: no fetch need be looked at."""

    def note_joined(self, group_id: str, call: KafkaCall) -> None:
        """A member joins by this connection, until that closes."""
        names = call.client_id, call.peer.host
        self._groups.setdefault(names, Counter())[group_id] += 1
        call.peer.eof.add_done_callback(lambda _: self._forget_joined(names, group_id))

    def _forget_joined(self, names: ClientNames, group_id: str) -> None:
        groups = self._groups[names]
        groups[group_id] -= 1
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self._groups[names]

    def noticed(self, notice: GroupChanged) -> None:
        """A rebalance was decided: watch the members that it took partitions from because they went."""
        entry = notice.entry
        if entry is None or not entry.moves or self._now_ms() - entry.ended_at_ms >= WATCHED_MS:
            return
        for reader in departed_readers(notice.group_id, entry):
            key = reader.group_id, reader.member_id
            known = self._watched.get(key)
            if known is not None and known.number >= reader.number:
                continue
            self._forget(key)
            self._watched[key] = reader
            self.by_names.setdefault(reader.names, []).append(reader)
        while len(self._watched) > MAX_WATCHED:
            self._forget(next(iter(self._watched)))

    def _forget(self, key: tuple[str, str]) -> None:
        reader = self._watched.pop(key, None)
        if reader is None:
            return
        alike = self.by_names[reader.names]
        alike.remove(reader)
        if not alike:
            del self.by_names[reader.names]

    def fetched(self, request: Any, call: KafkaCall) -> None:
        """A FetchRequest has come, while `by_names` is not empty."""
        now_ms = self._now_ms()
        while self._watched and now_ms - next(iter(self._watched.values())).lost_ms >= WATCHED_MS:
            self._forget(next(iter(self._watched)))
        for reader in self.by_names.get((call.client_id, call.peer.host), ()):
            due_ms = reader.due_ms.get(call.peer.number, reader.lost_ms + FIRST_MS)
            if now_ms < due_ms or not self.may_be(reader, call.peer):
                continue
            found = tuple(each for each in fetched_partitions(request) if each in reader.partitions)
            if found and (call.peer.number in reader.due_ms or len(reader.due_ms) < MAX_CONNECTIONS):
                reader.due_ms[call.peer.number] = reader.lost_ms + 2 * (now_ms - reader.lost_ms)
                number = call.peer.number
                self._report(FetchedAfterLeaving(reader.group_id, reader.number, reader.member_id, number, found))

    def may_be(self, reader: DepartedReader, peer: ClientPeer) -> bool:
        """Whether a fetch by this connection may be the member's: nobody of another group goes by its names."""
        if peer.groups:
            return reader.group_id in peer.groups
        return self._all_members_here and not self._groups.get(reader.names, Counter()).keys() - {reader.group_id}


def departed_readers(group_id: str, entry: RebalanceEntry) -> Iterator[DepartedReader]:
    """The members that set this rebalance off by going, or went meanwhile, as far as they lost partitions by it."""
    here = {member.member_id for member in entry.members} | {back.previous_id for back in entry.incarnations}
    went = {entry.culprit: (entry.culprit_client_id, entry.culprit_client_host)}
    went |= {each.culprit: (each.culprit_client_id, each.culprit_client_host) for each in entry.triggers}
    lost: dict[str, set[tuple[str, int]]] = {}
    for move in entry.moves:
        if move.source in went and move.source not in here:
            lost.setdefault(move.source, set()).add((move.topic, move.partition))
    for member_id, partitions in lost.items():
        yield DepartedReader(
            group_id, entry.number, member_id, went[member_id], frozenset(partitions), entry.ended_at_ms
        )


def fetched_partitions(request: Any) -> Iterator[tuple[str, int]]:
    for topic in request.topics:
        for part in topic.partitions:
            yield topic.topic, part.partition
