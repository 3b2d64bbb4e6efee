"""Plans the tasks of a read: ranges of offsets distributed to task slots, always in the same way.

`split` cuts the backlog into slots of equal length; `one-to-one` gives each partition its own task, as Spark's Kafka
source does; any registered assignor distributes whole partitions to slots as if slots were members.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.client.types import ConnectionConfig

# What a task needs besides its ranges
# ------------------------------------


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What a task needs to know beside its ranges; small, because it travels with every task."""

    connection: ConnectionConfig
    columns: tuple[str, ...]
    rows: int
    patience_ms: int
    max_bytes: int
    max_partition_bytes: int
    committed: bool
    fail_on_data_loss: bool


# Plans
# -----

SPLIT, ONE_TO_ONE = "split", "one-to-one"
PLANNING_WAYS = (SPLIT, ONE_TO_ONE)
REMEDY = f"mend it, or let another one deal: assignor={SPLIT} needs none"
LONGER = "give it longer by assignorDeadlineMs"


class OffsetRange(NamedTuple):
    """Records of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return self.end - self.start


Slots = list[list[OffsetRange]]
"""What each task reads, in order; no task is empty."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """How to deal. `split_ranges` fills exactly `tasks` slots if there are so many records, assignors at most so
    many.
    """

    assignor: str = SPLIT
    tasks: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    min_partitions: int | None = None
    max_records: int | None = None
    deadline_ms: int | None = None


class NotPlanned(ValueError):
    """An assignor that raised, hung, or answered what is no plan; the text names it."""


def check_assignor(word: str) -> None:
    """Raise AssignorError when `word` is no way to plan; it lists those there are."""
    if word not in PLANNING_WAYS:
        from muster.assignors.registry import resolve

        try:
            resolve(word)
        except ValueError as error:
            raise ValueError(f"assignor={word!r}: {error}; and for tasks: {', '.join(PLANNING_WAYS)}") from None


def plan_tasks(ranges: Sequence[OffsetRange], plan: TaskPlan) -> Slots:
    """Slots that together hold each record of `ranges` once; empty when there is none.

    >>> plan_tasks([OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 5, 15)], TaskPlan(tasks=2))
    [[OffsetRange(topic='t', partition=0, start=0, end=50)], [OffsetRange(topic='t', partition=0, start=50, end=90), \
OffsetRange(topic='t', partition=1, start=5, end=15)]]
    """
    pending = sorted(wanted for wanted in ranges if wanted.size > 0)
    if not pending:
        return []
    if plan.assignor == ONE_TO_ONE:
        return [[piece] for piece in spread_ranges(pending, plan.min_partitions, plan.max_records)]
    tasks = max(plan.tasks, plan.min_partitions or 1)
    if plan.assignor == SPLIT:
        total = sum(wanted.size for wanted in pending)
        if plan.max_records is not None:
            tasks = max(tasks, -(-total // plan.max_records))
        return split_ranges(pending, tasks)
    return [part for slot in assign_ranges_to_slots(pending, plan, tasks) for part in cut_slot(slot, plan.max_records)]


def split_ranges(pending: Sequence[OffsetRange], tasks: int) -> Slots:
    """Cut the ranges, laid end to end, into `tasks` pieces whose lengths differ by at most one record."""
    total = sum(wanted.size for wanted in pending)
    tasks = min(tasks, total)
    slots: Slots = [[] for _ in range(tasks)]
    slot, done = 0, 0
    for topic, partition, start, end in pending:
        while start < end:
            # The slot ends here, counted in records from the beginning of them all.
            border = total * (slot + 1) // tasks
            piece = min(end, start + border - done)
            slots[slot].append(OffsetRange(topic, partition, start, piece))
            done += piece - start
            start = piece
            slot += done == border
    return slots


def spread_ranges(
    pending: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """One piece per partition, or more where asked for: the algorithm of Spark's KafkaOffsetRangeCalculator."""
    if max_records is not None:
        pending = [piece for wanted in pending for piece in cut_into_pieces(wanted, -(-wanted.size // max_records))]
    if min_partitions is None or min_partitions <= len(pending):
        return list(pending)
    total = sum(wanted.size for wanted in pending)
    # Those that would get one piece anyway are set aside; the others share the pieces that are left.
    small = {wanted for wanted in pending if round_half_up(wanted.size * min_partitions, total) <= 1}
    shared = sum(wanted.size for wanted in pending if wanted not in small)
    parts = min_partitions - len(small)
    counts = {
        wanted: 1 if wanted in small else max(1, round_half_up(wanted.size * parts, shared)) for wanted in pending
    }
    return [piece for wanted in pending for piece in cut_into_pieces(wanted, counts[wanted])]


def round_half_up(numerator: int, denominator: int) -> int:
    """Half up, as Java's Math.round; in whole numbers, for offsets are larger than floats are exact."""
    return (2 * numerator + denominator) // (2 * denominator)


def cut_into_pieces(wanted: OffsetRange, count: int) -> list[OffsetRange]:
    """The range in `count` pieces by integer division, the last of which takes the rest; none is empty."""
    topic, partition, at, end = wanted
    found = []
    for left in range(count, 0, -1):
        size = (end - at) // left
        if size:
            found.append(OffsetRange(topic, partition, at, at + size))
            at += size
    return found


def assign_ranges_to_slots(pending: Sequence[OffsetRange], plan: TaskPlan, tasks: int) -> Slots:
    """Ask an assignor. Slots are its members, partitions with something pending its partitions, numbered from 0 on.

    Raises NotPlanned.
    """
    # Loaded by those who name one: every task and every plan comes by here.
    from muster.assignors.api import AssignorError, Member, Snapshot
    from muster.assignors.registry import resolve
    from muster.spark.assignor_deadline import DEADLINE_MS, run_in_time

    by_topic: dict[str, list[OffsetRange]] = {}
    for wanted in pending:
        by_topic.setdefault(wanted.topic, []).append(wanted)
    topics = tuple(by_topic)
    width = len(str(tasks - 1))
    slots = [f"slot-{number:0{width}}" for number in range(min(tasks, len(pending)))]
    snapshot = Snapshot(
        {topic: len(rows) for topic, rows in by_topic.items()},
        [Member(slot, topics) for slot in slots],
        lags={topic: [wanted.size for wanted in rows] for topic, rows in by_topic.items()},
        assignor=plan.assignor,
        options=plan.options,
    )
    try:
        shares = run_in_time(resolve(plan.assignor), snapshot, plan.deadline_ms or DEADLINE_MS, LONGER, withhold=False)
    except AssignorError as error:
        raise NotPlanned(f"no tasks could be planned, {error}; {REMEDY}") from error
    left = {by_topic[topic][number] for topic, number in shares.unassigned}
    found = [
        [by_topic[topic][number] for topic, numbers in sorted(shares.members[slot].items()) for number in numbers]
        for slot in slots
    ]
    # Limits of a group (max.partitions.per.member) may leave some without a slot; their records count all the same.
    return [slot for slot in [*found, *([wanted] for wanted in sorted(left))] if slot]


def cut_slot(slot: Sequence[OffsetRange], max_records: int | None) -> Slots:
    """A slot in as many as it needs so that none has more than `max_records`."""
    total = sum(wanted.size for wanted in slot)
    return [list(slot)] if max_records is None or total <= max_records else split_ranges(slot, -(-total // max_records))
