"""Replay: the log's records of one shard, applied in order, give back the hard state that was live.

Positions of topics that no longer exist are dropped; the report names those topics.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from typing import Protocol, TypeVar

from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.model.ledger import SharedEntries
from muster.coordinator.core.model.records import (
    BalanceForgotten,
    CanaryForgotten,
    CentralDeleted,
    CentralStored,
    ConsumerRecord,
    DelayForgotten,
    DelayStored,
    FenceForgotten,
    GroupDeleted,
    HoldsEnded,
    LossMended,
    NumbersPassed,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    OfOperators,
    OwnRecord,
    RebalanceForgotten,
    Record,
    SettingsUnset,
    ShadowsForgotten,
    StallForgotten,
    TakeoverForgotten,
    TxnMarked,
    TxnOffsetsStored,
)
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.requests.committed_offsets import is_orphaned
from muster.coordinator.runtime.kafka_records import PlainOffsets, decode_group
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import (
    GroupLog,
    KeyValue,
    LogDamage,
    LogFailed,
    Read,
    TxnBatchRead,
    TxnMarkerFound,
    TxnProducer,
)
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord

GROUPS_TOPIC = "__consumer_offsets"
LEDGER_TOPIC = "__rebalances"

SLICE = 1_000
"""Records between two looks whether the shard is still wanted."""

MAX_COMPLAINTS = 20
"""Malformed records named one by one in a report; the rest are counted."""


ReplayItem = TypeVar("ReplayItem")

OWN_TOMBSTONES = DelayForgotten | CentralDeleted | SettingsUnset | HoldsEnded | CanaryForgotten | BalanceForgotten
TOMBSTONES = GroupDeleted | OffsetDeleted | OWN_TOMBSTONES | FenceForgotten
FORGOTTEN = RebalanceForgotten | ShadowsForgotten | StallForgotten | TakeoverForgotten
KEPT_ELSEWHERE = CentralStored | CentralDeleted | DelayStored | DelayForgotten
"""Facts of our own that older versions kept in the ledger."""


class Replayable(Protocol):
    def apply(self, record: Record) -> None:
        """Take in one fact. Tombstones of unknown things and repeated facts are normal: compaction reorders."""


@dataclass(slots=True)
class LoadReport:
    """What a replay met: facts applied, by topic, and what else there was.

    `superseded` counts records that a later one of the same key replaces, `skipped` those of kinds that this node does
    not keep.
    """

    groups: int = 0
    ledger: int = 0
    tombstones: int = 0
    superseded: int = 0
    malformed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    moved: list[Record] = field(default_factory=list)
    """Hard facts that an older version kept in the ledger: to be written where they belong now. And how far numbers of
    rebalances may have come that nobody can read any more."""
    damaged: list[ConsumerRecord | OfOperators] = field(default_factory=list)
    """A tombstone for each record of a KIP-848 group, of who plans for a group, or of what is held of it, that says
    nothing."""
    lost_until: int = 0
    """Where the last group records end that were given up and not mended yet; 0: there are none."""
    unread_until: int = 0
    """Where the last part of the ledger ends that cannot be read."""
    committed_to: Mapping[tuple[str, bytes], int] = field(default_factory=dict)
    """How many positions there were of each topic, by name and id."""
    orphans: str = ""
    """What is told of positions that were dropped, for their topic is another now."""
    complaints: list[str] = field(default_factory=list)
    """One sentence for each of the first MAX_COMPLAINTS malformed records: topic, partition, offset, reason."""

    @property
    def records(self) -> int:
        """All records read, whatever became of them."""
        return self.groups + self.ledger + self.superseded + self.malformed + self.skipped.total()

    def summary(self) -> str:
        text = f"replayed {self.groups} group records and {self.ledger} ledger records"
        if self.skipped:
            kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(self.skipped.items()))
            text += f"; skipped {kinds}"
        if self.malformed:
            text += f"; {self.malformed} malformed: " + "; ".join(self.complaints)
        return text


def replay_shard(
    log: GroupLog,
    shard: int,
    core: Replayable,
    report: LoadReport | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> LoadReport:
    """Apply the shard's facts to `core`, groups first; `report` is filled on the way. Raises LogFailed when the log
    cannot be read, and soon after nobody wants the shard any more (`given_up`).

    Of each key only the newest record is decoded, as if the log had been compacted: a load takes time by what there
    is, not by how often it changed. A malformed record is reported and passed over: one damaged value must not take a
    shard's other groups away. So are parts of the ledger that cannot be read at all: it explains, and decides nothing.
    """
    report = LoadReport() if report is None else report
    own: set[tuple[bool, str]] = set()
    place = f"{GROUPS_TOPIC}-{shard}"
    losses, mended = list[LogDamage](), 0
    wanted = newest_resolved(
        remaining_records(slices_while_wanted(log.read_groups(shard), place, given_up), losses), report
    )
    for record in group_offsets(slices_while_wanted(wanted, place, given_up), place, report):
        if isinstance(record, KEPT_ELSEWHERE):
            own.add(place_kept_elsewhere(record))
        if isinstance(record, LossMended):
            mended = record.until
        core.apply(record)
        report.tombstones += isinstance(record, TOMBSTONES)
    for loss in losses:
        if loss.next_offset > mended:
            report.lost_until = loss.next_offset
            add_complaint(report, f"{place} offset {loss.offset}: {loss.sentence}; groups may be as they were before")
    place, passed, shared = f"{LEDGER_TOPIC}-{shard}", 0, SharedEntries()
    explained = newest_of_each_key(
        slices_while_wanted(readable_records(log.read_ledger(shard), place, report), place, given_up), report
    )
    for record in decode_records(slices_while_wanted(explained, place, given_up), decode_ledger, place, report):
        if isinstance(record, OwnRecord):
            if place_kept_elsewhere(record) in own:
                continue  # it has been moved, or was written anew since
            if isinstance(record, CentralStored | DelayStored):
                report.moved.append(record)
        core.apply(shared.share_decided(record))
        report.ledger += 1
        report.tombstones += isinstance(record, FORGOTTEN)
        if isinstance(record, NumbersPassed):
            passed = record.number
    if report.unread_until > passed:
        # Each entry takes an offset at least, so no group's numbers are ahead of them.
        report.moved.append(NumbersPassed(report.unread_until))
        core.apply(report.moved[-1])
    return report


def place_kept_elsewhere(record: OwnRecord) -> tuple[bool, str]:
    """Of which kind a fact of our own is that older versions kept elsewhere, and of which group."""
    return isinstance(record, CentralStored | CentralDeleted), record.group_id


def readable_records(stored: Iterator[KeyValue | LogDamage], place: str, report: LoadReport) -> Iterator[KeyValue]:
    """What can be read; what cannot is reported and passed over."""
    try:
        for item in stored:
            if isinstance(item, LogDamage):
                add_complaint(
                    report, f"{place} offset {item.offset}: {item.sentence}; explanations there are passed over"
                )
                report.unread_until = max(report.unread_until, item.next_offset)
            else:
                yield item
    except LogFailed as error:
        add_complaint(report, f"{error}; the rest of the explanations is passed over")


def remaining_records(stored: Iterable[Read | LogDamage], losses: list[LogDamage]) -> Iterator[Read]:
    """What is there; `losses` takes what was given up."""
    for item in stored:
        if isinstance(item, LogDamage):
            losses.append(item)
        else:
            yield item


def add_complaint(report: LoadReport, sentence: str) -> None:
    report.malformed += 1
    if len(report.complaints) < MAX_COMPLAINTS:
        report.complaints.append(sentence)


def slices_while_wanted(items: Iterable[ReplayItem], place: str, given_up: Callable[[], bool]) -> Iterator[ReplayItem]:
    """The items, a slice at a time, as long as somebody wants them."""
    each = iter(items)
    while some := list(islice(each, SLICE)):
        if given_up():
            raise LogFailed(f"{place}: nobody wants the shard any more")
        yield from some


def group_offsets(stored: Iterable[Read], place: str, report: LoadReport) -> Iterator[Record]:
    """The facts in their order; positions of one group that follow each other are one fact, as they were when kept."""
    plain = PlainOffsets()
    group, offsets = "", dict[tuple[str, int], StoredOffset]()
    for item in stored:
        found = None
        try:
            if type(item) is KeyValue:
                found = plain.read(item)
        except MalformedRecord:
            pass  # Said by the long way.
        if found is not None and found[0] == group:
            offsets[found[1], found[2]] = found[3]
            report.groups += 1
            continue
        if offsets:
            yield OffsetsStored(group, offsets)
        if found is not None:
            group, offsets = found[0], {(found[1], found[2]): found[3]}
            report.groups += 1
            continue
        group, offsets = "", {}
        if isinstance(item, KeyValue):
            for record in decode_records([item], decode_group, place, report):
                report.groups += 1
                yield record
        elif isinstance(item, TxnBatchRead):
            yield from pending_facts(item, place, report)
        else:
            yield TxnMarked(*item.producer, item.commit)
    if offsets:
        yield OffsetsStored(group, offsets)


def pending_facts(batch: TxnBatchRead, place: str, report: LoadReport) -> Iterator[TxnOffsetsStored]:
    """What a producer's transaction has in the log: positions, and nothing else counts."""
    for record in group_offsets(batch.records, place, report):
        if isinstance(record, OffsetStored):
            record = OffsetsStored(record.group_id, {(record.topic, record.partition): record.value})
        if isinstance(record, OffsetsStored):
            yield TxnOffsetsStored(*batch.producer, record.group_id, record.offsets)
        else:
            add_complaint(
                report,
                f"{place} up to offset {batch.offset}: the transaction of producer {batch.producer.id} holds a "
                f"{type(record).__name__}; expected positions alone; the record is passed over",
            )


