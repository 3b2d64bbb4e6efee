"""Histories of transactions that append to partitions and read them, and what must hold of every one of them.

A history is what the clients believe; the log, as a reader of committed records sees it in the end, is what happened.
The rules are those that Elle checks on lists (Kingsbury and Alvaro, 2020), as far as Kafka's model has them: a
transaction's writes may be mixed with another's, and two partitions may show two transactions in different order.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, groupby, pairwise
from pathlib import Path
from typing import TypeAlias

Name: TypeAlias = str
"""Of one transaction: `worker.life.number`."""

Partition: TypeAlias = int
Offset: TypeAlias = int


class End(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """As its client tells it. appends: partition and value, in the order in which they were sent."""

    name: Name
    appends: list[tuple[Partition, str]] = field(default_factory=list)
    reads: list[tuple[Partition, Offset, str]] = field(default_factory=list)
    end: End = End.UNKNOWN
    position: int = -1
    """What it commits for its worker's group."""

    @property
    def worker(self) -> str:
        return self.name.split(".")[0]

    @property
    def life(self) -> str:
        return self.name.rpartition(".")[0]


Log: TypeAlias = Mapping[Partition, Mapping[Offset, str]]
"""What a reader of committed records is shown in the end: value by offset, of each partition."""


def value_of(name: Name, index: int, amount: int) -> str:
    """The record number `index` of the transaction. Amounts of one transaction add up to nothing."""
    return f"{name}:{index}:{amount}"


def name_in(value: str) -> Name:
    return value.split(":")[0]


def amount_in(value: str) -> int:
    return int(value.split(":")[2])


def read_history(paths: Iterable[Path]) -> dict[Name, Transaction]:
    """Lines that workers wrote, by transaction. A line that a kill has cut short is the last of its file."""
    told: dict[Name, Transaction] = {}
    for path in paths:
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            row = json.loads(line)
            one = told.setdefault(row["txn"], Transaction(row["txn"]))
            one.appends += [(partition, value) for partition, value in row.get("appends", ())]
            one.reads += [(partition, offset, value) for partition, offset, value in row.get("reads", ())]
            one.position = row.get("position", one.position)
            one.end = End(row.get("end", one.end.value))
    return told


def find_anomalies(history: Mapping[Name, Transaction], log: Log, positions: Mapping[str, int]) -> list[str]:
    """Sentences on everything that may not be. positions: the position in the end of each worker's group."""
    return [
        *doubled(log),
        *aborted_but_shown(history, log),
        *lost_or_torn(history, log),
        *shown_otherwise(history, log),
        *skipped(history, log),
        *out_of_order(history, log),
        *circular(history),
        *unbalanced(log),
        *fenced_late(history, log),
        *positions_apart(history, log, positions),
    ]


def places_of(log: Log) -> dict[str, list[tuple[Partition, Offset]]]:
    places: dict[str, list[tuple[Partition, Offset]]] = defaultdict(list)
    for partition, shown in log.items():
        for offset, value in shown.items():
            places[value].append((partition, offset))
    return places


def doubled(log: Log) -> Iterator[str]:
    for value, places in places_of(log).items():
        if len(places) > 1:
            yield f"duplicate: {value} stands at {places}"


def aborted_but_shown(history: Mapping[Name, Transaction], log: Log) -> Iterator[str]:
    for partition, shown in log.items():
        for offset, value in shown.items():
            one = history.get(name_in(value))
            if one is None:
                yield f"invented: nobody told of {value} at {partition}/{offset}"
            elif one.end is End.ABORTED:
                yield f"aborted read: {value} at {partition}/{offset} was aborted"


def lost_or_torn(history: Mapping[Name, Transaction], log: Log) -> Iterator[str]:
    places = places_of(log)
    for one in history.values():
        there = [value in places for _, value in one.appends]
        if one.end is End.COMMITTED and not all(there):
            yield f"lost: {one.name} committed, and {there.count(False)} of its {len(there)} records are missing"
        elif any(there) and not all(there):
            yield f"torn: {there.count(True)} of {len(there)} records of {one.name} are there ({one.end.value})"
        for partition, value in one.appends:
            if any(where != partition for where, _ in places.get(value, ())):
                yield f"misplaced: {value} was sent to {partition} and stands at {places[value]}"


def shown_otherwise(history: Mapping[Name, Transaction], log: Log) -> Iterator[str]:
    for one in history.values():
        for partition, offset, value in one.reads:
            if (found := log.get(partition, {}).get(offset)) != value:
                what = f"{found} is" if found else "nothing is"
                yield f"aborted or changed read: {one.name} was shown {value} at {partition}/{offset}, where {what}"


