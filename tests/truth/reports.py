"""What is known of a group, and what is reported about it: by a Muster node, or read from another broker's records."""

import io
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console

from muster.cli.groups.rebalance_story import print_story
from muster.client import Admin
from muster.client.errors import ClientError, GroupNotFound
from muster.coordinator.core.model.records import GroupRecord, TopicId
from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.observability.views.incidents import explain_document
from muster.coordinator.observability.views.ledger import entry_document
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.server.services.group_responses import build_rebalance
from muster.coordinator.watch.segment_files import find_segments, read_segment
from muster.coordinator.watch.watched_partition import WatchedPartition
from tests.truth.kafka_itself import KafkaItself

Document = dict[str, Any]

WIDTH = 120
MOST = 500


class Described(NamedTuple):
    """ids: client ids by member id."""

    stable: bool
    ids: dict[str, str]


NOBODY = Described(False, {})


class Reports(Protocol):
    """Entries are oldest first. `since`: what `mark` returned, to ask for what is reported from then on."""

    def describe(self, group: str) -> Described: ...

    def mark(self, group: str) -> int: ...

    def recorded(self, group: str, since: int) -> list[Document]: ...

    def reported(self, group: str, since: int) -> tuple[list[Document], list[Document]]:
        """Entries and the incidents that they belong to, as `muster groups explain -o json` prints them."""

    def text(self, group: str, since: int) -> str:
        """As `muster groups explain --entries` prints it."""

    def close(self) -> None: ...


class NodeReports:
    """By a node. run: runs a command of `muster` and returns what it prints."""

    def __init__(self, admin: Admin, run: Callable[..., str]) -> None:
        self._admin, self._run = admin, run

    def describe(self, group: str) -> Described:
        try:
            found = self._admin.describe_group(group)
        except ClientError:
            return NOBODY
        return Described(found.state == "Stable", {each.member_id: each.client_id for each in found.members})

    def mark(self, group: str) -> int:
        return max((int(each["number"]) for each in self.recorded(group, 0)), default=0)

    def recorded(self, group: str, since: int) -> list[Document]:
        try:
            entries = self._admin.explain(group)
        except GroupNotFound:
            return []
        return [entry_document(each) for each in entries[::-1] if each.number > since]

    def reported(self, group: str, since: int) -> tuple[list[Document], list[Document]]:
        document = json.loads(self._run("groups", "explain", group, "-o", "json", "--limit", "500"))
        return since_mark(document, since)

    def text(self, group: str, since: int) -> str:
        return text_since_mark(self._run("groups", "explain", group, "--entries", "--limit", "500"), since)

    def close(self) -> None:
        self._admin.close()


class WatchedReports:
    """From the records of Kafka. names: of topics, by id. session_ms: of its KIP-848 groups."""

    def __init__(self, kafka: KafkaItself, names: Mapping[TopicId, str], session_ms: int) -> None:
        self._kafka, self._names, self._session_ms = kafka, names, session_ms

    def describe(self, group: str) -> Described:
        found = self._kafka.describe(group)
        if found is None:
            return NOBODY
        return Described(found.state == "Stable", {each.id: each.client_id for each in found.members})

    def mark(self, group: str) -> int:
        return int(time.time() * 1000)

    def recorded(self, group: str, since: int) -> list[Document]:
        return self._told(group).recorded(since)

    def reported(self, group: str, since: int) -> tuple[list[Document], list[Document]]:
        return self._told(group).reported(since)

    def text(self, group: str, since: int) -> str:
        return self._told(group).text(since)

    def _told(self, group: str) -> "ToldByRecords":
        read = read_folders(self._kafka.places, self._names, self._session_ms)
        return ToldByRecords(group, read.entries.get(group, ()))

    def close(self) -> None:
        return


# Reading records
# ---------------


class CollectedEntries:
    """A sink that keeps the entries of each group."""

    def __init__(self) -> None:
        self.entries: dict[str, list[RebalanceEntry]] = {}

    def take_fact(self, fact: GroupRecord) -> None:
        return

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self.entries.setdefault(group_id, []).append(entry)


def read_folders(places: Sequence[Path], names: Mapping[TopicId, str], session_ms: int | None) -> CollectedEntries:
    """Of brokers that keep the same partitions, the one that has most of each is read."""
    sink, known = CollectedEntries(), dict(names)
    fullest: dict[int, list[Any]] = {}
    for place in places:
        copies: dict[int, list[Any]] = {}
        for segment in find_segments((place,)):
            copies.setdefault(segment.partition, []).append(segment)
        for partition, copy in copies.items():
            if sum(each.size for each in copy) > sum(each.size for each in fullest.get(partition, ())):
                fullest[partition] = copy
    for copy in fullest.values():
        partition = WatchedPartition(sink, known, session_ms)
        for segment in copy:
            for _ in read_segment(segment, partition):
                pass
    return sink


class ToldByRecords:
    """What is reported of a group from its entries. `since_ms`: entries that ended later are told."""

    def __init__(self, group: str, entries: Iterable[RebalanceEntry]) -> None:
        self._entries = [build_rebalance(group, each, with_snapshot=True) for each in entries]

    def _number(self, since_ms: int) -> int:
        return max((each.number for each in self._entries if each.ended_at_ms <= since_ms), default=0)

    def recorded(self, since_ms: int) -> list[Document]:
        number = self._number(since_ms)
        return [entry_document(each) for each in self._entries if each.number > number]

    def reported(self, since_ms: int) -> tuple[list[Document], list[Document]]:
        return since_mark(explain_document(self._entries, MOST), self._number(since_ms))

    def text(self, since_ms: int) -> str:
        return text_since_mark(story_of(self._entries), self._number(since_ms))


def story_of(entries: Sequence[Rebalance]) -> str:
    out = io.StringIO()
    print_story(Console(file=out, width=WIDTH, highlight=False, markup=False, emoji=False), entries)
    return out.getvalue()


def since_mark(document: Document, since: int) -> tuple[list[Document], list[Document]]:
    entries = [each for each in document["rebalances"] if int(each["number"]) > since]
    numbers = {int(each["number"]) for each in entries}
    return entries, [each for each in document["incidents"] if numbers & set(each["entries"])]


def text_since_mark(told: str, since: int) -> str:
    """The text without the entries before the mark."""
    kept, keeps = [], True
    for line in told.splitlines():
        if begins := re.match(r"(?:Rebalance|Entry) (\d+)\b", line):
            keeps = int(begins[1]) > since
        if keeps:
            kept.append(line)
    return "\n".join(kept)