def decode_records(
    stored: Iterable[KeyValue],
    decode: Callable[[KeyValue], Record | SkippedRecord],
    place: str,
    report: LoadReport,
) -> Iterator[Record]:
    for item in stored:
        try:
            record = decode(item)
        except MalformedRecord as error:
            add_complaint(report, f"{place} offset {item.offset}: {error}; the record is passed over")
            if decode is decode_ledger:
                report.unread_until = max(report.unread_until, item.offset + 1)
            elif tombstone := tombstone_of_unreadable(item):
                report.damaged.append(tombstone)
            continue
        if isinstance(record, SkippedRecord):
            report.skipped[f"{place.rsplit('-', 1)[0]} {record.kind}"] += 1
        else:
            yield record


def tombstone_of_unreadable(item: KeyValue) -> ConsumerRecord | OfOperators | None:
    """The tombstone of a record that others of its group do not fit without: one of the several that make a KIP-848
    group, what is set of who plans, or what is held. None for any other, or an unknown key."""
    try:
        tombstone = decode_group(item._replace(value=None))
    except MalformedRecord:
        return None
    return tombstone if isinstance(tombstone, ConsumerRecord | OfOperators) else None


def newest_of_each_key(stored: Iterable[KeyValue], report: LoadReport) -> Iterable[KeyValue]:
    """The last record of each key, in the order in which they stand in the log."""
    latest: dict[bytes, KeyValue] = {}
    for item in stored:
        report.superseded += latest.pop(item.key, None) is not None
        latest[item.key] = item
    return latest.values()