def skipped(history: Mapping[Name, Transaction], log: Log) -> Iterator[str]:
    """What one reader got of a partition in one life has no gaps: what was shown below an offset never changes."""
    read: dict[tuple[str, Partition], list[Offset]] = defaultdict(list)
    for one in sorted(history.values(), key=lambda each: int(each.name.rpartition(".")[2])):
        for partition, offset, _ in one.reads:
            read[one.life, partition].append(offset)
    ordered = {partition: {offset: n for n, offset in enumerate(sorted(shown))} for partition, shown in log.items()}
    for (life, partition), offsets in read.items():
        numbers = ordered.get(partition, {})
        for before, after in pairwise(offsets):
            if before in numbers and after in numbers and numbers[after] != numbers[before] + 1:
                yield f"skipped or went back: {life} read {partition}/{after} right after {partition}/{before}"


def out_of_order(history: Mapping[Name, Transaction], log: Log) -> Iterator[str]:
    """Records of one life stand in the order in which they were sent: nothing of a transaction is in a later one."""
    sent: dict[tuple[str, Partition], list[str]] = defaultdict(list)
    for one in sorted(history.values(), key=lambda each: int(each.name.rpartition(".")[2])):
        for partition, value in one.appends:
            sent[one.life, partition].append(value)
    where = {value: offset for shown in log.values() for offset, value in shown.items()}
    for (life, partition), values in sent.items():
        there = [(where[value], value) for value in values if value in where]
        for (before, first), (after, second) in pairwise(there):
            if after < before:
                yield f"late data: {life} sent {first} before {second}; {partition} has them the other way round"


def circular(history: Mapping[Name, Transaction]) -> Iterator[str]:
    """Transactions that have read of each other in a circle: each would have had to commit before the other."""
    after: dict[Name, set[Name]] = defaultdict(set)
    for one in history.values():
        if one.end is End.COMMITTED:
            for _, _, value in one.reads:
                after[name_in(value)].add(one.name)
    waits = dict.fromkeys(after, 0) | {name: 0 for names in after.values() for name in names}
    for names in after.values():
        for name in names:
            waits[name] += 1
    free = [name for name, count in waits.items() if not count]
    while free:
        for name in after.get(free.pop(), ()):
            waits[name] -= 1
            if not waits[name]:
                free.append(name)
    if held := sorted(name for name, count in waits.items() if count):
        yield f"circular information flow among {held[:6]}"


def unbalanced(log: Log) -> Iterator[str]:
    if total := sum(amount_in(value) for shown in log.values() for value in shown.values()):
        yield f"the bank is off by {total}: a transfer has happened in one half"


def lives_in_order(worker: str, log: Log) -> list[list[Name]]:
    """For each partition, the worker's lives that have records there, as often as the log goes from one to another."""
    orders = []
    for shown in log.values():
        lives = [name_in(shown[offset]).rpartition(".")[0] for offset in sorted(shown)]
        orders.append([life for life, _ in groupby(each for each in lives if each.startswith(f"{worker}."))])
    return orders


def fenced_late(history: Mapping[Name, Transaction], log: Log) -> Iterator[str]:
    """Lives of one worker do not alternate: once an instance has the transactional id, no earlier one commits."""
    for worker in {one.worker for one in history.values()}:
        orders = lives_in_order(worker, log)
        pairs = {pair for order in orders for pair in combinations(order, 2)}
        for one, other in sorted(pairs):
            if (other, one) in pairs and one <= other:
                yield f"fenced late: {other} has records before those of {one}, and behind them"


def positions_apart(history: Mapping[Name, Transaction], log: Log, positions: Mapping[str, int]) -> Iterator[str]:
    """A group's position is that of its worker's newest transaction whose records are there.

    The newest life is the one that the log has last, not the one that began last: an instance that was frozen before
    it took the transactional id takes it from a later one. Lives that share no partition may be in either order.
    """
    places = places_of(log)
    newest: dict[str, dict[Name, int]] = defaultdict(dict)
    for one in history.values():
        if one.position >= 0 and any(value in places for _, value in one.appends):
            newest[one.worker][one.life] = max(newest[one.worker].get(one.life, 0), one.position)
    for worker, position in positions.items():
        earlier = {before for order in lives_in_order(worker, log) for before, _ in combinations(order, 2)}
        last = {at for life, at in newest[worker].items() if life not in earlier} or {0}
        if position not in last:
            yield f"positions apart: {worker}'s group is at {position}, its records at {sorted(last)}"
