"""Checks a whole data directory, and removes what cannot be read.

`verify_dir` says what is wrong. It reads only, and needs no lock. `recover_dir` is the last resort, so it says
beforehand what it costs. Records behind damage are kept where an intact batch follows: the bytes between are taken
out, and an empty batch that says so (`BatchView.lost`) keeps their offsets. Where no intact batch follows, the log
ends there.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from muster.storage.errors import DataDirectoryError
from muster.storage.files import File, Files, LockHeld, RealFiles, read_checkpoint, write_offsets
from muster.storage.logs.loader import list_segment_bases
from muster.storage.logs.log_metadata import load_summaries, save_summaries
from muster.storage.logs.segment import CLEANED, commit_cleaned, finish_swap, retire_files, segment_path
from muster.storage.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT, lost_records
from muster.storage.records.scan import BatchFault, BatchHead, Order, find_head_fault, walk_checked
from muster.storage.topics.catalog import load_catalog
from muster.storage.topics.data_dir import (
    CLEAN_SHUTDOWN,
    CLEANER_POINTS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    PRIVATE_POINTS,
    RECOVERY_POINTS,
    count_as_another,
)
from muster.storage.topics.maintenance import merge_furthest
from muster.storage.types import TopicPartition

# `muster log verify`
# -------------------

# (bytes done, bytes in all, file at work)
Progress = Callable[[int, int, str], None]

_CHECKPOINTS = (RECOVERY_POINTS, PRIVATE_POINTS, LOG_STARTS, CLEANER_POINTS, HIGH_WATERMARKS)
_REPORT_EVERY = 8 << 20


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """Something wrong: where, which bytes, from which offset on, and why."""

    file: str
    position: int
    size: int
    first_offset: int
    why: str


@dataclass(slots=True)
class VerifyReport:
    """What was walked and what was found."""

    files: int = 0
    batches: int = 0
    bytes: int = 0
    findings: list[VerifyFinding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings


def verify_dir(data_dir: str, progress: Progress | None = None, files: Files | None = None) -> VerifyReport:
    """Check the catalog, the checkpoints and every batch of every partition.

    DataDirectoryError when `data_dir` is no data directory. A running node may be appending meanwhile: then the last
    batch of an active segment can be reported as cut off.
    """
    disk: Files = files or RealFiles()
    report = VerifyReport()
    catalog = load_catalog(disk, data_dir)
    for name in _CHECKPOINTS:
        try:
            read_checkpoint(disk, f"{data_dir}/{name}")
        except DataDirectoryError as error:
            report.findings.append(VerifyFinding(f"{data_dir}/{name}", 0, 0, -1, str(error)))
    directories = [
        (f"{data_dir}/{entry.name}-{number}", entry.compacted, entry.holed)
        for entry in catalog.values()
        for number in entry.topic().here
        if not entry.deleting
    ]
    walk = _DirectoryWalk(disk, report, progress, sum(_size(disk, directory) for directory, *_ in directories))
    for directory, compacted, holed in directories:
        if disk.is_dir(directory):
            walk.partition(directory, compacted, holed)
        else:
            report.findings.append(VerifyFinding(directory, 0, 0, -1, "the partition's directory is gone"))
    return report


def _logs(files: Files, directory: str) -> Iterator[tuple[int, str]]:
    for base in list_segment_bases(files, directory):
        yield base, segment_path(directory, base, ".log")


def _size(files: Files, directory: str) -> int:
    if not files.is_dir(directory):
        return 0
    total = 0
    for _, path in _logs(files, directory):
        file = files.open(path, writable=False)
        total += file.size()
        file.close()
    return total


class _DirectoryWalk:
    def __init__(self, files: Files, report: VerifyReport, progress: Progress | None, total: int) -> None:
        self._files = files
        self._report = report
        self._progress = progress
        self._total = total

    def partition(self, directory: str, compacted: bool, holed: bool) -> None:
        expected = None
        logs = list(_logs(self._files, directory))
        for place, (base, path) in enumerate(logs):
            if expected is not None and base != expected and (not compacted or base < expected):
                why = f"its records begin at offset {base}, expected {expected}"
                self._report.findings.append(VerifyFinding(path, 0, 0, expected, why))
            gaps = holed or (compacted and place < len(logs) - 1)
            expected = self._segment(path, base, gaps)

    def _segment(self, path: str, base: int, gaps: bool) -> int:
        report = self._report
        file = self._files.open(path, writable=False)
        size = file.size()
        order = Order(base, base, gaps)
        before = report.bytes
        told = 0
        try:
            for head in walk_checked(file, 0, size, order):
                report.batches += 1
                if head.end - told >= _REPORT_EVERY:
                    told = head.end
                    self._report_progress(before + told, path)
        except BatchFault as fault:
            finding = VerifyFinding(path, fault.position, size - fault.position, order.next_offset, fault.why)
            report.findings.append(finding)
        finally:
            file.close()
        report.files += 1
        report.bytes = before + size
        self._report_progress(report.bytes, path)
        return order.next_offset

    def _report_progress(self, done: int, path: str) -> None:
        if self._progress:
            self._progress(done, self._total, path)


# Which parts make no sense
# -------------------------

_CHUNK = 1 << 20


class UnreadableGap(NamedTuple):
    """`size` bytes from `position` on that are no batches. Those before it end at `first_offset` (exclusive)."""

    position: int
    size: int
    first_offset: int
    next_offset: int | None
    """Where intact batches go on, in this file or the next; None: nowhere."""
    leader_epoch: int
    """One that a batch in this place may have."""
    why: str


def find_gaps(file: File, order: Order, ends_at: int | None) -> Iterator[UnreadableGap]:
    """The parts of a segment's file that cannot be read; `order` follows, to the file's end.

    `ends_at` is the offset at which the next segment begins, if there is one.
    """
    position, size = 0, file.size()
    while position < size:
        try:
            for head in walk_checked(file, position, size, order):
                position = head.end
        except BatchFault as fault:
            found = find_intact_after(file, fault.position, order, ends_at)
            first_offset, goes_on = order.next_offset, found.base_offset if found else ends_at
            epoch = found.leader_epoch if found and order.leader_epoch < 0 else max(order.leader_epoch, 0)
            position = found.position if found else size
            yield UnreadableGap(fault.position, position - fault.position, first_offset, goes_on, epoch, fault.why)
            if goes_on is not None:
                order.next_offset = goes_on


def find_intact_after(file: File, position: int, order: Order, ends_at: int | None) -> BatchHead | None:
    """The first intact batch behind the damaged one at `position`; None when there is none in this file.

    `order` is where the batches before had come to. A value may have batches in it, as a dump of a log has: so a place
    that the damaged header does not name counts only where another batch, or the file's end, follows on.
    """
    size = file.size()
    header = file.read(HEADER_SIZE, position)
    if len(header) == HEADER_SIZE:
        fields = HEADER.unpack(header)
        named = position + fields[1] + LENGTH_OVERHEAD
        if not find_head_fault(fields, size - position) and (found := _batch_at(file, named, size, order, ends_at)):
            return found
    for at in _magic_bytes(file, position + 1, size):
        found = _batch_at(file, at, size, order, ends_at)
        if found and (found.end == size or _batch_at(file, found.end, size, _behind(order, found), ends_at)):
            return found
    return None


def _behind(order: Order, head: BatchHead) -> Order:
    return Order(order.first_offset, head.last_offset + 1, order.gaps, head.leader_epoch)


def _batch_at(file: File, position: int, size: int, order: Order, ends_at: int | None) -> BatchHead | None:
    """The batch that begins there, if it is whole and may follow."""
    header = file.read(HEADER_SIZE, position)
    if len(header) < HEADER_SIZE or (base := HEADER.unpack(header)[0]) < order.next_offset:
        return None
    own = Order(order.first_offset, base, leader_epoch=order.leader_epoch)
    try:
        head = next(walk_checked(file, position, size, own))
    except BatchFault:
        return None
    return head if ends_at is None or head.last_offset < ends_at else None


def _magic_bytes(file: File, start: int, size: int) -> Iterator[int]:
    """Places at which a header may begin: their magic is right."""
    for origin in range(start + MAGIC_AT, size, _CHUNK):
        chunk = file.read(min(_CHUNK, size - origin), origin)
        at = chunk.find(MAGIC)
        while at >= 0:
            yield origin + at - MAGIC_AT
            at = chunk.find(MAGIC, at + 1)


# `muster log recover`
# --------------------

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """What a recovery takes away: `size` bytes of the file from `position` on, and `later_segments` altogether.

    The records lost have offsets from `first_offset` on, up to `next_offset` (exclusive); None: the log ends there.
    """

    topic: str
    partition: int
    file: str
    position: int
    size: int
    first_offset: int
    next_offset: int | None
    later_segments: tuple[str, ...]
    why: str
    leader_epoch: int = 0
    """Of the empty batch that comes in its place."""


def recover_dir(data_dir: str, *, dry_run: bool, files: Files | None = None) -> list[DamagedRange]:
    """Find all damage in every partition and take it out; with `dry_run` only say what would go.

    Where a copy of a cluster's topic loses something, the directory counts as another disk's from the next start on.
    DataDirectoryError while a node is using the directory.
    """
    disk: Files = files or RealFiles()
    catalog = load_catalog(disk, data_dir)
    try:
        lock = disk.lock(f"{data_dir}/{LOCK}")
    except LockHeld as error:
        raise DataDirectoryError(
            f"The data directory {data_dir} is in use by process {error.holder or 'unknown'}. Stop it first.",
            error.holder,
        ) from None
    try:
        points, owners = _recovery_points(disk, data_dir, RECOVERY_POINTS)
        private, their_owners = _recovery_points(disk, data_dir, PRIVATE_POINTS)
        points, owners = merge_furthest(points, private), owners | their_owners
        cuts = []
        for entry in catalog.values():
            for number in entry.topic().here:
                tp = entry.name, number
                durable = points.get(tp, 0) if owners.get(entry.name, entry.id) == entry.id else 0
                cuts += find_cuts(disk, data_dir, tp, entry.compacted, durable, entry.holed)
        if cuts and not dry_run:
            if any(catalog[cut.topic].topic().held is not None for cut in cuts):
                # What is taken out may have been acknowledged: until it is copied anew, this copy is to lead nothing.
                count_as_another(disk, data_dir)
            _lower_recovery_points(disk, data_dir, cuts)
            for _, of_one in groupby(cuts, key=lambda cut: (cut.topic, cut.partition)):
                _apply(disk, list(of_one))
        return cuts
    finally:
        lock.release()


def find_cuts(
    files: Files, data_dir: str, tp: TopicPartition, compacted: bool, durable: int = 0, holed: bool = False
) -> list[DamagedRange]:
    """Where the partition's records are not intact, in order; `durable`: the offset up to which they once were."""
    directory = f"{data_dir}/{tp[0]}-{tp[1]}"
    if not files.is_dir(directory):
        return []
    bases, cuts = list_segment_bases(files, directory), list[DamagedRange]()
    expected, before, epoch = bases[0] if bases else 0, "", 0
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        path = segment_path(directory, base, ".log")
        if base < expected:
            why = f"its records begin at offset {base}, expected {expected}"
            later = tuple(segment_path(directory, other, ".log") for other in bases if other > base)
            return [*cuts, DamagedRange(*tp, path, 0, _size_of(files, path), expected, None, later, why)]
        if base > expected and not compacted:
            why = f"the next segment begins at offset {base}, expected {expected}"
            cuts.append(DamagedRange(*tp, before, _size_of(files, before), 0, expected, base, (), why, epoch))
        order = Order(base, base, holed or (compacted and following is not None), epoch)
        file = files.open(path, writable=False)
        try:
            for gap in find_gaps(file, order, following):
                at, size, first, goes_on, gap_epoch, why = gap
                cuts.append(DamagedRange(*tp, path, at, size, first, goes_on, (), why, gap_epoch))
            if following is None and order.next_offset < durable and not (cuts and cuts[-1].next_offset is None):
                why = f"the file ends early: the log went to offset {durable}"
                cuts.append(DamagedRange(*tp, path, file.size(), 0, order.next_offset, None, (), why))
        finally:
            file.close()
        expected, before, epoch = order.next_offset, path, max(order.leader_epoch, 0)
    return cuts