def newest_resolved(stored: Iterable[Read], report: LoadReport) -> Iterable[Read]:
    """The same of a log with transactions. What they wrote counts at its own place if their marker commits it, and has
    never been there if the marker aborts it (TX-G9). Behind all that come the batches that still wait for a marker, as
    far as nothing was written over them.
    """
    latest: dict[bytes, KeyValue] = {}
    waiting: dict[TxnProducer, dict[bytes, KeyValue]] = {}
    inserted = False
    for item in stored:
        if type(item) is KeyValue:
            report.superseded += latest.pop(item.key, None) is not None
            latest[item.key] = item
        elif isinstance(item, TxnBatchRead):
            of = waiting.setdefault(item.producer, {})
            report.superseded += sum(of.pop(record.key, None) is not None for record in item.records)
            of |= {record.key: record for record in item.records}
        elif isinstance(item, TxnMarkerFound):
            for producer in [each for each in waiting if each.id == item.producer.id]:
                ended = waiting.pop(producer)
                report.superseded += place_committed(ended.values(), latest) if item.commit else len(ended)
                inserted = inserted or item.commit
    plain = sorted(latest.values(), key=OFFSET) if inserted else latest.values()
    return chain(plain, batches_waiting(waiting, latest)) if waiting else plain


OFFSET = attrgetter("offset")


def place_committed(ended: Iterable[KeyValue], latest: dict[bytes, KeyValue]) -> int:
    """Each in place of an earlier record of its key. How many records are superseded thereby: these, or the others."""
    superseded = 0
    for record in ended:
        other = latest.get(record.key)
        superseded += other is not None
        if other is None or other.offset < record.offset:
            latest[record.key] = record
    return superseded


def batches_waiting(
    waiting: Mapping[TxnProducer, Mapping[bytes, KeyValue]], latest: Mapping[bytes, KeyValue]
) -> Iterator[TxnBatchRead]:
    """What still waits, in the order of the log."""
    left = sorted(
        (record.offset, producer, record)
        for producer, records in waiting.items()
        for key, record in records.items()
        if key not in latest or latest[key].offset < record.offset
    )
    for producer, some in groupby(left, key=itemgetter(1)):
        yield TxnBatchRead(producer, tuple(record for _, _, record in some))


# Orphaned positions
# ------------------

ORPHANS_NAMED = 5
"""Topics that are named of those whose positions a load has dropped."""


def recreated_topics(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> tuple[str, ...]:
    """Topics with another id than they had: deleted and created between two looks at the catalog.

    >>> recreated_topics({"t": b"1", "u": b"2"}, {"t": b"3", "v": b"4"})
    ('t',)
    """
    return tuple(topic for topic, topic_id in before.items() if now.get(topic, topic_id) != topic_id)


def describe_dropped_orphans(committed_to: Mapping[tuple[str, bytes], int], topics: TopicsChanged | None) -> str:
    """What is told of the positions that a load drops; empty when there are none, or nobody has told of the topics."""
    if topics is None:
        return ""
    dropped = Counter[str]()
    for (topic, topic_id), count in committed_to.items():
        if is_orphaned(topic, topic_id, topics.partitions, topics.ids):
            dropped[topic] += count
    if not dropped:
        return ""
    named = ", ".join(f"{topic} ({count})" for topic, count in dropped.most_common(ORPHANS_NAMED))
    more = f" and of {len(dropped) - ORPHANS_NAMED} more" if len(dropped) > ORPHANS_NAMED else ""
    return f"positions were dropped, whose topics are gone or were made anew since they were committed: {named}{more}"