def _size_of(files: Files, path: str) -> int:
    file = files.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()


def _recovery_points(files: Files, data_dir: str, name: str) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """Nothing where nobody can read them: the logs themselves say where they end."""
    try:
        return read_checkpoint(files, f"{data_dir}/{name}")
    except DataDirectoryError:
        return {}, {}


def _lower_recovery_points(files: Files, data_dir: str, cuts: list[DamagedRange]) -> None:
    """First of all: nothing past the cuts counts as durable any more, so the next start is content with them."""
    for name in (RECOVERY_POINTS, PRIVATE_POINTS):
        points, owners = _recovery_points(files, data_dir, name)
        for cut in cuts:
            tp = (cut.topic, cut.partition)
            if cut.next_offset is None and (tp in points or name == RECOVERY_POINTS):
                points[tp] = min(points.get(tp, 0), cut.first_offset)
        write_offsets(files, f"{data_dir}/{name}", points, owners)
    mark = f"{data_dir}/{CLEAN_SHUTDOWN}"
    if files.exists(mark):
        files.remove(mark)
        files.sync_dir(data_dir)


def _apply(files: Files, cuts: list[DamagedRange]) -> None:
    """Those of one partition: its end first, so that places before it stay where they are."""
    if cuts[-1].next_offset is None:
        _cut_off(files, cuts.pop())
    for path, of_one in groupby(cuts, key=lambda cut: cut.file):
        _take_out(files, path, list(of_one))


def _cut_off(files: Files, cut: DamagedRange) -> None:
    directory = cut.file.rsplit("/", 1)[0]
    for path in reversed(cut.later_segments):
        files.remove(path)
    if not cut.position and len(list_segment_bases(files, directory)) > 1:
        files.remove(cut.file)
    else:
        file = files.open(cut.file)
        try:
            file.truncate(cut.position)
            file.sync()
        finally:
            file.close()
    files.sync_dir(directory)


def _take_out(files: Files, path: str, holes: Sequence[DamagedRange]) -> None:
    """Put the file without its unreadable parts in its place, by the steps of a compaction: no crash halves it."""
    directory, name = path.rsplit("/", 1)
    base = int(name.partition(".")[0])
    source, target = files.open(path, writable=False), files.open(path + CLEANED, create=True)
    try:
        target.truncate(0)
        end = at = 0
        for hole in holes:
            end = _copy(source, at, hole.position, target, end)
            assert hole.next_offset is not None, "the log goes on behind a hole"
            if hole.next_offset > hole.first_offset:
                filler = lost_records(hole.first_offset, hole.next_offset, hole.leader_epoch)
                target.write([filler], len(filler), end)
                end += len(filler)
            at = hole.position + hole.size
        _copy(source, at, source.size(), target, end)
        target.sync()
    finally:
        source.close()
        target.close()
    commit_cleaned(files, directory, base)
    known = load_summaries(files, directory)
    save_summaries(files, directory, [known[each] for each in known if each != base])
    doomed = retire_files(files, directory, [base])
    finish_swap(files, directory, base)
    for each in doomed:
        files.remove(each)


def _copy(source: File, start: int, end: int, target: File, at: int) -> int:
    """Append the bytes of [start, end) to what was written so far, `at` bytes; where that ends then."""
    while start < end:
        chunk = source.read(min(_COPY_BYTES, end - start), start)
        if not chunk:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        target.write([chunk], len(chunk), at)
        start, at = start + len(chunk), at + len(chunk)
    return at
